"""Compactions and cleans that are planned, begun, given up and taken over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from streaming_lsm.errors import CommitConflict, CorruptFileError, Fenced
from streaming_lsm.format.actions.commit import WriteStat, base_file_stat
from streaming_lsm.format.table.file_names import BaseFileName
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER, Claim, check_still_inflight, heartbeat_path
from streaming_lsm.lock.markers import create_marker, list_marked_files, marker_folder
from streaming_lsm.lock.owner import Owner
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import FileEntry, Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from streaming_lsm.txn.transaction import Transaction
from tests.support.faulty_storage import FaultyStorage, Killed
from tests.support.writers import (
    KEPT,
    NOON_MS,
    files_below,
    make_table,
    new_process,
    outcome,
    transaction,
    write_batch,
)

PLAN = b"plan"


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    found = make_table(tmp_path)
    write_batch(found, new_process(), 0)
    return found


def schedule(storage: Storage, action: str = "compaction") -> Instant:
    with transaction(storage, new_process()) as tx:
        return tx.schedule(action, tx.new_time(), PLAN)


def write_base(storage: Storage, instant: str, attempt: int = 0) -> WriteStat:
    name = BaseFileName(KEPT[0].name(instant).file_id, f"0-0-{attempt}", instant)
    stat = base_file_stat("nl", name, total_bytes=4, num_writes=1)
    create_marker(storage, instant, "nl", str(name))
    with storage.create(stat.path) as output:
        output.write(b"data")
    check_still_inflight(storage, instant)
    return stat


def die_running(storage: LocalStorage, waiting: Instant) -> WriteStat:
    """A process that begins the compaction, writes a file and is killed."""
    faulty = FaultyStorage(storage)
    stat = None
    with suppress(Killed), transaction(faulty, new_process()) as tx:
        tx.start(waiting)
        stat = write_base(faulty, waiting.requested)
        faulty.kill()
    assert stat is not None
    return stat


def pending(storage: Storage) -> tuple[Instant, ...]:
    return Timeline.load(storage).pending


def test_a_plan_waits_and_outlives_the_writes_after_it(storage: LocalStorage) -> None:
    waiting = schedule(storage)
    write_batch(storage, new_process(), 1)
    assert pending(storage) == (waiting,)
    assert storage.read(waiting.path) == PLAN
    assert waiting.requested < Timeline.load(storage).completed_writes[-1].requested


def test_a_compaction_completes_as_a_commit_that_says_so(storage: LocalStorage) -> None:
    waiting = schedule(storage)
    with transaction(storage, new_process()) as tx:
        tx.start(waiting)
        stats = [write_base(storage, waiting.requested)]
        tx.reconcile(outcome(stats))
        completed = tx.complete(outcome(stats, "COMPACT"))
    assert (completed.action, completed.requested) == ("commit", waiting.requested)
    timeline = Timeline.load(storage)
    assert timeline.pending == ()
    assert timeline.read_commit(completed).compacted
    assert not timeline.read_commit(timeline.completed_writes[0]).compacted
    assert not storage.exists(marker_folder(waiting.requested))
    assert not storage.exists(heartbeat_path(waiting.requested))


def test_a_run_that_is_left_waits_again_with_its_markers_and_without_its_files(storage: LocalStorage) -> None:
    waiting = schedule(storage)
    with transaction(storage, new_process()) as tx:
        tx.start(waiting)
        stat = write_base(storage, waiting.requested)
    assert pending(storage) == (waiting,)
    assert not storage.exists(stat.path)
    assert list_marked_files(storage, waiting.requested) == (stat.path,)


def test_the_next_writer_puts_a_dead_run_back(storage: LocalStorage, caplog: pytest.LogCaptureFixture) -> None:
    waiting = schedule(storage)
    stat = die_running(storage, waiting)
    assert storage.exists(stat.path)
    assert [instant.state for instant in pending(storage)] == [State.INFLIGHT]
    write_batch(storage, new_process(), 1)
    assert pending(storage) == (waiting,)
    assert not storage.exists(stat.path)
    assert not storage.exists(heartbeat_path(waiting.requested))
    assert "back to requested" in caplog.text


def test_a_run_that_died_before_it_was_inflight_can_be_started_again(storage: LocalStorage) -> None:
    waiting = schedule(storage)
    process = new_process()
    Claim(storage, waiting.requested, Owner(process.process(), "dead", "t", NOON_MS, 1000))
    with transaction(storage, new_process()) as tx:
        tx.start(waiting)
        tx.reconcile(outcome())
        tx.complete(outcome(operation="COMPACT"))
    assert pending(storage) == ()


def test_a_run_without_heartbeat_may_be_another_programs_and_is_put_back_only_to_be_run(storage: LocalStorage) -> None:
    waiting = schedule(storage)
    stat = die_running(storage, waiting)
    storage.delete(heartbeat_path(waiting.requested))
    write_batch(storage, new_process(), 1)
    assert pending(storage) == (waiting.at(State.INFLIGHT),)
    assert storage.exists(stat.path)
    with transaction(storage, new_process()) as tx:
        tx.start(waiting)
        assert not storage.exists(stat.path)
        tx.reconcile(outcome())
        tx.complete(outcome(operation="COMPACT"))
    assert pending(storage) == ()


def test_a_run_that_another_programs_heartbeat_names_is_put_back_only_to_be_run(storage: LocalStorage) -> None:
    waiting = schedule(storage)
    stat = die_running(storage, waiting)
    storage.replace(heartbeat_path(waiting.requested), b"")
    later = new_process(clock=lambda: NOON_MS * 2)
    write_batch(storage, later, 1)
    assert storage.exists(stat.path)
    with transaction(storage, new_process(clock=lambda: NOON_MS * 2)) as tx:
        tx.start(waiting)
        assert not storage.exists(stat.path)


def test_a_run_of_a_living_writer_is_left_alone(storage: LocalStorage) -> None:
    waiting = schedule(storage)
    stat = die_running(storage, waiting)
    storage.delete(".hoodie/lock")
    write_batch(storage, new_process(alive=lambda process: True), 1)
    assert storage.exists(stat.path)
    with (
        transaction(storage, new_process(alive=lambda process: True)) as tx,
        pytest.raises(CommitConflict, match=rf"{waiting.requested}.* is being run by another writer"),
    ):
        tx.start(waiting)
    assert storage.exists(stat.path)


def test_a_file_of_a_dead_run_that_appears_in_the_next_run_is_removed(storage: LocalStorage) -> None:
    # Its task passed the marker before its driver died, and closes its file only now.
    waiting = schedule(storage)
    late = die_running(storage, waiting)
    with transaction(storage, new_process()) as tx:
        tx.start(waiting)
        stats = [write_base(storage, waiting.requested, attempt=1)]
        storage.put_if_absent(late.path, b"late")
        tx.reconcile(outcome(stats))
        tx.complete(outcome(stats, "COMPACT"))
    assert not storage.exists(late.path)
    assert storage.exists(stats[0].path)


def test_a_file_that_appears_after_the_reconciliation_goes_with_the_markers(storage: LocalStorage) -> None:
    waiting = schedule(storage)
    late = die_running(storage, waiting)
    with transaction(storage, new_process()) as tx:
        tx.start(waiting)
        tx.reconcile(outcome())
        storage.put_if_absent(late.path, b"late")
        tx.complete(outcome(operation="COMPACT"))
    assert not storage.exists(late.path)


def test_an_attempt_cannot_take_the_name_of_one_of_a_dead_run(storage: LocalStorage) -> None:
    waiting = schedule(storage)
    die_running(storage, waiting)
    with transaction(storage, new_process()) as tx:
        tx.start(waiting)
        with pytest.raises(FileExistsError):
            write_base(storage, waiting.requested, attempt=0)


def test_a_run_that_another_writer_took_publishes_nothing(storage: LocalStorage) -> None:
    waiting = schedule(storage)
    with transaction(storage, new_process()) as tx:
        tx.start(waiting)
        tx.reconcile(outcome())
        storage.delete(heartbeat_path(waiting.requested))
        with pytest.raises(Fenced, match="taken by another writer"):
            tx.complete(outcome(operation="COMPACT"))
    assert [instant.action for instant in pending(storage)] == ["compaction"]


def test_a_clean_that_is_left_stays_to_be_carried_out_again(storage: LocalStorage) -> None:
    waiting = schedule(storage, "clean")
    with transaction(storage, new_process()) as tx:
        tx.start(waiting)
    (begun,) = pending(storage)
    assert begun == waiting.at(State.INFLIGHT)
    with transaction(storage, new_process()) as tx:
        tx.start(begun)
        completed = tx.complete_clean(b"done")
    assert completed.action == "clean"
    assert storage.read(completed.path) == b"done"
    assert not storage.exists(heartbeat_path(waiting.requested))


def test_a_transaction_carries_out_one_thing(storage: LocalStorage) -> None:
    waiting = schedule(storage)
    with transaction(storage, new_process()) as tx:
        tx.begin()
        with pytest.raises(RuntimeError, match="one instant"):
            tx.start(waiting)
    with transaction(storage, new_process()) as tx, pytest.raises(ValueError, match="not planned first"):
        tx.schedule("deltacommit", tx.new_time(), PLAN)


def test_a_timeline_with_a_completed_action_is_the_one_that_is_loaded(storage: LocalStorage) -> None:
    schedule(storage)
    before = Timeline.load(storage)
    completed = write_batch(storage, new_process(), 1)
    assert completed is not None
    assert before.with_latest(completed).instants == Timeline.load(storage).instants
    assert before.with_latest(completed).first == before.first
    waiting = before.pending[0]
    done = waiting.completed_at("20991231000000000")
    assert before.with_latest(done).pending == ()
    assert Timeline(storage, (), "").with_latest(completed).first == completed.requested


# --- a driver that was stopped for longer than its lease, and the one that took over ------------------------------


@contextmanager
def taken_over(storage: Storage) -> Iterator[tuple[Takeover, Takeover]]:
    """Two runs of one compaction: the first lost its lock to the second, and does not know."""
    waiting = schedule(storage)
    with transaction(storage, new_process()) as first:
        first.start(waiting)
        zombie = Takeover(first, waiting, [write_base(storage, waiting.requested, attempt=0)])
        with transaction(storage, new_process()) as second:
            second.start(waiting)
            yield zombie, Takeover(second, waiting, [write_base(storage, waiting.requested, attempt=1)])


@dataclass(frozen=True)
class Takeover:
    """One driver, the compaction that it runs, and the files of its tasks."""

    tx: Transaction
    waiting: Instant
    stats: list[WriteStat]

    def reconcile(self) -> None:
        self.tx.reconcile(outcome(self.stats))

    def complete(self) -> Instant:
        return self.tx.complete(outcome(self.stats, "COMPACT"))


def assert_completed(storage: Storage, run: Takeover) -> None:
    completed = run.complete()
    assert completed in Timeline.load(storage).completed_writes
    assert all(storage.exists(stat.path) for stat in run.stats)


def test_a_zombie_that_reconciles_while_the_next_run_writes_touches_nothing_of_it(storage: LocalStorage) -> None:
    with taken_over(storage) as (zombie, living):
        with pytest.raises(Fenced):
            zombie.reconcile()
        check_still_inflight(storage, living.waiting.requested)
        living.reconcile()
        assert_completed(storage, living)


def test_a_zombie_that_reconciles_before_the_next_run_publishes_touches_nothing_of_it(storage: LocalStorage) -> None:
    with taken_over(storage) as (zombie, living):
        living.reconcile()
        with pytest.raises(Fenced):
            zombie.reconcile()
        assert_completed(storage, living)


def test_a_zombie_that_leaves_while_the_next_run_writes_touches_nothing_of_it(storage: LocalStorage) -> None:
    with taken_over(storage) as (zombie, living):
        zombie.tx.__exit__(None, None, None)
        check_still_inflight(storage, living.waiting.requested)
        living.reconcile()
        assert_completed(storage, living)


@pytest.mark.parametrize("act", [Takeover.reconcile, lambda zombie: zombie.tx.__exit__(None, None, None)])
def test_a_driver_that_becomes_a_zombie_between_its_check_and_its_deletions_deletes_nothing(
    storage: LocalStorage, tmp_path: Path, act: Callable[[Takeover], None]
) -> None:
    class Stalling(LocalStorage):
        """Another process takes over, runs, and is about to publish when this one goes on to list its markers."""

        def walk(self, folder: str) -> Iterator[FileEntry]:
            if stalled:
                stalled.pop()()
            return super().walk(folder)

    stalled: list[Callable[[], None]] = []
    waiting, stalling, living = schedule(storage), Stalling(tmp_path), transaction(storage, new_process())
    run = Takeover(living, waiting, [])

    def take_over() -> None:
        living.__enter__()
        living.start(waiting)
        run.stats.append(write_base(storage, waiting.requested, attempt=1))
        run.reconcile()

    with transaction(stalling, new_process()) as first:
        first.start(waiting)
        zombie = Takeover(first, waiting, [write_base(storage, waiting.requested, attempt=0)])
        stalled.append(take_over)
        with suppress(Fenced):
            act(zombie)
        assert not stalled
        assert_completed(storage, run)
        living.__exit__(None, None, None)


def test_a_zombie_whose_files_the_next_run_deleted_says_that_its_lock_was_taken(storage: LocalStorage) -> None:
    waiting = schedule(storage)
    with transaction(storage, new_process()) as first:
        first.start(waiting)
        zombie = Takeover(first, waiting, [write_base(storage, waiting.requested)])
        zombie.reconcile()
        with transaction(storage, new_process()) as second:
            second.start(waiting)
            with pytest.raises(Fenced, match="taken"):
                zombie.complete()


class Halting(LocalStorage):
    """A process that is stopped between its last look at the lock and a put."""

    def __init__(self, root: Path, prefix: str, meanwhile: Callable[[], None]) -> None:
        super().__init__(root)
        self._prefix, self._meanwhile = prefix, [meanwhile]

    def put_if_absent(self, path: str, data: bytes) -> None:
        if path.startswith(self._prefix) and not path.endswith(".run") and self._meanwhile:
            self._meanwhile.pop()()
        super().put_if_absent(path, data)


DECIDING = f"{DECISION_FOLDER}/"


def completing(waiting: Instant) -> str:
    return f"{TIMELINE_FOLDER}/{waiting.requested}_"


def completions(storage: Storage, waiting: Instant) -> list[Instant]:
    return [done for done in Timeline.load(storage).instants if done.requested == waiting.requested and done.completed]


def late() -> Runtime:
    return new_process(clock=lambda: NOON_MS + 10**6)


def test_a_zombie_that_decides_after_the_next_run_is_fenced(storage: LocalStorage, tmp_path: Path) -> None:
    waiting = schedule(storage)
    done: list[Instant] = []

    def next_run() -> None:
        with transaction(storage, late()) as tx:
            tx.start(waiting)
            run = Takeover(tx, waiting, [write_base(storage, waiting.requested, attempt=1)])
            run.reconcile()
            done.append(run.complete())

    halting = Halting(tmp_path, DECIDING, next_run)
    with transaction(halting, new_process()) as first:
        first.start(waiting)
        zombie = Takeover(first, waiting, [write_base(halting, waiting.requested)])
        zombie.reconcile()
        with pytest.raises(Fenced):
            zombie.complete()
    assert completions(storage, waiting) == done
    (stat,) = Timeline.load(storage).read_commit(done[0]).stats
    assert storage.exists(stat.path)
    assert not any(path.startswith(DECISION_FOLDER) for path in files_below(tmp_path))


def test_a_run_that_was_decided_is_completed_by_the_next_holder_of_the_lock(
    storage: LocalStorage, tmp_path: Path
) -> None:
    waiting = schedule(storage)
    seen: list[Instant] = []

    def take_over() -> None:
        with transaction(storage, late()) as living:
            assert living.timeline.pending == ()
            seen.extend(completions(storage, waiting))

    halting = Halting(tmp_path, completing(waiting), take_over)
    with transaction(halting, new_process()) as first:
        first.start(waiting)
        zombie = Takeover(first, waiting, [write_base(halting, waiting.requested)])
        zombie.reconcile()
        assert seen == []
        assert [zombie.complete()] == seen
    assert completions(storage, waiting) == seen
    assert storage.exists(zombie.stats[0].path)


def test_a_zombie_replaces_no_heartbeat_of_the_next_run(storage: LocalStorage, tmp_path: Path) -> None:
    waiting = schedule(storage)
    living = transaction(storage, late())

    def next_run() -> None:
        living.__enter__()
        living.start(waiting)
        heartbeats.append(storage.read(heartbeat_path(waiting.requested)))

    heartbeats: list[bytes] = []
    zombie = transaction(Halting(tmp_path, heartbeat_path(waiting.requested), next_run), new_process())
    with pytest.raises(Fenced, match="another writer's"), zombie:
        zombie.start(waiting)
    assert [storage.read(heartbeat_path(waiting.requested))] == heartbeats
    run = Takeover(living, waiting, [write_base(storage, waiting.requested)])
    run.reconcile()
    assert_completed(storage, run)
    living.__exit__(None, None, None)


def test_a_heartbeat_that_is_created_after_the_lock_was_lost_is_deleted_again(
    storage: LocalStorage, tmp_path: Path
) -> None:
    committed: list[Instant | None] = []
    halting = Halting(tmp_path, HEARTBEAT_FOLDER, lambda: committed.append(write_batch(storage, late(), 1)))
    with pytest.raises(Fenced, match=r"was taken from|was removed"), transaction(halting, new_process()) as zombie:
        zombie.begin()
    assert list(storage.names(HEARTBEAT_FOLDER)) == []
    with transaction(storage, late()) as tx:
        assert tx.timeline.pending == ()
        assert [tx.timeline.completed_writes[-1]] == committed


def test_a_zombie_whose_files_the_next_run_deleted_publishes_nothing(storage: LocalStorage, tmp_path: Path) -> None:
    waiting = schedule(storage)

    def begin_and_leave() -> None:
        with transaction(storage, new_process()) as tx:
            tx.start(waiting)

    with transaction(Halting(tmp_path, DECIDING, begin_and_leave), new_process()) as first:
        first.start(waiting)
        zombie = Takeover(first, waiting, [write_base(storage, waiting.requested)])
        zombie.reconcile()
        with pytest.raises(Fenced):
            zombie.complete()
    assert pending(storage) == (waiting,)


def test_a_zombie_is_kept_out_by_a_writer_that_has_not_touched_the_compaction(
    storage: LocalStorage, tmp_path: Path
) -> None:
    waiting = schedule(storage)

    def write_and_leave() -> None:
        write_batch(storage, late(), 1)

    with transaction(Halting(tmp_path, DECIDING, write_and_leave), new_process()) as first:
        first.start(waiting)
        zombie = Takeover(first, waiting, [write_base(storage, waiting.requested)])
        zombie.reconcile()
        with pytest.raises(Fenced):
            zombie.complete()
    assert completions(storage, waiting) == []
    with transaction(storage, new_process()) as tx:
        tx.start(waiting)
        run = Takeover(tx, waiting, [write_base(storage, waiting.requested, attempt=2)])
        run.reconcile()
        assert_completed(storage, run)


@pytest.mark.parametrize("halt", [lambda waiting: DECIDING, completing])
def test_a_clean_that_two_drivers_carry_out_is_recorded_once(
    storage: LocalStorage, tmp_path: Path, halt: Callable[[Instant], str]
) -> None:
    waiting = schedule(storage, "clean")

    def next_run() -> None:
        with transaction(storage, late()) as tx:
            for left in tx.timeline.pending:
                tx.start(left)
                tx.complete_clean(b"next")

    first_to_decide = b"next" if halt(waiting) == DECIDING else b"zombie"
    with transaction(Halting(tmp_path, halt(waiting), next_run), new_process()) as first:
        first.start(waiting)
        with pytest.raises(Fenced) if first_to_decide == b"next" else nullcontext():
            first.complete_clean(b"zombie")
    (completed,) = completions(storage, waiting)
    assert storage.read(completed.path) == first_to_decide


def test_two_completions_of_a_clean_are_read_as_the_first_of_them(storage: LocalStorage) -> None:
    waiting = schedule(storage, "clean")
    for completed in ("20261121130000002", "20261121130000001"):
        storage.put_if_absent(waiting.completed_at(completed).path, b"done")
    assert [done.completed for done in completions(storage, waiting)] == ["20261121130000001"]


def test_a_writer_that_loses_its_lock_while_it_takes_its_time_publishes_nothing(storage: LocalStorage) -> None:
    runtime = new_process()
    takes = [lambda: None, lambda: storage.delete(".hoodie/lock")]
    slow = replace(runtime, sleep=lambda seconds: takes.pop(0)() and None)
    with transaction(storage, slow, 7, options={"hoodie.time.generator.max_expected_clock_skew_ms": 1}) as tx:
        tx.begin()
        tx.reconcile(outcome())
        with pytest.raises(Fenced):
            tx.complete(outcome())
    assert takes == []
    assert len(Timeline.load(storage).completed_writes) == 1


def test_a_file_that_vanishes_after_the_reconciliation_stops_the_commit(storage: LocalStorage) -> None:
    waiting = schedule(storage)
    with transaction(storage, new_process()) as tx:
        tx.start(waiting)
        run = Takeover(tx, waiting, [write_base(storage, waiting.requested)])
        run.reconcile()
        storage.delete(run.stats[0].path)
        with pytest.raises(CorruptFileError, match="is gone since it was written"):
            run.complete()
    assert pending(storage) == (waiting,)
