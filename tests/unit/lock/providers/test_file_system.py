"""Hudi's lock file is waited for, taken over only when it has expired, and never deleted when it is another one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from streaming_lsm.config import Options
from streaming_lsm.errors import CommitConflict, Fenced, LockLost, LockTimeout, StorageError
from streaming_lsm.lock.lock import LOCK_FILE, LockWait, TableLock
from streaming_lsm.lock.providers.choice import choose_provider
from streaming_lsm.lock.providers.file_system import SETTLE_S, FileSystemBasedLockProvider
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from tests.support.faulty_storage import Fault, FaultyStorage, Interrupted, Killed
from tests.support.writers import NOON_MS, make_table, new_process

LEASE_MS = 120_000
MINUTE_MS = 60_000
NAME = "FileSystemBasedLockProvider"
HUDIS = [b"", b'{"lockCreateTime" : "2026-11-21 12:00:00.000", "lockThreadName" : "main", "lockStacksInfo" : [ ]}']
"""Hudi 1.2 creates an empty file; earlier releases wrote who they are."""


def hudi_locks(file: Path, content: bytes = b"", age_ms: int = 0) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    modified_s = (NOON_MS - age_ms) / 1000
    os.utime(file, (modified_s, modified_s))


def process(pausing: Callable[[float], object] = lambda waited: None) -> tuple[Runtime, Callable[[], float]]:
    """A process that waits by a clock of its own; and the seconds that it has waited."""
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += seconds
        pausing(passed[0])

    runtime = new_process(alive=lambda other: True)
    return replace(runtime, sleep=sleep, elapsed=lambda: passed[0]), lambda: passed[0]


class Locks:
    """A table, and its lock file in one of the two places."""

    def __init__(self, root: Path, own_folder: bool) -> None:
        self.storage = make_table(root / "table")
        self.file = root / ("locks/lock" if own_folder else f"table/{LOCK_FILE}")
        self.is_own = own_folder
        self._path = {"hoodie.write.lock.filesystem.path": str(root / "locks")} if own_folder else {}

    def lock(
        self, runtime: Runtime, wait_ms: int = 0, expire: int = 0, wrapped: Callable[[Storage], Storage] | None = None
    ) -> TableLock:
        """A lock with the provider, whose file is reached by a wrapped storage."""
        options = {"hoodie.write.lock.provider": NAME, "hoodie.write.lock.filesystem.expire": expire, **self._path}
        chosen = choose_provider(self.storage, Options(options), runtime)
        assert chosen is not None
        storage: Storage = self.storage
        if wrapped is not None and self.is_own:
            folder = wrapped(LocalStorage(self.file.parent))
            uri, expire_ms = storage.uri, expire * MINUTE_MS
            chosen = replace(
                chosen, new=lambda owner: FileSystemBasedLockProvider(folder, uri, owner, expire_ms, runtime)
            )
        elif wrapped is not None:
            storage = wrapped(storage)
        return TableLock(storage, "query", LEASE_MS, runtime, LockWait(wait_ms), chosen)


@pytest.fixture(params=[False, True], ids=["beside the lease", "own folder"])
def locks(request: pytest.FixtureRequest, tmp_path: Path) -> Locks:
    return Locks(tmp_path, request.param)


def test_the_lock_file_is_there_while_the_lock_is_held_and_gone_afterwards(locks: Locks) -> None:
    held = locks.lock(process()[0])
    for _ in range(2):
        held.acquire()
        held.verify()
        held.touch()
        assert locks.file.exists()
        assert locks.storage.exists(LOCK_FILE)
        held.release()
        assert not locks.file.exists()
        assert not locks.storage.exists(LOCK_FILE)


def test_in_its_own_folder_the_file_has_the_fields_that_hudi_writes(tmp_path: Path) -> None:
    locks = Locks(tmp_path, own_folder=True)
    held = locks.lock(process()[0])
    held.acquire()
    written = json.loads(locks.file.read_bytes())
    assert list(written) == ["lockCreateTime", "lockThreadName", "lockStacksInfo"]
    assert "writer 'query'" in written["lockThreadName"]


@pytest.mark.parametrize("content", [*HUDIS, b"\xff{", b"[" * 100_000], ids=["empty", "named", "bytes", "nested"])
def test_a_lock_of_hudi_is_waited_for_as_long_as_the_options_say_and_named(locks: Locks, content: bytes) -> None:
    hudi_locks(locks.file, content)
    runtime, passed = process()
    with pytest.raises(LockTimeout, match=r"another program(.|\n)*") as refused:
        locks.lock(runtime, wait_ms=1000).acquire()
    assert str(locks.file.parent.name) in str(refused.value)
    assert "hoodie.write.lock.wait_time_ms" in str(refused.value)
    assert 1 <= passed() <= 1.3
    assert locks.file.read_bytes() == content
    assert locks.is_own != locks.storage.exists(LOCK_FILE)


def test_without_a_wait_a_lock_of_hudi_is_looked_at_once(locks: Locks) -> None:
    hudi_locks(locks.file)
    with pytest.raises(LockTimeout):
        locks.lock(process()[0]).acquire()


def test_a_lock_of_hudi_that_is_released_is_followed_after_a_moment_in_which_hudi_deletes_the_file_again(
    locks: Locks,
) -> None:
    hudi_locks(locks.file)
    runtime, passed = process(lambda waited: locks.file.unlink(missing_ok=True) if waited < 0.1 else None)
    held = locks.lock(runtime, wait_ms=1000)
    held.acquire()
    held.verify()
    assert passed() >= SETTLE_S


@pytest.mark.parametrize("content", HUDIS, ids=["empty", "named"])
def test_a_lock_of_hudi_is_taken_over_when_it_is_older_than_the_option_says(locks: Locks, content: bytes) -> None:
    hudi_locks(locks.file, content, age_ms=MINUTE_MS)
    (locks.file.parent / ".lock.crc").write_bytes(b"crc")
    with pytest.raises(LockTimeout):
        locks.lock(process()[0], expire=1).acquire()
    hudi_locks(locks.file, content, age_ms=MINUTE_MS + 1)
    with pytest.raises(LockTimeout):
        locks.lock(process()[0], expire=0).acquire()
    with pytest.raises(LockTimeout):
        locks.lock(process()[0], expire=2).acquire()
    held = locks.lock(process()[0], expire=1)
    held.acquire()
    held.verify()
    assert not (locks.file.parent / ".lock.crc").exists()


def test_a_lock_from_the_future_is_not_taken_over(locks: Locks) -> None:
    hudi_locks(locks.file, age_ms=-60 * MINUTE_MS)
    with pytest.raises(LockTimeout):
        locks.lock(process()[0], wait_ms=1000, expire=1).acquire()


def _calls(locks: Locks, expire: int = 1) -> int:
    """Number of storage calls of an acquisition that takes an expired lock over."""
    seen: list[FaultyStorage] = []

    def wrapped(inner: Storage) -> Storage:
        seen.append(FaultyStorage(inner))
        return seen[0]

    held = locks.lock(process()[0], expire=expire, wrapped=wrapped)
    hudi_locks(locks.file, age_ms=2 * MINUTE_MS)
    held.acquire()
    calls = len(seen[0].calls)
    assert ("delete_if_unmodified", locks.file.name if locks.is_own else LOCK_FILE) in seen[0].calls
    held.release()
    return calls


def test_a_lock_that_changes_hands_at_any_call_of_a_take_over_is_never_deleted(locks: Locks) -> None:
    def change() -> None:
        # The holder was only slow: it releases, and another Hudi writer acquires, with the same content.
        if not locks.file.exists() or not locks.file.read_bytes():
            hudi_locks(locks.file)

    refused = 0
    for number in range(_calls(locks)):
        hudi_locks(locks.file, age_ms=2 * MINUTE_MS)
        held = locks.lock(process()[0], expire=1, wrapped=lambda inner, at=number: Interrupted(inner, at, change))  # type: ignore[misc]
        try:
            held.acquire()
        except LockTimeout:
            refused += 1
            assert locks.file.read_bytes() == b""
        else:
            held.verify()
            held.release()
        locks.file.unlink(missing_ok=True)
    assert refused >= 3


def test_after_any_failure_or_crash_of_a_take_over_the_next_writer_acquires_the_lock(locks: Locks) -> None:
    for number in range(_calls(locks)):
        for fault in Fault:
            hudi_locks(locks.file, age_ms=2 * MINUTE_MS)
            faulty = partial(FaultyStorage, faults={number: fault})
            with suppress(OSError, Killed, CommitConflict):
                held = locks.lock(process()[0], expire=1, wrapped=faulty)
                held.acquire()
                held.release()
            following = locks.lock(new_process(), expire=1)
            following.acquire()
            following.verify()
            following.release()
            assert not locks.file.exists(), (number, fault)


def test_a_writer_that_dies_with_the_lock_leaves_it_to_the_next_one(locks: Locks) -> None:
    dead = locks.lock(new_process())
    dead.acquire()
    taker = locks.lock(new_process())
    taker.acquire()
    taker.verify()
    assert taker.formers == {dead.owner.token}
    with pytest.raises(Fenced):
        dead.verify()
    dead.release()
    taker.verify()


@pytest.mark.parametrize("becomes", [None, *HUDIS], ids=["deleted", "empty", "named"])
def test_a_lock_that_another_program_deletes_while_it_is_held_is_lost(locks: Locks, becomes: bytes | None) -> None:
    held = locks.lock(process()[0])
    held.acquire()
    locks.file.unlink()
    if becomes is not None:
        hudi_locks(locks.file, becomes)
    with pytest.raises(LockLost, match="write the batch again"):
        held.verify()
    held.release()
    assert locks.file.exists() == (becomes is not None)
    assert becomes is None or locks.file.read_bytes() == becomes


def test_a_lock_that_another_writer_has_after_another_program_deleted_it_is_lost_not_taken_over(
    tmp_path: Path,
) -> None:
    locks = Locks(tmp_path, own_folder=False)
    held = locks.lock(process()[0])
    held.acquire()
    locks.file.unlink()
    locks.lock(process()[0]).acquire()
    with pytest.raises(LockLost, match="after another program deleted it"):
        held.verify()


def test_a_timeout_after_a_take_over_gives_the_lease_back_to_the_dead_owner(tmp_path: Path) -> None:
    locks = Locks(tmp_path, own_folder=True)
    dead = TableLock(locks.storage, "dead", LEASE_MS, new_process())
    dead.acquire()
    hudi_locks(locks.file)
    with pytest.raises(LockTimeout, match="was held for"):
        locks.lock(new_process(), wait_ms=100).acquire()
    locks.file.unlink()
    taker = locks.lock(new_process())
    taker.acquire()
    assert taker.formers >= {dead.owner.token}


def test_the_lease_is_renewed_while_hudis_lock_is_waited_for(tmp_path: Path) -> None:
    locks = Locks(tmp_path, own_folder=True)
    hudi_locks(locks.file)
    touched = []
    lease = tmp_path / "table" / LOCK_FILE

    def pausing(waited: float) -> None:
        touched.append(lease.stat().st_mtime_ns)
        os.utime(lease, ns=(0, 0))
        if waited > LEASE_MS / 1000:
            locks.file.unlink(missing_ok=True)

    runtime, passed = process(pausing)
    locks.lock(runtime, wait_ms=2 * LEASE_MS).acquire()
    assert passed() > LEASE_MS / 1000
    assert sum(time > 0 for time in touched[1:]) >= 3


def test_tables_that_share_a_folder_wait_for_each_other(tmp_path: Path) -> None:
    runtime = process()[0]
    providers = []
    for table in ("first", "second"):
        owner = TableLock(make_table(tmp_path / table), table, LEASE_MS, runtime).owner
        runtime.process_locks.begin(owner)
        providers.append(FileSystemBasedLockProvider(LocalStorage(tmp_path / "locks"), table, owner, 0, runtime))
    first, second = providers
    assert first.try_acquire()
    assert not second.try_acquire()
    assert "writer 'first'" in second.holder()
    assert "which writes first" in second.holder()
    assert first.is_held()
    first.release()
    assert second.try_acquire()


def test_a_folder_in_place_of_the_lock_file_is_a_named_error(tmp_path: Path) -> None:
    locks = Locks(tmp_path, own_folder=True)
    locks.file.mkdir(parents=True)
    with pytest.raises(StorageError, match=r"locks/lock is no file, but the lock file has this name"):
        locks.lock(process()[0], wait_ms=1000).acquire()
    assert not locks.storage.exists(LOCK_FILE)
