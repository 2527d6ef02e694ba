"""Inject clock, sleep, ids and process checks, so that tests can replace them."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from streaming_lsm.errors import CommitConflict
from streaming_lsm.lock.owner import Owner, Process, process_lives, this_process
from streaming_lsm.timeline.clock import Clock, Sleep, system_clock


class ProcessLocks:
    """Track the tables that transactions of this process hold; the lock file identifies processes, not threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held: dict[str, tuple[int, Owner]] = {}

    def acquire(self, table: str, owner: Owner) -> None:
        """Acquire a table.

        Args:
            table: URI of its root, symbolic links resolved.

        Raises:
            CommitConflict: another transaction of this process holds it.
        """
        with self._guard:
            pid, holder = self._held.get(table, (0, owner))
            # A forked child inherits the entries, but not the transactions.
            if pid == os.getpid():
                raise CommitConflict(f"{table} is being written by this process: {holder}; retry when it is done")
            self._held[table] = (os.getpid(), owner)

    def release(self, table: str, owner: Owner) -> None:
        """Release a table; do nothing if another owner holds it."""
        with self._guard:
            if self._held.get(table, (0, None))[1] == owner:
                del self._held[table]


_PROCESS_LOCKS = ProcessLocks()


@dataclass(frozen=True)
class Runtime:
    """Provide clock, sleep, ids and process checks to the lock and to transactions.

    Attributes:
        clock: returns milliseconds since the epoch.
        sleep: waits for a number of seconds.
        new_token: returns a unique text.
        process: returns the identity of the calling process.
        process_lives: returns whether a process of this machine is running.
        process_locks: tables that transactions of this process hold.
    """

    clock: Clock = system_clock
    sleep: Sleep = time.sleep
    new_token: Callable[[], str] = field(default=lambda: uuid.uuid4().hex)
    process: Callable[[], Process] = this_process
    process_lives: Callable[[Process], bool] = process_lives
    process_locks: ProcessLocks = _PROCESS_LOCKS

    def is_alive(self, owner: Owner, heartbeat_ms: int) -> bool:
        """Return whether the owner of a lock or heartbeat file is alive.

        The caller holds the table's entry in `process_locks`: a file of this process is a leftover.

        Args:
            owner: owner that the file names.
            heartbeat_ms: modification time of the file, milliseconds since the epoch.
        """
        here = self.process()
        if owner.process == here:
            return False  # left by an earlier transaction of this process, which failed to delete it
        if here.machine and owner.process.machine == here.machine:
            return self.process_lives(owner.process)
        return self.clock() - heartbeat_ms <= owner.lease_ms
