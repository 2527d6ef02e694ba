"""Watch the files by which writers show that they are alive, without comparing clocks of different machines.

A writer *renews* a lock or heartbeat by touching it. The *lease* is the time without a renewal after which its owner
counts as dead. It is measured by the watching process, from the first look at a modification time until a later look at
the same one, so that neither a clock that is an hour ahead nor one that is behind takes a living writer for dead.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

_CERTAIN_MS = 3_600_000
"""An age by the clock, beyond the lease, that no skew between machines explains."""
_MOST = 4096


@dataclass(frozen=True, slots=True)
class Renewal:
    """Hold what is seen of a lock or heartbeat at one look.

    Attributes:
        content: the file's content.
        modified_ms: its modification time, milliseconds since the epoch.
    """

    content: bytes
    modified_ms: int


class LeaseWatch:
    """Remember since when this process has seen the same renewal of each file; shared by its threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._since: dict[str, tuple[Renewal, float]] = {}

    def forget(self) -> None:
        """Forget everything, in a forked child: another thread of the parent may have held the guard."""
        self.__init__()  # type: ignore[misc]

    def unrenewed_s(self, file: str, seen: Renewal, now_s: float) -> float:
        """Return the seconds since the first look at this renewal of a file; 0 at the first look.

        Args:
            file: URI of the file.
            seen: what is seen now.
            now_s: seconds of a clock that only goes forward.
        """
        with self._guard:
            known, since_s = self._since.pop(file, (seen, now_s))
            if known != seen:
                since_s = now_s
            # Put in at the end: the files that were not looked at for longest are forgotten.
            self._since[file] = (seen, since_s)
            if len(self._since) > _MOST:
                del self._since[next(iter(self._since))]
            return now_s - since_s


def is_certainly_over(modified_ms: int, now_ms: int, lease_ms: int) -> bool:
    """Return whether a lease is over by any clock, so that nobody has to watch the file first."""
    return now_ms - modified_ms > lease_ms + _CERTAIN_MS
