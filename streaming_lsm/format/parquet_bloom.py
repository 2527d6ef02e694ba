"""Read Parquet's bloom filters of record keys: split-block filters over XXH64, one for a column of a row group.

PyArrow writes them; it does not tell whether they hold a value. See docs/format/03-native-logs.md, "Bloom filters of
row groups".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_lsm.arrow.columns import Flags, text_bytes
from streaming_lsm.format.parquet_thrift import Struct, decode, inner, integer

UInt64s = NDArray[np.uint64]

_BYTES, _ALGORITHM, _HASH, _COMPRESSION = 1, 2, 3, 4
_ONLY = 1
"""The member that each of the header's unions has: split blocks, XXH64, not compressed."""
_BLOCK = 32
_FEW = 1 << 16
_SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


@dataclass(frozen=True)
class BlockedBloom:
    """A split-block bloom filter.

    Attributes:
        words: uint32 (blocks, 8).
    """

    words: NDArray[np.uint32]

    @staticmethod
    def decode(data: bytes) -> BlockedBloom | None:
        """Decode a filter with its header; None if it has another algorithm, hash or compression.

        Raises:
            ValueError: it is damaged.
        """
        header, begin = decode(data)
        if not all(_is_only(header, number) for number in (_ALGORITHM, _HASH, _COMPRESSION)):
            return None
        size = integer(header, _BYTES)
        if size <= 0 or size % _BLOCK or begin + size > len(data):
            raise ValueError(f"a bloom filter of {size} bytes, of which {len(data) - begin} are there")
        return BlockedBloom(np.frombuffer(data, "<u4", size // 4, begin).reshape(-1, 8))

    def may_hold(self, hashes: UInt64s) -> Flags:
        """Return which values may be held, by the hashes of `hash_texts`: bool (values,)."""
        high = hashes >> np.uint64(32)
        blocks = self.words[(high * np.uint64(len(self.words))) >> np.uint64(32)]
        low = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        bits = np.uint32(1) << ((low[:, None] * _SALT) >> np.uint32(27))
        held: Flags = ((blocks & bits) == bits).all(axis=1)
        return held


def _is_only(header: Struct, number: int) -> bool:
    return set(inner(header, number)) == {_ONLY}


def hash_texts(texts: pa.StringArray) -> UInt64s:
    """Hash texts without nulls by XXH64 with seed 0: uint64 (texts,)."""
    parts = [_hash_few(texts.slice(begin, _FEW)) for begin in range(0, len(texts), _FEW)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _hash_few(texts: pa.StringArray) -> UInt64s:
    """Hash the texts of one length at a time."""
    offsets, data = text_bytes(texts)
    lengths = np.diff(offsets)
    hashes = np.empty(len(texts), np.uint64)
    for length in np.unique(lengths):
        places = np.flatnonzero(lengths == length)
        values = data[offsets[places][:, None] + np.arange(length)]
        hashes[places] = _hash_rows(np.ascontiguousarray(values))
    return hashes


def _hash_rows(values: NDArray[np.uint8]) -> UInt64s:
    """Hash values of one length, uint8 (values, length)."""
    count, length = values.shape
    done = 0
    with np.errstate(over="ignore"):
        if length >= _BLOCK:
            done = length - length % _BLOCK
            found = _hash_stripes(_as_words(values[:, :done], "<u8"))
        else:
            found = np.full(count, _P5)
        found += np.uint64(length)
        for word in _as_words(values[:, done : length - length % 8], "<u8").T:
            found = _rotated(found ^ _round(np.uint64(0), word), 27) * _P1 + _P4
        done = length - length % 8
        if length - done >= 4:
            (word,) = _as_words(values[:, done : done + 4], "<u4").T
            found = _rotated(found ^ word.astype(np.uint64) * _P1, 23) * _P2 + _P3
            done += 4
        for byte in values[:, done:].T:
            found = _rotated(found ^ byte.astype(np.uint64) * _P5, 11) * _P1
        found = (found ^ found >> np.uint64(33)) * _P2
        found = (found ^ found >> np.uint64(29)) * _P3
        return found ^ found >> np.uint64(32)


def _hash_stripes(words: UInt64s) -> UInt64s:
    """Hash the stripes of four words with which long values begin, uint64 (values, words)."""
    zero = np.zeros(len(words), np.uint64)
    lanes = [zero + start for start in (_P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1)]
    for place in range(0, words.shape[1], 4):
        lanes = [_round(lane, words[:, place + number]) for number, lane in enumerate(lanes)]
    found = zero
    for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True):
        found = found + _rotated(lane, turn)
    for lane in lanes:
        found = (found ^ _round(np.uint64(0), lane)) * _P1 + _P4
    return found


def _round(lane: UInt64s | np.uint64, word: UInt64s) -> UInt64s:
    return _rotated(lane + word * _P2, 31) * _P1


def _rotated(words: UInt64s, bits: int) -> UInt64s:
    return words << np.uint64(bits) | words >> np.uint64(64 - bits)


def _as_words(values: NDArray[np.uint8], kind: str) -> NDArray[np.unsignedinteger]:
    return np.ascontiguousarray(values).view(kind).reshape(len(values), -1)
