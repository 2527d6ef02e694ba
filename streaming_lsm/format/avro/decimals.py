"""Convert decimals between Avro (big-endian two's complement of any length) and Arrow (16 bytes, little-endian)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streaming_lsm.arrow.buffers import Array, data_of
from streaming_lsm.arrow.columns import Flags, Int64s, UInt8s
from streaming_lsm.format.avro.varints import Stretch

_WIDTH = 16
_WORD = 8
_MAX_BYTES = 64
_SIGN = np.uint8(0x80)

Words = npt.NDArray[np.uint64]


def decimals_of_bytes(stretch: Stretch, begin: Int64s, end: Int64s, precision: int) -> tuple[Words, Flags]:
    """Decode the unscaled values in the byte ranges `begin` to `end`, int64 (n,) each.

    Returns:
        the values of a decimal128 array: low and high half, uint64 (n, 2); flags of the ranges that do not have a
        number of at most `precision` digits, bool (n,).
    """
    lengths = end - begin
    values, wrong = np.zeros((len(begin), 2), np.uint64), np.zeros(len(begin), np.bool_)
    for length in np.flatnonzero(np.bincount(np.minimum(lengths, _MAX_BYTES + 1))):
        places = np.flatnonzero(lengths == length) if lengths.min() != lengths.max() else slice(None)
        if 0 < length <= _MAX_BYTES:
            values[places], wrong[places] = _of_one_length(stretch, begin[places], int(length))
        else:
            wrong[lengths == 0] = True
            wrong[lengths > _MAX_BYTES] = True
    return values, wrong | _beyond(values, precision)


def _of_one_length(stretch: Stretch, begin: Int64s, length: int) -> tuple[Words, Flags]:
    wrong = np.zeros(len(begin), np.bool_)
    sign = stretch.data[begin] & _SIGN
    for place in range(length - _WIDTH):  # bytes beyond a decimal128 must be sign extension
        wrong |= stretch.data[begin + place] != np.where(sign, np.uint8(0xFF), np.uint8(0))
    if length > _WIDTH:
        begin, length = begin + (length - _WIDTH), _WIDTH
        wrong |= (stretch.data[begin] & _SIGN) != sign
    first = stretch.words[begin].byteswap().view(np.int64)
    if length <= _WORD:
        low = first >> (8 * (_WORD - length))
        return np.stack((low, low >> 63), axis=1).view(np.uint64), wrong
    high = first >> (8 * (_WIDTH - length))
    low = stretch.words[begin + (length - _WORD)].byteswap().view(np.int64)
    return np.stack((low, high), axis=1).view(np.uint64), wrong


def _beyond(values: Words, precision: int) -> Flags:
    """Flag the values with more than `precision` digits."""
    limit = 10**precision
    low, high = values[:, 0], values[:, 1]
    negative = high.view(np.int64) < 0
    high = np.where(negative, ~high + (low == 0), high)
    low = np.where(negative, -low, low)
    most_high, most_low = np.uint64(limit >> 64), np.uint64(limit & (1 << 64) - 1)
    beyond: Flags = (high > most_high) | ((high == most_high) & (low >= most_low))
    return beyond


def bytes_of_decimals(values: Array) -> UInt8s:
    """Encode the unscaled values as big-endian bytes, uint8 (n, 16); the array has no nulls."""
    found = data_of(values, 1)[_WIDTH * values.offset : _WIDTH * (values.offset + len(values))]
    return found.reshape(len(values), _WIDTH)[:, ::-1]


def needless_bytes(values: UInt8s) -> Int64s:
    """Count the leading bytes of each number, uint8 (n, w), that are only sign extension, int64 (n,)."""
    sign = np.where(values[:, :1] & _SIGN, np.uint8(0xFF), np.uint8(0))
    same_sign = (values[:, 1:] ^ sign) < _SIGN
    repeats = (values[:, :-1] == sign) & same_sign
    found: Int64s = np.logical_and.accumulate(repeats, axis=1).sum(axis=1)
    return found
