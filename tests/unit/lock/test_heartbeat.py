"""Heartbeats: files touched while a write runs, and the thread that does it."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from streaming_lsm.errors import Fenced, TableNotFound
from streaming_lsm.lock.heartbeat import (
    Claim,
    Heartbeat,
    check_still_inflight,
    heartbeat_path,
    revoke_heartbeat,
)
from streaming_lsm.lock.lock import LOCK_FILE, TableLock
from streaming_lsm.storage.local import LocalStorage
from tests.support.writers import make_table, new_process

INSTANT = "20261121120000000"


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return make_table(tmp_path)


@pytest.fixture
def lock(storage: LocalStorage) -> TableLock:
    held = TableLock(storage, "query", 1000, new_process())
    held.acquire()
    return held


def test_a_beat_touches_the_lock_and_the_running_instant(
    storage: LocalStorage, lock: TableLock, tmp_path: Path
) -> None:
    heartbeat = Heartbeat(storage, lock, 60_000)
    heartbeat.follow(Claim(storage, INSTANT, lock.owner))
    paths = [tmp_path / LOCK_FILE, tmp_path / heartbeat_path(INSTANT)]
    for path in paths:
        os.utime(path, (1, 1))
    heartbeat.beat()
    assert all(path.stat().st_mtime > 1 for path in paths)


def test_a_beat_never_brings_a_closed_instant_back(storage: LocalStorage, lock: TableLock) -> None:
    claim = Claim(storage, INSTANT, lock.owner)
    check_still_inflight(storage, INSTANT)
    heartbeat = Heartbeat(storage, lock, 60_000)
    heartbeat.follow(claim)
    claim.delete()
    with pytest.raises(Fenced, match=INSTANT):
        heartbeat.beat()
    with pytest.raises(Fenced, match=INSTANT):
        check_still_inflight(storage, INSTANT)


def test_a_task_that_does_not_see_the_drivers_table_says_so_with_path_and_host(tmp_path: Path) -> None:
    disk = LocalStorage(tmp_path / "own disk")
    with pytest.raises(TableNotFound, match=rf"own%20disk on host {socket.gethostname()} is not the table that"):
        check_still_inflight(disk, INSTANT)


def test_the_heartbeat_of_another_writer_is_not_replaced(storage: LocalStorage, lock: TableLock) -> None:
    taker = TableLock(storage, "taker", 1000, new_process())
    Claim(storage, INSTANT, taker.owner)
    with pytest.raises(Fenced, match="another writer's"):
        Claim(storage, INSTANT, lock.owner)
    assert storage.read(heartbeat_path(INSTANT)) == taker.owner.encode()


def test_a_heartbeat_that_another_run_created_after_the_look_at_the_lock_stays(
    storage: LocalStorage, lock: TableLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    Claim(storage, INSTANT, lock.owner)
    taker = TableLock(storage, "taker", 1000, new_process())
    verify = lock.verify

    def then_taken() -> None:
        verify()
        taker.acquire()
        revoke_heartbeat(storage, taker, INSTANT)
        Claim(storage, INSTANT, taker.owner)

    monkeypatch.setattr(lock, "verify", then_taken)
    revoke_heartbeat(storage, lock, INSTANT)
    assert storage.read(heartbeat_path(INSTANT)) == taker.owner.encode()


def test_a_writer_that_lost_its_lock_does_not_keep_the_new_holder_alive(
    storage: LocalStorage, lock: TableLock, tmp_path: Path
) -> None:
    TableLock(storage, "taker", 1000, new_process()).acquire()
    os.utime(tmp_path / LOCK_FILE, (1, 1))
    with pytest.raises(Fenced):
        Heartbeat(storage, lock, 60_000).beat()
    assert (tmp_path / LOCK_FILE).stat().st_mtime == 1


class Counting(Heartbeat):
    """Tells when it has beaten three times; the second beat fails."""

    def __init__(self, storage: LocalStorage, lock: TableLock) -> None:
        super().__init__(storage, lock, 1)
        self.beats = 0
        self.enough = threading.Event()

    def beat(self) -> None:
        self.beats += 1
        if self.beats == 2:
            raise OSError("one lost beat")
        if self.beats == 3:
            self.enough.set()
        super().beat()


def test_the_thread_beats_on_after_a_failure_and_ends_when_told(storage: LocalStorage, lock: TableLock) -> None:
    heartbeat = Counting(storage, lock)
    heartbeat.start()
    assert heartbeat.enough.wait(60)
    heartbeat.stop()
    beats = heartbeat.beats
    assert not any(thread.name == "lsm-heartbeat" for thread in threading.enumerate())
    assert heartbeat.beats == beats


def test_stopping_a_heartbeat_that_never_started_is_harmless(storage: LocalStorage, lock: TableLock) -> None:
    Heartbeat(storage, lock, 1).stop()
