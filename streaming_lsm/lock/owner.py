"""Identify the owner of a lock or heartbeat, and check whether its process is alive.

A *process* is identified by machine, number and start time; an *owner* is one transaction of a process.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache

_MOST = 1 << 46
"""Upper limit of plausible process numbers and of milliseconds since the epoch (about two thousand years)."""


@dataclass(frozen=True, slots=True)
class Process:
    """Identify a process of a machine; the start time distinguishes it from a later process with the same number.

    Attributes:
        host: the machine's name, for messages.
        machine: boot id and pid namespace; process numbers are comparable only where it is equal. ``""`` when
            unknown.
        pid: process number.
        started: start time, in clock ticks since the machine's boot.
    """

    host: str
    machine: str
    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class Owner:
    """Identify the transaction that holds a lock or writes an instant.

    Attributes:
        process: process of the transaction.
        writer_id: identity of the writer, for messages.
        token: unique to the transaction.
        since_ms: when it began, milliseconds since the epoch.
        lease_ms: milliseconds without a heartbeat after which the owner counts as dead on other machines.
    """

    process: Process
    writer_id: str
    token: str
    since_ms: int
    lease_ms: int

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return f"writer {self.writer_id!r} (process {self.process.pid} on host {self.process.host}) since {since}"

    def encode(self) -> bytes:
        """Encode the owner as JSON."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> Owner | None:
        """Decode the owner from the first line of a file; return None if another program wrote the file."""
        try:
            fields = json.loads(data.partition(b"\n")[0])
            owner = cls(**{**fields, "process": Process(**fields["process"])})
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return owner if owner.is_plausible() else None

    def is_plausible(self) -> bool:
        """Return whether the values have the types and ranges of an owner."""
        process = self.process
        numbers = (process.pid, process.started, self.since_ms, self.lease_ms)
        texts = (process.host, process.machine, self.writer_id, self.token)
        return all(type(number) is int and 0 <= number < _MOST for number in numbers) and all(
            isinstance(text, str) for text in texts
        )


def this_process() -> Process:
    """Return the identity of the calling process."""
    return _identity()


@cache
def _identity() -> Process:
    """Read it once: a writer asks for each heartbeat that it finds, while it holds the lock."""
    pid = os.getpid()
    return Process(socket.gethostname(), _machine(), pid, _start_ticks(pid) or 0)


os.register_at_fork(after_in_child=_identity.cache_clear)


def process_lives(process: Process) -> bool:
    """Return whether a process of this machine is running; a later process with the same number does not count."""
    started = _start_ticks(process.pid)
    if started is not None:
        return started == process.started
    try:
        os.kill(process.pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    # The process is a zombie, or /proc is mounted so that it hides processes of other users.
    return os.path.exists("/proc/self/stat") and not os.path.exists(f"/proc/{process.pid}/stat")


def _start_ticks(pid: int) -> int | None:
    """Return the start of a running process in clock ticks since boot; None if it is not running, or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command's name, in parentheses, may contain spaces and parentheses.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _machine() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip() + "/" + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
