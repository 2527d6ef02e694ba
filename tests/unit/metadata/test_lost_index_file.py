"""A file of an index that is gone is missed: what asks the index goes on without it, and answers as before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.format.metadata.group_files import FIRST_INSTANT
from tests.support.small_tables import SCHEMA, create, rows, shown

READS = {"hoodie.metadata.enable": True}
OPTIONS: dict[str, object] = {
    **READS,
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.metadata.global.record.level.index.min.filegroup.count": 1,
    "hoodie.parquet.small.file.limit": 0,
}
OFTEN = {**OPTIONS, "hoodie.metadata.compact.max.delta.commits": 1}
SECONDARY = "secondary_index_qty"


def events(*, deleted: str, inserted: str, ts: int) -> pa.Table:
    """A delete and a new row: a commit of both logs records and deletes in one file group of an index."""
    flagged = rows((deleted, "be", ts, 1), (inserted, "be", ts, 1))
    return flagged.append_column("_lsm_delete", pa.array([True, False]))


@pytest.fixture(autouse=True)
def _quiet_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture(scope="module", params=[9, 10])
def root(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    root = tmp_path_factory.mktemp("table") / "whole"
    others = {"hoodie.write.table.version": request.param, "hoodie.bucket.index.num.buckets": None}
    table = create(root, SCHEMA, **OPTIONS, **others)
    table.upsert(rows(*((f"k{number}", "be", 1, 1) for number in range(2))))
    table.create_index(SECONDARY, {"hoodie.metadata.index.secondary.column": "qty"})
    for step in range(2):
        table.upsert(events(deleted=f"k{step}", inserted=f"new{step}", ts=2 + step))
    return root


@pytest.mark.parametrize("index", ["record_index", SECONDARY])
def test_each_file_of_an_index_is_missed(
    root: Path, tmp_path: Path, index: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = shown(LsmTable(root, READS))
    assert [row[0] for row in expected] == [f"new{step}" for step in range(2)]
    folder = root / ".hoodie/metadata" / index
    names = sorted(path.name for path in folder.iterdir() if ".hoodie_" not in path.name and path.suffix != ".crc")
    missed = 0
    for name in names:
        copy = tmp_path / name
        shutil.copytree(root, copy)
        (copy / ".hoodie/metadata" / index / name).unlink()
        caplog.clear()
        for wanted in ("qty = 1", "id IN ('new0', 'new1')"):
            assert shown(LsmTable(copy, READS), filter=wanted) == expected, (name, wanted)
        missed += f"{index} is not read" in caplog.text
        # Compactions of the metadata table are among these commits.
        for step in range(2):
            LsmTable(copy, OFTEN).upsert(rows(*((f"new{number}", "be", 20 + step, 1) for number in range(2))))
        changed = [(row[0], "be", 21, 1) for row in expected]
        for wanted in (None, "qty = 1", "id IN ('new0', 'new1')"):
            assert shown(LsmTable(copy, READS), filter=wanted) == changed, (name, wanted)
        shutil.rmtree(copy)

    # The log with which a write begins an index has no records.
    assert missed == sum(FIRST_INSTANT[:14] not in name for name in names)
