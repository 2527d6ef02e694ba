"""Transactions whose changes of the timeline other programs are excluded from by a lock provider."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.config import LOCK_PROVIDER
from streaming_lsm.errors import LockLost, LockTimeout, StorageError, WriterTimeout
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.lock.lock import LOCK_FILE
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.uris import open_storage
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from tests.support.crash_points import EVERY_CALL, sample
from tests.support.faulty_storage import Fault, FaultyStorage, Interrupted, Killed
from tests.support.lock_providers import Interrupted as Interrupting
from tests.support.lock_providers import Remembering
from tests.support.small_tables import create, rows, shown
from tests.support.writers import NO_WAIT, new_process

OWN = "tests.support.lock_providers:"
FILES = "FileSystemBasedLockProvider"
LEASE = "StorageBasedLockProvider"
HUDIS = "20260101000000000"
FIRST, SECOND = ("a", "nl", 1, 1), ("b", "de", 1, 2)
STEP = 1 if EVERY_CALL else 3


@dataclass(frozen=True)
class Provided:
    """A way to exclude other programs.

    Attributes:
        options: that choose it.
        lose: does what another program does that takes the lock.
    """

    options: dict[str, object]
    lose: Callable[[Path], object]


def _provided(name: str, tmp_path: Path) -> Provided:
    if name == "own":
        Remembering.forget()
        return Provided(
            {LOCK_PROVIDER.key: f"{OWN}Remembering"},
            lambda root: Remembering.holders.update({open_storage(root).uri: "other"}),
        )
    if name == "lease":
        theirs = b'{"expired":false,"validUntil":4000000000000,"owner":"hudi"}'
        return Provided(
            {LOCK_PROVIDER.key: LEASE},
            lambda root: open_storage(root).replace(".hoodie/.locks/table_lock.json", theirs),
        )
    if name == "file":
        return Provided({LOCK_PROVIDER.key: FILES}, lambda root: (root / ".hoodie/lock").write_bytes(b""))
    locks = tmp_path / "locks"
    locks.mkdir()
    return Provided(
        {LOCK_PROVIDER.key: FILES, "hoodie.write.lock.filesystem.path": str(locks)},
        lambda root: (locks / "lock").write_bytes(b""),
    )


def give_back(root: Path) -> None:
    """The other program releases its lock."""
    Remembering.forget()
    for file in (root / ".hoodie/lock", root.parent / "locks/lock", root / ".hoodie/.locks/table_lock.json"):
        file.unlink(missing_ok=True)


@pytest.fixture(params=["own", "lease", "file", "folder"])
def provided(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provided]:
    yield _provided(request.param, tmp_path)
    Remembering.forget()


def opened(root: Path, options: dict[str, object], wrapped: Callable[[Storage], Storage] | None = None) -> LsmTable:
    table = LsmTable(root, {**NO_WAIT, **options})
    table.runtime = new_process()
    if wrapped is not None:
        table.storage = wrapped(table.storage)
    return table


def test_a_lock_of_another_program_keeps_a_write_from_beginning(provided: Provided, tmp_path: Path) -> None:
    root = tmp_path / "table"
    create(root, **provided.options).upsert(rows(FIRST))
    provided.lose(root)
    before = opened(root, {}).timeline.instants
    with pytest.raises(LockTimeout, match="retry"):
        opened(root, provided.options).upsert(rows(SECOND))
    assert opened(root, {}).timeline.instants == before
    give_back(root)
    opened(root, provided.options).upsert(rows(SECOND))
    assert shown(opened(root, {})) == [FIRST, SECOND]


def test_a_write_is_not_decided_after_it_could_see_that_the_lock_was_lost(provided: Provided, tmp_path: Path) -> None:
    """Another program takes the lock right before a storage call of a write: each third, in ``make faults`` each."""
    root = tmp_path / "table"
    create(root, **provided.options)
    options = {**provided.options, "hoodie.write.num.retries.on.conflict.failures": 0}
    number, lost = 0, 0
    while True:
        storage = Interrupted(open_storage(root), number, lambda: provided.lose(root))
        row = (f"key-{number}", "nl", number, number)
        try:
            opened(root, options, lambda inner, storage=storage: storage).upsert(rows(row))  # type: ignore[misc]
        except (LockLost, LockTimeout):
            lost += 1
            assert not any(name == "put_if_absent" and DECISION_FOLDER in path for name, path in storage.calls)
            assert row not in shown(opened(root, {}))
        else:
            assert row in shown(opened(root, {}))
        give_back(root)
        with opened(root, provided.options).transaction():
            pass  # what the last one left is rolled back
        if number >= len(storage.calls):
            break
        number += STEP
    assert lost >= 5
    # Nothing is in the way of the next writer.
    opened(root, provided.options).upsert(rows(SECOND))
    assert SECOND in shown(opened(root, {}))
    assert not opened(root, {}).timeline.pending


def test_a_batch_whose_lock_is_lost_is_written_again(provided: Provided, tmp_path: Path) -> None:
    root = tmp_path / "table"
    create(root, **provided.options)
    events: list[str] = []

    class Losing(FaultyStorage):
        """Another program takes the lock right before the write is decided."""

        def read(self, path: str, most: int | None = None) -> bytes:
            is_sealed = any(name == "replace_if_unchanged" and HEARTBEAT_FOLDER in path for name, path in self.calls)
            if path == LOCK_FILE and is_sealed and not events:
                events.append("lost")
                provided.lose(root)
            return super().read(path, most)

    def release(seconds: float) -> None:
        if events == ["lost"]:
            events.append("released")
            give_back(root)

    table = opened(root, {**provided.options, "hoodie.write.lock.wait_time_ms": 5000}, Losing)
    table.runtime = replace(table.runtime, sleep=release)
    table.upsert(rows(FIRST))
    assert events == ["lost", "released"]
    assert shown(opened(root, {})) == [FIRST]
    assert len(opened(root, {}).timeline.completed_writes) == 1


@pytest.mark.parametrize("fault", [Fault.KILL_BEFORE, Fault.KILL_AFTER, Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_after_a_crash_or_failure_at_any_call_the_next_write_succeeds(
    provided: Provided, tmp_path: Path, fault: Fault
) -> None:
    root = tmp_path / "table"
    create(root, **provided.options)
    seen = FaultyStorage(open_storage(root))
    opened(root, provided.options, lambda inner: seen).upsert(rows(FIRST))
    for number in sample(range(len(seen.calls)), list(Fault).index(fault) * 3, 13):
        with suppress(Killed, OSError, Exception):
            faulty = FaultyStorage(open_storage(root), {number: fault})
            opened(root, provided.options, lambda inner, faulty=faulty: faulty).upsert(rows(FIRST))  # type: ignore[misc]
        Remembering.forget()  # the lock service knows which process is dead
        assert opened(root, provided.options).upsert(rows(("c", "de", number, number))) is not None
    assert shown(opened(root, {}))[-1][0] == "c"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Failing", "RuntimeError: no route to the lock service"),
        ("Unmade", "RuntimeError: no route to the lock service"),
        ("Refused", r"ConnectionRefusedError: \[Errno 111\] Connection refused"),
    ],
)
def test_a_provider_whose_service_fails_is_a_named_error_and_nothing_is_written(
    tmp_path: Path, name: str, said: str
) -> None:
    create(tmp_path)
    with pytest.raises(StorageError, match=rf"the lock of .*{name} for .* \({LOCK_PROVIDER.key}\): {said}; retry"):
        opened(tmp_path, {LOCK_PROVIDER.key: f"{OWN}{name}"}).upsert(rows(FIRST))
    opened(tmp_path, {}).upsert(rows(SECOND))
    assert shown(opened(tmp_path, {})) == [SECOND]


def test_a_pending_write_of_hudi_is_waited_for_unless_hudi_holds_a_lock_of_ours_when_it_completes(
    tmp_path: Path,
) -> None:
    create(tmp_path)
    optimistic: dict[str, object] = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    _pending_of_hudi(tmp_path)
    with pytest.raises(WriterTimeout, match="a writer that does not name itself"):
        opened(tmp_path, optimistic).upsert(rows(FIRST))
    with pytest.raises(WriterTimeout, match="a writer that does not name itself"):
        opened(tmp_path, {LOCK_PROVIDER.key: FILES}).upsert(rows(FIRST))
    opened(tmp_path, {**optimistic, LOCK_PROVIDER.key: FILES}).upsert(rows(FIRST))
    assert shown(opened(tmp_path, {})) == [FIRST]
    assert [pending.requested for pending in opened(tmp_path, {}).timeline.pending] == [HUDIS]


def test_a_write_that_is_made_alone_waits_for_a_pending_write_of_hudi_only_as_long_as_the_options_say(
    tmp_path: Path,
) -> None:
    create(tmp_path)
    _pending_of_hudi(tmp_path)
    optimistic = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL", LOCK_PROVIDER.key: FILES}
    with opened(tmp_path, optimistic).transaction(alone=True) as running:
        assert running.begin() > HUDIS


def _pending_of_hudi(root: Path) -> None:
    """A write that Hudi has begun, and shows to be alive."""
    for name in ("requested", "inflight"):
        (root / f".hoodie/timeline/{HUDIS}.deltacommit.{name}").write_bytes(b"")
    (root / ".hoodie/.heartbeat").mkdir(exist_ok=True)
    (root / f".hoodie/.heartbeat/{HUDIS}").write_bytes(b"")


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("provider", [{}, {LOCK_PROVIDER.key: FILES}], ids=["no provider", "provider"])
def test_a_write_that_is_made_alone_and_is_overtaken_all_the_same_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, provider: dict[str, object]
) -> None:
    """Its files would have an earlier time than those that they replace, so that readers took the latter."""
    monkeypatch.setattr("streaming_lsm.txn.retries._SHARED", 0)
    optimistic = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL", **provider}
    create(tmp_path, **{"hoodie.datasource.write.table.type": kind, "hoodie.bucket.index.num.buckets": 1})
    overtaken: list[object] = []

    class Overtaken(FaultyStorage):
        """Another writer, which waits for nobody, writes between the two acquisitions of the lock."""

        def put_if_absent(self, path: str, data: bytes) -> None:
            if path == LOCK_FILE and self._has_begun() and not overtaken:
                other = opened(tmp_path, optimistic)
                other.runtime = new_process(alive=lambda process: True)
                overtaken.append(other.upsert(rows(("b", "nl", 1, 2))))
            super().put_if_absent(path, data)

        def _has_begun(self) -> bool:
            return any(name == "put_if_absent" and path.endswith(".inflight") for name, path in self.calls)

    table = opened(tmp_path, optimistic, Overtaken)
    table.runtime = new_process(alive=lambda process: True)
    table.upsert(rows(FIRST))
    assert overtaken
    assert shown(opened(tmp_path, {})) == [FIRST, ("b", "nl", 1, 2)]


@pytest.mark.parametrize(
    ("options", "begun_s", "completed_s", "said"),
    [
        ({}, 60, 300, "300.. s .lsm.write.single.writer.wait.ms"),
        ({"hoodie.write.lock.num_retries": 3}, 0, 300, "300.. s .lsm.write.single.writer.wait.ms"),
        ({"lsm.write.single.writer.wait.ms": 1000}, 60, 60, "60.. s .hoodie.write.lock.wait_time_ms"),
    ],
)
def test_a_lock_that_is_never_released_is_waited_for_once_and_the_option_is_named(
    tmp_path: Path, options: dict[str, object], begun_s: float, completed_s: float, said: str
) -> None:
    """Also where the write is rolled back: the next one does it."""
    create(tmp_path)
    table, waits = LsmTable(tmp_path, options), [0.0]

    def sleep(seconds: float) -> None:
        waits[-1] += seconds

    table.runtime = replace(new_process(), sleep=sleep, elapsed=lambda: sum(waits))

    def batches() -> Iterator[pa.RecordBatch]:
        (tmp_path / LOCK_FILE).write_bytes(b"")
        yield from rows(FIRST).to_batches()

    with pytest.raises(LockTimeout, match=f"was there for all of {said}"):
        table.upsert(pa.RecordBatchReader.from_batches(rows().schema, batches()))
    waits.append(0.0)
    with pytest.raises(LockTimeout, match="num_retries" if begun_s == 0 else "wait_time_ms"):
        table.upsert(rows(FIRST))
    assert waits == [pytest.approx(completed_s, abs=1), pytest.approx(begun_s, abs=1)]
    give_back(tmp_path)
    opened(tmp_path, {}).upsert(rows(SECOND))
    assert shown(opened(tmp_path, {})) == [SECOND]
    assert not opened(tmp_path, {}).timeline.pending


def test_after_ctrl_c_while_the_lock_is_released_the_next_write_of_the_process_goes_on(tmp_path: Path) -> None:
    options: dict[str, object] = {LOCK_PROVIDER.key: f"{OWN}Interrupted"}
    table = create(tmp_path, **{**NO_WAIT, **options})
    Interrupting.forget()
    Interrupting.presses.append("Ctrl-C")
    with pytest.raises(KeyboardInterrupt):
        table.upsert(rows(FIRST))
    assert not (tmp_path / LOCK_FILE).exists()
    table.upsert(rows(SECOND))
    assert shown(table) == [SECOND]
    assert not table.timeline.pending


def test_ctrl_c_twice_while_a_write_waits_to_be_made_alone_leaves_nothing_that_others_wait_for(tmp_path: Path) -> None:
    optimistic: dict[str, object] = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
    create(tmp_path, **optimistic)
    table = opened(tmp_path, {**optimistic, "lsm.write.single.writer.wait.ms": 60_000})

    def press(*_: object) -> None:
        raise KeyboardInterrupt

    first = opened(tmp_path, optimistic)
    table.runtime = replace(first.runtime, sleep=press)
    with first.transaction() as running:
        running.begin()
        acquire_again = mock.patch("streaming_lsm.txn.locked_table.LockedTable.acquire_again", press)
        with acquire_again, pytest.raises(KeyboardInterrupt):
            table.transaction(alone=True).__enter__()
    assert [thread.name for thread in threading.enumerate() if thread.name == "lsm-heartbeat"] == []
    first.upsert(rows(FIRST))
    assert not first.timeline.pending
