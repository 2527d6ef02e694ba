"""Size a bloom filter by the number of keys of its file, which is known when the last one has been added."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streaming_lsm.format.bloom import BloomBuilder, BloomFilter
from streaming_lsm.write.plan import BloomOptions


class SizedBloomBuilder:
    """Builds the bloom filter of one base file.

    A filter for at most `BloomOptions.entries` keys has one row of exactly that many. More keys share the fewest rows
    that a dynamic filter needs evenly, up to the rows of Hudi's filter; beyond them the filter is Hudi's, bit by bit.

    Keys are held until their number is known, or exceeds that of the largest filter: by default 120,000 keys.
    """

    def __init__(self, options: BloomOptions) -> None:
        """Create a builder without keys."""
        self._options = options
        self._held: list[pa.ChunkedArray[Any]] = []
        self._held_keys = 0
        self._largest: BloomBuilder | None = None
        self.held_bytes = 0

    def add(self, keys: pa.ChunkedArray[Any]) -> None:
        """Add record keys, strings without nulls."""
        if self._largest is not None:
            self._largest.add(keys)
            return
        self._held.append(keys)
        self._held_keys += len(keys)
        self.held_bytes += keys.nbytes
        if self._held_keys >= self._options.entries * self._most_rows:
            options = self._options
            self._largest = self._built(BloomBuilder(options.entries, options.fpp, options.max_entries, options.kind))

    def finish(self) -> BloomFilter:
        """Return the filter of all keys that were added."""
        if self._largest is not None:
            return self._largest.finish()
        keys, options = max(1, self._held_keys), self._options
        rows = -(-keys // options.entries)
        return self._built(BloomBuilder(-(-keys // rows), options.fpp, keys, options.kind)).finish()

    @property
    def _most_rows(self) -> int:
        return 1 if self._options.kind == "SIMPLE" else -(-self._options.max_entries // self._options.entries)

    def _built(self, builder: BloomBuilder) -> BloomBuilder:
        for keys in self._held:
            builder.add(keys)
        self._held, self.held_bytes = [], 0
        return builder
