"""Tell for many files at once which of them may hold one of many record keys, by their key entries.

See docs/format/03-native-logs.md, "Key entries".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, UInt8s
from streaming_lsm.arrow.ranges import places_in
from streaming_lsm.format.bloom import BloomFilter, key_hashes
from streaming_lsm.format.log.key_entries import KeyEntry
from streaming_lsm.format.parquet_bloom import UInt64s, hash_texts

_FEW_PAIRS = 256
"""Pairs of filters and keys of which all bits are looked at together; of more, one bit after the other."""
_MOST_TESTED = 4096
"""Most keys in the range of a file that are looked for in its filter: of more, one is there by chance."""


@dataclass(frozen=True)
class WantedKeys:
    """Record keys to look up.

    Attributes:
        keys: without nulls, ascending, each once.
        texts: the same as Python texts.
        hashes: their XXH64 hashes, uint64 (keys,).
    """

    keys: pa.StringArray
    texts: Sequence[str]
    hashes: UInt64s
    _murmur: dict[int, Int64s] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(keys: pa.StringArray) -> WantedKeys:
        """Hash keys that ascend."""
        return WantedKeys(keys, [str(key) for key in keys.to_pylist()], hash_texts(keys))

    def murmur(self, hashes: int) -> Int64s:
        """Return the first hashes of Hudi's bloom filters, see `key_hashes`: int64 (hashes, keys)."""
        if hashes not in self._murmur:
            self._murmur[hashes] = key_hashes(self.keys, hashes)
        return self._murmur[hashes]


@dataclass(frozen=True)
class KeyFilters:
    """Key entries of some files, their bloom filters one after the other in one array.

    Attributes:
        entries: one for each file.
        owners: the file of each row of a filter, int64 (rows,); a dynamic filter has several rows.
        bits, hashes, starts: of each row the number of bits and of hashes, and its first byte, int64 (rows,).
        data: the bytes of all rows, uint8.
    """

    entries: Sequence[KeyEntry]
    owners: Int64s
    bits: Int64s
    hashes: Int64s
    starts: Int64s
    data: UInt8s

    @staticmethod
    def of(entries: Sequence[KeyEntry]) -> KeyFilters:
        """Lay out the filters of some files."""
        rows: list[tuple[int, BloomFilter, bytes]] = []
        for number, entry in enumerate(entries):
            if entry.bloom is not None:
                rows += [(number, entry.bloom, row) for row in entry.bloom.rows]
        sizes = np.array([len(row) for _, _, row in rows], np.int64)
        return KeyFilters(
            entries=entries,
            owners=np.array([number for number, _, _ in rows], np.int64),
            bits=np.array([bloom.bits for _, bloom, _ in rows], np.int64),
            hashes=np.array([bloom.hashes for _, bloom, _ in rows], np.int64),
            starts=np.cumsum(sizes) - sizes,
            data=np.frombuffer(b"".join(row for _, _, row in rows), np.uint8),
        )

    def may_hold(self, wanted: WantedKeys) -> Flags:
        """Return which files may hold a key: bool (files,)."""
        first, last = self._inside(wanted)
        found = last > first
        counts = last - first
        has_filter = np.zeros(len(found), np.bool_)
        has_filter[self.owners] = True
        tested = found & has_filter & (counts <= _MOST_TESTED)
        found[tested] = False
        rows = np.flatnonzero(tested[self.owners])
        found[self.owners[self._hit(rows, first[self.owners[rows]], counts[self.owners[rows]], wanted)]] = True
        return found

    def _inside(self, wanted: WantedKeys) -> tuple[Int64s, Int64s]:
        """Return of each file the first wanted key in its range, and the one after the last: int64 (files,)."""
        first = np.zeros(len(self.entries), np.int64)
        last = np.full(len(self.entries), len(wanted.texts), np.int64)
        for number, entry in enumerate(self.entries):
            if not entry.keys:
                last[number] = 0
            elif entry.span is not None:
                first[number] = bisect_left(wanted.texts, entry.span[0])
                last[number] = bisect_right(wanted.texts, entry.span[1])
        return first, last

    def _hit(self, rows: Int64s, first: Int64s, counts: Int64s, wanted: WantedKeys) -> Int64s:
        """Return the rows of filters that have a key, repeatedly where they have several.

        Args:
            rows: the rows to look at.
            first, counts: of each of them the first key, and the number of keys, to look for.
            wanted: the keys.
        """
        if not len(rows):
            return rows
        most = int(self.hashes[rows].max())
        hashes = wanted.murmur(most)
        pairs, keys = np.repeat(rows, counts), places_in(first, counts)
        step = most if len(pairs) <= _FEW_PAIRS else 1
        for number in range(0, most, step):
            left = self._have(pairs, hashes[number : number + step, keys], number)
            pairs, keys = pairs[left], keys[left]
            if not len(pairs):
                break
        return pairs

    def _have(self, rows: Int64s, hashes: Int64s, number: int) -> Flags:
        """Return which rows of filters have the bits of some hashes, int64 (hashes, rows), the first of this number."""
        # Java's remainder has the sign of the dividend.
        bits = np.abs(np.fmod(hashes, self.bits[rows]))
        found = self.data[self.starts[rows] + (bits >> 3)] >> (bits & 7).astype(np.uint8) & 1
        unused = np.arange(number, number + len(hashes))[:, None] >= self.hashes[rows]
        have: Flags = ((found != 0) | unused).all(axis=0)
        return have
