"""Every kind of action on tables with a metadata table, in all versions; and services that die on the way.

They die at one in 29 of the calls on either timeline and on the metadata table, at others for each kind of
fault; with LSM_ALL_FAULTS=1 at every call.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import LsmError
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.table.file_names import LogFileName, parse_file_name
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.metadata.listing import metadata_listing
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER
from tests.support.crash_points import EVERY_CALL, sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.metadata_tables import (
    assert_agrees,
    assert_settled,
    delta_commits,
    has_metadata_table,
    metadata_timeline,
)
from tests.support.service_tables import OPTIONS_OF_SERVICES, Model, grow
from tests.support.small_tables import create, rows, shown

KEPT = {**OPTIONS_OF_SERVICES, "hoodie.metadata.enable": True, "hoodie.clean.commits.retained": 1}
FAULTS = tuple(Fault)
EVERY_FOURTH = {**KEPT, "hoodie.metadata.compact.max.delta.commits": 4}


@pytest.fixture(autouse=True)
def _disk_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    # Processes die in these tests, machines do not.
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.mark.parametrize("version", [8, 9, 10])
@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_every_kind_of_action_is_told_to_the_metadata_table(tmp_path: Path, version: int, kind: str) -> None:
    table = create(
        tmp_path, **{**EVERY_FOURTH, "hoodie.write.table.version": version, "hoodie.datasource.write.table.type": kind}
    )
    table.bulk_insert(rows(*[(f"b{n}", "de", 0, n) for n in range(4)]))
    assert_settled(tmp_path)
    model: Model = {f"b{n}": (f"b{n}", "de", 0, n) for n in range(4)}
    for batch in range(6):
        grow(table, model, batch)
        assert_settled(tmp_path)
        if batch % 2 and kind == "MERGE_ON_READ":
            assert table.compact()
            assert_settled(tmp_path)
        if batch >= 3 and table.clean():
            assert_settled(tmp_path)
    assert shown(table) == sorted(model.values())
    own = metadata_timeline(tmp_path)
    done = {found.requested for found in table.timeline.instants if found.is_completed}
    assert {time for time in done if not own.history.has_time(time)} <= {found.requested for found in own.instants}
    assert {"clean", "commit"} <= {found.action for found in table.timeline.instants}
    assert [found for found in own.instants if found.action == "commit"]


@pytest.mark.parametrize("version", [9, 10])
def test_an_unpartitioned_table_is_listed_as_one_partition(tmp_path: Path, version: int) -> None:
    table = create(
        tmp_path,
        **{**KEPT, "hoodie.write.table.version": version, "hoodie.datasource.write.partitionpath.field": None},
    )
    table.upsert(rows(("a", "nl", 1, 1)))
    assert_settled(tmp_path)
    assert list(metadata_listing(table.storage, table.timeline)) == [""]


def test_version_ten_has_native_logs_and_version_nine_inline_ones(tmp_path: Path) -> None:
    for version in (9, 10):
        table = create(tmp_path / str(version), **{**KEPT, "hoodie.write.table.version": version})
        table.upsert(rows(("a", "nl", 1, 1)))
        folder = tmp_path / str(version) / ".hoodie/metadata"
        assert f"hoodie.table.version={version}\n" in (folder / ".hoodie/hoodie.properties").read_text()
        logs = [path for path in (folder / "files").iterdir() if ".log." in path.name]
        assert len(logs) == 2
        for path in logs:
            name = parse_file_name(path.name)
            assert isinstance(name, LogFileName) is (version == 10)
            if version == 10:
                info = HFile.open(path.read_bytes(), path.name).info
                assert b'"VERSION":"2"' in info["hudi.log.format.metadata"]


def test_a_change_of_the_version_makes_it_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = create(tmp_path, **{**KEPT, "hoodie.write.table.version": 9})
    table.upsert(rows(("a", "nl", 1, 1)))
    for version in (10, 9):
        with caplog.at_level(logging.WARNING):
            table = table.change_version(version)
        assert "its files are of the version before" in caplog.text
        assert not has_metadata_table(tmp_path)
        table.upsert(rows(("b", "nl", 1, version)))
        assert_settled(tmp_path)
    assert shown(table) == [("a", "nl", 1, 1), ("b", "nl", 1, 9)]


def grown(root: Path) -> Path:
    """A table in which there is something to compact and something to clean."""
    table = create(root, **{**EVERY_FOURTH, "hoodie.write.table.version": 9})
    model: Model = {}
    for batch in range(3):
        grow(table, model, batch)
        if batch < 2:
            table.compact()
    return root


def again(root: Path, run: Callable[[LsmTable], object], fault: dict[int, Fault] | None = None) -> FaultyStorage:
    table = LsmTable(root, EVERY_FOURTH)
    faulty = FaultyStorage(LocalStorage(root), fault or {})
    table.storage = faulty
    with suppress(Killed, OSError, LsmError):
        run(table)
    return faulty


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("run", [LsmTable.compact, LsmTable.clean], ids=["compaction", "clean"])
def test_a_service_that_dies_leaves_it_right(tmp_path: Path, run: Callable[[LsmTable], object], fault: Fault) -> None:
    template = grown(tmp_path / "template")
    shutil.copytree(template, tmp_path / "unharmed")
    calls = again(tmp_path / "unharmed", run).calls
    assert len(delta_commits(metadata_timeline(tmp_path / "unharmed"))) == 1 + len(
        delta_commits(metadata_timeline(template))
    )
    expected = shown(LsmTable(template))
    chosen = [
        call for call, (_, path) in enumerate(calls) if EVERY_CALL or path.startswith((METADATA_TABLE, TIMELINE_FOLDER))
    ]
    for call in sample(chosen, FAULTS.index(fault) * 6, 29):
        root = tmp_path / "copy"
        shutil.copytree(template, root)
        again(root, run, {call: fault})
        if run is LsmTable.compact:
            assert_agrees(root)
        again(root, run)
        assert_settled(root)
        assert shown(LsmTable(root)) == expected
        again(root, lambda table: table.upsert(rows(("z", "nl", 1, 1))))
        assert_settled(root)
        shutil.rmtree(root)
