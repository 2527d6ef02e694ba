"""Hash names for the keys of the metadata table's records.

See docs/format/07-index-and-metadata.md, "Metadata table".
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache

from streaming_lsm.format.metadata.files_partition import partition_key

_SEED = 0xFFFFFFFFDABADABA
"""Hudi's seed, an int that Java extends by its sign."""
_MASK = 2**64 - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_STRIPE, _LANE, _HALF = 32, 8, 4


@lru_cache(maxsize=1 << 16)
def column_hash(column: str) -> str:
    """Return the hash of a column's name, base64 text of 12 characters."""
    return _base64(xxh64(column.encode(), _SEED).to_bytes(8, "big"))


@lru_cache(maxsize=1 << 16)
def partition_hash(partition: str) -> str:
    """Return the hash of a partition path, base64 text of 12 characters."""
    return _base64(xxh64(partition_key(partition).encode(), _SEED).to_bytes(8, "big"))


def file_hash(name: str) -> str:
    """Return the hash of a file's name, base64 text of 24 characters."""
    return _base64(hashlib.md5(name.encode(), usedforsecurity=False).digest())


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode("ascii")


def xxh64(data: bytes, seed: int) -> int:
    """Compute the hash XXH64 of bytes, unsigned 64 bits."""
    at, size = 0, len(data)
    if size >= _STRIPE:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed & _MASK, (seed - _P1) & _MASK]
        while at <= size - _STRIPE:
            for place in range(4):
                lanes[place] = _round(lanes[place], _little(data, at, _LANE))
                at += _LANE
        found = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        found = (seed + _P5) & _MASK
    found = (found + size) & _MASK
    while at + _LANE <= size:
        found = (_rotated(found ^ _round(0, _little(data, at, _LANE)), 27) * _P1 + _P4) & _MASK
        at += _LANE
    if at + _HALF <= size:
        found = (_rotated(found ^ _little(data, at, _HALF) * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        at += _HALF
    for byte in data[at:]:
        found = _rotated(found ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    found = (found ^ found >> 33) * _P2 & _MASK
    found = (found ^ found >> 29) * _P3 & _MASK
    return found ^ found >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) & _MASK


def _little(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
