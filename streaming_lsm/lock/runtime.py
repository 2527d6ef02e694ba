"""What the timeline takes from the outside world, so that a test can be the world."""

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
    """Tables that transactions of this process hold. Files cannot tell two threads of one process apart."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held: dict[str, tuple[int, Owner]] = {}

    def acquire(self, table: str, owner: Owner) -> None:
        """Take a table.

        Args:
            table: URI of its root, symbolic links resolved.

        Raises:
            CommitConflict: another transaction of this process has it.
        """
        with self._guard:
            pid, holder = self._held.get(table, (0, owner))
            # A forked child inherits the entries, not the transactions.
            if pid == os.getpid():
                raise CommitConflict(f"{table} is being written by this very process: {holder}; retry when it is done")
            self._held[table] = (os.getpid(), owner)

    def release(self, table: str, owner: Owner) -> None:
        """Give a table back; nothing happens when another owner has it."""
        with self._guard:
            if self._held.get(table, (0, None))[1] == owner:
                del self._held[table]


_PROCESS_LOCKS = ProcessLocks()


@dataclass(frozen=True)
class Runtime:
    """Clock, waiting, ids, and knowledge of processes.

    Attributes:
        clock: milliseconds since the epoch.
        sleep: waits for so many seconds.
        new_token: a text that was never returned before.
        process: the process that asks.
        process_lives: whether a process of the same machine still runs.
        process_locks: the tables that this process writes.
    """

    clock: Clock = system_clock
    sleep: Sleep = time.sleep
    new_token: Callable[[], str] = field(default=lambda: uuid.uuid4().hex)
    process: Callable[[], Process] = this_process
    process_lives: Callable[[Process], bool] = process_lives
    process_locks: ProcessLocks = _PROCESS_LOCKS

    def is_alive(self, owner: Owner, heartbeat_ms: int) -> bool:
        """Whether an owner other than the asking transaction still writes.

        Args:
            owner: found in a lock or heartbeat file, while this process's own entry for the table is held.
            heartbeat_ms: when that file was last touched, milliseconds since the epoch.
        """
        here = self.process()
        if owner.process == here:
            return False  # left by an earlier transaction of this process, which could not remove it
        if here.machine and owner.process.machine == here.machine:
            return self.process_lives(owner.process)
        return self.clock() - heartbeat_ms <= owner.lease_ms
