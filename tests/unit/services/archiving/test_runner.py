"""Archiving real tables: what leaves the timeline, and what is read as before."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import CommitConflict, ConfigError, CorruptFileError, LsmError, ReadOvertaken, StorageError
from streaming_lsm.file_group.lost_files import lost_files
from streaming_lsm.format.history import ArchivedInstant, HistoryFile, Manifest
from streaming_lsm.services.archiving.runner import Archiver
from streaming_lsm.storage.base import Names
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.archive import HISTORY_FOLDER, History
from streaming_lsm.timeline.archiving import HistoryWriter, NewFile
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Action, Instant, State
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from tests.oracle.reader import read_snapshot
from tests.support.crash_points import random_cases, sample
from tests.support.faulty_storage import Fault, FaultyStorage, Interrupted, Killed
from tests.support.interleaving import Driver
from tests.support.replaced_groups import put_replacement
from tests.support.service_tables import OPTIONS_OF_SERVICES, Model, assert_sound, put_savepoint
from tests.support.small_tables import create, data_files, rows, shown

KEEP: dict[str, object] = {
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
    "hoodie.clean.commits.retained": 2,
}
BY_HAND = {**KEEP, "hoodie.archive.automatic": False}
FAULTS = tuple(Fault)


def made(root: Path, commits: int, **options: object) -> tuple[LsmTable, Model]:
    """A table of many commits, and its rows."""
    table = create(root, **{**OPTIONS_OF_SERVICES, **BY_HAND, **options})
    model: Model = {}
    grow(table, model, 0, commits)
    return table, model


def grow(table: LsmTable, model: Model, begin: int, end: int) -> None:
    """A commit of a row each."""
    for number in range(begin, end):
        row = (f"k{number % 7}", "nl", number, number)
        table.upsert(rows(row))
        model[row[0]] = row


def reopened(table: LsmTable, **options: object) -> LsmTable:
    values = {**OPTIONS_OF_SERVICES, **BY_HAND, **options}
    return LsmTable(table.path, {key: value for key, value in values.items() if value is not None})


def root_of(table: LsmTable) -> Path:
    return Path(table.path.removeprefix("file://"))


def active(table: LsmTable) -> set[Action]:
    return {instant.of_action for instant in table.timeline.instants}


def archived(table: LsmTable) -> list[Action]:
    """The archived actions, read without the package."""
    folder = root_of(table) / HISTORY_FOLDER
    if not (folder / "_version_").exists():
        return []
    manifest = json.loads((folder / f"manifest_{(folder / '_version_').read_text()}").read_text())
    tables = [pq.read_table(folder / file["fileName"]) for file in manifest["files"]]
    for file in manifest["files"]:
        assert (folder / file["fileName"]).stat().st_size == file["fileLen"]
    found = [(row["instantTime"], row["action"]) for each in tables for row in each.to_pylist()]
    assert found == sorted(found)
    return found


def all_actions(table: LsmTable) -> list[Action]:
    return sorted([*archived(table), *active(table)])


def test_a_long_stream_leaves_few_files_on_the_timeline_and_reads_as_one_that_is_not_archived(tmp_path: Path) -> None:
    rows_of: dict[bool, list[object]] = {}
    count = random_cases(70, 45)
    for automatic in (True, False):
        options = {"hoodie.archive.automatic": automatic, "hoodie.clean.automatic": True}
        table = create(tmp_path / str(automatic), **options)
        most = 0
        for number in range(count):
            table.upsert(rows((f"k{number % 7}", "nl", number, number)))
            most = max(most, len(list((root_of(table) / TIMELINE_FOLDER).glob("*.*"))))
        assert (most <= 60) == automatic
        found = LsmTable(table.path)
        first = found.incremental("000").to_arrow().select(["id", "qty"]).to_pylist()
        changed = found.changes("000").to_arrow().select(["op", "before", "after"]).to_pylist()
        images = [
            (change["op"], *((change[image] or {}).get("qty") for image in ("before", "after"))) for change in changed
        ]
        assert len(images) == count
        times = sorted([*found.timeline.history.writes(), *(w.requested for w in found.timeline.completed_writes)])
        assert len(times) == count
        past = [shown(found, as_of=time) for time in times[::10]]
        rows_of[automatic] = [sorted(shown(found)), first, images, past]
        assert_sound(found, {row[0]: row for row in shown(found)})
    assert rows_of[True] == rows_of[False]


def test_of_each_archived_action_the_history_has_what_its_files_had(tmp_path: Path) -> None:
    table, model = made(tmp_path, 8, **{"hoodie.clean.commits.retained": 1})
    table.compact()
    grow(table, model, 8, 11)
    table.clean()
    grow(table, model, 11, 16)
    folder = tmp_path / TIMELINE_FOLDER
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    before, times = active(table), {instant: instant.completed for instant in table.timeline.instants}
    done = table.archive()
    assert len(done) == 15
    assert {found.completes_as for found in done} == {"deltacommit", "commit", "clean"}
    assert before == set(all_actions(table))
    read = pq.read_table(folder / "history" / f"{done[0].requested}_{done[-1].requested}_0.parquet").to_pylist()
    for row, action in zip(read, done, strict=True):
        assert (row["instantTime"], row["action"], row["version"]) == (action.requested, action.action, 1)
        assert row["completionTime"] == times[action]
        assert row["metadata"] == files[action.file_name]
        planned = {"commit": "compaction", "clean": "clean"}.get(action.action)
        assert row["plan"] == (files[f"{action.requested}.{planned}.requested"] if planned else None)
    assert not [name for name in files if name[:17] in {a.requested for a in done} and (folder / name).exists()]
    assert_sound(table, model)


def test_history_files_are_merged_by_level_and_old_ones_deleted(tmp_path: Path) -> None:
    table, model = made(tmp_path, 0, **{"hoodie.archive.automatic": True})
    grow(table, model, 0, 130)
    files = History(table.storage).manifest.files
    assert [file.level for file in files] == sorted([file.level for file in files], reverse=True)
    assert max(file.level for file in files) == 1
    assert len(files) < 25
    assert len(archived(table)) == len(set(archived(table))) >= 125
    folder = tmp_path / HISTORY_FOLDER
    manifests = list(folder.glob("manifest_*"))
    assert len(manifests) < 20
    named = {file.name for path in manifests for file in Manifest.decode(path.read_bytes(), "").files}
    assert {path.name for path in folder.glob("*.parquet")} == named
    assert_sound(table, model)


def test_a_replaced_file_group_keeps_its_replacecommit_until_it_is_cleaned(tmp_path: Path) -> None:
    table, _ = made(tmp_path, 2)
    last = int(table.timeline.last_time)
    groups = tuple({found.file_id for found in table.file_slices()})
    replacing = put_replacement(table.storage, f"{last + 1}", f"{last + 2}", {"nl": groups})
    grow(reopened(table), {}, 2, 10)
    before = shown(table)
    preview = table.services.preview_archive()
    assert preview.bound is not None
    assert preview.bound.time == replacing.requested
    assert len(table.archive()) == 2
    assert shown(reopened(table)) == before
    assert table.clean() is not None
    assert replacing in table.archive()
    assert shown(reopened(table)) == before


def test_a_replacecommit_stays_until_the_clean_of_its_file_groups_is_completed(tmp_path: Path) -> None:
    table, _ = made(tmp_path, 2)
    last = int(table.timeline.last_time)
    groups = tuple({found.file_id for found in table.file_slices()})
    replacing = put_replacement(table.storage, f"{last + 1}", f"{last + 2}", {"nl": groups})
    grow(reopened(table), {}, 2, 10)
    before = shown(table)
    cleaned = table.clean()
    assert cleaned is not None
    (tmp_path / cleaned.path).unlink()  # as if the process had died before
    interrupted = reopened(table)
    assert replacing not in interrupted.archive()
    assert shown(reopened(table)) == before
    assert interrupted.clean() is not None
    assert replacing in interrupted.archive()
    assert shown(reopened(table)) == before


def test_a_savepoint_ends_the_archiving(tmp_path: Path) -> None:
    table, model = made(tmp_path, 8)
    saved = table.timeline.completed_writes[2]
    put_savepoint(table, saved.requested, [])
    assert [action.requested for action in table.archive()] == [
        write.requested for write in table.timeline.history.writes().values()
    ]
    assert len(archived(table)) == 2
    assert_sound(table, model)


def long_compaction(table: LsmTable, model: Model, begin: int, end: int) -> Instant:
    """A compaction that was planned before the writes and completed after them."""
    planned, _ = table.services.schedule()
    assert planned is not None
    grow(table, model, begin, end)
    table.compact()
    return next(write for write in table.timeline.completed_writes if write.requested == planned.requested)


def test_a_long_compaction_stays_until_the_writes_completed_before_it_are_archived(tmp_path: Path) -> None:
    table, model = made(tmp_path, 3)
    compaction = long_compaction(table, model, 3, 11)
    expected = sorted(model.values())
    grow(table, model, 11, 12)
    table.archive()
    assert compaction in table.timeline.completed_writes
    table.rollback()
    assert shown(table) == expected
    grow(table, model, 11, 15)
    table.archive()
    assert compaction not in table.timeline.completed_writes
    assert_sound(table, model)


def test_slices_are_cleaned_that_long_compactions_superseded(tmp_path: Path) -> None:
    table, model = made(tmp_path, 3, **{"hoodie.archive.automatic": True, "hoodie.clean.automatic": True})
    for batch in range(3, 48, 15):
        long_compaction(table, model, batch, batch + 11)
        grow(table, model, batch + 11, batch + 15)
    bases = [name for name in data_files(tmp_path) if "log" not in name and "history" not in name]
    assert len(bases) <= 4
    assert_sound(table, model)


def test_a_table_is_restored_to_a_savepoint_that_was_made_while_a_compaction_ran(tmp_path: Path) -> None:
    table, model = made(tmp_path, 3)
    planned, _ = table.services.schedule()
    grow(table, model, 3, 4)
    saved, expected = table.savepoint(), sorted(model.values())
    table.compact()
    grow(table, model, 4, 12)
    assert table.archive()
    assert planned is not None
    assert planned.requested in {write.requested for write in table.timeline.completed_writes}
    table.restore(saved.requested)
    assert shown(table) == expected


def test_a_history_file_that_a_dead_process_left_with_other_actions_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = made(tmp_path, 1)
    for batch in range(1, 4):
        with table.transaction() as failing:
            failing.begin()
        grow(table, model, batch, batch + 1)
    grow(table, model, 4, 7)

    def die(*_: object) -> object:
        raise InterruptedError

    monkeypatch.setattr(HistoryWriter, "_publish", die)
    with pytest.raises((InterruptedError, LsmError)):
        table.archive()
    monkeypatch.undo()
    first = table.timeline.completed_writes[0].requested
    table.savepoint(first)
    assert {action.action for action in table.archive()} == {"rollback"}
    table.delete_savepoint(first)
    assert [action.action for action in table.archive()] == ["deltacommit"] * 3
    grow(table, model, 7, 9)
    assert table.archive()
    assert len(table.timeline.completed_writes) == 3
    assert_sound(table, model)


def test_a_merged_file_that_a_dead_process_left_with_other_actions_holds_up_nothing(tmp_path: Path) -> None:
    table, model = made(tmp_path, 4)
    batch = 4
    while len(table.timeline.history.manifest.files) < 9:
        grow(table, model, batch, batch + 1)
        table.archive()
        batch += 1
    first, last = table.timeline.history.manifest.files[0].first, table.timeline.completed_writes[1].requested
    left = NewFile.of([ArchivedInstant(first, first, "deltacommit", b"x", None)])
    path = f"{HISTORY_FOLDER}/{HistoryFile.name_of(first, last, 1)}"
    table.storage.put_if_absent(path, left.data)
    grow(table, model, batch, batch + 2)
    assert table.archive()[-1].requested == last
    assert [file.level for file in table.timeline.history.manifest.files] == [1, 0]
    assert_sound(table, model)


def test_a_stream_cleans_what_a_savepoint_kept_when_that_is_deleted(tmp_path: Path) -> None:
    table, model = made(tmp_path, 3, **{"hoodie.archive.automatic": True, "hoodie.clean.automatic": True})
    saved, kept = table.savepoint(), data_files(tmp_path)
    table.insert_overwrite(rows(("z", "nl", 1, 1)))
    model = {"z": ("z", "nl", 1, 1)}
    grow(table, model, 3, 9)
    assert kept <= data_files(tmp_path)
    LsmTable(table.path).delete_savepoint(saved.requested)
    grow(table, model, 9, 13)
    assert not kept & data_files(tmp_path)
    assert len(table.timeline.completed_writes) <= 4
    assert_sound(table, model)


def test_files_of_a_metadata_table_that_was_dropped_keep_nothing(tmp_path: Path) -> None:
    table, model = made(
        tmp_path / "t", 7, **{"hoodie.metadata.enable": True, "hoodie.metadata.compact.max.delta.commits": 9}
    )
    assert str(table.services.preview_archive()) == "nothing to archive: the metadata table is not compacted since"
    kept = shutil.copytree(tmp_path / "t/.hoodie/metadata", tmp_path / "kept")
    grow(reopened(table, **{"hoodie.metadata.enable": False}), model, 7, 8)
    # Its writer was killed before it deleted them, and those after it have no option that says to.
    shutil.copytree(kept, tmp_path / "t/.hoodie/metadata")
    table = reopened(table)
    grow(table, model, 8, 12)
    assert len(table.archive()) == 9
    assert shown(table) == sorted(model.values())


def test_the_write_with_the_newest_ledger_stays(tmp_path: Path) -> None:
    """Writes of other programs have none: a batch of ours that is replayed after them is still known."""
    table, _ = made(tmp_path, 1)
    table = reopened(table, **{"lsm.writer.id": "stream"})
    table.upsert(rows(("k0", "nl", 1, 1)), batch_id=7)
    newest = table.timeline.completed_writes[-1]
    others_write(table, 8)
    table = reopened(table, **{"lsm.writer.id": "stream"})
    assert [action.requested for action in table.archive()] == [table.timeline.history.last]
    assert newest in table.timeline.completed_writes
    assert table.upsert(rows(("k0", "nl", 9, 9)), batch_id=7) is None


def others_write(table: LsmTable, count: int) -> None:
    """Commits of another program, without files and ledger, after the newest one."""
    newest = table.timeline.completed_writes[-1]
    commit = table.timeline.read_commit(newest)
    without = commit.__class__(**{**_fields(commit), "extra": {"schema": commit.extra["schema"]}, "stats": ()})
    for number in range(count):
        time = f"{int(newest.requested) + 100 + number}"
        other = Instant(time, "deltacommit", State.REQUESTED)
        for path in other.pending_paths():
            table.storage.put_if_absent(path, b"")
        table.storage.put_if_absent(other.completed_at(f"{int(time) + 50}").path, without.encode())


def go_back(table: LsmTable, saved: str | None) -> None:
    """Restore a savepoint, or roll the last write back."""
    if saved is None:
        table.rollback()
    else:
        table.restore(saved)


@pytest.mark.parametrize("way", ["restore", "rollback"])
def test_the_ledger_of_a_state_stays_to_which_the_table_may_return(tmp_path: Path, way: str) -> None:
    table, _ = made(tmp_path, 1)
    stream = {"lsm.writer.id": "stream"}
    assert reopened(table, **stream).upsert(rows(("k0", "nl", 1, 1)), batch_id=7) is not None
    table = reopened(table, **stream)
    others_write(table, 8)
    table = reopened(table, **stream)
    saved = table.savepoint().requested if way == "restore" else None
    if saved is not None:
        for number in range(8, 18):
            table.upsert(rows(("k1", "nl", number, number)), batch_id=number)
    else:
        table.upsert(rows(("k1", "nl", 8, 8)), batch_id=8)
    table.archive()
    assert table.timeline.history.writes()
    go_back(table, saved)
    assert reopened(table, **stream).upsert(rows(("k0", "nl", 9, 9)), batch_id=7) is None
    assert reopened(table, **stream).upsert(rows(("k1", "nl", 9, 9)), batch_id=8) is not None


def test_the_table_does_not_return_to_a_state_whose_ledger_another_program_has_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = made(tmp_path, 1)
    stream = {"lsm.writer.id": "stream"}
    reopened(table, **stream).upsert(rows(("k0", "nl", 1, 1)), batch_id=7)
    table = reopened(table, **stream)
    others_write(table, 8)
    table = reopened(table, **stream)
    saved = table.savepoint().requested
    table.upsert(rows(("k1", "nl", 8, 8)), batch_id=8)
    # Hudi's archiver knows no ledgers.
    monkeypatch.setattr("streaming_lsm.services.archiving.runner.with_ledger", lambda timeline, writes: None)
    table.archive()
    for back in (lambda: table.restore(saved), table.rollback):
        with pytest.raises(ConfigError, match=r"has the ledger of writers of .* is archived, so that batches might be"):
            back()


@pytest.mark.parametrize("way", ["restore", "rollback"])
def test_the_table_returns_to_a_state_whose_archived_ledger_has_no_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    table, _ = made(tmp_path, 2)
    others_write(table, 8)
    table = reopened(table)
    saved, before = table.savepoint().requested, shown(table)
    table.upsert(rows(("k1", "nl", 8, 8)))
    monkeypatch.setattr("streaming_lsm.services.archiving.runner.with_ledger", lambda timeline, writes: None)
    table.archive()
    assert table.timeline.history.writes()
    go_back(table, saved if way == "restore" else None)
    assert shown(reopened(table)) == before


def test_a_batch_is_not_written_again_whose_commit_is_archived(tmp_path: Path) -> None:
    """Each later commit of another writer has carried its ledger on."""
    table, _ = made(tmp_path, 1)
    first = reopened(table, **{"lsm.writer.id": "first"}).upsert(rows(("k0", "nl", 1, 1)), batch_id=7)
    assert first is not None
    table = reopened(table, **{"lsm.writer.id": "second", "hoodie.archive.automatic": True})
    for number in range(9):
        table.upsert(rows(("k1", "nl", number, number)), batch_id=number)
    assert first not in table.timeline.completed_writes
    assert table.timeline.is_archived(first.requested)
    before = table.timeline.instants
    assert reopened(table, **{"lsm.writer.id": "first"}).upsert(rows(("k0", "nl", 9, 9)), batch_id=7) is None
    assert LsmTable(table.path).timeline.instants == before
    assert ("k0", "nl", 1, 1) in shown(table)


def _fields(commit: object) -> dict[str, object]:
    return {name: getattr(commit, name) for name in commit.__dataclass_fields__}  # type: ignore[attr-defined]


def test_compactions_of_a_job_count_the_delta_commits_that_are_archived(tmp_path: Path) -> None:
    table, model = made(tmp_path, 12)
    table.archive()
    assert len(table.timeline.completed_writes) == 3
    options = {"hoodie.compact.inline.max.delta.commits": 12}
    worker = reopened(table, **options).services.compaction_worker(table._engine)
    assert list(worker.look())
    assert_sound(table, model)
    grow(table, model, 12, 23)
    table.archive()
    assert list(worker.look()) == []
    grow(table, model, 23, 24)
    assert list(worker.look())


def test_time_travel_over_a_clean_that_is_archived_is_refused(tmp_path: Path) -> None:
    table, model = made(tmp_path, 4, **{"hoodie.clean.commits.retained": 1})
    past = table.timeline.completed_writes[0]
    table.compact()
    grow(table, model, 4, 6)
    table.compact()
    grow(table, model, 6, 8)
    cleaned = reopened(table, **{"hoodie.clean.commits.retained": 1}).clean()
    assert cleaned is not None
    grow(table, model, 8, 14)
    assert cleaned.requested in {action.requested for action in table.archive()}
    for time in (past.requested, past.completed):
        with pytest.raises(ReadOvertaken, match="files of that time were cleaned"):
            shown(reopened(table), as_of=time)
    assert shown(reopened(table), as_of=table.timeline.completed_writes[-1].requested) == sorted(model.values())


def test_a_writer_that_was_idle_while_a_pending_compaction_was_completed_and_archived_lists_again(
    tmp_path: Path,
) -> None:
    table, model = made(tmp_path, 3)
    table.services.schedule()
    grow(table, model, 3, 6)
    idle = reopened(table)
    idle.upsert(rows(("k0", "nl", 100, 100)))
    model["k0"] = ("k0", "nl", 100, 100)
    table.compact()
    assert table.archive()
    idle.upsert(rows(("k1", "nl", 101, 101)))
    model["k1"] = ("k1", "nl", 101, 101)
    assert_sound(reopened(table), model)


def test_an_archived_instant_is_not_drawn_again_nor_rolled_back_by_a_late_task(tmp_path: Path) -> None:
    """A file that a task leaves of a write whose rollback is archived: it is no file of an archived write."""
    table, model = made(tmp_path / "t", 3)
    write = MEANWHILE["write"]
    counted = Driver(shutil.copytree(tmp_path / "t", tmp_path / "counted"), write).calls
    decided = next(call for call, (_, path) in enumerate(counted) if path.startswith(f"{DECISION_FOLDER}/"))
    dead = Driver(tmp_path / "t", write, dies_at=decided)
    assert isinstance(dead.error, Killed)
    (pending,) = table.timeline.pending
    assert Driver(tmp_path / "t", lambda opened: grow(opened, model, 3, 12)).error is None
    assert table.archive()
    assert pending.requested not in {time for time, _ in all_actions(table)}
    late = next(path for path in sorted((tmp_path / "t" / "nl").iterdir()) if path.suffix == ".parquet")
    name = late.name.replace(late.name.split("_")[2], f"{pending.requested}")
    shutil.copy(late, late.with_name(name))
    by_oracle = sorted(tuple(row.values()) for row in read_snapshot(tmp_path / "t").to_pylist())
    assert shown(reopened(table)) == by_oracle == sorted(model.values())


# --- processes that die, and that are stopped -----------------------------------------------------------------------


def archive(table: LsmTable) -> object:
    return table.archive()


def calls_of(root: Path, folder: Path) -> list[tuple[str, str]]:
    driver = Driver(shutil.copytree(root, folder / "counted"), archive, **BY_HAND)
    assert driver.error is None
    return driver.calls


def test_an_archived_write_whose_files_are_still_on_the_timeline_is_neither_saved_nor_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = made(tmp_path, 6)
    monkeypatch.setattr(Archiver, "_delete_archived", lambda archiver: None)  # dies before that
    gone = table.archive()
    newest = gone[-1].requested
    assert {write.requested for write in gone} < {write.requested for write in table.timeline.completed_writes}
    for refused in (table.savepoint, table.rollback):
        with pytest.raises(ConfigError, match=f"the write {newest} of .* is archived"):
            refused(newest)
    for _ in range(2):
        table.rollback()
    with pytest.raises(ConfigError, match="the last write before it, is archived"):
        table.rollback()
    monkeypatch.undo()
    assert shown(table) == sorted(row for row in model.values() if row[2] < 4)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[LsmTable, Model]:
    """A table whose next archiving merges history files, too; tests copy it."""
    table, model = made(tmp_path_factory.mktemp("many") / "template", 5)
    for number in range(5, 23, 2):
        table.archive()
        grow(table, model, number, number + 2)
    assert len(History(table.storage).manifest.files) == 9
    return table, model


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_archiving_that_dies_at_any_call_loses_no_action(
    many: tuple[LsmTable, Model], tmp_path: Path, fault: Fault
) -> None:
    template, model = many
    before = all_actions(template)
    calls = calls_of(root_of(template), tmp_path)
    assert len(calls) > 60
    for call in sample(range(len(calls)), FAULTS.index(fault) * 30, 199):
        root = shutil.copytree(root_of(template), tmp_path / f"{call}")
        table = LsmTable(root, template.options)
        table.storage = FaultyStorage(table.storage, {call: fault})
        with suppress(Killed, OSError, LsmError):
            table.archive()
        left = LsmTable(root, template.options)
        assert set(all_actions(left)) == set(before), calls[call]
        assert shown(left) == sorted(model.values()), calls[call]
        grown = dict(model)
        grow(left, grown, 30, 31)
        left.archive()
        every = all_actions(left)
        assert len(every) == len(set(every)) == len(before) + 1, calls[call]
        assert len(left.timeline.completed_writes) <= 4
        assert_sound(left, grown)
        shutil.rmtree(root)


MEANWHILE: dict[str, Callable[[LsmTable], object]] = {
    "archive": archive,
    "write": lambda table: table.upsert(rows(("k0", "nl", 500, 500))),
    "write and archive much": lambda table: [
        (table.upsert(rows(("k0", "nl", 500 + number, 500 + number))), table.archive()) for number in range(24)
    ],
    "compact and clean": lambda table: [table.compact(), table.clean()],
}
_LAST = {"write": 500, "write and archive much": 523}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_archiving_that_is_stopped_at_any_call_and_resumes_later_loses_no_action(
    many: tuple[LsmTable, Model], tmp_path: Path, meanwhile: str
) -> None:
    template, before = many
    calls = calls_of(root_of(template), tmp_path)
    for call in sample(range(len(calls)), list(MEANWHILE).index(meanwhile) * 30, 199):
        root, model = shutil.copytree(root_of(template), tmp_path / f"{call}"), dict(before)
        stopped = Driver(root, archive, call, **BY_HAND)
        other = Driver(root, MEANWHILE[meanwhile], **BY_HAND)
        assert other.error is None or isinstance(other.error, CommitConflict), other.error
        if meanwhile in _LAST and other.error is None:
            model["k0"] = ("k0", "nl", _LAST[meanwhile], _LAST[meanwhile])
        known = set(all_actions(LsmTable(root)))
        stopped.go_on()
        table = LsmTable(root, template.options)
        assert shown(table) == sorted(model.values()), calls[call]
        assert set(all_actions(table)) == known, calls[call]
        grow(table, model, 600, 602)
        table.archive()
        every = all_actions(table)
        assert len(every) == len(set(every)) == len(known) + 2, calls[call]
        assert_sound(table, model)
        shutil.rmtree(root)


class Torn(LocalStorage):
    """Lists the timeline as it may be seen while files are deleted: some that are gone, and not all that were there."""

    def __init__(self, root: Path, names: Names) -> None:
        super().__init__(root)
        self.seen: Names | None = names

    def names(self, folder: str) -> Names:
        if folder == TIMELINE_FOLDER and self.seen is not None:
            seen, self.seen = self.seen, None
            return seen
        return super().names(folder)


@pytest.mark.parametrize("use", ["read", "write"])
def test_a_listing_made_while_files_are_deleted_makes_no_archived_write_look_dead(tmp_path: Path, use: str) -> None:
    table, model = made(tmp_path, 9)
    before = table.storage.names(TIMELINE_FOLDER)
    done = {action.file_name for action in table.archive()}
    torn = reopened(table)
    torn.storage = Torn(tmp_path, [name for name in before if name not in done])
    files = data_files(tmp_path)
    if use == "write":
        grow(torn, model, 9, 10)
    assert shown(torn) == sorted(model.values())
    assert files <= data_files(tmp_path)
    assert_sound(reopened(table), model)


def test_a_data_file_of_an_archived_write_that_is_gone_is_named(tmp_path: Path) -> None:
    table, _ = made(tmp_path, 9)
    done = table.archive()
    (lost, *_) = sorted(path for path in (tmp_path / "nl").iterdir() if done[1].requested in path.name)
    lost.unlink()
    for use in (lambda: shown(reopened(table)), lambda: reopened(table).compact()):
        with pytest.raises(CorruptFileError, match=f"{lost.name} .*is gone, though .*{done[1].requested}"):
            use()


# --- what is absent or damaged --------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["gone", "torn", "other"])
def test_a_lost_history_file_is_named_by_whoever_needs_it_and_the_stream_goes_on(tmp_path: Path, damage: str) -> None:
    table, model = made(tmp_path, 9)
    table.archive()
    (path,) = (tmp_path / HISTORY_FOLDER).glob("*.parquet")
    spoil(path, damage)
    grow(table, model, 9, 15)
    with pytest.raises(CorruptFileError, match=path.name):
        shown(reopened(table))
    known = active(table)
    # It needs younger files only, until files are to be merged.
    assert {action.of_action for action in table.archive()} == known - active(table)
    with pytest.raises(CorruptFileError, match=path.name):
        archive_much(table)
    assert len(History(table.storage).manifest.files) == 10


def archive_much(table: LsmTable) -> None:
    for number in range(15, 60):
        grow(table, {}, number, number + 1)
        table.archive()


def spoil(path: Path, damage: str) -> None:
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "torn" else b"PAR1 no such file")


@pytest.mark.parametrize("damage", ["torn", "other"])
def test_a_damaged_manifest_is_named_and_nothing_is_archived(tmp_path: Path, damage: str) -> None:
    table, model = made(tmp_path, 9)
    table.archive()
    spoil(tmp_path / HISTORY_FOLDER / "manifest_1", damage)
    grow(table, model, 9, 15)
    with pytest.raises(CorruptFileError, match="manifest_1"):
        reopened(table).archive()
    assert len(active(table)) == 9


def test_a_history_without_its_folder_is_as_before_anything_was_archived(tmp_path: Path) -> None:
    """Archived writes count as completed at their requested times (docs/format/10-rules.md, "Rule 9")."""
    table, model = made(tmp_path, 9)
    table.archive()
    shutil.rmtree(tmp_path / HISTORY_FOLDER)
    assert shown(reopened(table)) == sorted(model.values())


def test_a_manifest_that_names_a_file_outside_is_refused(tmp_path: Path) -> None:
    table, model = made(tmp_path, 9)
    table.archive()
    grow(table, model, 9, 15)
    manifest = tmp_path / HISTORY_FOLDER / "manifest_1"
    manifest.write_text(manifest.read_text().replace('"20', '"../20'))
    with pytest.raises(CorruptFileError, match="is not the name of a history file"):
        reopened(table).archive()


def test_limits_that_contradict_each_other_are_refused_when_the_table_is_opened(tmp_path: Path) -> None:
    table, _ = made(tmp_path, 1)
    with pytest.raises(ConfigError, match=r"hoodie\.keep\.min\.commits=2 is not more than"):
        reopened(table, **{"hoodie.keep.min.commits": 2})


def test_files_that_a_dead_archiver_left_are_deleted_though_nothing_is_due(tmp_path: Path) -> None:
    counted = reopened(made(tmp_path / "counted", 9)[0])
    counted.storage = counting = FaultyStorage(counted.storage)
    counted.archive()
    last = max(number for number, (name, path) in enumerate(counting.calls) if name == "delete_files" and "_" in path)
    table, model = made(tmp_path / "t", 9)
    dying = reopened(table)
    dying.storage = FaultyStorage(dying.storage, {last: Fault.KILL_BEFORE})
    with pytest.raises(Killed):
        dying.archive()
    table = reopened(table, **{"hoodie.keep.min.commits": 30, "hoodie.keep.max.commits": 40})
    left = [write for write in table.timeline.completed_writes if table.timeline.is_archived(write.requested)]
    assert left
    assert table.archive() == ()
    assert not [write for write in table.timeline.instants if table.timeline.is_archived(write.requested)]
    assert shown(table) == sorted(model.values())


def test_a_history_file_that_cannot_be_read_at_present_is_not_damaged(tmp_path: Path) -> None:
    class Refusing(LocalStorage):
        def open_input(self, path: str) -> pa.NativeFile:
            if "history" in path:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return super().open_input(path)

    table, _ = made(tmp_path, 9)
    assert table.archive()
    table = reopened(table)
    table.storage = Refusing(tmp_path)
    with pytest.raises(StorageError, match="history"):
        table.incremental("000").to_arrow()


@pytest.mark.parametrize("log", [False, True], ids=["compaction", "log-compaction"])
def test_files_of_a_late_compaction_of_a_replaced_file_group_are_not_missed(tmp_path: Path, log: bool) -> None:
    """It is planned while a deletion of its partition is in flight, and stays longer than the replacecommit."""
    options: dict[str, object] = {
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
        "hoodie.log.compaction.blocks.threshold": 2,
    }
    table, _ = made(tmp_path / "table", 3, **options)
    table.upsert(rows(("k", "de", 1, 1)))

    def delete(opened: LsmTable) -> object:
        return opened.delete_partitions(["nl"])

    calls = Driver(Path(shutil.copytree(tmp_path / "table", tmp_path / "counted")), delete, **BY_HAND, **options).calls
    inflight = next(n for n, (call, path) in enumerate(calls) if call == "vacate" and path.endswith("/lock"))
    plans: list[object] = []
    other = reopened(table, **options)
    deleting = reopened(table, **options)
    deleting.storage = Interrupted(
        deleting.storage, inflight + 1, lambda: plans.append(other.services.schedule(log=log)[0])
    )
    done = deleting.delete_partitions(["nl"])
    (planned,) = plans
    assert isinstance(planned, Instant)
    assert done.requested < planned.requested < (done.completed or "")
    for number in range(2):
        table.upsert(rows(("k", "de", number, number)))
    table = reopened(table, **options)
    compacted = table.services.compact(LocalEngine(1), log=log)[0]
    assert compacted is not None
    assert compacted.requested == planned.requested
    table.upsert(rows(("k", "de", 4, 4)))
    assert table.clean() is not None
    table.archive()
    found = reopened(table, **options)
    assert found.timeline.is_archived(done.requested)
    assert not found.timeline.is_archived(planned.requested)
    assert shown(found) == [("k", "de", 4, 4)]
    # As after a commit of another program, which does not record the files.
    view = found.file_system_view()
    assert list(lost_files(view, {(one.partition_path, one.file_id): one for one in view.slices()})) == []
