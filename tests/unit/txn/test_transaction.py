"""A transaction from outside: what each step leaves on disk, and how failures end."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from streaming_lsm.config import CLOCK_SKEW_MS
from streaming_lsm.errors import CommitConflict, CommitUnknown, CorruptFileError, Fenced, StorageError
from streaming_lsm.lock.heartbeat import check_still_inflight, heartbeat_path
from streaming_lsm.lock.lock import LOCK_FILE, TableLock
from streaming_lsm.lock.markers import marker_folder, marker_path
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import WriterLedger
from streaming_lsm.txn.decision_record import decision_path
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.writers import (
    FAILED,
    KEPT,
    NOON_MS,
    SCHEMA,
    DataFile,
    assert_clean,
    files_below,
    make_table,
    new_process,
    outcome,
    times_of,
    transaction,
    write_batch,
    write_file,
)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return make_table(tmp_path)


def test_the_steps_leave_what_the_format_says(storage: LocalStorage, tmp_path: Path) -> None:
    with transaction(storage, new_process(), 0) as running:
        assert storage.exists(LOCK_FILE)
        assert not running.already_committed
        instant = running.begin()
        assert instant == "20261121120000000"
        for state in (State.REQUESTED, State.INFLIGHT):
            assert storage.read(Instant(instant, "deltacommit", state).path) == b""
        assert storage.exists(marker_folder(instant))
        check_still_inflight(storage, instant)
        assert not storage.exists(LOCK_FILE)
        stats = [write_file(storage, instant, file) for file in KEPT]
        failed = write_file(storage, instant, FAILED[0])
        running.reconcile(outcome(stats))
        assert not storage.exists(failed.path)
        with pytest.raises(Fenced, match=instant):
            check_still_inflight(storage, instant)
        assert not storage.exists(LOCK_FILE)
        completed = running.complete(outcome(stats, batch="0"))
    assert completed == Instant(instant, "deltacommit", State.COMPLETED, "20261121120000001")
    commit = Timeline.load(storage).read_commit(completed)
    assert commit.operation_type == "UPSERT"
    assert {stat.path for stat in commit.stats} == {stat.path for stat in stats}
    assert commit.extra == {"batch": "0", "schema": SCHEMA, "lsm.writers": f'{{"query":[0,{NOON_MS}]}}'}
    assert_clean(tmp_path, [0])


def test_a_commit_that_readers_would_refuse_is_rolled_back_before_it_is_decided(
    storage: LocalStorage, tmp_path: Path
) -> None:
    write_batch(storage, new_process(), 0)
    refused = r"deltacommit\.requested would have long texts \(18 MiB, 16 at most are expected\), so that readers"
    with transaction(storage, new_process(), 1) as running:
        instant = running.begin()
        written = outcome([write_file(storage, instant, file) for file in KEPT], numbers="x" * (18 << 20))
        running.reconcile(written)
        with pytest.raises(StorageError, match=refused):
            running.complete(written)
        assert not storage.exists(decision_path(instant))
    write_batch(storage, new_process(), 1)
    assert_clean(tmp_path, [0, 1])


def test_a_plan_that_readers_would_refuse_is_not_scheduled(storage: LocalStorage) -> None:
    with transaction(storage, new_process()) as running:
        with pytest.raises(StorageError, match=r"compaction\.requested would have long texts"):
            running.schedule("compaction", running.new_time(), b"x" * (18 << 20))
        assert Timeline.load(storage).pending == ()


def test_a_replayed_batch_and_an_older_one_are_known(storage: LocalStorage) -> None:
    for batch in (3, 4):
        write_batch(storage, new_process(), batch)
    for batch, known in ((3, True), (4, True), (5, False)):
        with transaction(storage, new_process(), batch) as running:
            assert running.already_committed is known
    with transaction(storage, new_process(), 3, writer_id="another") as running:
        assert not running.already_committed
    with transaction(storage, new_process()) as running:
        assert not running.already_committed


def test_every_commit_carries_all_writers_forward(storage: LocalStorage) -> None:
    for writer in ("a", "b", None):
        batch = None if writer is None else 5
        with transaction(storage, new_process(), batch, writer_id=writer or "") as running:
            running.begin()
            running.reconcile(outcome())
            running.complete(outcome())
    newest = Timeline.load(storage).completed_writes[-1:]
    ledger = WriterLedger.of(Timeline(storage, newest, newest[0].requested))
    assert {writer: last.batch_id for writer, last in ledger.writers.items()} == {"a": 5, "b": 5}


def test_a_forgotten_writer_is_warned_of(storage: LocalStorage, caplog: pytest.LogCaptureFixture) -> None:
    write_batch(storage, new_process(), 8)
    month = new_process(clock=lambda: NOON_MS + 31 * 86_400_000)
    with transaction(storage, month, 0, writer_id="new") as running, caplog.at_level(logging.WARNING):
        running.begin()
        running.reconcile(outcome())
        running.complete(outcome())
    assert "'query'" in caplog.text
    assert "last batch 8" in caplog.text


def test_an_exception_leaves_nothing_half_and_is_not_replaced(storage: LocalStorage, tmp_path: Path) -> None:
    def fail() -> None:
        with transaction(storage, new_process(), 0) as running:
            write_file(storage, running.begin(), KEPT[0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert_clean(tmp_path, [])
    write_batch(storage, new_process(), 0)
    assert_clean(tmp_path, [0])


def test_leaving_without_completing_rolls_back(storage: LocalStorage, tmp_path: Path) -> None:
    with transaction(storage, new_process(), 0) as running:
        write_file(storage, running.begin(), KEPT[0])
    assert_clean(tmp_path, [])


def test_an_exception_after_the_commit_does_not_undo_it(storage: LocalStorage, tmp_path: Path) -> None:
    def fail_late() -> None:
        with transaction(storage, new_process(), 0) as running:
            instant = running.begin()
            stats = [write_file(storage, instant, file) for file in KEPT]
            running.reconcile(outcome(stats))
            running.complete(outcome(stats, batch="0"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_late()
    assert_clean(tmp_path, [0])


def test_a_transaction_that_finds_nothing_to_do_leaves_no_trace(storage: LocalStorage, tmp_path: Path) -> None:
    before = files_below(tmp_path)
    with transaction(storage, new_process(), 0):
        pass
    assert files_below(tmp_path) == before


def test_a_file_of_the_stats_that_is_missing_stops_the_commit(storage: LocalStorage, tmp_path: Path) -> None:
    with transaction(storage, new_process(), 0) as running:
        stat = write_file(storage, running.begin(), KEPT[0])
        running.reconcile(outcome([stat]))
        storage.delete(stat.path)
        with pytest.raises(CorruptFileError, match=r"nl/.*is gone"):
            running.complete(outcome([stat]))
    assert_clean(tmp_path, [])


def test_tasks_that_still_run_at_the_reconciliation_are_shut_out(storage: LocalStorage, tmp_path: Path) -> None:
    with transaction(storage, new_process(), 0) as running:
        instant = running.begin()
        stats = [write_file(storage, instant, file) for file in KEPT]
        running.reconcile(outcome(stats))
        with pytest.raises(Fenced):
            write_file(storage, instant, DataFile("nl", 0, attempt=7))
        running.complete(outcome(stats, batch="0"))
    with pytest.raises(Fenced):
        write_file(storage, instant, DataFile("nl", 0, attempt=8))
    assert_clean(tmp_path, [0])


def test_a_writer_that_lost_its_lock_publishes_nothing_and_undoes_nothing(
    storage: LocalStorage, tmp_path: Path
) -> None:
    with transaction(storage, new_process(), 0) as zombie:
        instant = zombie.begin()
        stats = [write_file(storage, instant, file) for file in KEPT]
        zombie.reconcile(outcome(stats))
        write_batch(storage, new_process(), 0)
        with pytest.raises(Fenced, match="was taken by another writer"):
            zombie.complete(outcome(stats))
    assert_clean(tmp_path, [0])


def test_a_writer_that_fails_while_another_holds_the_lock_leaves_its_files_to_the_next(storage: LocalStorage) -> None:
    holder = TableLock(storage, "holder", 1000, new_process())
    with transaction(storage, new_process(alive=lambda process: True), 0) as failed:
        instant = failed.begin()
        stat = write_file(storage, instant, KEPT[0])
        holder.acquire()
    assert storage.exists(stat.path)
    assert len(Timeline.load(storage).pending) == 1
    assert not storage.exists(heartbeat_path(instant))
    holder.release()
    with transaction(storage, new_process(alive=lambda process: True)) as later:
        assert later.timeline.pending == ()
    assert not storage.exists(stat.path)


@pytest.mark.parametrize("error", [StorageError("x: No such file"), FileNotFoundError("x"), CorruptFileError("x")])
def test_an_error_about_a_file_that_the_taker_deleted_is_fenced(storage: LocalStorage, error: Exception) -> None:
    """Tasks of Spark raise StorageError where this process has a FileNotFoundError."""

    def write() -> None:
        with transaction(storage, new_process(), 0) as zombie:
            zombie.begin()
            with transaction(storage, new_process(), 0):
                pass
            raise error

    with pytest.raises(Fenced, match="was taken by another writer") as raised:
        write()
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("reached", [False, True], ids=["lock", "properties"])
def test_a_taker_that_cannot_fence_the_former_owner_gives_the_lock_back(storage: LocalStorage, reached: bool) -> None:
    """Else the next writer would find no lock, and not fence the former owner, which may only be stopped."""
    TableLock(storage, "stopped", 1000, new_process()).acquire()
    before = storage.read(LOCK_FILE)
    counted = FaultyStorage(storage)
    with transaction(counted, new_process(), 0):
        pass
    (fencing,) = (
        number for number, call in enumerate(counted.calls) if call == ("replace_if_unchanged", PROPERTIES_PATH)
    )
    storage.put_if_absent(LOCK_FILE, before)
    fault = Fault.FAIL_AFTER if reached else Fault.FAIL_BEFORE
    with pytest.raises(OSError, match="injected"), transaction(FaultyStorage(storage, {fencing: fault}), new_process()):
        pass
    assert storage.read(LOCK_FILE) == before
    again = FaultyStorage(storage)
    with transaction(again, new_process()):
        assert ("replace_if_unchanged", PROPERTIES_PATH) in again.calls
    assert not storage.exists(LOCK_FILE)


def test_a_lock_that_cannot_be_given_back_is_left_for_the_next_writer_to_take_over(storage: LocalStorage) -> None:
    TableLock(storage, "stopped", 1000, new_process()).acquire()
    taker = FaultyStorage(storage, {4: Fault.FAIL_BEFORE})
    held = TableLock(taker, "taker", 1000, new_process())
    held.acquire()
    held.give_back()
    held.release()
    held.verify()
    assert storage.exists(LOCK_FILE)


def test_a_file_added_after_the_reconciliation_is_removed_by_the_commit(storage: LocalStorage, tmp_path: Path) -> None:
    with transaction(storage, new_process(), 0) as running:
        instant = running.begin()
        stats = [write_file(storage, instant, file) for file in KEPT]
        running.reconcile(outcome(stats))
        name = str(DataFile("nl", 0, attempt=7).name(instant))
        storage.put_if_absent(marker_path(instant, "nl", name), b"")
        storage.put_if_absent(f"nl/{name}", b"late")
        running.complete(outcome(stats, batch="0"))
    assert_clean(tmp_path, [0])


def test_a_completed_file_of_other_bytes_is_another_writers(tmp_path: Path) -> None:
    class Overtaken(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> None:
            super().put_if_absent(path, b"other" if path.endswith(".deltacommit") else data)
            if path.endswith(".deltacommit"):
                raise FileExistsError(path)

    make_table(tmp_path)
    with pytest.raises(Fenced, match="made by another writer"):
        write_batch(Overtaken(tmp_path), new_process(), 0)


def test_a_living_writer_is_neither_disturbed_nor_rolled_back(storage: LocalStorage, tmp_path: Path) -> None:
    with transaction(storage, new_process(), 0, writer_id="first") as running:
        instant = running.begin()
        stats = [write_file(storage, instant, file) for file in KEPT]
        with pytest.raises(CommitConflict, match="'first'"):
            transaction(storage, new_process(alive=lambda process: True), 0, writer_id="second").__enter__()
        running.reconcile(outcome(stats))
        running.complete(outcome(stats, batch="0"))
    assert_clean(tmp_path, [0])


def deciding_call(storage: LocalStorage) -> int:
    """The number of the call by which a first batch is decided; the put of the completed file comes two calls later."""
    counted = FaultyStorage(storage)
    completed = write_batch(counted, new_process(), 0)
    assert completed is not None
    decided = counted.calls.index(("put_if_absent", decision_path(completed.requested)))
    assert counted.calls[decided + COMPLETING] == ("put_if_absent", completed.path)
    return decided


COMPLETING = 2


def test_a_commit_whose_answer_is_lost_is_settled_by_reading(tmp_path: Path) -> None:
    decided = deciding_call(make_table(tmp_path / "unharmed"))
    for call in (decided, decided + COMPLETING):
        root = tmp_path / str(call)
        faulty = FaultyStorage(make_table(root), {call: Fault.FAIL_AFTER})
        assert write_batch(faulty, new_process(), 0) is not None
        assert [path for name, path in faulty.calls if name == "put_if_absent"].count(faulty.calls[call][1]) == 1
        assert_clean(root, [0])


def test_a_commit_that_was_not_decided_is_rolled_back_and_can_be_repeated(tmp_path: Path) -> None:
    call = deciding_call(make_table(tmp_path / "unharmed"))
    storage = make_table(tmp_path / "t")
    with pytest.raises(OSError, match="injected"):
        write_batch(FaultyStorage(storage, {call: Fault.FAIL_BEFORE}), new_process(), 0)
    assert_clean(tmp_path / "t", [])
    write_batch(storage, new_process(), 0)
    assert_clean(tmp_path / "t", [0])


def test_a_commit_that_was_decided_is_completed_by_the_next_transaction(tmp_path: Path) -> None:
    call = deciding_call(make_table(tmp_path / "unharmed")) + COMPLETING
    storage = make_table(tmp_path / "t")
    with pytest.raises(CommitUnknown, match="the next transaction completes it"):
        write_batch(FaultyStorage(storage, {call: Fault.FAIL_BEFORE}), new_process(), 0)
    assert Timeline.load(storage).completed_writes == ()
    with transaction(storage, new_process(), 0) as later:
        assert later.already_committed
    assert_clean(tmp_path / "t", [0])


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_a_storage_that_fails_after_the_decision_never_says_that_the_batch_is_absent(
    tmp_path: Path, fault: Fault
) -> None:
    decided = deciding_call(make_table(tmp_path / "unharmed"))
    for call in range(decided + 1, decided + 12):
        storage = make_table(tmp_path / str(call))
        told = None
        try:
            write_batch(FaultyStorage(storage, {call: fault}), new_process(), 0)
        except CommitUnknown as error:
            told = error
        assert told is None or call <= decided + COMPLETING + 1
        with transaction(storage, new_process(), 0) as later:
            assert later.already_committed
        assert_clean(tmp_path / str(call), [0])


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_an_outcome_that_cannot_be_learnt_is_said_and_nothing_is_undone(tmp_path: Path, fault: Fault) -> None:
    call = deciding_call(make_table(tmp_path / "unharmed"))
    root = tmp_path / "t"
    storage = make_table(root)
    with pytest.raises(CommitUnknown, match="decisions"):
        write_batch(FaultyStorage(storage, {call: fault, call + 1: Fault.FAIL_BEFORE}), new_process(), 0)
    assert {path for path in files_below(root) if path.startswith(("nl/", "de/"))}
    with transaction(storage, new_process(), 0) as later:
        assert later.already_committed is (fault is Fault.FAIL_AFTER)
    write_batch(storage, new_process(), 0)
    assert_clean(root, [0])


def test_markers_that_cannot_be_removed_do_not_fail_the_commit(tmp_path: Path) -> None:
    call = deciding_call(make_table(tmp_path / "unharmed")) + COMPLETING
    for later in (2, 3, 4, 5):
        root = tmp_path / str(later)
        storage = make_table(root)
        assert write_batch(FaultyStorage(storage, {call + later: Fault.FAIL_BEFORE}), new_process(), 0) is not None
        with transaction(storage, new_process()):
            pass
        assert_clean(root, [0])


def test_a_damaged_decision_stops_the_next_writer_and_names_the_file(storage: LocalStorage) -> None:
    faulty = FaultyStorage(storage)
    with suppress(Killed), transaction(faulty, new_process(), 0) as running:
        instant = running.begin()
        faulty.kill()
    for content in (b"", b"{", b"[]", b'{"completed": "20200101000000000_20200101000000001.deltacommit"}\n'):
        storage.replace(decision_path(instant), content)
        with pytest.raises(CorruptFileError, match=decision_path(instant)):
            write_batch(storage, new_process(), 0)


def test_times_of_many_commits_in_one_millisecond_are_distinct_and_grow(storage: LocalStorage, tmp_path: Path) -> None:
    clock = iter([NOON_MS, NOON_MS, NOON_MS - 10_000, NOON_MS, NOON_MS - 10_000] * 1000)
    for batch in range(20):
        write_batch(storage, new_process(clock=lambda: next(clock)), batch)
    times = times_of(tmp_path)
    assert len(times) == 40
    assert all(earlier < later for earlier, later in pairwise(times))


def test_the_skew_wait_is_slept_for_each_time(storage: LocalStorage) -> None:
    slept: list[float] = []
    runtime = replace(new_process(), sleep=slept.append)
    with transaction(storage, runtime, options={CLOCK_SKEW_MS.key: 150}) as running:
        running.begin()
        running.reconcile(outcome())
        running.complete(outcome())
    assert slept == [0.15, 0.15]


def test_replaced_file_groups_and_change_files_are_in_the_commit(storage: LocalStorage) -> None:
    with transaction(storage, new_process()) as running:
        instant = running.begin("replacecommit")
        stat = write_file(storage, instant, KEPT[0])
        change, left = (write_file(storage, instant, file) for file in (KEPT[1], FAILED[0]))
        done = replace(outcome([replace(stat, cdc_files=((change.path, 4),))]), replaced={"nl": ("old-0",)})
        assert done.paths == {stat.path, change.path}
        running.reconcile(done)
        completed = running.complete(done)
    commit = Timeline.load(storage).read_commit(completed)
    assert commit.replaced == {"nl": ("old-0",)}
    assert commit.paths == done.paths
    assert [storage.exists(path) for path in (stat.path, change.path, left.path)] == [True, True, False]


def test_steps_out_of_order_are_refused(storage: LocalStorage) -> None:
    with transaction(storage, new_process()) as running:
        with pytest.raises(RuntimeError, match="call begin first"):
            running.reconcile(outcome())
        with pytest.raises(ValueError, match="'clean'"):
            running.begin("clean")
        instant = running.begin()
        with pytest.raises(RuntimeError, match="begin was called before"):
            running.begin()
        stat = write_file(storage, instant, KEPT[0])
        with pytest.raises(RuntimeError, match="reconcile"):
            running.complete(outcome([stat]))
        running.reconcile(outcome([stat]))
        running.complete(outcome([stat]))
        with pytest.raises(RuntimeError, match="complete once"):
            running.complete(outcome([stat]))
