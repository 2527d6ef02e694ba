"""Keys that have several rows, as they were inserted again: upserts and deletes meet all of them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.index.lookup_index import pairs_of

SCHEMA = pa.schema([("k", pa.string()), ("part", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.table.ordering.fields": "ts",
    # Each batch inserts into file groups of its own.
    "hoodie.parquet.small.file.limit": 0,
    "lsm.read.threads": 1,
}
IN_PARTITIONS = ["SIMPLE", "BLOOM", "RECORD_LEVEL_INDEX"]
GLOBAL = ["GLOBAL_SIMPLE", "GLOBAL_BLOOM", "RECORD_INDEX"]
COW = {"hoodie.table.type": "COPY_ON_WRITE"}
KINDS: dict[str, dict[str, object]] = {
    "merge on read": {},
    "copy on write": COW,
    "version 9": {"hoodie.write.table.version": 9},
}
Row = tuple[str, str, int, int]


def rows(*found: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in found], SCHEMA)


def shown(table: LsmTable) -> list[Row]:
    return sorted(tuple(row[name] for name in SCHEMA.names) for row in table.scan().to_arrow().to_pylist())


def repeated(root: Path, index: str, *batches: list[Row], **options: object) -> LsmTable:
    table = LsmTable.create(root, SCHEMA, {**OPTIONS, "hoodie.index.type": index, **options})
    for batch in batches:
        table.insert(rows(*batch))
    assert len(shown(table)) == sum(map(len, batches))
    return table


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [*IN_PARTITIONS, *GLOBAL])
def test_an_upsert_changes_all_rows_of_a_key_and_a_delete_deletes_them(tmp_path: Path, index: str, kind: str) -> None:
    first: list[Row] = [("a", "x", 1, 1), ("b", "x", 1, 1), ("c", "x", 1, 1), ("d", "x", 1, 1)]
    second: list[Row] = [("b", "x", 2, 2), ("c", "x", 2, 2), ("d", "x", 2, 9)]
    table = repeated(tmp_path, index, first, second, second, **KINDS[kind])
    table.upsert(rows(("b", "x", 3, 3), ("new", "x", 3, 3), ("d", "x", 3, 3)))
    b, d = ("b", "x", 3, 3), [("d", "x", 3, 3), *[("d", "x", 2, 9)] * 2]
    c: list[Row] = [("c", "x", 1, 1), ("c", "x", 2, 2), ("c", "x", 2, 2)]
    assert shown(table) == [("a", "x", 1, 1), b, b, b, *c, *sorted(d), ("new", "x", 3, 3)]
    table.delete(rows(("c", "x", 0, 5)))
    assert [row for row in shown(table) if row[0] == "c"] == []
    table.delete(where="k = 'b'")
    assert [row[0] for row in shown(table)] == [*"addd", "new"]
    # A deleted row of another file group does not live again.
    table.upsert(rows(("b", "x", 6, 6), ("c", "x", 6, 6)))
    assert [row for row in shown(table) if row[0] in "bc"] == [("b", "x", 6, 6), ("c", "x", 6, 6)]


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("index", GLOBAL)
def test_rows_of_a_key_in_several_partitions(tmp_path: Path, index: str, moves: bool) -> None:
    option = f"hoodie.{index.removeprefix('GLOBAL_').removesuffix('_INDEX').lower()}.index.update.partition.path"
    table = repeated(
        tmp_path, index, [("a", "x", 1, 1), ("b", "x", 1, 1)], [("a", "y", 2, 2), ("b", "x", 2, 2)], **{option: moves}
    )
    table.upsert(rows(("a", "y", 3, 3), ("b", "z", 3, 3)))
    if moves:
        assert shown(table) == [("a", "y", 3, 3), ("b", "z", 3, 3)]
    else:
        assert shown(table) == [("a", "y", 3, 3)] * 2 + [("b", "z", 3, 3)] * 2
    table.delete(rows(("a", "y", 0, 4), ("b", "y", 0, 4)))
    assert shown(table) == []


@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_SIMPLE"])
def test_keys_that_were_inserted_at_random(tmp_path: Path, index: str) -> None:
    draw = random.Random(7)
    table = LsmTable.create(tmp_path, SCHEMA, {**OPTIONS, "hoodie.index.type": index})
    model: list[Row] = []
    for step in range(1, 16):
        keys = [f"k{number}" for number in sorted(draw.sample(range(12), 4))]
        kind = draw.choice(["insert", "insert", "upsert", "delete"])
        batch: list[Row] = [(key, "x", step, step) for key in keys]
        known = {row[0] for row in model}
        if kind == "insert":
            table.insert(rows(*batch))
            model += batch
        elif kind == "upsert":
            table.upsert(rows(*batch))
            changed = {row[0]: row for row in batch}
            model = [changed.get(row[0], row) for row in model] + [row for row in batch if row[0] not in known]
        else:
            table.delete(rows(*batch))
            model = [row for row in model if row[0] not in keys]
        assert shown(table) == sorted(model)
        if step == 9:
            table.compact()


def test_rows_are_joined_with_the_further_file_groups_of_their_keys() -> None:
    places, again = np.array([3, 0, 3, 1]), np.array([0, 3, 3, 7])
    pairs = sorted(zip(*(found.tolist() for found in pairs_of(places, again)), strict=True))
    assert pairs == [(row, nth) for row, key in enumerate(places) for nth, other in enumerate(again) if key == other]
