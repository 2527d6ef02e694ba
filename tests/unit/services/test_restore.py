"""Restores to savepoints: what is left, what is refused, and what becomes of one that is interrupted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.config import WRITER_ID
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import (
    CommitConflict,
    CommitUnknown,
    ConfigError,
    CorruptFileError,
    Fenced,
    LsmError,
    ReadOvertaken,
)
from streaming_lsm.format.actions.restore import RestoreMetadata, RestorePlan
from streaming_lsm.inspection.table_check import check_table, lost_services
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.lock.markers import TEMP_FOLDER
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from streaming_lsm.txn.planned_actions import pending_compactions
from streaming_lsm.txn.restore import refuse_beside_others
from tests.oracle.validator import validate
from tests.support.crash_points import sample
from tests.support.faulty_storage import Fault, FaultyStorage, Interrupted, Killed
from tests.support.interleaving import Driver, Work
from tests.support.service_tables import Model, assert_sound, grow, grown, reopened
from tests.support.small_tables import Row, create, data_files, rows, shown

RETAIN_ONE: dict[str, object] = {"hoodie.clean.commits.retained": 1}
METADATA: dict[str, object] = {"hoodie.metadata.enable": True, "hoodie.metadata.compact.max.delta.commits": 3}
CASES: dict[str, dict[str, object]] = {
    "merge-on-read": {},
    "copy-on-write": {"hoodie.table.type": "COPY_ON_WRITE"},
    "metadata-table": METADATA,
}


def changed(root: Path, **options: object) -> tuple[LsmTable, Model, str]:
    """A table with a savepoint, and writes, compactions, a clean and a plan after it; the model is as of the savepoint.

    Returns:
        The table, the model, and the instant of the savepoint.
    """
    table, model = grown(root, batches=2, **RETAIN_ONE, **options)
    time = table.savepoint().requested
    later = dict(model)
    for batch in (2, 3):
        table.compact()
        grow(table, later, batch)
    table.clean()
    table.upsert(rows(("extra", "de", 1, 1)))
    if not table.config.is_copy_on_write:
        table.services.schedule()
    return table, model, time


@pytest.mark.parametrize("service", ["compact", "clean"])
def test_the_inflight_file_of_a_service_that_a_restore_has_undone_holds_up_nobody(tmp_path: Path, service: str) -> None:
    """Its process was stopped before it created the file, and goes on when others have restored the table."""
    root = tmp_path / "table"
    table, _, saved = changed(root)
    while pending_compactions(table.timeline):
        table.compact()
    table.upsert(rows(("last", "nl", 1, 1)))
    table.compact()
    table.upsert(rows(("last", "nl", 2, 2)))

    def run(opened: LsmTable) -> object:
        return getattr(opened, service)()

    calls = Driver(Path(shutil.copytree(root, tmp_path / "counted")), run, **RETAIN_ONE).calls
    inflight = next(
        number for number, (call, path) in enumerate(calls) if call == "put_if_absent" and path.endswith(".inflight")
    )
    stopped = Driver(root, run, inflight, **RETAIN_ONE)
    restored = Driver(root, lambda opened: opened.restore(saved))
    assert restored.error is None
    stopped.go_on()
    assert isinstance(stopped.error, Fenced | CommitConflict)
    again = reopened(LsmTable(root))
    again.upsert(rows(("after", "nl", 3, 3)))
    assert again.compact() is not None
    again.clean()
    assert again.timeline.pending == ()


def test_base_files_with_repeated_keys_are_restored_and_left_by_a_rollback(tmp_path: Path) -> None:
    """A bulk insert does not fold the rows of one key."""
    table = create(tmp_path, **{"hoodie.clean.automatic": False})
    table.bulk_insert(rows(("k1", "nl", 1, 1), ("k1", "nl", 2, 2), ("k2", "nl", 2, 2)))
    saved, expected = table.savepoint().requested, shown(table)
    table.upsert(rows(("k1", "nl", 3, 3)))
    table.restore(saved)
    assert shown(table) == expected
    table.delete_savepoint(saved)
    table.upsert(rows(("k2", "nl", 3, 3)))
    before = shown(table)
    table.compact()
    table.rollback()
    assert shown(table) == before


def assert_restored(root: Path, model: Model, time: str, **options: object) -> None:
    """The table has the rows of the savepoint, nothing is left of what was undone, and it goes on."""
    table = reopened(LsmTable(root), **options)
    assert_sound(table, model)
    if options == METADATA:
        assert shown(reopened(table, **METADATA)) == sorted(model.values())
    assert shown(table, as_of=time) == sorted(model.values())
    assert table.timeline.pending == ()
    last = table.timeline.last_time
    after = dict(model)
    grow(table, after, 7)
    assert table.timeline.completed_writes[-1].requested > last
    assert_sound(table, after)
    if not table.config.is_copy_on_write:
        table.compact()
    table.clean()
    assert_sound(table, after)
    for folder in (DECISION_FOLDER, HEARTBEAT_FOLDER, TEMP_FOLDER):
        assert table.storage.names(folder) == []


@pytest.mark.parametrize("name", CASES)
def test_a_restored_table_is_as_it_was_and_goes_on(tmp_path: Path, name: str) -> None:
    table, model, time = changed(tmp_path, **CASES[name])
    undone = [found for found in table.timeline.instants if found.requested > time and found.is_write]
    done = table.restore(time)
    assert done.action == "restore"
    told = RestoreMetadata.decode(table.storage.read(done.path), done.path)
    assert {requested for requested, _ in told.undone} == {found.requested for found in undone}
    assert not any(found.requested in path for path in data_files(tmp_path) for found in undone)
    assert_restored(tmp_path, model, time, **CASES[name])


def test_a_table_is_restored_again_and_again(tmp_path: Path) -> None:
    table, model, time = changed(tmp_path)
    for batch in (3, 4, 5):
        table.restore(time)
        assert_sound(table, model)
        grow(table, dict(model), batch)
    table.rollback()
    table.rollback()
    assert_sound(table, model)
    with pytest.raises(ConfigError, match="nothing was completed or planned since"):
        table.restore(time)
    table.delete_savepoint(time)
    grow(table, model, 6)
    assert_sound(table, model)


def test_a_batch_that_was_undone_is_written_again_and_processes_that_know_the_table_go_on(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=2)
    stream = reopened(table, **{WRITER_ID.key: "stream"})
    time = table.savepoint().requested
    assert stream.upsert(rows(("extra", "nl", 1, 1)), batch_id=0) is not None
    table.compact()
    begin = table.timeline.last_time
    assert len(shown(stream)) == len(model) + 1
    reopened(table).restore(time)
    assert shown(stream) == sorted(model.values())
    assert stream.upsert(rows(("extra", "nl", 1, 2)), batch_id=0) is not None
    model["extra"] = ("extra", "nl", 1, 2)
    assert_sound(stream, model)
    assert table.incremental(begin, columns=["id"]).to_arrow().to_pylist() == [{"id": "extra"}]


def refuse(table: LsmTable, time: str, match: str, error: type[LsmError] = ConfigError) -> None:
    files = sorted(table.storage.names(".hoodie/timeline"))
    for undo in (table.plan_restore, table.restore):
        with pytest.raises(error, match=match):
            undo(time)
    assert sorted(table.storage.names(".hoodie/timeline")) == files
    assert table.storage.names(DECISION_FOLDER) == []


def test_what_cannot_be_restored_is_refused_by_name_and_the_stream_goes_on(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=2)
    first = table.timeline.completed_writes[0].requested
    refuse(table, first, f"has no savepoint '{first}': its savepoints are none")
    time = table.savepoint().requested
    refuse(table, time, "is as of its savepoint")
    table.compact()
    grow(table, model, 2)
    later = table.savepoint()
    refuse(table, time, f"{later.file_name} keeps a later state: delete that savepoint first")
    table.delete_savepoint(later.requested)
    (kept,) = table.savepoints
    gone = f"nl/{kept.files['nl'][0]}"
    data = table.storage.read(gone)
    table.storage.delete(gone)
    refuse(table, time, "is gone", CorruptFileError)
    table.storage.put_if_absent(gone, data)
    grow(table, model, 3)
    assert_sound(table, model)


def test_a_savepoint_that_has_lost_a_file_of_an_archived_write_is_neither_restored_nor_read(tmp_path: Path) -> None:
    keep: dict[str, object] = {
        "hoodie.keep.min.commits": 3,
        "hoodie.keep.max.commits": 4,
        "hoodie.clean.commits.retained": 1,
    }
    table, model = grown(tmp_path, batches=1, **keep)
    assert table.compact() is not None
    for number in range(9):
        table.upsert(rows(("x", "nl", number, number)))
    (base, *_) = (found.base.path for found in table.file_slices() if found.base)
    assert table.timeline.first > base.rpartition("_")[2]
    saved = table.savepoint()
    grow(table, model, 1)
    assert table.compact() is not None
    assert len(shown(reopened(table, **keep), as_of=saved.requested)) == 9
    (tmp_path / base).unlink()
    before = shown(reopened(table, **keep))
    with pytest.raises(CorruptFileError, match=f"{base} in .* is gone"):
        shown(reopened(table, **keep), as_of=saved.requested)
    for act in (reopened(table, **keep).plan_restore, reopened(table, **keep).restore):
        with pytest.raises(CorruptFileError, match=f"{base} in .* is gone"):
            act(saved.requested)
    assert shown(reopened(table, **keep)) == before


def test_a_dry_run_names_what_would_be_undone(tmp_path: Path) -> None:
    table, _, time = changed(tmp_path)
    before, files = table.timeline.instants, data_files(tmp_path)
    found = table.plan_restore(time)
    assert found.savepoint.requested == time
    assert [action.requested for action in found.undone] == sorted(
        (found.requested for found in before if found.requested > time and found.is_write), reverse=True
    )
    assert (table.timeline.instants, data_files(tmp_path)) == (before, files)


# --- what was lost ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_restore_whose_completed_file_is_lost_hides_no_write_in_silence(tmp_path: Path, kind: str) -> None:
    table, model, time = changed(tmp_path, **{"hoodie.table.type": kind})
    done = tmp_path / table.restore(time).path
    content = done.read_bytes()
    done.unlink()
    assert shown(reopened(table)) == sorted(model.values())
    # Whether another program is at its end is not known.
    with pytest.raises(CorruptFileError, match="nothing is left of what it undoes"):
        reopened(table).upsert(rows(("after", "nl", 1, 1)))
    done.write_bytes(content)
    table = reopened(table)
    table.upsert(rows(("after", "nl", 1, 1)))
    expected = shown(table)
    done.unlink()
    requests: dict[str, Callable[[], object]] = {
        "read": lambda: shown(reopened(table)),
        "incremental": lambda: reopened(table).incremental("000"),
        "changes": lambda: reopened(table).changes("000"),
        "write": lambda: reopened(table).upsert(rows(("more", "nl", 1, 1))),
        "verify": lambda: check_table(reopened(table), LocalEngine(1), lambda *_: None, quick=False),
    }
    for request in requests.values():
        with pytest.raises(CorruptFileError, match=r"restore\.inflight in .* though writes were completed after it"):
            request()
    done.write_bytes(content)
    assert shown(reopened(table)) == expected


def others_restore(root: Path, time: str, states: tuple[State, ...]) -> Instant:
    """Another program's restore of all writes after a savepoint, of which it has undone none; in its latest state."""
    timeline = LsmTable(root).timeline
    undone = tuple((write.requested, write.action) for write in timeline.completed_writes if write.requested > time)
    pending = Instant(f"{int(timeline.last_time) + 1:017d}", "restore", State.REQUESTED)
    for state in states:
        content = RestorePlan(undone, time).encode() if state is State.REQUESTED else b""
        (root / pending.at(state).path).write_bytes(content)
    return pending.at(states[-1])


def test_nothing_is_written_beside_a_restore_of_another_program_that_has_begun(tmp_path: Path) -> None:
    table, _, time = changed(tmp_path)
    pending = others_restore(tmp_path, time, (State.REQUESTED,))
    # It may be planned, and never be begun.
    reopened(table).upsert(rows(("after", "nl", 1, 1)))
    (tmp_path / pending.at(State.INFLIGHT).path).touch()
    with pytest.raises(CommitConflict, match="is pending, of another program: let it end first"):
        reopened(table).upsert(rows(("after", "nl", 1, 1)))
    # Nothing to report as long as it runs.
    assert check_table(reopened(table), LocalEngine(1), lambda *_: None, quick=False).findings == ()


def test_a_write_that_was_begun_before_a_restore_of_another_program_is_not_published_beside_it(tmp_path: Path) -> None:
    def work(each: LsmTable) -> object:
        return each.upsert(rows(("begun", "nl", 1, 1)))

    _, model, time = changed(tmp_path / "t")
    calls = Driver(copied(tmp_path / "t", tmp_path / "counted"), work).calls
    begun = next(number for number, (_, path) in enumerate(calls) if path.endswith("deltacommit.inflight"))
    driver = Driver(tmp_path / "t", work, begun + 1)
    pending = others_restore(tmp_path / "t", time, (State.REQUESTED, State.INFLIGHT))
    driver.go_on()
    assert isinstance(driver.error, CommitConflict)
    assert pending.path in str(driver.error)
    assert [found.action for found in LsmTable(tmp_path / "t").timeline.pending if found.action == "deltacommit"] == []
    assert shown(LsmTable(tmp_path / "t")) == sorted(model.values())


def test_a_running_restore_of_another_program_is_not_lost_though_a_write_was_completed_after_it_began(
    tmp_path: Path,
) -> None:
    table, model, time = changed(tmp_path)
    pending = others_restore(tmp_path, time, (State.REQUESTED,))
    assert reopened(table).upsert(rows(("beside", "nl", 1, 1))).requested > pending.requested
    (tmp_path / pending.at(State.INFLIGHT).path).touch()
    assert shown(LsmTable(tmp_path)) == sorted(model.values())
    with pytest.raises(CommitConflict, match="is pending, of another program: let it end first"):
        reopened(table).upsert(rows(("after", "nl", 1, 1)))


def test_a_restore_that_has_lost_its_plan_and_its_completed_file_is_named_before_anything_is_written(
    tmp_path: Path,
) -> None:
    table, model, time = changed(tmp_path)
    done = table.restore(time)
    for state in (done, done.at(State.REQUESTED)):
        (tmp_path / state.path).unlink()
    for _ in range(2):
        with pytest.raises(CorruptFileError, match=r"restore\.inflight in .* has no plan .*restore\.requested"):
            reopened(table).upsert(rows(("after", "nl", 1, 1)))
    assert shown(LsmTable(tmp_path)) == sorted(model.values())


def test_a_restore_that_is_completed_while_a_reader_lists_the_timeline_hides_no_later_write(tmp_path: Path) -> None:
    table, _, time = changed(tmp_path)
    done = tmp_path / table.restore(time).path
    table = reopened(table)
    table.upsert(rows(("after", "nl", 1, 1)))
    expected, content = shown(LsmTable(tmp_path)), done.read_bytes()
    done.unlink()
    torn = LsmTable(tmp_path).timeline
    done.write_bytes(content)
    assert [found.action for found in torn.pending if found.action == "restore"]
    write = torn.completed_writes[-1]
    assert torn.as_restored().completed_writes[-1] == write
    assert shown(LsmTable(tmp_path)) == expected


def test_a_restore_whose_completed_file_is_lost_is_found_by_verify_before_the_next_write(tmp_path: Path) -> None:
    table, _, time = changed(tmp_path)
    (tmp_path / table.restore(time).path).unlink()
    (found,) = check_table(reopened(table), LocalEngine(1), lambda *_: None, quick=False).findings
    assert "nothing is left of what it undoes" in found.message


def test_a_restore_that_is_completed_while_it_is_looked_at_was_not_lost(tmp_path: Path) -> None:
    table, _, time = changed(tmp_path)
    done = tmp_path / table.restore(time).path
    content = done.read_bytes()
    done.unlink()
    before = LsmTable(tmp_path).timeline
    done.write_bytes(content)
    assert refuse_beside_others(before) == []
    assert [*lost_services(before)] == []


def test_a_later_savepoint_whose_completed_file_is_lost_is_not_undone(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=2)
    time = table.savepoint().requested
    grow(table, model, 2)
    later = table.savepoint().requested
    next((tmp_path / ".hoodie/timeline").glob(f"{later}_*.savepoint")).unlink()
    kept = data_files(tmp_path)
    for undo in (lambda: reopened(table).restore(time), lambda: reopened(table).rollback(later)):
        with pytest.raises(ConfigError, match=rf"{later}\.savepoint\.inflight keeps .*delete th"):
            undo()
    with pytest.raises(CorruptFileError, match=rf"{later}\.savepoint\.inflight .* has no completed instant file"):
        reopened(table).restore(later)
    assert data_files(tmp_path) == kept
    assert_sound(reopened(table), model)


# --- interrupted ------------------------------------------------------------------------------------------------


def copied(template: Path, to: Path) -> Path:
    return Path(shutil.copytree(template, to))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CASES)
def test_a_restore_that_dies_at_any_call_is_finished_or_changes_nothing(tmp_path: Path, name: str) -> None:
    options = CASES[name]
    table, model, time = changed(tmp_path / "template", **options)
    as_it_was = shown(table)
    counting = FaultyStorage(LocalStorage(copied(tmp_path / "template", tmp_path / "counted")))
    reopened(LsmTable(tmp_path / "counted"), counting, **options).restore(time)
    for fault in Fault:
        for call in sample(range(len(counting.calls)), list(Fault).index(fault) * 60, 293):
            root = copied(tmp_path / "template", tmp_path / f"{fault.name}{call}")
            with suppress(Killed, OSError, LsmError):
                reopened(LsmTable(root), FaultyStorage(LocalStorage(root), {call: fault}), **options).restore(time)
            reader = reopened(LsmTable(root))
            assert shown(reader) in (as_it_was, sorted(model.values()))
            with reader.transaction():
                pass
            if not any(found.action == "restore" for found in reader.timeline.instants):
                assert shown(reader) == as_it_was, counting.calls[call]
                reopened(LsmTable(root), **options).restore(time)
            assert_restored(root, model, time, **options)
            shutil.rmtree(root)


def readable(root: Path, states: list[list[Row]]) -> Callable[[], None]:
    def read() -> None:
        assert shown(LsmTable(root)) in states

    return read


def test_a_table_can_be_read_between_any_two_calls(tmp_path: Path) -> None:
    table, model, time = changed(tmp_path / "template")
    states = [shown(table), sorted(model.values())]
    counting = FaultyStorage(LocalStorage(copied(tmp_path / "template", tmp_path / "counted")))
    reopened(LsmTable(tmp_path / "counted"), counting).restore(time)
    for call in sample(range(len(counting.calls)), 3, 59):
        root = copied(tmp_path / "template", tmp_path / str(call))
        reopened(LsmTable(root), Interrupted(LocalStorage(root), call, readable(root, states))).restore(time)


MEANWHILE: dict[str, Work] = {
    "upsert": lambda table: table.upsert(rows(("other", "nl", 9000, 2))),
    "compact": LsmTable.compact,
    "clean": LsmTable.clean,
}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("other", MEANWHILE)
def test_a_restore_that_is_stopped_is_finished_by_the_next_or_refused(tmp_path: Path, other: str) -> None:
    _, model, time = changed(tmp_path / "template")
    counted = Driver(copied(tmp_path / "template", tmp_path / "counted"), lambda table: table.restore(time))
    assert counted.error is None
    for number in sample(range(len(counted.calls)), len(other), 59):
        root = copied(tmp_path / "template", tmp_path / str(number))
        first = Driver(root, lambda table: table.restore(time), number)
        second = Driver(root, MEANWHILE[other], **RETAIN_ONE)
        first.go_on()
        kinds = (Fenced, CommitConflict, CommitUnknown, ConfigError)
        assert first.error is None or isinstance(first.error, kinds), first.error
        assert second.error is None
        table = reopened(LsmTable(root))
        with table.transaction():
            pass
        done = [found for found in table.timeline.instants if found.action == "restore"]
        assert all(found.is_completed for found in done)
        assert done or first.error is not None
        keys = {row[0] for row in shown(table)}
        if not done:
            assert "extra" in keys
        else:
            assert keys - {"other"} == set(model)
            if any(write.requested > done[-1].requested for write in table.timeline.completed_writes):
                assert ("other" in keys) == (other == "upsert")
        assert validate(root) == [], number
        grow(table, dict(model), 9)
        table.compact()
        table.clean()
        assert validate(root) == []
        shutil.rmtree(root)


def test_a_clean_that_was_begun_is_finished_after_a_restore(tmp_path: Path) -> None:
    """Nothing else tells which files it has deleted: rows would be missing as of earlier writes, once archived."""
    template = tmp_path / "template"
    table, model = grown(template, batches=3, **RETAIN_ONE)
    first, before = table.timeline.completed_writes[0].completed, data_files(template)
    table.compact()
    grow(table, model, 3)
    saved = table.savepoint().requested
    table.upsert(rows(("extra", "nl", 1, 1)))
    calls = Driver(copied(template, tmp_path / "counted"), LsmTable.clean, **RETAIN_ONE).calls
    begin = next(number for number, (_, path) in enumerate(calls) if path.endswith(".clean.requested"))
    begun = 0
    for number in sample(range(begin + 1, len(calls)), 1, 5):
        root = copied(template, tmp_path / str(number))
        assert isinstance(Driver(root, LsmTable.clean, dies_at=number, **RETAIN_ONE).error, Killed)
        restored = Driver(root, lambda opened: opened.restore(saved), **RETAIN_ONE)
        assert restored.error is None
        again = reopened(LsmTable(root), **RETAIN_ONE)
        assert shown(again) == sorted(model.values())
        pending = again.timeline.pending
        assert all(found.state is State.INFLIGHT for found in pending)
        begun += len(pending)
        if not pending and not again.timeline.completed_cleans:
            assert before <= data_files(root)
            assert shown(again, as_of=first)
        cleaned = Driver(root, LsmTable.clean, **RETAIN_ONE)
        assert cleaned.error is None
        assert again.timeline.pending == ()
        if pending:
            with pytest.raises(ReadOvertaken, match="were cleaned"):
                shown(again, as_of=first)
        assert_sound(again, model)
    assert begun


def test_a_clean_that_was_begun_is_finished_after_a_move_and_a_restore(tmp_path: Path) -> None:
    """Its plan has the old root, and files that the restore has deleted."""
    table, model = grown(tmp_path / "before", batches=3, **RETAIN_ONE)
    saved = table.savepoint().requested
    later = dict(model)
    for batch in (3, 4, 5):
        table.compact()
        grow(table, later, batch)
    calls = Driver(copied(tmp_path / "before", tmp_path / "counted"), LsmTable.clean, **RETAIN_ONE).calls
    deleting = next(
        number for number, (call, path) in enumerate(calls) if call == "delete_files" and path.startswith("nl/")
    )
    died = Driver(tmp_path / "before", LsmTable.clean, dies_at=deleting, **RETAIN_ONE)
    assert isinstance(died.error, Killed)
    root = (tmp_path / "before").rename(tmp_path / "after")
    assert Driver(root, lambda opened: opened.restore(saved), **RETAIN_ONE).error is None
    assert Driver(root, LsmTable.clean, **RETAIN_ONE).error is None
    again = reopened(LsmTable(root), **RETAIN_ONE)
    assert again.timeline.pending == ()
    assert_sound(again, model)


def test_the_newest_write_is_readable_after_a_restore_though_a_clean_retained_a_write_that_was_undone(
    tmp_path: Path,
) -> None:
    table, model = grown(tmp_path, batches=2, **RETAIN_ONE)
    newest = table.timeline.completed_writes[-1].requested
    saved = table.savepoint().requested
    later = dict(model)
    for batch in (2, 3):
        table.compact()
        grow(table, later, batch)
    assert table.clean() is not None
    assert table.timeline.earliest_retained > newest
    table.restore(saved)
    table.delete_savepoint(saved)
    again = reopened(table, **RETAIN_ONE)
    assert shown(again, as_of=newest) == sorted(model.values())
    assert again.savepoint().requested == newest
    with pytest.raises(ReadOvertaken, match=f"the earliest state that can be read is {newest}"):
        shown(again, as_of=again.timeline.completed_writes[0].requested)
