"""Keep the key entries of logs that an open table has written or read, for those of the next logs.

See docs/format/03-native-logs.md, "Key entries". A log of a path is written once: what its writer knows of it is what
its footer says. Logs of several partitions may have one name.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from streaming_lsm.format.log.key_entries import CoveredLog, covered_bytes

_KEPT_BYTES = 16 << 20
_LEAST_BYTES = 200
"""Bytes that a log takes without entries."""


class KnownEntries:
    """Key entries by the paths of logs, the newest ones up to a limit; of one open table."""

    def __init__(self, most_bytes: int = _KEPT_BYTES) -> None:
        """Keep nothing yet.

        Args:
            most_bytes: limit of what is kept, by `covered_bytes`.
        """
        self._most_bytes = most_bytes
        self._kept: dict[str, Sequence[CoveredLog]] = {}
        self._bytes = 0
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[KnownEntries], tuple[int]]:
        """Leave what is kept behind: a task of another process reads footers."""
        return KnownEntries, (self._most_bytes,)

    def put(self, path: str, block: Sequence[CoveredLog]) -> None:
        """Keep the entries of a log, which is finished: its own, and those that its accumulated entry has."""
        with self._lock:
            self._bytes += _size(block) - (_size(self._kept.pop(path)) if path in self._kept else 0)
            self._kept[path] = block
            while self._bytes > self._most_bytes:
                oldest = next(iter(self._kept))
                self._bytes -= _size(self._kept.pop(oldest))

    def of(self, path: str) -> Sequence[CoveredLog] | None:
        """Return the entries of a log; None if they are not kept."""
        return self._kept.get(path)


def _size(block: Sequence[CoveredLog]) -> int:
    return _LEAST_BYTES + sum(map(covered_bytes, block))
