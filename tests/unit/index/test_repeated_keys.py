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


MOVES = [("a", "x", 9, 9)], [("a", "y", 2, 2)]
OLD = [("a", "x", 1, 1)], [("a", "y", 1, 1)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "more", [{}, {"hoodie.combine.before.upsert": False}, {"lsm.write.arrival.fields": "v"}], ids=["", "all", "ordered"]
)
def test_each_row_of_a_key_that_moves_is_decided_by_its_own_ordering_value(
    tmp_path: Path, kind: str, more: dict[str, object]
) -> None:
    cases: list[tuple[tuple[list[Row], ...], list[Row], list[Row]]] = [
        (MOVES, [("a", "z", 3, 3)], [("a", "x", 9, 9), ("a", "z", 3, 3)]),
        (MOVES, [("a", "y", 3, 3)], [("a", "x", 9, 9), ("a", "y", 3, 3)]),
        (MOVES, [("a", "x", 3, 3)], [("a", "x", 9, 9)]),
        (MOVES[::-1], [("a", "z", 3, 3)], [("a", "x", 9, 9), ("a", "z", 3, 3)]),
        (OLD, [("a", "x", 1, 3), ("a", "z", 2, 4), ("a", "x", 3, 2)], [("a", "z", 2, 4)]),
        (OLD, [("a", "x", 1, 3), ("a", "y", 2, 4), ("a", "z", 3, 2)], [("a", "y", 2, 4)]),
    ]
    options = {**KINDS[kind], **more}
    for number, (inserted, batch, expected) in enumerate(cases):
        table = repeated(tmp_path / str(number), "GLOBAL_SIMPLE", *inserted, **options)
        table.upsert(rows(*batch))
        assert shown(table) == expected, number


@pytest.mark.parametrize("combine", [True, False])
def test_a_row_that_moved_in_a_run_before_does_not_live_again(tmp_path: Path, combine: bool) -> None:
    spills = {"lsm.write.buffer.bytes": 1 << 20, "hoodie.combine.before.upsert": combine}
    table = repeated(tmp_path, "GLOBAL_SIMPLE", *OLD, **spills)
    others = [(f"k{number:06d}", "w", number, 1) for number in range(30_000)]
    table.upsert(rows(("a", "x", 1, 3), ("a", "z", 2, 4), *others, ("a", "x", 3, 2)))
    assert table.last_numbers is not None
    assert table.last_numbers.spilled_bytes > 0
    assert [row for row in shown(table) if row[0] == "a"] == [("a", "z", 2, 4)]


@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_SIMPLE"])
def test_copies_of_events_take_no_more_memory_than_the_events_may(tmp_path: Path, index: str) -> None:
    kept = {"hoodie.simple.index.update.partition.path": False}
    table = LsmTable.create(
        tmp_path, SCHEMA, {**OPTIONS, **kept, "hoodie.index.type": index, "lsm.write.buffer.bytes": 1 << 20}
    )
    keys = [f"k{number:06d}" for number in range(2000)]
    for step in range(20):
        table.insert(rows(*((key, "x", step, step) for key in keys)))
    table.upsert(rows(*((key, "x", 50, 50) for key in keys)))
    numbers = table.last_numbers
    assert numbers is not None
    assert (numbers.rows_in, numbers.rows_deduplicated, numbers.rows_deleted) == (2000, 0, 0)
    assert numbers.spilled_bytes > 0
    assert numbers.peak_bytes < 2 << 20
    assert shown(table) == sorted((key, "x", 50, 50) for key in keys for _ in range(20))
    table.delete(rows(*((key, "x", 0, 60) for key in keys[:5])))
    assert table.last_numbers is not None
    assert (table.last_numbers.rows_in, table.last_numbers.rows_deduplicated) == (5, 0)


def test_rows_are_joined_with_the_further_file_groups_of_their_keys() -> None:
    places, again = np.array([3, 0, 3, 1]), np.array([0, 3, 3, 7])
    pairs = sorted(zip(*(found.tolist() for found in pairs_of(places, again)), strict=True))
    assert pairs == [(row, nth) for row, key in enumerate(places) for nth, other in enumerate(again) if key == other]
