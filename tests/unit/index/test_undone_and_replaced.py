"""An open table does not take file groups or files for live that another process has replaced or undone."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.storage.local import LocalStorage

SCHEMA = pa.schema([("k", pa.string()), ("p", pa.string()), ("v", pa.int64())])
SHARED: dict[str, object] = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
    "hoodie.write.num.retries.on.conflict.failures": 0,
}
PATIENCE_S = 60


def rows(part: str, value: int) -> pa.Table:
    return pa.table({"k": [f"{part}{n}" for n in range(5)], "p": [part] * 5, "v": [value] * 5}, schema=SCHEMA)


class StoppedCompaction:
    """A compaction in a thread of its own, which waits where it reads the first data file."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._waits, self._goes_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=LsmTable(root, SHARED).compact, daemon=True)
        original, main = LocalStorage.open_input, threading.current_thread()

        def open_input(storage: LocalStorage, path: str) -> pa.NativeFile:
            if threading.current_thread() is not main:
                self._waits.set()
                assert self._goes_on.wait(PATIENCE_S)
            return original(storage, path)

        monkeypatch.setattr(LocalStorage, "open_input", open_input)

    def begin(self) -> None:
        self._thread.start()
        assert self._waits.wait(PATIENCE_S)

    def end(self) -> None:
        self._goes_on.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("index", ["BUCKET", "SIMPLE"])
def test_a_replaced_group_is_not_live_again_when_its_replacement_is_archived(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, object] = {
        **SHARED,
        "hoodie.table.name": "replaced",
        "hoodie.datasource.write.recordkey.field": "k",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.index.type": index,
        "lsm.read.threads": 1,
    }
    table = LsmTable.create(tmp_path, SCHEMA, options)
    for batch in (rows("x", 1), rows("x", 2), rows("y", 1)):
        table.upsert(batch)
    compaction = StoppedCompaction(tmp_path, monkeypatch)

    def new_rows() -> Iterator[pa.RecordBatch]:
        LsmTable(tmp_path, SHARED).services.schedule()
        compaction.begin()
        yield from rows("z", 1).to_batches()

    overwriting, other = LsmTable(tmp_path, SHARED), LsmTable(tmp_path, SHARED)
    overwriting.insert_overwrite_table(pa.RecordBatchReader.from_batches(SCHEMA, new_rows()))
    for value in (2, 3):
        table.upsert(rows("y", value))
    compaction.end()
    other.clean()
    other.archive()
    left = [path.name for path in (tmp_path / ".hoodie/timeline").iterdir()]
    assert any(name.endswith(".commit") for name in left)
    assert not any(name.endswith(".replacecommit") for name in left)
    assert not list((tmp_path / "x").glob("*.parquet"))

    table.upsert(rows("x", 4))
    table.upsert(rows("y", 5))
    found = LsmTable(tmp_path).scan(columns=["p", "v"]).to_arrow().to_pylist()
    assert sorted((row["p"], row["v"]) for row in found) == [("x", 4)] * 5 + [("y", 5)] * 5 + [("z", 1)] * 5


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
@pytest.mark.parametrize("index", ["BUCKET", "SIMPLE"])
def test_a_write_that_was_undone_is_not_taken_for_archived(index: str, kind: str, tmp_path: Path) -> None:
    options: dict[str, object] = {
        **SHARED,
        "hoodie.table.name": "undone",
        "hoodie.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "k",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.index.type": index,
    }
    table = LsmTable.create(tmp_path, SCHEMA, options)
    for batch in (rows("x", 1), rows("x", 2), rows("y", 1)):
        table.upsert(batch)
    other = LsmTable(tmp_path, SHARED)

    def new_rows() -> Iterator[pa.RecordBatch]:
        table.upsert(rows("z", 1))
        yield from rows("x", 9).to_batches()

    def failing() -> Iterator[pa.RecordBatch]:
        raise RuntimeError("the source has failed")
        yield

    undone = other.upsert(pa.RecordBatchReader.from_batches(SCHEMA, new_rows()))
    assert undone is not None
    with pytest.raises(RuntimeError, match="the source has failed"):  # the open table has seen the write
        table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, failing()))
    other.rollback(undone.requested)
    for value in (2, 3):
        other.upsert(rows("z", value))
    other.clean()
    other.archive()
    assert undone.requested < LsmTable(tmp_path).timeline.first

    table.upsert(rows("y", 4))
    table.upsert(rows("x", 5))
    found = LsmTable(tmp_path).scan(columns=["p", "v"]).to_arrow().to_pylist()
    assert sorted((row["p"], row["v"]) for row in found) == [("x", 5)] * 5 + [("y", 4)] * 5 + [("z", 3)] * 5


def test_a_table_that_is_created_again_gets_told_of_rows_in_partitions_of_others(tmp_path: Path) -> None:
    options: dict[str, object] = {
        "hoodie.table.name": "again",
        "hoodie.datasource.write.recordkey.field": "k",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.index.type": "GLOBAL_SIMPLE",
        "hoodie.simple.index.update.partition.path": False,
    }
    table = LsmTable.create(tmp_path, SCHEMA, options)
    for _ in range(2):
        for part, value in (("x", 1), ("y", 2)):
            table.upsert(pa.table({"k": ["a"], "p": [part], "v": [value]}, schema=SCHEMA))
        assert LsmTable(tmp_path).scan(filter="p = 'y'").to_arrow().column("v").to_pylist() == [2]
        shutil.rmtree(tmp_path)
        LsmTable.create(tmp_path, SCHEMA, options)
