"""A writer loses the lock while it schedules an action, and another one finds the plan and runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from streaming_lsm.errors import CommitConflict, CorruptFileError, Fenced
from streaming_lsm.format.actions.commit import base_file_stat
from streaming_lsm.format.table.file_names import BaseFileName
from streaming_lsm.lock.markers import create_marker
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from streaming_lsm.txn.plan_record import accept_plan, cancel_plan, plan_record_path
from streaming_lsm.txn.transaction import Transaction
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.writers import KEPT, NOON_MS, make_table, new_process, outcome, transaction, write_batch

T = TypeVar("T")
Step = tuple[int, Callable[[], object]]
PLAN, OTHER = b"plan", b"another plan"
_later = count(NOON_MS + 10**6)


class Acting(FaultyStorage):
    """Others act before the calls of these numbers, in the order of the steps."""

    def __init__(self, inner: Storage, steps: Iterable[Step], dies_at: int | None = None) -> None:
        super().__init__(inner, {} if dies_at is None else {dies_at: Fault.KILL_BEFORE})
        self._steps = list(steps)

    def _call(self, name: str, path: str, effect: Callable[[], T]) -> T:
        while self._steps and self._steps[0][0] == len(self.calls):
            self._steps.pop(0)[1]()
        return super()._call(name, path, effect)


class Runner:
    """Enters the table at one time, and runs the plan that it found at a later one.

    Attributes:
        completed: the compaction, when it was completed.
        has_ended: whether it came to its run.
    """

    def __init__(self, storage: Storage) -> None:
        self._tx = transaction(storage, later_process())
        self._storage = storage
        self._planned: Instant | None = None
        self.completed: Instant | None = None
        self.has_ended = False

    def enter(self) -> None:
        self._tx.__enter__()
        self._planned = next(iter(self._tx.timeline.pending), None)

    def run(self) -> None:
        with suppress(CommitConflict):  # the plan was cancelled
            if self._planned is not None:
                self.completed = compact(self._tx, self._storage, self._planned)
        self.has_ended = True
        self.leave()

    def leave(self) -> None:
        self._tx.__exit__(None, None, None)


def later_process() -> Runtime:
    return new_process(clock=lambda: next(_later))


def compact(tx: Transaction, storage: Storage, planned: Instant) -> Instant:
    tx.start(planned)
    name = BaseFileName(KEPT[0].name(planned.requested).file_id, "0-0-0", planned.requested)
    stat = base_file_stat("nl", name, total_bytes=4, num_writes=1)
    create_marker(storage, planned.requested, "nl", str(name))
    with storage.create(stat.path) as output:
        output.write(b"data")
    tx.reconcile(outcome([stat]))
    return tx.complete(outcome([stat], "COMPACT"))


def new_table(root: Path) -> LocalStorage:
    root.mkdir()
    storage = make_table(root)
    write_batch(storage, new_process(), 0)
    return storage


def schedule(storage: Storage, action: str = "compaction", plan: bytes = PLAN) -> Instant:
    with transaction(storage, new_process()) as tx:
        return tx.schedule(action, tx.new_time(), plan)


def enter_and_leave(storage: Storage) -> None:
    with transaction(storage, later_process()):
        pass


def put_of_plan(folder: Path) -> int:
    """Number of the call that creates the requested file."""
    counted = Acting(new_table(folder), ())
    path = schedule(counted).path
    return counted.calls.index(("put_if_absent", path))


def assert_run_or_gone(storage: Storage, completed: Instant | None) -> None:
    """A completed compaction has all its files on the timeline, another one has none, and no record is left."""
    enter_and_leave(storage)
    files = {name for name in storage.names(TIMELINE_FOLDER) if ".compaction." in name or name.endswith(".commit")}
    pending = (f"{completed.requested}.compaction.{state}" for state in ("requested", "inflight")) if completed else ()
    assert files == {*pending, *((completed.file_name,) if completed else ())}
    assert set(storage.names(DECISION_FOLDER)) == set()
    assert Timeline.load(storage).pending == ()


def fenced(root: Path, lost: int, enters: int, runs: int) -> tuple[LocalStorage, Runner]:
    """A driver schedules a plan and loses the lock before the call `lost`; another one runs the plan meanwhile."""
    storage = new_table(root)
    runner = Runner(storage)
    steps: list[Step] = [(lost, lambda: enter_and_leave(storage)), (enters, runner.enter), (runs, runner.run)]
    with pytest.raises(Fenced):
        schedule(Acting(storage, steps))
    return storage, runner


@pytest.mark.parametrize("later", [0, 1], ids=["lost-before-the-plan", "lost-after-it"])
def test_the_plan_of_a_fenced_writer_is_run_or_cancelled_and_never_both(tmp_path: Path, later: int) -> None:
    put = put_of_plan(tmp_path / "counted")
    completed: list[Instant | None] = []
    for enters in range(put + 1, put + 20):
        for runs in range(enters, put + 20):
            storage, runner = fenced(tmp_path / f"{enters}-{runs}", put + later, enters, runs)
            if not runner.has_ended:
                runner.leave()
                break
            assert_run_or_gone(storage, runner.completed)
            completed.append(runner.completed)
    assert any(completed)
    assert None in completed


def test_a_plan_is_run_or_cancelled_at_whatever_call_of_the_run(tmp_path: Path) -> None:
    completed: list[Instant | None] = []
    for number in count():
        storage = new_table(tmp_path / str(number))
        path = plan_record_path(DECISION_FOLDER, schedule(storage))
        acting = Acting(storage, [(number, lambda: cancel_plan(storage, path, PLAN))])  # noqa: B023
        runner = Runner(acting)
        runner.enter()
        runner.run()
        assert_run_or_gone(storage, runner.completed)
        if number >= len(acting.calls):
            break
        completed.append(runner.completed)
    assert None in completed
    assert completed[-1] is not None


@pytest.mark.parametrize("later", [0, 1], ids=["lost-before-the-plan", "lost-after-it"])
def test_the_plan_of_a_writer_that_dies_fenced_is_run_or_gone(tmp_path: Path, later: int) -> None:
    put = put_of_plan(tmp_path / "counted")
    ends: list[bool] = []
    for number in count(put + 1):
        storage = new_table(tmp_path / str(number))
        dying = Acting(storage, [(put + later, lambda: enter_and_leave(storage))], number)  # noqa: B023
        with pytest.raises((Fenced, Killed)) as raised:
            schedule(dying)
        runner = Runner(storage)
        runner.enter()
        runner.run()
        assert_run_or_gone(storage, runner.completed)
        ends.append(runner.completed is not None)
        if raised.type is Fenced:
            break
    assert ends[0]  # it did not come to the cancellation
    assert not ends[-1]


@pytest.mark.parametrize("action", ["compaction", "clean"])
def test_a_late_cancellation_deletes_no_plan_of_another_driver_with_the_same_time(tmp_path: Path, action: str) -> None:
    put = put_of_plan(tmp_path / "counted")
    others: list[Instant] = []
    for number in count(put + 2):
        storage = new_table(tmp_path / str(number))
        found: list[Instant] = []
        steps: list[Step] = [
            (put + 1, lambda: enter_and_leave(storage)),  # noqa: B023
            (number, lambda: found.append(schedule(storage, action, OTHER))),  # noqa: B023
        ]
        with pytest.raises(Fenced):
            schedule(Acting(storage, steps))
        if not found:
            break
        enter_and_leave(storage)
        assert Timeline.load(storage).pending == tuple(found)
        assert storage.read(found[0].path) == OTHER
        assert set(storage.names(DECISION_FOLDER)) == set()
        others += found
    # With the time of the cancelled plan, when that was deleted before.
    assert len({other.requested for other in others}) == 2


def test_a_plan_is_run_and_cancelled_whatever_an_earlier_plan_of_its_time_left(tmp_path: Path) -> None:
    for plan, other in ((PLAN, OTHER), (OTHER, PLAN)):
        storage = new_table(tmp_path / plan.decode())
        planned = schedule(storage, plan=plan)
        path = plan_record_path(DECISION_FOLDER, planned)
        leave_record_of(storage, path, other)
        accept_plan(storage, path, planned)
        storage.delete(path)
        leave_record_of(storage, path, other)
        cancel_plan(storage, path, plan)
        assert not storage.exists(planned.path)
        assert not storage.exists(path)


def leave_record_of(storage: LocalStorage, path: str, plan: bytes) -> None:
    """A driver cancels its plan, which is gone already, and dies before it deletes the record."""
    with suppress(Killed):
        cancel_plan(FaultyStorage(storage, {1: Fault.KILL_BEFORE}), path, plan)
    assert storage.exists(path)


@pytest.mark.parametrize("content", [b"", b"ru", b"cancelled\n", b"cancelled 00", b"run\nrun\n"])
def test_a_damaged_plan_record_is_named_and_the_plan_runs_without_it(tmp_path: Path, content: bytes) -> None:
    storage = new_table(tmp_path / "table")
    planned = schedule(storage)
    path = plan_record_path(DECISION_FOLDER, planned)
    storage.put_if_absent(path, content)
    with transaction(storage, later_process()) as tx, pytest.raises(CorruptFileError, match="delete it") as raised:
        tx.start(planned)
    assert path in str(raised.value)
    assert storage.read(path) == content
    assert storage.read(planned.path) == PLAN
    write_batch(storage, later_process(), 1)
    storage.delete(path)
    with transaction(storage, later_process()) as tx:
        completed = compact(tx, storage, planned)
    assert_run_or_gone(storage, completed)


def test_a_damaged_record_of_a_plan_that_is_gone_is_deleted(tmp_path: Path) -> None:
    storage = new_table(tmp_path / "table")
    planned = schedule(storage)
    storage.put_if_absent(plan_record_path(DECISION_FOLDER, planned), b"")
    storage.delete(planned.path)
    assert_run_or_gone(storage, None)
