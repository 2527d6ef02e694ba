"""One writer at a time: living owners are respected, dead ones replaced by exactly one taker."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from streaming_lsm.errors import CommitConflict, Fenced
from streaming_lsm.lock.background import BackgroundThread
from streaming_lsm.lock.lock import LOCK_FILE, LockWait, TableLock
from streaming_lsm.lock.owner import Owner, Process, process_lives, this_process
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.writers import NOON_MS, files_below, make_table, new_process, transaction

LEASE_MS = 120_000


def lock(storage: Storage, runtime: Runtime, writer: str = "query") -> TableLock:
    return TableLock(storage, writer, LEASE_MS, runtime)


def everyone_lives() -> Runtime:
    return new_process(alive=lambda process: True)


def elsewhere(now_ms: int) -> Runtime:
    """A process on another machine."""
    runtime = new_process(clock=lambda: now_ms)
    process = replace(runtime.process(), host="far", machine="far")
    return replace(runtime, process=lambda: process)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return make_table(tmp_path)


def test_a_released_lock_leaves_no_file_and_can_be_taken_again(storage: LocalStorage, tmp_path: Path) -> None:
    before = files_below(tmp_path)
    for _ in range(2):
        held = lock(storage, everyone_lives())
        held.acquire()
        held.verify()
        assert storage.exists(LOCK_FILE)
        held.release()
        assert files_below(tmp_path) == before


def test_a_living_holder_is_named_with_host_process_and_time(storage: LocalStorage) -> None:
    first = everyone_lives()
    lock(storage, first, "first query").acquire()
    pid = first.process().pid
    with pytest.raises(CommitConflict, match=rf"'first query' \(process {pid} on host host\) since 2026-11-21T12:00"):
        lock(storage, everyone_lives()).acquire()


def test_a_second_transaction_of_one_process_is_refused(storage: LocalStorage) -> None:
    runtime = new_process()
    first = lock(storage, runtime, "first")
    first.acquire()
    with pytest.raises(CommitConflict, match=r"by this process: writer 'first'"):
        lock(storage, runtime).acquire()
    first.verify()
    first.release()
    lock(storage, runtime).acquire()


def test_a_forked_child_does_not_inherit_the_process_lock(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = new_process()
    first = lock(storage, runtime)
    first.acquire()
    child = os.getpid() + 1
    monkeypatch.setattr("os.getpid", lambda: child)
    runtime.process_locks.acquire(storage.uri, first.owner)


def test_the_lock_of_a_dead_process_is_taken_over(storage: LocalStorage, tmp_path: Path) -> None:
    dead = lock(storage, new_process())
    dead.acquire()
    taker = lock(storage, new_process())
    taker.acquire()
    taker.verify()
    with pytest.raises(Fenced, match="was taken from"):
        dead.verify()
    dead.release()
    taker.verify()
    assert {path for path in files_below(tmp_path) if "lock" in path} == {LOCK_FILE}


def test_a_lock_left_by_an_earlier_transaction_of_this_process_is_taken_over(storage: LocalStorage) -> None:
    runtime = everyone_lives()
    faulty = FaultyStorage(storage, {0: Fault.FAIL_AFTER, **dict.fromkeys(range(1, 4), Fault.FAIL_BEFORE)})
    with pytest.raises(OSError, match="injected"):
        lock(faulty, runtime).acquire()
    assert storage.exists(LOCK_FILE)
    lock(storage, runtime).acquire()


def test_a_lock_from_another_machine_is_respected_until_its_lease_ends(storage: LocalStorage, tmp_path: Path) -> None:
    far = lock(storage, elsewhere(NOON_MS))
    far.acquire()
    os.utime(tmp_path / LOCK_FILE, (NOON_MS / 1000, NOON_MS / 1000))
    passed = 0.0
    watching = replace(new_process(), elapsed=lambda: passed)
    for seconds in (0, LEASE_MS / 1000):
        passed += seconds
        with pytest.raises(CommitConflict, match="host far"):
            lock(storage, watching).acquire()
    passed += 0.001
    lock(storage, watching).acquire()
    with pytest.raises(Fenced, match="was taken from"):
        far.verify()


def test_a_lock_that_nobody_renews_is_waited_for_until_its_lease_is_over(storage: LocalStorage) -> None:
    stopped = lock(storage, everyone_lives())
    stopped.acquire()
    runtime, passed = waiting_process()
    taker = TableLock(storage, "taker", LEASE_MS, runtime, LockWait(1000))
    taker.acquire()
    assert LEASE_MS < passed() * 1000 < LEASE_MS + 1000
    assert taker.formers == {stopped.owner.token}


def test_a_lock_that_changes_hands_is_waited_for_until_the_lease_of_the_last_owner_is_over(
    storage: LocalStorage, tmp_path: Path
) -> None:
    first = lock(storage, everyone_lives())
    first.acquire()
    last = replace(first.owner, token="last")
    looks = itertools.count(1)
    # The first one releases, another one acquires, and its host dies.
    runtime, passed = waiting_process(
        lambda: (tmp_path / LOCK_FILE).write_bytes(last.encode()) if next(looks) == 9 else None
    )
    taker = TableLock(storage, "taker", LEASE_MS, runtime, LockWait(LEASE_MS // 2))
    taker.acquire()
    assert LEASE_MS < passed() * 1000 < 2 * LEASE_MS
    assert taker.formers == {"last"}


def test_a_lock_that_is_renewed_is_waited_for_as_long_as_the_options_say(storage: LocalStorage, tmp_path: Path) -> None:
    renewals = itertools.count(1)
    lock(storage, everyone_lives(), "holder").acquire()
    runtime, passed = waiting_process(lambda: os.utime(tmp_path / LOCK_FILE, (0, next(renewals))))
    with pytest.raises(
        CommitConflict, match=r"was held for all of 1\.0 s \(hoodie.write.lock.wait_time_ms\) by writer 'holder'"
    ):
        TableLock(storage, "taker", LEASE_MS, runtime, LockWait(1000, longest_ms=100)).acquire()
    assert 1 <= passed() <= 1.1


def test_a_lock_that_is_released_is_taken_at_the_next_look(storage: LocalStorage) -> None:
    holder = lock(storage, everyone_lives())
    holder.acquire()
    looks = itertools.count(1)
    runtime, passed = waiting_process(lambda: holder.release() if next(looks) == 3 else None)
    taker = TableLock(storage, "taker", LEASE_MS, runtime, LockWait(1000))
    taker.acquire()
    assert passed() < 0.035
    assert taker.formers == frozenset()


def test_retries_limit_the_looks_at_a_lock_that_is_renewed(storage: LocalStorage, tmp_path: Path) -> None:
    renewals = itertools.count(1)
    lock(storage, everyone_lives()).acquire()
    runtime, passed = waiting_process(lambda: os.utime(tmp_path / LOCK_FILE, (0, next(renewals))))
    with pytest.raises(CommitConflict):
        TableLock(storage, "taker", LEASE_MS, runtime, LockWait(60_000, retries=2)).acquire()
    assert passed() <= 0.015


def waiting_process(pausing: Callable[[], object] = lambda: None) -> tuple[Runtime, Callable[[], float]]:
    """A process that does something while it waits for others, which all live; and the seconds that it has waited."""
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += seconds
        pausing()

    return replace(everyone_lives(), sleep=sleep, elapsed=lambda: passed[0]), lambda: passed[0]


def test_a_lock_of_another_program_is_never_taken(storage: LocalStorage) -> None:
    storage.put_if_absent(LOCK_FILE, b'{"lockCreateTime": "2020", "lockThreadName": "main"}')
    with pytest.raises(CommitConflict, match="another program"):
        lock(storage, new_process()).acquire()
    assert b"lockThreadName" in storage.read(LOCK_FILE)


def test_of_two_takers_that_saw_the_same_dead_owner_one_wins(storage: LocalStorage) -> None:
    lock(storage, new_process()).acquire()
    first, second = new_process(), new_process()

    class Slow(FaultyStorage):
        """Lets the first taker do everything between the second one's look at the dead owner and its own taking."""

        def replace_if_unchanged(self, path: str, data: bytes, expected: bytes) -> bool:
            lock(storage, first, "first").acquire()
            return super().replace_if_unchanged(path, data, expected)

    living = {first.process()}
    second = replace(second, process_lives=lambda process: process in living)
    with pytest.raises(CommitConflict, match="'first'"):
        lock(Slow(storage), second, "second").acquire()
    owner = Owner.decode(storage.read(LOCK_FILE))
    assert owner is not None
    assert owner.writer_id == "first"


def test_a_writer_that_is_stopped_before_it_releases_leaves_the_takers_lock_alone(storage: LocalStorage) -> None:
    taker = lock(storage, new_process(), "taker")

    class Slow(FaultyStorage):
        def vacate(self, path: str, expected: bytes) -> bytes | None:
            taker.acquire()
            return super().vacate(path, expected)

    stopped = lock(Slow(storage), new_process())
    stopped.acquire()
    stopped.release()
    taker.verify()
    assert taker.formers == {stopped.owner.token}


def test_takers_that_die_one_after_the_other_leave_the_lock_takeable(storage: LocalStorage, tmp_path: Path) -> None:
    lock(storage, new_process()).acquire()
    for depth in range(5):
        for call in range(12):
            for fault in (Fault.KILL_BEFORE, Fault.KILL_AFTER):
                with suppress(Killed):
                    lock(FaultyStorage(storage, {call + depth: fault}), new_process()).acquire()
    last = lock(storage, new_process())
    last.acquire()
    assert 2 < len(last.formers) <= 121  # every taker names those before
    assert {path for path in files_below(tmp_path) if "lock" in path} == {LOCK_FILE}
    last.release()


def test_a_removed_lock_fences_its_holder(storage: LocalStorage) -> None:
    held = lock(storage, new_process())
    held.acquire()
    storage.delete(LOCK_FILE)
    with pytest.raises(Fenced, match="removed"):
        held.verify()
    with pytest.raises(Fenced):
        held.touch()
    held.release()


def test_releasing_never_fails_and_frees_the_process(storage: LocalStorage) -> None:
    runtime = new_process()
    faulty = FaultyStorage(storage, dict.fromkeys(range(2, 9), Fault.FAIL_BEFORE))
    held = lock(faulty, runtime)
    held.acquire()
    held.release()
    lock(storage, runtime).acquire()


def test_this_process_lives_and_a_later_one_under_its_number_is_another() -> None:
    here = this_process()
    assert here.pid == os.getpid()
    assert here.machine
    assert process_lives(here)
    assert not process_lives(replace(here, started=here.started - 1))


def test_a_killed_process_is_dead_even_before_its_parent_collects_it(storage: LocalStorage, tmp_path: Path) -> None:
    holder = (
        "import sys, time\n"
        "from streaming_lsm.storage.local import LocalStorage\n"
        "from streaming_lsm.lock.lock import TableLock\n"
        "from streaming_lsm.lock.runtime import Runtime\n"
        "TableLock(LocalStorage(sys.argv[1]), 'other', 120000, Runtime()).acquire()\n"
        "print('held', flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", holder, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            with pytest.raises(CommitConflict, match=rf"'other' \(process {process.pid} on host"):
                lock(storage, Runtime()).acquire()
            process.kill()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            taker = lock(storage, Runtime())
            taker.acquire()
            taker.release()
        finally:
            process.kill()


@pytest.mark.parametrize("data", [b"", b"{}", b"null", b"[1]", b'{"process": 1}', b"\xff"])
def test_foreign_content_is_no_owner(data: bytes) -> None:
    assert Owner.decode(data) is None


def test_an_owner_reads_back() -> None:
    owner = Owner(Process("h", "m", 1, 2), "w", "t", 3, 4)
    assert Owner.decode(owner.encode()) == owner


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"process": ' * 50_000,
        b'{"process":{"host":"h","machine":"m","pid":"1","started":1},"writer_id":"w","token":"t","since_ms":1,"lease_ms":1}',
        b'{"process":{"host":"h","machine":"m","pid":1,"started":1},"writer_id":"w","token":"t","since_ms":1e99,"lease_ms":1}',
        b'{"process":{"host":"h","machine":"m","pid":1,"started":1},"writer_id":"w","token":"t","since_ms":'
        + b"9" * 300
        + b',"lease_ms":1}',
    ],
    ids=["nested-list", "nested-object", "text-for-a-number", "float-for-a-number", "number-too-large"],
)
def test_a_lock_that_no_program_writes_is_another_programs_and_named(tmp_path: Path, content: bytes) -> None:
    storage = make_table(tmp_path)
    storage.put_if_absent(LOCK_FILE, content)
    with pytest.raises(CommitConflict, match=r"\.hoodie/lock in .* was made by another program"):
        transaction(storage, new_process()).__enter__()


def test_a_lock_is_lost_only_if_that_can_be_read(storage: LocalStorage) -> None:
    held = lock(storage, everyone_lives())
    held.acquire()
    assert held.loss() is None
    assert lock(FaultyStorage(storage, {0: Fault.FAIL_BEFORE}), new_process()).loss() is None
    storage.replace(LOCK_FILE, b"another writer's")
    assert isinstance(held.loss(), Fenced)


def test_a_thread_waits_for_another_one_however_long_the_options_say(storage: LocalStorage) -> None:
    """Also for the largest number of Java's, which means for ever."""
    runtime, acquired = everyone_lives(), threading.Event()
    first, second = lock(storage, runtime), lock(storage, runtime)
    first.acquire()

    def acquire() -> None:
        second.acquire(LockWait(wait_ms=2**63 - 1))
        acquired.set()
        second.release()

    thread = threading.Thread(target=acquire)
    thread.start()
    assert not acquired.wait(0.1)
    first.release()
    assert acquired.wait(10)
    thread.join()
    beating = BackgroundThread("forever", lambda background: acquired.set() if background.wait(2.0**60) else None)
    acquired.clear()
    beating.start()
    beating.stop()
    assert acquired.is_set()
