"""Read and write Avro varints, many at once: zigzag, seven bits per byte, low bits first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streaming_lsm.arrow.columns import Flags, Int64s, UInt8s

UInt64s = npt.NDArray[np.uint64]

PAD = 16
"""Bytes of padding that may be read past the end of a `Stretch`."""

_LAST_OF_NINE = 8
_LAST_OF_TEN = 9
_CONTINUED = np.uint64(0x8080808080808080)
# Masks and shifts that merge groups of 7 bits into groups of 14, then of 28, then of 56.
_GROUPS = (
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)
_ONE = np.uint64(1)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes followed by `PAD` zeros, and views that read words at any byte offset.

    Attributes:
        data: uint8 (bytes + PAD,).
        words: little-endian uint64 (bytes + PAD - 7,); item i has bytes i to i + 7.
        halves: little-endian uint32 (bytes + PAD - 3,); item i has bytes i to i + 3.
    """

    data: UInt8s
    words: UInt64s
    halves: npt.NDArray[np.uint32]

    @classmethod
    def copy_of(cls, content: UInt8s) -> Stretch:
        """Copy the bytes of `content`, uint8 (bytes,)."""
        data = np.zeros(len(content) + PAD, np.uint8)
        data[: len(content)] = content
        words = np.ndarray((len(data) - 7,), "<u8", data, 0, (1,))
        return cls(data, words, np.ndarray((len(data) - 3,), "<u4", data, 0, (1,)))


def read_varints(stretch: Stretch, at: Int64s) -> tuple[Int64s, Int64s, Flags | None]:
    """Read the numbers at the given positions.

    Args:
        stretch: the bytes.
        at: int64 (n,), each at most the number of bytes without the padding.

    Returns:
        values, int64 (n,); positions after them, int64 (n,); flags of positions without a number of at most 64 bits,
        bool (n,), or None if all have one.
    """
    first = stretch.data[at]
    if not len(first) or first.max() < 0x80:
        small = first.astype(np.int64)
        return (small >> 1) ^ -(small & 1), at + 1, None
    second = stretch.data[at + 1]
    longer = first >= 0x80
    if (second[longer] < 0x80).all():
        pair = first.astype(np.int64)
        pair += (second.astype(np.int64) - 1) * longer * 0x80
        return (pair >> 1) ^ -(pair & 1), at + 1 + longer, None
    return _read_long(stretch, at)


def _read_long(stretch: Stretch, at: Int64s) -> tuple[Int64s, Int64s, Flags | None]:
    words = stretch.words[at]
    last = ~words & _CONTINUED
    last &= -last  # the high bit of the first byte that ends a number; 0 if none of the eight bytes does
    below = last - _ONE
    words &= last | below
    widths = (np.bitwise_count(below).astype(np.int64) + 1) >> 3
    for stay, move, by in _GROUPS:
        words = (words & stay) | ((words & move) >> by)
    wrong = None
    if not last.all():
        wrong = _read_longest(stretch, at, np.flatnonzero(last == 0), words, widths)
    values = (words >> _ONE).view(np.int64) ^ -(words & _ONE).view(np.int64)
    return values, at + widths, wrong


def _read_longest(stretch: Stretch, at: Int64s, where: Int64s, words: UInt64s, widths: Int64s) -> Flags | None:
    """Add the ninth and tenth byte to `words` and `widths` at the indices `where`."""
    ninth = stretch.data[at[where] + _LAST_OF_NINE].astype(np.uint64)
    tenth = stretch.data[at[where] + _LAST_OF_TEN].astype(np.uint64)
    ten = ninth >= 0x80
    words[where] |= ((ninth & np.uint64(0x7F)) << np.uint64(56)) | (tenth * ten) << np.uint64(63)
    widths[where] = np.where(ten, _LAST_OF_TEN + 1, _LAST_OF_NINE + 1)
    wrong = ten & (tenth > 1)
    if not wrong.any():
        return None
    flags = np.zeros(len(at), np.bool_)
    flags[where] = wrong
    return flags


def write_varints(values: Int64s) -> tuple[UInt8s, Flags, Int64s]:
    """Encode numbers, in as many columns as the longest one needs.

    Returns:
        uint8 (n, w); flags of the bytes that belong to the number, bool (n, w); their count, int64 (n,).
    """
    rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
    width = max(1, -(-int(rest.max(initial=np.uint64(0))).bit_length() // 7))
    cells = np.empty((len(values), width), np.uint8)
    keep = np.ones((len(values), width), np.bool_)
    lengths = np.ones(len(values), np.int64)
    for place in range(width):
        cells[:, place] = rest & np.uint64(0x7F)
        if place:
            more = rest != 0
            keep[:, place] = more
            lengths += more
            cells[:, place - 1] |= more.view(np.uint8) << np.uint8(7)
        rest = rest >> np.uint64(7)
    return cells, keep, lengths
