"""Hudi's lease in an object is honoured until it is over, and changed only by comparison."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from streaming_lsm.config import Options
from streaming_lsm.errors import CommitConflict, CorruptFileError, LockLost, LockTimeout
from streaming_lsm.lock.lock import LockWait, TableLock
from streaming_lsm.lock.providers.choice import choose_provider
from streaming_lsm.lock.providers.storage_based import LOCK_PATH, LockData
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.uris import open_storage
from tests.support.faulty_storage import Fault, FaultyStorage, Interrupted, Killed
from tests.support.writers import NOON_MS, new_process

LEASE_MS = 120_000
VALIDITY_MS = 100_000
RENEW_S = 10
HOUR_MS = 3_600_000


class World:
    """Clocks of one process; `passed` seconds since noon."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.passed = 0.0
        self.pausing = lambda: None
        self.runtime: Runtime = replace(
            new_process(alive=lambda other: True),
            clock=lambda: NOON_MS + ahead_ms + int(1000 * self.passed),
            elapsed=lambda: self.passed,
            sleep=self._sleep,
        )

    def _sleep(self, seconds: float) -> None:
        self.passed += seconds
        self.pausing()


def new_lock(storage: Storage, runtime: Runtime, wait_ms: int = 0) -> TableLock:
    options = {
        "hoodie.write.lock.provider": "StorageBasedLockProvider",
        "hoodie.write.lock.storage.validity.timeout.secs": VALIDITY_MS // 1000,
        "hoodie.write.lock.storage.renew.interval.secs": RENEW_S,
    }
    chosen = choose_provider(storage, Options(options), runtime)
    return TableLock(storage, "query", LEASE_MS, runtime, LockWait(wait_ms), chosen)


def hudis(valid_ms: int, expired: bool = False, owner: str = "b0a1-hudi") -> bytes:
    """As Hudi 1.2 writes it: a lock that is valid for some time from noon on."""
    return json.dumps({"expired": expired, "validUntil": NOON_MS + valid_ms, "owner": owner}).encode()


def fields(storage: Storage) -> dict[str, object]:
    found: dict[str, object] = json.loads(storage.read(LOCK_PATH))
    return found


@pytest.fixture(params=["local", "memory", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Any storage."""
    if request.param == "local":
        return open_storage(tmp_path / "table")
    return open_storage(request.getfixturevalue(f"{request.param}_uri"))


def test_the_lock_has_hudis_fields_and_stays_as_expired(storage: Storage) -> None:
    held = new_lock(storage, World().runtime)
    for epoch in (1, 2):
        held.acquire()
        held.verify()
        found = fields(storage)
        assert (found["expired"], found["validUntil"], found["epoch"]) == (False, NOON_MS + VALIDITY_MS, epoch)
        assert found["owner"] == held.owner.token
        held.release()
        assert fields(storage)["expired"] is True


def test_a_lock_of_hudi_is_waited_for_and_named_with_its_end(storage: Storage) -> None:
    storage.put_if_absent(LOCK_PATH, hudis(VALIDITY_MS))
    world = World()
    with pytest.raises(
        LockTimeout, match=r"by owner 'b0a1-hudi' of another program \(.*valid until 2026-11-21T12:01:40"
    ):
        new_lock(storage, world.runtime, 1000).acquire()
    assert 1 <= world.passed <= 1.3
    assert storage.read(LOCK_PATH) == hudis(VALIDITY_MS)


def test_a_lock_that_hudi_released_is_acquired_at_once(storage: Storage) -> None:
    storage.put_if_absent(LOCK_PATH, hudis(VALIDITY_MS, expired=True))
    new_lock(storage, World().runtime).acquire()
    assert fields(storage)["expired"] is False


def test_a_lock_of_hudi_that_nobody_renews_is_taken_over_after_its_end(storage: Storage) -> None:
    storage.put_if_absent(LOCK_PATH, hudis(VALIDITY_MS))
    world = World()
    new_lock(storage, world.runtime, 2 * VALIDITY_MS).acquire()
    assert VALIDITY_MS + 500 < 1000 * world.passed < VALIDITY_MS + 1000


def test_a_lock_that_seems_over_is_watched_as_its_holder_may_have_another_clock(storage: Storage) -> None:
    world = World(ahead_ms=HOUR_MS)
    storage.put_if_absent(LOCK_PATH, hudis(VALIDITY_MS))
    renewed = [0.0]

    def renew() -> None:
        if world.passed - renewed[0] >= RENEW_S:
            renewed[0] = world.passed
            storage.replace(LOCK_PATH, hudis(VALIDITY_MS + int(1000 * world.passed)))

    world.pausing = renew
    with pytest.raises(LockTimeout):
        new_lock(storage, world.runtime, 60_000).acquire()
    world.pausing = lambda: None
    begun = world.passed
    new_lock(storage, world.runtime, 60_000).acquire()
    assert world.passed - begun <= 1.6 * RENEW_S


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
def test_a_lock_from_a_clock_that_is_an_hour_off_is_respected_while_it_is_renewed(
    storage: Storage, ahead_ms: int
) -> None:
    storage.put_if_absent(LOCK_PATH, hudis(VALIDITY_MS - ahead_ms))
    with pytest.raises(LockTimeout):
        new_lock(storage, World().runtime, 1000).acquire()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\x00",
        b"[" * 100_000,
        b'{"expired": "no", "validUntil": 1, "owner": "x"}',
        b'{"expired": false, "validUntil": true, "owner": "x"}',
        b'{"expired": false, "validUntil": 1e400, "owner": "x"}',
        b'{"expired": false, "validUntil": 999999999999999999999, "owner": "x"}',
        b'{"expired": false, "validUntil": 1, "owner": null}',
        b" " * (1 << 20) + b"x",
    ],
    ids=str,
)
def test_an_unreadable_lock_is_a_named_error_at_once_and_stays(storage: Storage, content: bytes) -> None:
    storage.put_if_absent(LOCK_PATH, content)
    with pytest.raises(CorruptFileError, match=r"\.hoodie/\.locks/table_lock\.json"):
        new_lock(storage, World().runtime, 1000).acquire()
    assert storage.read(LOCK_PATH, None) == content
    assert not storage.exists(".hoodie/lock")


def test_a_living_writer_that_lost_its_validity_does_not_count_as_holder(storage: Storage) -> None:
    world = World()
    held = new_lock(storage, world.runtime)
    held.acquire()
    world.passed = 0.89 * VALIDITY_MS / 1000
    held.verify()
    world.passed = 0.91 * VALIDITY_MS / 1000
    with pytest.raises(LockLost, match=r"StorageBasedLockProvider for .* was lost while it was held"):
        held.verify()


def test_a_renewal_puts_the_end_off(storage: Storage) -> None:
    world = World()
    held = new_lock(storage, world.runtime)
    held.acquire()
    for second in (60, 120, 180):
        world.passed = second
        held.touch()
        assert fields(storage)["validUntil"] == NOON_MS + 1000 * second + VALIDITY_MS
    world.passed += 0.89 * VALIDITY_MS / 1000
    held.verify()
    held.release()
    assert fields(storage)["expired"] is True


def test_a_lock_that_hudi_took_over_is_lost_and_neither_renewed_nor_released(storage: Storage) -> None:
    held = new_lock(storage, World().runtime)
    held.acquire()
    storage.replace(LOCK_PATH, hudis(VALIDITY_MS))
    with pytest.raises(LockLost):
        held.verify()
    held.touch()
    held.release()
    assert storage.read(LOCK_PATH) == hudis(VALIDITY_MS)


def test_a_writer_that_dies_with_the_lock_leaves_it_to_the_next_one(storage: Storage) -> None:
    dead = new_lock(storage, new_process())
    dead.acquire()
    taker = new_lock(storage, new_process())
    taker.acquire()
    taker.verify()
    assert fields(storage)["epoch"] == 2
    dead.release()
    taker.verify()


def _calls(storage: Storage) -> int:
    counted = FaultyStorage(storage)
    held = new_lock(counted, World().runtime)
    held.acquire()
    calls = len(counted.calls)
    assert counted.calls[-1] == ("replace_if_unchanged", LOCK_PATH)
    held.release()
    return calls


def test_a_lock_that_hudi_acquires_at_any_call_is_never_replaced(storage: Storage) -> None:
    storage.put_if_absent(LOCK_PATH, hudis(-HOUR_MS, expired=True))
    refused = 0
    for number in range(_calls(storage)):
        storage.replace(LOCK_PATH, hudis(-HOUR_MS, expired=True))
        taken = Interrupted(storage, number, lambda: storage.replace(LOCK_PATH, hudis(VALIDITY_MS)))
        with pytest.raises(LockTimeout):
            new_lock(taken, World().runtime).acquire()
        refused += 1
        assert storage.read(LOCK_PATH) == hudis(VALIDITY_MS)
    assert refused >= 3


def test_after_any_failure_or_crash_the_next_writer_acquires_the_lock(storage: Storage) -> None:
    storage.put_if_absent(LOCK_PATH, hudis(-HOUR_MS, expired=True))
    for number in range(_calls(storage) + 3):
        for fault in Fault:
            faulty = FaultyStorage(storage, {number: fault})
            with suppress(OSError, Killed, CommitConflict):
                held = new_lock(faulty, World().runtime)
                held.acquire()
                held.release()
            following = new_lock(storage, new_process())
            following.acquire()
            following.verify()
            following.release()
            assert fields(storage)["expired"] is True, (number, fault)


def test_a_release_that_fails_is_tried_again(storage: Storage) -> None:
    faulty = FaultyStorage(storage, {3: Fault.FAIL_BEFORE, 4: Fault.FAIL_BEFORE})
    held = new_lock(faulty, World().runtime)
    held.acquire()
    assert len(faulty.calls) == 3
    held.release()
    assert fields(storage)["expired"] is True


def test_two_locks_never_have_equal_content(storage: Storage) -> None:
    world = World()
    contents = []
    for _ in range(3):
        held = new_lock(storage, world.runtime)
        held.acquire()
        contents.append(storage.read(LOCK_PATH))
        held.release()
        contents.append(storage.read(LOCK_PATH))
        storage.replace(LOCK_PATH, hudis(0, expired=True))
    assert len(set(contents)) == len(contents)


def test_what_is_written_is_read_back(storage: Storage) -> None:
    owner = new_lock(storage, World().runtime).owner
    data = LockData(False, NOON_MS, "x", 3, owner)
    assert LockData.decode(data.encode(), LOCK_PATH) == data
