"""Savepoints: what they keep, what is refused, and a savepoint and a clean that are stopped at any storage call."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.errors import (
    CommitConflict,
    CommitUnknown,
    ConfigError,
    CorruptFileError,
    Fenced,
    LsmError,
    ReadOvertaken,
)
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from tests.oracle.validator import validate
from tests.support.crash_points import sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.interleaving import Driver
from tests.support.service_tables import OPTIONS_OF_SERVICES, Model, assert_sound, cleans, grow, grown, reopened
from tests.support.small_tables import Row, create, data_files, rows, shown

RETAIN_ONE = {"hoodie.clean.commits.retained": 1}
ARCHIVED = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}


def savepoint_names(table: LsmTable) -> list[str]:
    return [name for name in table.storage.names(TIMELINE_FOLDER) if ".savepoint" in name]


def saved(root: Path, **options: object) -> tuple[LsmTable, Model, str, list[Row]]:
    """A table with a savepoint of its last write, and the rows that it keeps."""
    table, model = grown(root, batches=3, **{**RETAIN_ONE, **options})
    made = table.savepoint(user="ann", comment="before the change")
    return table, model, made.requested, sorted(model.values())


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_the_rows_of_a_savepoint_stay_after_writes_compactions_cleans_and_archiving(tmp_path: Path, kind: str) -> None:
    table, model, time, expected = saved(tmp_path, **{"hoodie.table.type": kind, **ARCHIVED})
    kept = data_files(tmp_path)
    for batch in range(3, 9):
        grow(table, model, batch)
        table.compact()
        table.clean()
        table.archive()
    assert cleans(table)
    assert shown(table, as_of=time) == expected
    if kind == "MERGE_ON_READ":
        assert kept <= data_files(tmp_path)
        assert_sound(table, model)
    assert [write.requested for write in table.timeline.completed_writes if write.requested <= time]
    (found,) = table.savepoints
    assert (found.instant.requested, found.user, found.comment) == (time, "ann", "before the change")
    assert validate(tmp_path) == []


def test_a_savepoint_whose_completed_file_is_lost_loses_no_file_and_can_be_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    table, model, time, expected = saved(tmp_path, **ARCHIVED)
    kept = data_files(tmp_path)
    (completed,) = (tmp_path / TIMELINE_FOLDER).glob("*_*.savepoint")
    completed.unlink()
    for batch in range(3, 6):
        grow(table, model, batch)
        table.compact()
        with pytest.raises(CorruptFileError, match=f"{time}.savepoint.inflight .* has no completed instant file"):
            table.clean()
    assert kept <= data_files(tmp_path)
    assert shown(table, as_of=time) == expected
    assert main(["verify", str(tmp_path)]) == 1
    assert f"{time}.savepoint.inflight" in capsys.readouterr().out
    # It is not made anew, as a failure would delete the last trace of it.
    with pytest.raises(CorruptFileError, match=f"{time}.savepoint.inflight .* has no completed instant file"):
        table.savepoint(time)
    assert main(["savepoint", str(tmp_path), "--list"]) == 0
    assert f"{time}.savepoint.inflight" in caplog.messages[-1]
    assert main(["savepoint", str(tmp_path), time, "--delete", "--dry-run"]) == 0
    assert savepoint_names(table) == [f"{time}.savepoint.inflight"]
    assert main(["savepoint", str(tmp_path), time, "--delete"]) == 0
    assert savepoint_names(table) == []
    assert table.clean() is not None


def test_without_its_savepoint_a_state_is_cleaned_and_archived(tmp_path: Path) -> None:
    table, model, time, _ = saved(tmp_path, **ARCHIVED)
    for batch in range(3, 7):
        grow(table, model, batch)
        table.compact()
    table.delete_savepoint(time)
    assert savepoint_names(table) == []
    assert table.clean() is not None
    assert table.archive()
    with pytest.raises(ReadOvertaken, match="cleaned"):
        table.scan(as_of=time)
    with pytest.raises(ConfigError, match=f"has no savepoint '{time}': its savepoints are none"):
        table.delete_savepoint(time)
    assert_sound(table, model)


def test_the_rows_of_a_savepoint_stay_when_a_compaction_that_was_planned_before_completes_after_it(
    tmp_path: Path,
) -> None:
    table, model = grown(tmp_path, batches=2, **RETAIN_ONE)
    table.services.schedule()
    grow(table, model, 2)
    time, expected = table.savepoint().requested, sorted(model.values())
    table.compact()
    for batch in range(3, 6):
        grow(table, model, batch)
        table.compact()
        table.clean()
    assert cleans(table)
    assert shown(table, as_of=time) == expected
    table.restore(time)
    assert shown(reopened(table)) == expected


def test_the_rows_of_a_savepoint_stay_when_a_write_that_began_before_it_completes_after_it(tmp_path: Path) -> None:
    root = tmp_path / "table"
    many = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL", **RETAIN_ONE}
    table, model = grown(root, batches=2, **many)

    def write(opened: LsmTable) -> object:
        return opened.upsert(rows(("late", "nl", 1, 1)))

    counted = Driver(Path(shutil.copytree(root, tmp_path / "counted")), write, **many)
    data = next(number for number, (_, path) in enumerate(counted.calls) if path.endswith(".log.parquet"))
    slow = Driver(root, write, data, **many)
    assert slow.is_stopped
    grow(table, model, 2)
    time, expected = table.savepoint().requested, sorted(model.values())
    slow.go_on()
    assert slow.error is None
    assert shown(table, as_of=time) == expected
    for batch in range(3, 6):
        grow(table, model, batch)
        table.compact()
        table.clean()
    assert shown(table, as_of=time) == expected


def test_a_savepoint_of_a_long_compaction_has_what_was_written_meanwhile(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=2, **RETAIN_ONE)
    table.services.schedule()
    for batch in (2, 7):
        grow(table, model, batch)
    table.compact()
    made = table.savepoint()
    assert shown(table, as_of=made.requested) == sorted(model.values())


def test_a_savepoint_of_an_earlier_write_keeps_the_files_of_that_time(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=2, **RETAIN_ONE)
    time, expected = table.timeline.completed_writes[-1].requested, sorted(model.values())
    table.compact()
    grow(table, model, 2)
    assert table.savepoint(time).requested == time
    table.compact()
    grow(table, model, 3)
    assert table.clean() is None or shown(table, as_of=time) == expected
    assert shown(table, as_of=time) == expected


def test_what_cannot_be_saved_is_refused_by_name_and_leaves_nothing(tmp_path: Path) -> None:
    table, model = grown(tmp_path / "table", batches=3, **{**RETAIN_ONE, **ARCHIVED, "hoodie.archive.automatic": False})
    first = table.timeline.completed_writes[0].requested
    for batch in (3, 4, 5):
        table.compact()
        grow(table, model, batch)
    assert table.clean() is not None
    with pytest.raises(ConfigError, match=f"as of {first}: files of that time were cleaned"):
        table.savepoint(first)
    with pytest.raises(ConfigError, match="no completed write 20200101000000000: give a requested time"):
        table.savepoint("20200101000000000")
    with pytest.raises(ConfigError, match="no completed write on its timeline"):
        create(tmp_path / "empty").savepoint()
    assert table.archive()
    with pytest.raises(ConfigError, match=f"the write {first} of .* is archived"):
        table.savepoint(first)
    assert savepoint_names(table) == []
    assert table.storage.names(DECISION_FOLDER) == []
    time = table.savepoint().requested
    with pytest.raises(ConfigError, match="is a savepoint already"):
        table.savepoint(time)
    assert_sound(table, model)


def test_a_savepoint_that_dies_at_any_call_is_made_or_leaves_nothing(tmp_path: Path) -> None:
    _, model = grown(tmp_path / "template", batches=2)
    calls = FaultyStorage(LocalStorage(Path(shutil.copytree(tmp_path / "template", tmp_path / "counted"))))
    reopened(LsmTable(tmp_path / "counted"), calls).savepoint()
    for fault in (Fault.KILL_BEFORE, Fault.KILL_AFTER, Fault.FAIL_BEFORE, Fault.FAIL_AFTER):
        for call in sample(range(len(calls.calls)), list(Fault).index(fault) * 5, 31):
            root = Path(shutil.copytree(tmp_path / "template", tmp_path / f"{fault.name}{call}"))
            table = reopened(LsmTable(root), FaultyStorage(LocalStorage(root), {call: fault}))
            with suppress(Killed, OSError, LsmError):
                table.savepoint()
            table = reopened(LsmTable(root))
            with table.transaction():
                pass
            made = table.savepoints
            assert len(savepoint_names(table)) == 2 * len(made), calls.calls[call]
            assert table.storage.names(DECISION_FOLDER) == []
            if not made:
                table.savepoint()
            assert shown(table, as_of=table.savepoints[0].instant.requested) == sorted(model.values())
            assert_sound(table, model)


def test_a_deletion_that_dies_at_any_call_is_finished_by_the_next(tmp_path: Path) -> None:
    _, _, time, _ = saved(tmp_path / "template")
    root = Path(shutil.copytree(tmp_path / "template", tmp_path / "counted"))
    calls = FaultyStorage(LocalStorage(root))
    reopened(LsmTable(root), calls).delete_savepoint(time)
    for call in sample(range(len(calls.calls)), 1, 23):
        root = Path(shutil.copytree(tmp_path / "template", tmp_path / str(call)))
        with suppress(Killed):
            reopened(LsmTable(root), FaultyStorage(LocalStorage(root), {call: Fault.KILL_AFTER})).delete_savepoint(time)
        table = reopened(LsmTable(root))
        if table.savepoints:
            table.delete_savepoint(time)
        assert savepoint_names(table) == []


def cleanable(root: Path) -> tuple[LsmTable, Model, str, list[Row]]:
    """A table of which a clean deletes files that the state at a time needs."""
    table, model = grown(root, batches=2, **{"hoodie.clean.commits.retained": 2})
    time, expected = table.timeline.completed_writes[-1].requested, sorted(model.values())
    for batch in (2, 7):
        table.compact()
        grow(table, model, batch)
    return table, model, time, expected


def assert_kept_if_told(root: Path, driver: Driver, model: Model, expected: list[Row], time: str) -> None:
    """A savepoint that was acknowledged keeps its rows; of one that was not nothing is left that says otherwise."""
    table = reopened(LsmTable(root), **RETAIN_ONE)
    with table.transaction():
        pass
    table.clean()
    if driver.error is None:
        assert [found.instant.requested for found in table.savepoints] == [time]
    else:
        refusals = ConfigError | ReadOvertaken | CommitConflict | Fenced | CommitUnknown
        assert isinstance(driver.error, refusals), driver.error
    if table.savepoints:
        assert shown(table, as_of=time) == expected
    assert table.storage.names(DECISION_FOLDER) == []
    assert_sound(table, model)


@pytest.mark.timeout(1200)
def test_a_savepoint_that_is_stopped_while_others_clean_keeps_its_files_or_is_refused(tmp_path: Path) -> None:
    _, model, time, expected = cleanable(tmp_path / "template")
    counted = Driver(
        Path(shutil.copytree(tmp_path / "template", tmp_path / "counted")), lambda table: table.savepoint(time)
    )
    assert counted.error is None
    for number in sample(range(len(counted.calls)), 2, 23):
        root = Path(shutil.copytree(tmp_path / "template", tmp_path / str(number)))
        first = Driver(root, lambda table: table.savepoint(time), number)
        second = Driver(root, LsmTable.clean, **RETAIN_ONE)
        first.go_on()
        assert second.error is None or isinstance(second.error, CommitConflict)
        assert_kept_if_told(root, first, model, expected, time)
        shutil.rmtree(root)


def clean(table: LsmTable) -> None:
    table.clean()


def save_anew(table: LsmTable) -> None:
    with table.transaction():  # completes what was decided
        pass
    for found in table.savepoints:
        table.delete_savepoint(found.instant.requested)
    table.savepoint()


@pytest.mark.parametrize("other", [clean, save_anew])
def test_a_savepoint_that_is_stopped_around_its_decision_is_one_or_none(
    tmp_path: Path, other: Callable[[LsmTable], None]
) -> None:
    _, model = grown(tmp_path / "template", batches=2)
    counted = Driver(Path(shutil.copytree(tmp_path / "template", tmp_path / "counted")), LsmTable.savepoint)
    begun = next(n for n, (_, path) in enumerate(counted.calls) if path.endswith(".savepoint.inflight"))
    made = next(n for n, (_, path) in enumerate(counted.calls) if path.endswith(".savepoint"))
    assert begun < made
    for number in sample(range(begun, len(counted.calls)), 0 if other is clean else 1, 2):
        root = Path(shutil.copytree(tmp_path / "template", tmp_path / str(number)))
        first = Driver(root, LsmTable.savepoint, number)
        second = Driver(root, other)
        assert second.error is None, number
        first.go_on()
        table = reopened(LsmTable(root))
        with table.transaction():
            pass
        found = table.savepoints
        assert len(savepoint_names(table)) == 2 * len(found), counted.calls[number]
        assert table.storage.names(DECISION_FOLDER) == []
        if other is save_anew:
            assert len(found) == 1, counted.calls[number]
        else:
            # What was decided stays, whoever completes it.
            assert [each.instant for each in found] == ([first.result] if first.error is None else [])
            assert bool(found) or number <= made, counted.calls[number]
        assert_sound(table, model)


@pytest.mark.timeout(1200)
def test_a_clean_that_is_stopped_while_a_savepoint_is_made_deletes_none_of_its_files(tmp_path: Path) -> None:
    _, model, time, expected = cleanable(tmp_path / "template")
    counted = Driver(Path(shutil.copytree(tmp_path / "template", tmp_path / "counted")), LsmTable.clean, **RETAIN_ONE)
    assert counted.error is None
    for number in sample(range(len(counted.calls)), 1, 23):
        root = Path(shutil.copytree(tmp_path / "template", tmp_path / str(number)))
        first = Driver(root, LsmTable.clean, number, **RETAIN_ONE)
        second = Driver(root, lambda table: table.savepoint(time))
        first.go_on()
        assert first.error is None or isinstance(first.error, CommitConflict | Fenced | CommitUnknown), first.error
        assert_kept_if_told(root, second, model, expected, time)
        shutil.rmtree(root)


def test_a_clean_that_died_after_it_lost_the_lock_to_a_savepoint_is_cancelled(tmp_path: Path) -> None:
    _, model, time, expected = cleanable(tmp_path / "template")
    counted = Driver(Path(shutil.copytree(tmp_path / "template", tmp_path / "counted")), LsmTable.clean, **RETAIN_ONE)
    planned = next(n for n, (_, path) in enumerate(counted.calls) if path.endswith(".clean.requested"))
    root = tmp_path / "template"
    first = Driver(root, LsmTable.clean, planned, dies_at=planned + 1, **RETAIN_ONE)
    assert Driver(root, lambda table: table.savepoint(time)).error is None
    first.go_on()
    assert isinstance(first.error, Killed)
    table = reopened(LsmTable(root), **RETAIN_ONE)
    assert [pending.action for pending in table.timeline.pending] == ["clean"]
    table.clean()
    assert table.timeline.pending == ()
    assert shown(table, as_of=time) == expected
    grow(table, model, 9)
    assert_sound(table, model)


def test_a_table_with_a_metadata_table_and_a_savepoint_keeps_both(tmp_path: Path) -> None:
    table, model, time, expected = saved(tmp_path, **{"hoodie.metadata.enable": True})
    for batch in (3, 4):
        table.compact()
        grow(table, model, batch)
    table.clean()
    listed = reopened(table, **{"hoodie.metadata.enable": True})
    assert shown(listed, as_of=time) == expected
    assert listed.storage.exists(".hoodie/metadata/.hoodie/hoodie.properties")
    table.upsert(rows(("new", "nl", 99, 1)))
    model["new"] = ("new", "nl", 99, 1)
    assert_sound(table, model)


class BesideAStream(FaultyStorage):
    """Another process commits a batch before each savepoint is read."""

    def read(self, path: str) -> bytes:
        if path.endswith(".savepoint"):
            assert len(self.calls) < 1000, "the savepoint is read again and again"
            LsmTable(self.uri, OPTIONS_OF_SERVICES).upsert(rows(("new", "nl", 99, len(self.calls))))
        return super().read(path)


def test_a_damaged_savepoint_beside_a_busy_stream_is_named(tmp_path: Path) -> None:
    table, _, time, _ = saved(tmp_path)
    next((tmp_path / ".hoodie/timeline").glob("*.savepoint")).write_bytes(b"torn")
    with pytest.raises(CorruptFileError, match=f"{time}_.*savepoint"):
        _ = reopened(table, BesideAStream(table.storage)).savepoints


def test_a_savepoint_that_another_process_deletes_while_they_are_listed_is_left_out(tmp_path: Path) -> None:
    root = tmp_path / "table"
    table, model, first, _ = saved(root)
    grow(table, model, 3)
    second = table.savepoint().requested
    found: list[list[str]] = []

    def run(opened: LsmTable) -> None:
        found.append([each.instant.requested for each in opened.savepoints])

    calls = Driver(Path(shutil.copytree(root, tmp_path / "counted")), run).calls
    read = max(number for number, (call, path) in enumerate(calls) if call == "read" and ".savepoint" in path)
    stopped = Driver(root, run, read)
    reopened(table).delete_savepoint(second)
    stopped.go_on()
    assert stopped.error is None
    assert found == [[first, second], [first]]
