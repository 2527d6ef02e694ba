"""Who holds a lock or writes an instant, and whether that process still lives."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

_MOST = 1 << 46
"""More than any process number, or milliseconds since the epoch for the next two thousand years."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process of one machine, told apart from a later one with the same number.

    Attributes:
        host: the machine's name, for people.
        machine: boot and process number space; process numbers can be compared only where it is equal.
            ``""`` when unknown.
        pid: process number.
        started: when it started, in clock ticks since the machine's boot.
    """

    host: str
    machine: str
    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class Owner:
    """One writer's hold on a table.

    Attributes:
        process: where it runs.
        writer_id: identity of the writer, for people.
        token: unique to this hold.
        since_ms: when it began, milliseconds since the epoch.
        lease_ms: without a heartbeat for so long the owner counts as dead on other machines.
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
        """The owner as JSON."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> Owner | None:
        """The owner in a file; None when something else than this package wrote it."""
        try:
            fields = json.loads(data)
            owner = cls(**{**fields, "process": Process(**fields["process"])})
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return owner if owner.is_plausible() else None

    def is_plausible(self) -> bool:
        """Whether the values have the types of an owner, and are such as a process gives them."""
        process = self.process
        numbers = (process.pid, process.started, self.since_ms, self.lease_ms)
        texts = (process.host, process.machine, self.writer_id, self.token)
        return all(type(number) is int and 0 <= number < _MOST for number in numbers) and all(
            isinstance(text, str) for text in texts
        )


def this_process() -> Process:
    """The process that asks."""
    pid = os.getpid()
    return Process(socket.gethostname(), _machine(), pid, _start_ticks(pid) or 0)


def process_lives(process: Process) -> bool:
    """Whether a process of this machine still runs; a new one under the same number does not count."""
    started = _start_ticks(process.pid)
    if started is not None:
        return started == process.started
    try:
        os.kill(process.pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    # Dead but not yet collected by its parent, or hidden by the way /proc is mounted.
    return os.path.exists("/proc/self/stat") and not os.path.exists(f"/proc/{process.pid}/stat")


def _start_ticks(pid: int) -> int | None:
    """Start of a running process in clock ticks since boot; None when there is none, or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command's name, in parentheses, may hold spaces and parentheses itself.
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
