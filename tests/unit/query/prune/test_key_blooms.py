"""Filters by equality on the record key: the rows of a whole scan, and the row groups that bloom filters leave out."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.query.prune.keys import wanted_keys
from streaming_lsm.query.prune.predicate import EQUAL, Comparison, Every, Membership, Some
from tests.support.crash_points import combined
from tests.support.small_tables import create as create_small
from tests.support.small_tables import rows

TEXT, NUMBER = pa.string(), pa.int64()
COW: dict[str, object] = {"hoodie.table.type": "COPY_ON_WRITE"}
V9: dict[str, object] = {"hoodie.write.table.version": 9}
TABLES: dict[str, dict[str, object]] = {
    "10, merge on read": {},
    "10, copy on write": COW,
    "10, default layout": {"hoodie.table.storage.layout": "default"},
    "9, merge on read": V9,
    "9, copy on write": {**V9, **COW},
}


@dataclass(frozen=True)
class Keys:
    """The columns of a record key, and the type of the first."""

    fields: str
    kind: pa.DataType
    options: dict[str, object]

    def values(self, numbers: list[int]) -> pa.Array:
        texts = pa.array([f"k{number:03d}" for number in numbers], TEXT)
        return texts if self.kind == TEXT else pa.array(numbers, self.kind)


KEYS = {
    "texts": Keys("id", TEXT, {}),
    "long": Keys("id", NUMBER, {}),
    "int": Keys("id", pa.int32(), {}),
    "composite": Keys("id,line", NUMBER, {}),
    "one column of COMPLEX": Keys(
        "id", TEXT, {"hoodie.table.keygenerator.type": "COMPLEX", "hoodie.datasource.write.partitionpath.field": "line"}
    ),
}


def batch(keys: Keys, numbers: list[int], ts: int) -> pa.Table:
    lines = pa.array([f"l{number % 2}" for number in numbers], TEXT)
    stamps = pa.array([ts] * len(numbers), NUMBER)
    return pa.table({"id": keys.values(numbers), "line": lines, "ts": stamps, "qty": stamps})


def written(root: Path, keys: Keys, options: dict[str, object], draw: random.Random) -> LsmTable:
    schema = pa.schema([("id", keys.kind), ("line", TEXT), ("ts", NUMBER), ("qty", NUMBER)])
    common: dict[str, object] = {
        "hoodie.table.name": "blooms",
        "hoodie.datasource.write.recordkey.field": keys.fields,
        "hoodie.table.ordering.fields": "ts",
        "hoodie.bucket.index.num.buckets": 2,
        "lsm.parquet.row.group.rows": 8,
        "lsm.read.threads": 1,
    }
    table = LsmTable.create(root, schema, {**common, **keys.options, **options})
    table.bulk_insert(batch(keys, draw.sample(range(0, 300, 2), 120), 1))
    for ts in (2, 3):
        table.upsert(batch(keys, draw.sample(range(0, 300, 3), 30), ts))
        table.delete(batch(keys, draw.sample(range(0, 300, 2), 15), ts).drop_columns(["qty"]))
    return table


def filters(keys: Keys, draw: random.Random) -> list[Callable[[], pc.Expression]]:
    field, line = pc.field("id"), pc.field("line")
    some = keys.values([draw.randrange(300) for _ in range(4)])
    odd = keys.values([151])
    return [
        lambda: (field == odd[0]) & (line == "l1"),
        lambda: (field == some[0]) & line.isin(["l0", "l1"]),
        lambda: field.isin(some) & (line == "l0"),
        lambda: ((field == some[1]) | (field == some[2])) & (pc.field("qty") >= 2) & line.isin(["l0", "l1"]),
        lambda: ~(field == some[0]),
        lambda: (field == some[0]) | (pc.field("qty") == 3),
    ]


PAIRS = dict.fromkeys(pair for offset in (0, 1) for pair in combined(offset, list(TABLES), list(KEYS)))
"""Each kind of keys in two kinds of tables at least."""


@pytest.mark.parametrize(("options", "name"), PAIRS)
def test_a_filter_by_keys_has_the_rows_of_the_whole_scan(tmp_path: Path, name: str, options: str) -> None:
    draw, keys = random.Random(f"{name} {options}"), KEYS[name]
    table, skipped = written(tmp_path / "table", keys, TABLES[options], draw), 0
    whole = table.scan(meta=True).to_arrow()
    for wanted in [make() for _ in range(3) for make in filters(keys, draw)]:
        scan = table.scan(filter=wanted, meta=True)
        order = [("_hoodie_partition_path", "ascending"), ("_hoodie_record_key", "ascending")]
        expected = whole.filter(wanted).sort_by(order).to_pylist()
        assert scan.to_arrow().sort_by(order).to_pylist() == expected, str(wanted)
        skipped += scan.explain().counts.by_bloom
    assert (skipped == 0) == (options == "9, merge on read")


def sparse(root: Path, **options: object) -> LsmTable:
    """A hundred even keys in one slice, of row groups of ten rows, and a log of three."""
    table = create_small(root, **{"lsm.parquet.row.group.rows": 10, "hoodie.bucket.index.num.buckets": 1, **options})
    table.bulk_insert(rows(*((f"k{number:03}", "DE", 1, number) for number in range(0, 200, 2))))
    table.upsert(rows(("k000", "DE", 2, 7), ("k044", "DE", 2, 7), ("k100", "DE", 2, 7)))
    return table


def test_an_absent_key_inside_the_ranges_is_read_by_a_filter_as_by_a_look_up(tmp_path: Path) -> None:
    table = sparse(tmp_path)
    told = table.scan(filter="id = 'k045'").explain()
    assert str(told).splitlines() == [
        "partitions: 1 of 1 read",
        "file slices: 1 of 1 read",
        "files: 0 of 2 read; 2 skipped by keys and statistics",
        "row groups: 0 of 11 read; 9 skipped by key range, 2 skipped by bloom filters",
        "rows to merge: 0",
    ]
    assert str(table.explain_lookup(["k045"])) == str(told)
    assert table.scan(filter="id = 'k044'").to_arrow().num_rows == 1


def test_a_look_up_tells_the_buckets_that_it_skips(tmp_path: Path) -> None:
    table = create_small(tmp_path, **{"hoodie.bucket.index.num.buckets": 4})
    table.bulk_insert(rows(*((f"k{number:03}", "DE", 1, number) for number in range(100))))
    told = table.explain_lookup(["k045"])
    assert (told.slices, told.skipped.by_bucket) == (1, 3)
    assert "file slices: 1 of 4 read; 3 skipped by bucket" in str(told)


@pytest.mark.parametrize("by_key", [False, True])
def test_a_slice_with_inline_logs_is_told_as_read_whole(tmp_path: Path, *, by_key: bool) -> None:
    table = sparse(tmp_path, **V9)
    told = table.explain_lookup(["k045"]) if by_key else table.scan(filter="id = 'k045'").explain()
    assert str(told).splitlines()[2:] == [
        "files: 2 of 2 read",
        "row groups: 10 of 10 read",
        "file slices read whole: 1 (merged by hash, or of 100 files or more)",
        "rows to merge: 100, and those of 1 inline log, read whole",
    ]
    found = told.as_dict()["row_groups"]
    assert isinstance(found, dict)
    assert (found["row_groups"], found["rows"], found["whole_slices"], found["inline_logs"]) == (10, 100, 1, 1)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Comparison("_hoodie_record_key", EQUAL, pa.scalar("a")), ["a"]),
        (Membership("_hoodie_record_key", pa.array(["b", "a", "b"])), ["a", "b"]),
        (Membership("_hoodie_record_key", pa.array([], TEXT)), []),
        (Membership("_hoodie_record_key", pa.array(["a"]), nulls=True), None),
        (Membership("_hoodie_record_key", pa.array([str(number) for number in range(2000)])), None),
        (Comparison("_hoodie_record_key", EQUAL, pa.scalar(1)), None),
        (Every(()), None),
        (
            Some((Comparison("_hoodie_record_key", EQUAL, pa.scalar("a")), Comparison("id", EQUAL, pa.scalar("b")))),
            None,
        ),
    ],
    ids=str,
)
def test_the_keys_of_a_predicate_are_known_or_not(predicate: Every | Some, expected: list[str] | None) -> None:
    found = wanted_keys(predicate)
    assert (None if found is None else list(found.texts)) == expected
