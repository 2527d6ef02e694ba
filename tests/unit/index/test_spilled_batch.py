"""A batch that memory does not hold ends in the same rows as one that it holds, in tables without buckets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm import LsmTable

KEYS = 2500
HELD, SPILLED = 256 << 20, 1 << 20
SCHEMA = pa.schema(
    [("k", pa.string()), ("p", pa.string()), ("ts", pa.int64()), ("seq", pa.int64()), ("note", pa.string())]
)
EVENTS = pa.schema([*SCHEMA, ("_lsm_delete", pa.bool_())])
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.simple.index.update.partition.path": True,
    "hoodie.record.index.update.partition.path": True,
    "lsm.write.arrival.fields": "seq",
}
INDEXES = ["SIMPLE", "GLOBAL_SIMPLE", "RECORD_INDEX"]


@pytest.fixture(autouse=True)
def _quiet_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def events(seed: int, ts: int, *, deletes: float = 0.2) -> pa.Table:
    """Three events of each key in any partition, with and without equal ordering values, in no order of arrival."""
    rng = np.random.default_rng(seed)
    count = 3 * KEYS
    deleted = rng.random(count) < deletes
    unordered = deleted & (rng.random(count) < 0.5)
    names = pa.array([f"key-{number % KEYS:05d}" for number in range(count)])
    order = pa.array(rng.permutation(count))
    columns: list[Any] = [
        names,
        pa.array(np.array(["a", "b", "c"])[rng.integers(0, 3, count)]),
        pa.array(ts + rng.integers(0, 3, count), mask=unordered),
        pa.array(rng.permutation(count)),
        pa.array([f"{number:040d}" for number in rng.integers(0, 1000, count)]),
        pa.array(deleted),
    ]
    return pa.Table.from_arrays(columns, schema=EVENTS).take(order)


def snapshot(root: Path) -> list[tuple[Any, ...]]:
    found = LsmTable(root).scan(columns=["k", "p", "ts", "note"]).to_arrow()
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("ordering", ["ts", None])
def test_it_moves_and_deletes_the_same_rows(tmp_path: Path, index: str, ordering: str | None) -> None:
    found = []
    for buffer in (HELD, SPILLED):
        root = tmp_path / str(buffer)
        options = {**OPTIONS, "hoodie.index.type": index, "lsm.write.buffer.bytes": buffer}
        if ordering is not None:
            options["hoodie.table.ordering.fields"] = ordering
        table = LsmTable.create(root, SCHEMA, options)
        for step in range(2):
            batch = events(step, 10 + step)
            table.upsert(pa.Table.from_batches(batch.combine_chunks().to_batches(max_chunksize=700)))
            assert table.last_numbers is not None
            assert (table.last_numbers.spilled_bytes > 0) == (buffer == SPILLED)
        found.append(snapshot(root))
        if index == "RECORD_INDEX":
            assert table.check_indexes().findings == ()
            keys = sorted({row[0] for row in found[-1]})
            looked_up = LsmTable(root, {"hoodie.metadata.enable": True}).lookup(keys)
            assert sorted(looked_up.column("k").to_pylist()) == keys
    assert found[0] == found[1]
    assert len(found[0]) > 600


@pytest.mark.parametrize("operation", ["insert", "bulk_insert", "upsert"])
@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_SIMPLE"])
def test_a_key_in_two_partitions_is_as_many_rows(tmp_path: Path, index: str, operation: str) -> None:
    found = []
    batch = events(5, 10, deletes=0.0).drop_columns(["_lsm_delete"])
    for buffer in (HELD, SPILLED):
        options = {**OPTIONS, "hoodie.index.type": index, "lsm.write.buffer.bytes": buffer}
        table = LsmTable.create(tmp_path / str(buffer), SCHEMA, {**options, "hoodie.table.ordering.fields": "ts"})
        getattr(table, operation)(pa.Table.from_batches(batch.combine_chunks().to_batches(max_chunksize=700)))
        found.append(snapshot(tmp_path / str(buffer)))
    assert found[0] == found[1]
    assert (len(found[0]) == KEYS) == (index == "GLOBAL_SIMPLE" and operation == "upsert")


def test_it_fills_small_groups_before_it_begins_new_ones(tmp_path: Path) -> None:
    limit = 400_000
    options: dict[str, object] = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "k",
        "hoodie.index.type": "SIMPLE",
        "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
        "hoodie.parquet.max.file.size": limit,
        "hoodie.parquet.small.file.limit": 300_000,
        "hoodie.copyonwrite.record.size.estimate": 60,
        "lsm.write.buffer.bytes": SPILLED,
        "lsm.parquet.row.group.rows": 1024,
    }
    rng = np.random.default_rng(0)

    def rows(first: int, count: int) -> pa.Table:
        return pa.table(
            {"k": [f"key-{n}" for n in range(first, first + count)], "v": [rng.bytes(20).hex() for _ in range(count)]}
        )

    table = LsmTable.create(tmp_path, rows(0, 1).schema, options)
    table.upsert(rows(0, 500))
    (small,) = table.file_slices()
    table.upsert(pa.Table.from_batches(rows(500, 30_000).to_batches(max_chunksize=1000)))
    assert table.last_numbers is not None
    assert table.last_numbers.spilled_bytes > 0
    sizes = {one.file_id: one.size for one in LsmTable(tmp_path).file_slices()}
    assert sizes[small.file_id] > 2 * small.size
    assert len(sizes) > 2
    assert max(sizes.values()) < 1.2 * limit
    assert LsmTable(tmp_path).scan().count() == 30_500
