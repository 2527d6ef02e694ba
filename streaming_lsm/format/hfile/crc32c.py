"""Compute CRC-32C, the checksum of HBase's blocks, of many pieces of bytes at once.

See docs/format/07-index-and-metadata.md, "HFile".
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_LANE = 128
_ONES = 0xFFFFFFFF

UInt32s = NDArray[np.uint32]


def crc32c(data: bytes | memoryview, piece_bytes: int) -> UInt32s:
    """Compute the checksum of each piece of `data`, in order; the last piece may be shorter.

    Pieces are split into *lanes* of equal length; one numpy step processes one byte of all lanes.
    """
    octets = np.frombuffer(data, np.uint8)
    whole = len(octets) // piece_bytes
    end = whole * piece_bytes
    found = [_of_equal_pieces(octets[:end].reshape(whole, piece_bytes))] if whole else []
    if end < len(octets):
        found.append(_of_equal_pieces(octets[end:].reshape(1, -1)))
    return np.concatenate(found) if found else np.empty(0, np.uint32)


def _of_equal_pieces(pieces: NDArray[np.uint8]) -> UInt32s:
    count, size = pieces.shape
    before = -size % _LANE
    padded = np.zeros((count, before + size), np.uint8)
    padded[:, before:] = pieces
    # Leading zero bytes keep a zero register zero; an initial register of ones is the same as inverting four bytes.
    padded[:, before : before + 4] ^= 0xFF
    lanes = padded.reshape(count, -1, _LANE)
    table = _table()
    registers = np.zeros(lanes.shape[:2], np.uint32)
    for column in range(_LANE):
        registers = table[(registers ^ lanes[:, :, column]) & 0xFF] ^ registers >> 8
    total = np.zeros(count, np.uint32)
    for lane in range(lanes.shape[1]):
        total = _past_a_lane(total) ^ registers[:, lane]
    return total ^ np.uint32(_ONES >> 8 * min(size, 4)) ^ np.uint32(_ONES)


@functools.cache
def _table() -> UInt32s:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = table >> np.uint32(1) ^ (table & np.uint32(1)) * np.uint32(_POLYNOMIAL)
    return table


@functools.cache
def _lane_tables() -> UInt32s:
    """Compute the table that advances each byte of a register by a lane of zeros: four rows of 256."""
    table = _table()
    registers: UInt32s = np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]
    for _ in range(_LANE):
        registers = table[registers & 0xFF] ^ registers >> 8
    return registers


def _past_a_lane(registers: UInt32s) -> UInt32s:
    tables = _lane_tables()
    past: UInt32s = tables[0][registers & 0xFF]
    for number in range(1, 4):
        past = past ^ tables[number][registers >> 8 * number & 0xFF]
    return past
