"""One record decides an action: the first writer to create it decides, and every other one follows."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from streaming_lsm.errors import CommitUnknown, CorruptFileError, Fenced, LsmError
from streaming_lsm.format.actions.rollback import RollbackMetadata
from streaming_lsm.lock.lock import LOCK_FILE, TableLock
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Instant, State
from streaming_lsm.txn.decision import delete_decisions, open_run, publish, reap_decisions, settle, undo, undo_run
from streaming_lsm.txn.decision_record import DECISION_FOLDER, Decision, decision_path
from tests.support.faulty_storage import Fault, FaultyStorage, Interrupted, Killed
from tests.support.writers import new_process

REQUESTED, LATER = "20261121110000000", "20261121110000500"
WRITE = Instant(REQUESTED, "deltacommit", State.INFLIGHT)
COMPACTION = Instant(REQUESTED, "compaction", State.INFLIGHT)
RECORD = decision_path(REQUESTED)
DONE = WRITE.completed_at(LATER)
DATA = b"the content of the completed file,\nwith a line feed"


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def put_pending(storage: Storage, action: Instant = WRITE) -> Instant:
    for state in (State.REQUESTED, State.INFLIGHT):
        storage.put_if_absent(action.at(state).path, b"")
    return action


def leave(storage: Storage, action: Instant = WRITE) -> None:
    """The action leaves the timeline: it was rolled back, or archived."""
    for path in action.pending_paths():
        storage.delete(path)


def decisions(storage: Storage) -> set[str]:
    return set(storage.names(DECISION_FOLDER))


def settled(storage: Storage, action: Instant) -> bool:
    return settle(storage, action, frozenset(storage.names(DECISION_FOLDER)))


@pytest.mark.parametrize("decision", [Decision(RECORD, DONE, DATA), Decision(RECORD, DONE), Decision(RECORD)])
def test_a_record_is_read_as_it_was_made(storage: LocalStorage, decision: Decision) -> None:
    storage.put_if_absent(RECORD, decision.encode())
    assert Decision.read(storage, RECORD) == decision


def test_an_action_decided_to_be_completed_cannot_be_undone(storage: LocalStorage) -> None:
    put_pending(storage)
    publish(storage, RECORD, WRITE, DONE, DATA)
    assert undo(storage, WRITE, RECORD) is False
    assert storage.read(DONE.path) == DATA
    assert Decision.read(storage, RECORD) == Decision(RECORD, DONE, DATA)


def test_an_action_decided_to_be_undone_cannot_be_published(storage: LocalStorage) -> None:
    put_pending(storage)
    assert undo(storage, WRITE, RECORD) is True
    with pytest.raises(Fenced, match="was undone by another writer"):
        publish(storage, RECORD, WRITE, DONE, DATA)
    assert not storage.exists(DONE.path)
    assert undo(storage, WRITE, RECORD) is True, "a second one that undoes it follows, too"


@pytest.mark.parametrize("attempt", range(8))
def test_of_writers_at_the_same_time_one_decides(storage: LocalStorage, attempt: int) -> None:
    put_pending(storage)
    start = Barrier(4)

    def complete() -> bool:
        start.wait()
        try:
            publish(storage, RECORD, WRITE, DONE, DATA)
        except Fenced:
            return False
        return True

    def give_up() -> bool:
        start.wait()
        return not undo(storage, WRITE, RECORD)

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(step) for step in (give_up, complete, give_up, give_up)]
    completed = {future.result() for future in found}
    assert completed == {storage.exists(DONE.path)}, "all learn the same"
    assert Decision.read(storage, RECORD).completed == (DONE if completed == {True} else None)


@pytest.mark.parametrize("fault", [Fault.KILL_BEFORE, Fault.KILL_AFTER], ids=lambda fault: fault.name)
def test_a_writer_that_died_at_its_decision_is_completed_only_if_it_decided(
    storage: LocalStorage, fault: Fault
) -> None:
    put_pending(storage)
    with pytest.raises(Killed):
        publish(FaultyStorage(storage, {0: fault}), RECORD, WRITE, DONE, DATA)
    assert not storage.exists(DONE.path)
    assert settled(storage, WRITE) is fault.takes_effect
    assert storage.exists(DONE.path) is fault.takes_effect
    assert not fault.takes_effect or storage.read(DONE.path) == DATA


def test_a_lost_answer_is_settled_by_reading_the_record(storage: LocalStorage) -> None:
    put_pending(storage)
    publish(FaultyStorage(storage, {0: Fault.FAIL_AFTER}), RECORD, WRITE, DONE, DATA)
    assert storage.read(DONE.path) == DATA


def test_a_storage_that_fails_before_the_decision_leaves_it_open(storage: LocalStorage) -> None:
    put_pending(storage)
    with pytest.raises(OSError, match="injected"):
        publish(FaultyStorage(storage, {0: Fault.FAIL_BEFORE}), RECORD, WRITE, DONE, DATA)
    assert decisions(storage) == set()


@pytest.mark.parametrize("decide", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER], ids=lambda fault: fault.name)
def test_a_decision_that_cannot_be_read_is_said_to_be_unknown(storage: LocalStorage, decide: Fault) -> None:
    put_pending(storage)
    with pytest.raises(CommitUnknown, match=RECORD):
        publish(FaultyStorage(storage, {0: decide, 1: Fault.FAIL_BEFORE}), RECORD, WRITE, DONE, DATA)
    assert settled(storage, WRITE) is decide.takes_effect


@pytest.mark.parametrize("decision", [Decision(RECORD, DONE, DATA), Decision(RECORD)], ids=["commit", "undone"])
def test_a_truncated_record_is_an_error_that_names_it_and_decides_nothing(
    storage: LocalStorage, decision: Decision
) -> None:
    put_pending(storage)
    whole = decision.encode()
    for length in range(len(whole)):
        storage.replace(RECORD, whole[:length])
        assert_refused(storage)


@pytest.mark.parametrize("decision", [Decision(RECORD, DONE, DATA), Decision(RECORD)], ids=["commit", "undone"])
def test_a_record_with_a_flipped_bit_is_an_error_that_names_it(storage: LocalStorage, decision: Decision) -> None:
    put_pending(storage)
    whole = decision.encode()
    for place in range(len(whole)):
        storage.replace(RECORD, whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert_refused(storage)


def test_the_record_of_another_action_is_refused(storage: LocalStorage) -> None:
    put_pending(storage)
    other = Instant("20261121110000001", "deltacommit", State.REQUESTED).completed_at(LATER)
    storage.put_if_absent(RECORD, Decision(RECORD, other, DATA).encode())
    assert_refused(storage)
    storage.replace(RECORD, Decision(RECORD, WRITE, DATA).encode())
    assert_refused(storage)


def assert_refused(storage: Storage) -> None:
    """Neither side may act on the record."""
    with pytest.raises(CorruptFileError, match=RECORD):
        undo(storage, WRITE, RECORD)
    with pytest.raises(CorruptFileError, match=RECORD):
        publish(storage, RECORD, WRITE, DONE, DATA)
    assert not storage.exists(DONE.path)


def put_rollback(storage: Storage) -> None:
    rollback = Instant(LATER, "rollback", State.REQUESTED).completed_at(f"{LATER[:-1]}1")
    storage.put_if_absent(rollback.path, RollbackMetadata(LATER, 0, REQUESTED, WRITE.action, ()).encode())


@pytest.mark.parametrize(("is_archived", "error"), [(False, Fenced), (True, CommitUnknown)])
def test_an_action_that_was_rolled_back_cannot_be_published(
    storage: LocalStorage, is_archived: bool, error: type[LsmError]
) -> None:
    """Once its rollback is archived, too, nothing tells it from a completed action."""
    if not is_archived:
        put_rollback(storage)
    with pytest.raises(error):
        publish(storage, RECORD, WRITE, DONE, DATA)
    assert decisions(storage) == set(), "its record would be left over"
    assert not storage.exists(DONE.path)


def complete_and_archive(storage: Storage, action: Instant, done: Instant) -> None:
    assert settled(storage, action) is True
    assert storage.read(done.path) == DATA
    delete_decisions(storage, REQUESTED)
    leave(storage, action)
    storage.delete(done.path)


@pytest.mark.parametrize("action", [WRITE, COMPACTION], ids=lambda action: action.action)
def test_a_writer_stopped_after_its_decision_is_not_told_that_an_archived_commit_was_undone(
    storage: LocalStorage, action: Instant
) -> None:
    put_pending(storage, action)
    done = action.completed_at(LATER)
    record = RECORD if action is WRITE else open_run(storage, action)
    stopped = Interrupted(storage, 1, lambda: complete_and_archive(storage, action, done))
    with pytest.raises(CommitUnknown, match="archived timeline"):
        publish(stopped, record, action, done, DATA)
    assert stopped.calls[0] == ("put_if_absent", record)
    assert (decisions(storage), storage.exists(done.path)) == (set(), False)


@pytest.mark.parametrize("is_archived", [False, True])
def test_a_lost_answer_to_a_decision_that_was_carried_out_and_deleted_is_unknown(
    storage: LocalStorage, is_archived: bool
) -> None:
    put_pending(storage)

    def carry_out() -> None:
        if is_archived:
            return complete_and_archive(storage, WRITE, DONE)
        settled(storage, WRITE)
        return delete_decisions(storage, REQUESTED)

    stopped = Interrupted(storage, 1, carry_out)
    with pytest.raises(CommitUnknown, match="its action is over"):
        publish(FaultyStorage(stopped, {0: Fault.FAIL_AFTER}), RECORD, WRITE, DONE, DATA)
    assert stopped.calls[:2] == [("put_if_absent", RECORD), ("read", RECORD)]


@pytest.mark.parametrize("call", [2, 3, 4, 5])
def test_a_lost_answer_is_unknown_also_if_the_commit_is_archived_between_two_looks(
    storage: LocalStorage, call: int
) -> None:
    put_pending(storage)

    def carry_out() -> None:
        settled(storage, WRITE)
        delete_decisions(storage, REQUESTED)

    def archive() -> None:
        leave(storage)
        storage.delete(DONE.path)

    stopped = Interrupted(Interrupted(storage, 1, carry_out), call, archive)
    with pytest.raises(CommitUnknown, match="its action is over"):
        publish(FaultyStorage(stopped, {0: Fault.FAIL_AFTER}), RECORD, WRITE, DONE, DATA)


def lose_answer(storage: Storage, then: Callable[[], object], call: int = 2) -> FaultyStorage:
    """Lose the answer to a decision, which others carry out; then one that was stopped before it undoes the write."""

    def carry_out() -> None:
        settled(storage, WRITE)
        delete_decisions(storage, REQUESTED)
        storage.put_if_absent(RECORD, Decision(RECORD).encode())

    stopped = Interrupted(Interrupted(storage, 1, carry_out), call, then)
    return FaultyStorage(stopped, {0: Fault.FAIL_AFTER})


def test_a_commit_is_acknowledged_though_a_void_record_says_that_it_is_undone(storage: LocalStorage) -> None:
    put_pending(storage)
    publish(lose_answer(storage, lambda: None), RECORD, WRITE, DONE, DATA)
    assert storage.read(DONE.path) == DATA


@pytest.mark.parametrize("call", [2, 3])
def test_a_commit_that_is_archived_beside_a_void_record_is_unknown(storage: LocalStorage, call: int) -> None:
    put_pending(storage)

    def archive() -> None:
        leave(storage)
        storage.delete(DONE.path)

    with pytest.raises(CommitUnknown):
        publish(lose_answer(storage, archive, call), RECORD, WRITE, DONE, DATA)


def test_a_write_whose_undoing_was_carried_out_is_fenced(storage: LocalStorage) -> None:
    put_pending(storage)
    assert undo(storage, WRITE, RECORD) is True

    def roll_back() -> None:
        put_rollback(storage)
        leave(storage)

    stopped = Interrupted(storage, 2, roll_back)
    with pytest.raises(Fenced, match="was undone by another writer"):
        publish(stopped, RECORD, WRITE, DONE, DATA)
    assert stopped.calls[:2] == [("put_if_absent", RECORD), ("read", RECORD)]


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_run_that_another_writer_completed_by_its_decision_is_published(storage: LocalStorage, call: int) -> None:
    put_pending(storage, COMPACTION)
    run, done = open_run(storage, COMPACTION), COMPACTION.completed_at(LATER)
    stopped = Interrupted(storage, call, lambda: settled(storage, COMPACTION))
    publish(stopped, run, COMPACTION, done, DATA)
    assert len(stopped.calls) >= call
    assert storage.read(done.path) == DATA


def test_an_action_that_is_completed_cannot_be_undone_without_a_record(storage: LocalStorage) -> None:
    put_pending(storage)
    storage.put_if_absent(DONE.path, DATA)
    assert undo(storage, WRITE, RECORD) is False
    assert decisions(storage) == set()


def test_a_commit_that_was_completed_and_archived_meanwhile_does_not_come_back(storage: LocalStorage) -> None:
    put_pending(storage)
    calls = [("put_if_absent", RECORD), ("exists", WRITE.at(State.REQUESTED).path), ("put_if_absent", DONE.path)]
    stopped = Interrupted(storage, 2, lambda: leave(storage))
    with pytest.raises(CommitUnknown, match="archived timeline"):
        publish(stopped, RECORD, WRITE, DONE, DATA)
    assert stopped.calls[:3] == calls
    assert not storage.exists(DONE.path)


def test_a_completed_file_with_other_content_is_another_writers(storage: LocalStorage) -> None:
    put_pending(storage)
    storage.put_if_absent(DONE.path, b"of another program")
    with pytest.raises(Fenced, match="made by another writer"):
        publish(storage, RECORD, WRITE, DONE, DATA)
    assert storage.read(DONE.path) == b"of another program"


def test_each_run_has_a_decision_of_its_own(storage: LocalStorage) -> None:
    put_pending(storage, COMPACTION)
    first = open_run(storage, COMPACTION)
    assert undo_run(storage, COMPACTION, first) is True
    second = open_run(storage, COMPACTION)
    assert (first, second) == (f"{RECORD}.0", f"{RECORD}.1")
    done = COMPACTION.completed_at(LATER)
    with pytest.raises(Fenced, match="undone"):
        publish(storage, first, COMPACTION, done, DATA)
    publish(storage, second, COMPACTION, done, DATA)
    assert storage.read(done.path) == DATA


def test_of_two_writers_that_start_a_run_at_the_same_time_one_is_fenced(storage: LocalStorage) -> None:
    put_pending(storage, COMPACTION)
    stopped = Interrupted(storage, 1, lambda: open_run(storage, COMPACTION))
    with pytest.raises(Fenced, match=r"\.0\.run"):
        open_run(stopped, COMPACTION)
    assert decisions(storage) == {f"{REQUESTED}.0.run"}


def test_settling_undoes_the_open_run_and_keeps_the_plan(storage: LocalStorage) -> None:
    put_pending(storage, COMPACTION)
    run = open_run(storage, COMPACTION)
    assert settled(storage, COMPACTION) is False
    assert decisions(storage) == {f"{REQUESTED}.0"}, "the run is closed, and its decision stays for its writer"
    with pytest.raises(Fenced, match="undone"):
        publish(storage, run, COMPACTION, COMPACTION.completed_at(LATER), DATA)
    assert settled(storage, COMPACTION) is False


def test_settling_completes_a_run_that_was_decided(storage: LocalStorage) -> None:
    put_pending(storage, COMPACTION)
    run, done = open_run(storage, COMPACTION), COMPACTION.completed_at(LATER)
    with pytest.raises(Killed):
        publish(FaultyStorage(storage, {0: Fault.KILL_AFTER}), run, COMPACTION, done, DATA)
    assert settled(storage, COMPACTION) is True
    assert storage.read(done.path) == DATA


def test_a_run_cannot_complete_an_action_that_another_run_completed(storage: LocalStorage) -> None:
    put_pending(storage, COMPACTION)
    run, done = open_run(storage, COMPACTION), COMPACTION.completed_at(LATER)
    storage.put_if_absent(done.path, DATA)
    with pytest.raises(Fenced, match="finished"):
        publish(storage, run, COMPACTION, COMPACTION.completed_at(f"{LATER[:-1]}9"), DATA)
    assert decisions(storage) == {f"{REQUESTED}.0.run"}


NAMES = {REQUESTED, LATER, f"{LATER}.0", f"{LATER}.0.run", f"{LATER}0"}


def put_records(storage: Storage) -> None:
    for name in NAMES:
        storage.put_if_absent(f"{DECISION_FOLDER}/{name}", b"")


def test_the_void_record_of_a_run_is_not_carried_out(storage: LocalStorage) -> None:
    """Its writer, and the one that settles it, were stopped until another run was completed and its records deleted."""
    put_pending(storage, COMPACTION)
    first = open_run(storage, COMPACTION)
    listed = frozenset(storage.names(DECISION_FOLDER))
    assert not settle(storage, COMPACTION, listed)
    done = COMPACTION.completed_at(LATER)
    publish(storage, open_run(storage, COMPACTION), COMPACTION, done, DATA)
    delete_decisions(storage, REQUESTED)
    storage.put_if_absent(first, Decision(first, COMPACTION.completed_at(LATER[:-1] + "9"), b"other").encode())
    assert settle(storage, COMPACTION, listed)
    assert [name for name in storage.names(TIMELINE_FOLDER) if "_" in name] == [done.file_name]
    assert storage.read(done.path) == DATA


def test_deleting_the_records_of_an_action_spares_those_of_others(storage: LocalStorage) -> None:
    put_records(storage)
    delete_decisions(storage, LATER)
    assert decisions(storage) == {REQUESTED, f"{LATER}0"}


def acquired(storage: Storage) -> TableLock:
    lock = TableLock(storage, "writer", 1000, new_process())
    lock.acquire()
    return lock


def test_reaping_spares_the_records_of_pending_actions(storage: LocalStorage) -> None:
    put_records(storage)
    reap_decisions(storage, acquired(storage), frozenset({LATER}))
    assert decisions(storage) == {LATER, f"{LATER}.0", f"{LATER}.0.run"}


def test_reaping_stops_when_the_lock_is_lost(storage: LocalStorage) -> None:
    put_records(storage)
    lock = acquired(storage)
    storage.replace(LOCK_FILE, b"another writer's")
    with pytest.raises(Fenced):
        reap_decisions(storage, lock, frozenset())
    assert decisions(storage) == NAMES
