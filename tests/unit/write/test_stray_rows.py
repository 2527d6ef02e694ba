"""Rows that stay in another partition than their columns name: filters on these columns find them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "stays",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.metadata.enable": True,
    "lsm.read.threads": 1,
}
STAYS: dict[str, dict[str, object]] = {
    "GLOBAL_SIMPLE": {"hoodie.simple.index.update.partition.path": False},
    "GLOBAL_BLOOM": {"hoodie.bloom.index.update.partition.path": False},
    "RECORD_INDEX": {},
}


def rows(*given: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in given], SCHEMA)


def found(table: LsmTable, part: str) -> set[str]:
    return set(table.scan(filter=pc.field("part") == part).to_arrow()["id"].to_pylist())


def skipped(table: LsmTable) -> int:
    return table.scan(filter=pc.field("part") == "a").explain().skipped.partitions


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
@pytest.mark.parametrize("index", STAYS)
def test_a_filter_on_the_partition_column_finds_a_row_that_stayed_elsewhere(
    index: str, kind: str, tmp_path: Path
) -> None:
    options = {**OPTIONS, "hoodie.index.type": index, "hoodie.table.type": kind, **STAYS[index]}
    table = LsmTable.create(tmp_path, SCHEMA, options)
    reader = LsmTable(tmp_path)
    table.upsert(rows(("k", "a", 1), ("l", "b", 1), ("m", "a", 1)))
    table.upsert(rows(("k", "a", 2), ("n", "c", 2)))
    assert skipped(table) == skipped(reader) == 2
    assert found(reader, "a") == {"k", "m"}
    table.upsert(rows(("k", "c", 3), ("l", "b", 3)))
    for one in (table, reader, LsmTable(tmp_path, {"hoodie.metadata.enable": True})):
        assert (found(one, "a"), found(one, "b"), found(one, "c")) == ({"m"}, {"l"}, {"k", "n"})
        assert skipped(one) == 0
    table.delete(where="part = 'c'")
    assert set(table.scan().to_arrow()["id"].to_pylist()) == {"l", "m"}


@pytest.mark.parametrize("index", ["SIMPLE", "RECORD_INDEX"])
def test_partitions_are_skipped_where_rows_move_or_are_two(index: str, tmp_path: Path) -> None:
    moves = {"hoodie.index.type": index, "hoodie.record.index.update.partition.path": True}
    table = LsmTable.create(tmp_path, SCHEMA, {**OPTIONS, **moves})
    table.upsert(rows(("k", "a", 1), ("l", "b", 1)))
    table.upsert(rows(("k", "b", 2)))
    assert found(table, "b") == {"k", "l"}
    assert skipped(table) == 1
