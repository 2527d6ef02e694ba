"""Inject clock, sleep, threads, ids and process checks, so that tests can replace them."""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from streaming_lsm.errors import LockTimeout
from streaming_lsm.lock.background import BackgroundThread, NewBackground
from streaming_lsm.lock.lease import LeaseWatch, Renewal, is_certainly_over
from streaming_lsm.lock.owner import Owner, Process, process_lives, this_process
from streaming_lsm.timeline.clock import Clock, Sleep, system_clock


class ProcessLocks:
    """Let one thread of this process at a time into the lock of a table, in the order in which they came.

    The lock file identifies processes, not threads. Also tracks the running transactions of this process, by which a
    heartbeat of one that runs is distinguished from one that was left behind.
    """

    def __init__(self) -> None:
        self._freed = threading.Condition()
        self._held: dict[str, tuple[int, Owner]] = {}
        self._waiting: dict[str, deque[object]] = {}
        self._running: set[tuple[int, str]] = set()
        self._giving_way: dict[str, float] = {}

    def acquire(self, table: str, owner: Owner, wait_s: float = 0) -> float:
        """Acquire a table; wait for those that came before.

        Args:
            table: URI of its root, symbolic links resolved.
            wait_s: seconds to wait at most.

        Returns:
            The seconds waited.

        Raises:
            LockTimeout: another transaction of this process held it for all of that time.
        """
        ticket, begun, wait_s = object(), time.monotonic(), min(wait_s, threading.TIMEOUT_MAX)
        with self._freed:
            waiting = self._waiting.setdefault(table, deque())
            waiting.append(ticket)
            try:
                if not self._freed.wait_for(lambda: waiting[0] is ticket and not self._holder(table), wait_s):
                    holder = self._holder(table) or "transactions that came before"
                    raise LockTimeout(f"{table} is being changed by this process: {holder}; retry when it is done")
                # A forked child inherits the entries, but not the transactions.
                self._held[table] = (os.getpid(), owner)
                return time.monotonic() - begun
            finally:
                waiting.remove(ticket)
                if not waiting:
                    del self._waiting[table]
                self._freed.notify_all()

    def release(self, table: str, owner: Owner) -> None:
        """Release a table; do nothing if another owner holds it."""
        with self._freed:
            if self._held.get(table, (0, None))[1] == owner:
                del self._held[table]
                self._freed.notify_all()

    def give_way(self, table: str, until_s: float) -> None:
        """Record that other processes wait for a table: the next transaction begins after a time of `elapsed`."""
        with self._freed:
            self._giving_way[table] = until_s

    def let_others_go_first(self, table: str, elapsed: Callable[[], float], sleep: Sleep) -> float:
        """Wait as `give_way` says, once; return the seconds."""
        with self._freed:
            until_s = self._giving_way.pop(table, 0.0)
        left_s = max(0.0, until_s - elapsed())
        if left_s:
            sleep(left_s)
        return left_s

    def begin(self, owner: Owner) -> None:
        """Record that a transaction of this process runs."""
        with self._freed:
            self._running.add((os.getpid(), owner.token))

    def end(self, owner: Owner) -> None:
        """Record that a transaction has ended: what is left of it is nobody's."""
        with self._freed:
            self._running.discard((os.getpid(), owner.token))

    def is_running(self, owner: Owner) -> bool:
        """Return whether a transaction of this process runs."""
        with self._freed:
            return (os.getpid(), owner.token) in self._running

    def _holder(self, table: str) -> Owner | None:
        pid, holder = self._held.get(table, (0, None))
        return holder if pid == os.getpid() else None

    def forget(self) -> None:
        """Forget everything, in a forked child: it has the threads and transactions of its parent no more."""
        self.__init__()  # type: ignore[misc]


_PROCESS_LOCKS = ProcessLocks()
os.register_at_fork(after_in_child=_PROCESS_LOCKS.forget)
_LEASES = LeaseWatch()
os.register_at_fork(after_in_child=_LEASES.forget)


@dataclass(frozen=True)
class Runtime:
    """Provide clock, sleep, ids and process checks to the lock and to transactions.

    Attributes:
        clock: returns milliseconds since the epoch.
        elapsed: returns seconds of a clock that only goes forward.
        sleep: waits for a number of seconds.
        random: returns a number of [0, 1), by which pauses differ.
        new_token: returns a unique text.
        process: returns the identity of the calling process.
        process_lives: returns whether a process of this machine is running.
        process_locks: tables that transactions of this process hold.
        leases: what this process has seen of other writers' locks and heartbeats.
        background: creates what runs beside a transaction, as its heartbeat.
    """

    clock: Clock = system_clock
    elapsed: Callable[[], float] = time.monotonic
    sleep: Sleep = time.sleep
    random: Callable[[], float] = random.random
    new_token: Callable[[], str] = field(default=lambda: uuid.uuid4().hex)
    process: Callable[[], Process] = this_process
    process_lives: Callable[[Process], bool] = process_lives
    process_locks: ProcessLocks = _PROCESS_LOCKS
    leases: LeaseWatch = _LEASES
    background: NewBackground = BackgroundThread

    def holds_lock(self, owner: Owner, file: str, seen: Renewal) -> bool:
        """Return whether the owner that a lock file names may still hold the lock.

        The caller holds the table's entry in `process_locks`: a lock of this process is a leftover.

        Args:
            owner: the owner.
            file: URI of the lock file.
            seen: the lock file as it is now.
        """
        return owner.process != self.process() and self._is_alive(owner, file, seen)

    def is_writing(self, owner: Owner, file: str, seen: Renewal) -> bool:
        """Return whether the transaction that a heartbeat names is running; see `holds_lock`."""
        if owner.process == self.process():
            return self.process_locks.is_running(owner)
        return self._is_alive(owner, file, seen)

    def is_fresh(self, file: str, seen: Renewal, lease_ms: int) -> bool:
        """Return whether the lease of a writer elsewhere is not over; see `streaming_lsm.lock.lease`."""
        return not is_certainly_over(seen.modified_ms, self.clock(), lease_ms) and self._is_renewed(
            file, seen, lease_ms
        )

    def _is_renewed(self, file: str, seen: Renewal, lease_ms: int) -> bool:
        return self.leases.unrenewed_s(file, seen, self.elapsed()) * 1000 <= lease_ms

    def _is_alive(self, owner: Owner, file: str, seen: Renewal) -> bool:
        machine = self.process().machine
        if not machine or owner.process.machine != machine:
            return self.is_fresh(file, seen, owner.lease_ms)
        # A process that is stopped lives, but does not renew.
        return self.process_lives(owner.process) and self._is_renewed(file, seen, owner.lease_ms)
