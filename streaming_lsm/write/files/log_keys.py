"""Collect the record keys of a log while it is written, for its key entry.

See docs/format/03-native-logs.md, "Key entries".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.format.bloom import BloomBuilder
from streaming_lsm.format.log.key_entries import KeyEntry
from streaming_lsm.write.plan import LogKeyOptions


class LogKeys:
    """Collects the record keys of one file; they are held while a filter of them would not be too large."""

    def __init__(self, options: LogKeyOptions) -> None:
        """Begin without keys."""
        self._options = options
        self._held: list[pa.ChunkedArray[Any]] = []
        self._count = 0
        self._low: str | None = None
        self._high = ""
        self.held_bytes = 0

    @staticmethod
    def entry_of(keys: Iterable[pa.ChunkedArray[Any]], options: LogKeyOptions) -> KeyEntry:
        """Build the entry of keys in any order, strings without nulls."""
        found = LogKeys(options)
        for part in keys:
            ends = pc.min_max(part).as_py()  # by bytes, as the order of the files
            if len(part):
                found._add(part, ends["min"], ends["max"])
        return found.entry()

    def add(self, keys: pa.ChunkedArray[Any]) -> None:
        """Add record keys that ascend, as the footer declares, strings without nulls."""
        if len(keys):
            self._add(keys, str(keys[0].as_py()), str(keys[-1].as_py()))

    def _add(self, keys: pa.ChunkedArray[Any], low: str, high: str) -> None:
        self._count += len(keys)
        self._low = low if self._low is None else min(self._low, low)
        self._high = max(self._high, high)
        if self._count <= self._options.most_keys:
            self._held.append(keys)
            self.held_bytes += keys.nbytes
        else:
            self._held, self.held_bytes = [], 0

    def entry(self) -> KeyEntry:
        """Build the entry, without a filter if it would be too large."""
        span = None if self._low is None else (self._low, self._high)
        if not self._held:
            return KeyEntry(self._count, span, None)
        builder = BloomBuilder(self._count, self._options.fpp, self._count, "SIMPLE")
        for keys in self._held:
            builder.add(keys)
        return KeyEntry(self._count, span, builder.finish())
