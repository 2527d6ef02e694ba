"""Build, query, encode and decode the bloom filters of base files, bit by bit like Hudi.

See docs/format/07-index-and-metadata.md, "Bloom filter".
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_lsm.errors import ConfigError, CorruptFileError, UnsupportedTable

BLOOM_KINDS = ("SIMPLE", "DYNAMIC_V0")
Keys: TypeAlias = "pa.StringArray | pa.LargeStringArray | pa.ChunkedArray[pa.StringScalar] | Sequence[bytes]"
"""Record keys: an Arrow column of strings, or their UTF-8 bytes."""

_HEAD = struct.Struct(">iibi")  # version, number of hashes, hash type, bits
_ROWS = struct.Struct(">iii")  # keys per row, keys in the last row, rows
_VERSION = -1
_MURMUR = 1
_MAX_HASHES = 1024
_MAX_BITS = 2**31 - 1
_CHUNK_ROWS = 1 << 15
_M = np.uint32(0x5BD1E995)

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """Bloom filter over record keys, with false positives and without false negatives.

    Attributes:
        kind: ``SIMPLE`` has one row; ``DYNAMIC_V0`` adds rows with the number of keys, up to a limit.
        hashes: number of hashes, the bits that each key sets.
        bits: bits per row.
        rows: bytes of each row; bit i is in byte i // 8, lowest bit first.
        keys_per_row, last_row_keys: capacity of a row and keys in the last row of a dynamic filter; 0 for a simple one.
    """

    kind: str
    hashes: int
    bits: int
    rows: tuple[bytes, ...]
    keys_per_row: int = 0
    last_row_keys: int = 0

    @classmethod
    def build(cls, keys: Keys, entries: int, fpp: float, max_entries: int, kind: str = "DYNAMIC_V0") -> BloomFilter:
        """Build the filter that Hudi builds from these keys in this order.

        Args:
            keys: record keys without nulls; repeated keys are counted repeatedly.
            entries: number of keys that a row is sized for.
            fpp: false positive probability at `entries` keys.
            max_entries: number of keys up to which a dynamic filter adds rows; further keys reuse the rows in turn.
            kind: one of `BLOOM_KINDS`.

        Raises:
            ConfigError: an unknown kind, or the filter would need more than 2^31 - 1 bits.
        """
        builder = BloomBuilder(entries, fpp, max_entries, kind)
        builder.add(keys)
        return builder.finish()

    def contains(self, keys: Keys) -> NDArray[np.bool_]:
        """Test for each key whether the filter may contain it."""
        found = np.zeros(len(keys), dtype=np.bool_)
        rows = [np.frombuffer(row, dtype=np.uint8) for row in self.rows]
        for start, chunk in _chunks(keys):
            hits = np.ones((len(rows), chunk.count), dtype=np.bool_)
            for index in chunk.bit_indexes(self.hashes, self.bits):
                for row, hit in zip(rows, hits, strict=True):
                    hit &= (row[index >> 3] >> (index & 7).astype(np.uint8) & 1).astype(np.bool_)
            found[start : start + chunk.count] = hits.any(axis=0)
        return found

    def encode(self) -> str:
        """Encode as the base64 text of the footer entry."""
        head = _HEAD.pack(_VERSION, self.hashes, _MURMUR, self.bits)
        body = b"".join(head + row for row in self.rows)
        if self.kind == "DYNAMIC_V0":
            body = head + _ROWS.pack(self.keys_per_row, self.last_row_keys, len(self.rows)) + body
        return base64.b64encode(body).decode("ascii")

    @classmethod
    def decode(cls, text: str, kind: str = "DYNAMIC_V0", source: str = "bloom filter") -> BloomFilter:
        """Decode a footer entry.

        Args:
            kind: the footer's type code, which the encoded bytes do not have.
            source: the file, for messages.

        Raises:
            CorruptFileError: not base64, or lengths that do not fit the bytes.
            UnsupportedTable: another kind, or another hash function than murmur.
        """
        if kind not in BLOOM_KINDS:
            raise UnsupportedTable(f"{source}: bloom filter type {kind:.80}; supported are {', '.join(BLOOM_KINDS)}")
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise _corrupt(source, "is not base64") from None
        hashes, bits = _head(data, 0, source)
        if kind == "SIMPLE":
            return cls(kind, hashes, bits, _rows(data, 0, 1, (hashes, bits), source))
        if len(data) < _HEAD.size + _ROWS.size:
            raise _corrupt(source, "ends within its head")
        keys_per_row, last_row_keys, count = _ROWS.unpack_from(data, _HEAD.size)
        if keys_per_row < 1 or last_row_keys < 0 or count < 1:
            raise _corrupt(source, f"has {count} rows of {keys_per_row} keys, {last_row_keys} in the last")
        rows = _rows(data, _HEAD.size + _ROWS.size, count, (hashes, bits), source)
        return cls(
            kind=kind, hashes=hashes, bits=bits, rows=rows, keys_per_row=keys_per_row, last_row_keys=last_row_keys
        )


class BloomBuilder:
    """Incremental builder of a bloom filter."""

    def __init__(self, entries: int, fpp: float, max_entries: int, kind: str = "DYNAMIC_V0") -> None:
        """Create an empty filter; see `BloomFilter.build` for arguments and errors."""
        bits = bits_per_row(entries, fpp, kind)
        self._kind, self._entries, self._bits = kind, entries, bits
        self._hashes = math.ceil(math.log(2) * bits / entries)
        # Rows are added until they hold `max_entries` keys together (docs/format/07-index-and-metadata.md, "SIMPLE and
        # DYNAMIC_V0").
        self._most = 1 if kind == "SIMPLE" else max(1, -(-max_entries // entries))
        self._count = 0
        self._marked = np.zeros(bits, np.bool_)

    def add(self, keys: Keys) -> None:
        """Add keys without nulls."""
        for start, chunk in _chunks(keys):
            row = _row_of(np.arange(self._count + start, self._count + start + chunk.count), self._entries, self._most)
            self._grow(int(row.max(initial=0)) + 1)
            first_bit = row * self._bits
            for index in chunk.bit_indexes(self._hashes, self._bits):
                self._marked[first_bit + index] = True
        self._count += len(keys)

    def finish(self) -> BloomFilter:
        """Return the filter of all keys added so far."""
        rows = self._marked.reshape(-1, self._bits)
        packed = tuple(np.packbits(row, bitorder="little").tobytes() for row in rows)
        if self._kind == "SIMPLE":
            return BloomFilter(self._kind, self._hashes, self._bits, packed)
        last = self._count - self._entries * (len(packed) - 1)
        return BloomFilter(
            kind=self._kind,
            hashes=self._hashes,
            bits=self._bits,
            rows=packed,
            keys_per_row=self._entries,
            last_row_keys=last,
        )

    def _grow(self, rows: int) -> None:
        missing = rows * self._bits - len(self._marked)
        if missing > 0:
            self._marked = np.concatenate([self._marked, np.zeros(missing, np.bool_)])


def key_hashes(keys: Keys, hashes: int) -> NDArray[np.int64]:
    """Compute the first hashes of keys, of which a filter of n bits takes the absolute remainder by n.

    Args:
        keys: record keys without nulls.
        hashes: number of hashes.

    Returns:
        The signed hashes, int64 (hashes, keys).
    """
    found = np.zeros((hashes, len(keys)), np.int64)
    for start, chunk in _chunks(keys):
        for number, values in enumerate(chunk.hashes(hashes)):
            found[number, start : start + chunk.count] = values
    return found


def bits_per_row(entries: int, fpp: float, kind: str) -> int:
    """Compute the bits of a row that is sized for `entries` keys; see `BloomFilter.build` for arguments and errors."""
    if kind not in BLOOM_KINDS:
        raise ConfigError(f"bloom filter type {kind!r}: expected one of {', '.join(BLOOM_KINDS)}")
    bits = math.ceil(entries * bits_per_key(fpp))
    if entries < 1 or not 1 <= bits <= _MAX_BITS:
        raise ConfigError(f"a bloom filter of {entries} entries at {fpp} needs {bits} bits; use fewer entries")
    return bits


def bits_per_key(fpp: float) -> float:
    """Return the bits of a filter for each key that it is sized for."""
    return -math.log(fpp) / (math.log(2) * math.log(2))


def _row_of(index: NDArray[np.int64], entries: int, most: int) -> NDArray[np.int64]:
    """Compute the row of the key number `index` in a filter of at most `most` rows.

    After the last row Hudi starts again at row 0, and fills it twice before row 1.
    """
    beyond = index - entries * most
    return np.where(beyond < 0, index // entries, np.maximum(beyond - 1, 0) % most)


def _head(data: bytes, at: int, source: str) -> tuple[int, int]:
    """Decode the numbers of hashes and of bits."""
    if len(data) - at < _HEAD.size:
        raise _corrupt(source, "ends within its head")
    version, hashes, hash_type, bits = _HEAD.unpack_from(data, at)
    if version != _VERSION or not 1 <= hashes <= _MAX_HASHES or bits < 1:
        raise _corrupt(source, f"has version {version}, {hashes} hashes, {bits} bits")
    if hash_type != _MURMUR:
        raise UnsupportedTable(f"{source}: bloom filter with hash type {hash_type}; only murmur (1) is supported")
    return hashes, bits


def _rows(data: bytes, at: int, count: int, head: tuple[int, int], source: str) -> tuple[bytes, ...]:
    """Decode the rows up to the end of the data; sizes are checked against the available bytes first."""
    size = (head[1] + 7) // 8
    if len(data) - at != count * (_HEAD.size + size):
        raise _corrupt(source, f"holds {len(data)} bytes, which do not fit {count} rows of {head[1]} bits")
    rows = []
    for start in range(at, len(data), _HEAD.size + size):
        if _head(data, start, source) != head:
            raise _corrupt(source, "has rows of different shapes")
        rows.append(data[start + _HEAD.size : start + _HEAD.size + size])
    return tuple(rows)


def _corrupt(source: str, why: str) -> CorruptFileError:
    return CorruptFileError(f"{source}: the bloom filter {why}; restore the file")


class _KeyChunk:
    """Chunk of keys, split into the words of murmur2 column by column, so that all are hashed by array operations.

    Keys are sorted by descending length, so that the keys with at least n words come first.
    """

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        lengths = np.diff(offsets)
        self.count = len(lengths)
        self._of_one_length = not len(lengths) or bool((lengths == lengths[0]).all())
        self._order = np.argsort(-lengths, kind="stable")
        lengths = lengths[self._order]
        starts = offsets[:-1][self._order]
        self._lengths = lengths.astype(np.uint32)
        self._words = list(_mixed_words(data, starts, lengths))
        self._tails = _tails(data, starts + lengths, lengths % 4)
        self._has_tail = lengths % 4 > 0
        self._have_tails = bool(self._has_tail.any())

    def bit_indexes(self, hashes: int, bits: int) -> Iterator[NDArray[np.int64]]:
        """Yield for each hash the bit of every key, in the original order."""
        for values in self._seeds(hashes):
            # Java's remainder has the sign of the dividend. A division is many times as fast as a remainder.
            size = np.abs(values.view(np.int32)).view(np.uint32)
            yield self._restored(size - size // np.uint32(bits) * np.uint32(bits)).astype(np.int64)

    def hashes(self, count: int) -> Iterator[NDArray[np.int64]]:
        """Yield each hash of every key, signed, in the original order; each hash is the seed of the next."""
        for values in self._seeds(count):
            yield self._restored(values).view(np.int32).astype(np.int64)

    def _seeds(self, count: int) -> Iterator[NDArray[np.uint32]]:
        seeds = np.zeros(self.count, dtype=np.uint32)
        for _ in range(count):
            seeds = self._murmur2(seeds)
            yield seeds

    def _restored(self, values: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Put values into the original order of the keys."""
        if self._of_one_length:
            return values
        restored = np.empty_like(values)
        restored[self._order] = values
        return restored

    def _murmur2(self, seeds: NDArray[np.uint32]) -> NDArray[np.uint32]:
        h = seeds ^ self._lengths
        for word in self._words:
            head = h if len(word) == len(h) else h[: len(word)]
            head *= _M
            head ^= word
        if self._have_tails:
            h = np.where(self._has_tail, (h ^ self._tails) * _M, h)
        h ^= h >> np.uint32(13)
        h *= _M
        h ^= h >> np.uint32(15)
        return h


def _mixed_words(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> Iterator[NDArray[np.uint32]]:
    """Yield word 0, 1, … of the keys that have it, after the part of the mixing that is independent of the seed."""
    if not len(lengths) or lengths[0] < 4:
        return
    words = np.ndarray(len(data) - 3, dtype="<u4", buffer=data, strides=(1,))
    counts = lengths // 4
    for number in range(int(counts[0])):
        have = int(np.searchsorted(-counts, -number, side="left"))
        k = words[starts[:have] + 4 * number].astype(np.uint32)
        k *= _M
        k ^= k >> np.uint32(24)
        k *= _M
        yield k


def _tails(
    data: NDArray[np.uint8],
    ends: NDArray[np.int64],
    left: NDArray[np.int64],
) -> NDArray[np.uint32]:
    """Combine the one to three bytes after the last word; each is sign-extended first.

    See docs/format/10-rules.md, "Rule 18".
    """
    tails = np.zeros(len(ends), dtype=np.uint32)
    for back, shift in ((3, 16), (2, 8), (1, 0)):
        rows = np.flatnonzero(left >= back)
        extended = data[ends[rows] - back].view(np.int8).astype(np.int32)
        tails[rows] ^= (extended << shift).view(np.uint32)
    return tails


def _chunks(keys: Keys) -> Iterator[tuple[int, _KeyChunk]]:
    """Split keys into chunks that fit the CPU cache, each with the number of its first key."""
    start = 0
    for array in keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]:
        column = array if isinstance(array, pa.Array) else pa.array(array, pa.large_binary())
        if column.null_count:
            raise ValueError("a record key is null")
        binary = column.cast(pa.large_binary())
        _, offset_buffer, data_buffer = binary.buffers()
        offsets = _view(offset_buffer, np.int64)[binary.offset : binary.offset + len(binary) + 1]
        data = _view(data_buffer, np.uint8)
        for begin in range(0, len(binary), _CHUNK_ROWS):
            piece = offsets[begin : begin + _CHUNK_ROWS + 1]
            yield start, _KeyChunk(data, piece)
            start += len(piece) - 1


def _view(buffer: pa.Buffer | None, dtype: type[T]) -> NDArray[T]:
    """View the memory of an Arrow buffer as numbers; Arrow has no buffer if there are no bytes."""
    return np.frombuffer(memoryview(b"" if buffer is None else buffer), dtype=dtype)
