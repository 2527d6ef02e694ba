"""Keep the key entries of the logs that an open table has written, for those of the next logs.

See docs/format/03-native-logs.md, "Key entries". A log of a name is written once, so that what its writer knows of it
is what its footer says.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from streaming_lsm.format.log.key_entries import CoveredLog, covered_bytes

_KEPT_BYTES = 16 << 20


class WrittenEntries:
    """Key entries by the names of logs, the newest ones up to a limit; of one open table."""

    def __init__(self, most_bytes: int = _KEPT_BYTES) -> None:
        """Keep nothing yet.

        Args:
            most_bytes: limit of what is kept, by `covered_bytes`.
        """
        self._most_bytes = most_bytes
        self._kept: dict[str, Sequence[CoveredLog]] = {}
        self._bytes = 0
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[WrittenEntries], tuple[int]]:
        """Leave what is kept behind: a task of another process reads footers."""
        return WrittenEntries, (self._most_bytes,)

    def put(self, log: CoveredLog, covered: Sequence[CoveredLog]) -> None:
        """Keep the entry of a log that was finished, and those of the logs that its accumulated entry covers."""
        block = (log, *covered)
        with self._lock:
            self._kept[log.name] = block
            self._bytes += _size(block)
            while self._bytes > self._most_bytes:
                oldest = next(iter(self._kept))
                self._bytes -= _size(self._kept.pop(oldest))

    def of(self, name: str) -> Sequence[CoveredLog] | None:
        """Return a log and those that it covers; None if it is not kept."""
        return self._kept.get(name)


def _size(block: Sequence[CoveredLog]) -> int:
    return sum(map(covered_bytes, block))
