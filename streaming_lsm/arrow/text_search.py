"""Search texts among ascending texts, all at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, UInt8s, text_buffers, text_bytes

_END = np.int16(-1)
"""Stands for the byte after the last one of a text: the shorter one of two texts comes first."""
_FILLING = 4
"""Bytes for each byte of texts that words of one length may have."""


def search_texts(stored: pa.StringArray, wanted: pa.StringArray) -> tuple[Int64s, Flags]:
    """Search texts among ascending ones, in the order of their UTF-8 bytes.

    Texts that all have one length are searched where they are. Else it takes log2 of the stored texts steps, each of
    numpy over all wanted ones; memory grows with the wanted texts times the longest of them.

    Args:
        stored: ascending, without nulls; equal ones may follow each other.
        wanted: in any order, without nulls.

    Returns:
        int64 (wanted,), the number of stored texts that are smaller; bool (wanted,), whether a stored one is equal.
    """
    words = _words(stored, wanted)
    if words is not None:
        return _search_words(*words)
    offsets, data = text_bytes(stored)
    starts, lengths = offsets[:-1], np.diff(offsets)
    asked = _padded(*text_bytes(wanted))
    low, high = np.zeros(len(wanted), np.int64), np.full(len(wanted), len(stored), np.int64)
    while (open_ := low < high).any():
        middle = np.where(open_, (low + high) // 2, 0)
        is_less = _compare(starts[middle], lengths[middle], data, asked) < 0
        low = np.where(open_ & is_less, middle + 1, low)
        high = np.where(open_ & ~is_less, middle, high)
    inside = low < len(stored)
    place = np.where(inside, low, 0)
    if not len(stored):
        return low, inside
    return low, inside & (_compare(starts[place], lengths[place], data, asked) == 0)


def count_not_greater(stored: pa.BinaryArray, wanted: pa.BinaryArray) -> Int64s | None:
    """Count the texts that are not greater than each one, in the order of their bytes.

    Args:
        stored: ascending, without nulls; equal ones may follow each other.
        wanted: in any order, without nulls.

    Returns:
        int64 (wanted,); None if there are no texts, or if they differ in length and one is far longer than others, or
        has a zero byte.
    """
    words = _words(stored, wanted) or _filled_words(stored, wanted)
    return None if words is None else words[0].searchsorted(words[1], "right").astype(np.int64)


def _words(
    stored: pa.StringArray | pa.BinaryArray, wanted: pa.StringArray | pa.BinaryArray
) -> tuple[npt.NDArray[np.bytes_], npt.NDArray[np.bytes_]] | None:
    """Return texts as words of one length; None unless all have it. Nothing is copied."""
    width = _width(stored)
    if not width or _width(wanted) != width:
        return None
    kind = np.dtype(f"S{width}")
    return text_buffers(stored)[1].view(kind), text_buffers(wanted)[1].view(kind)


def _filled_words(
    stored: pa.BinaryArray, wanted: pa.BinaryArray
) -> tuple[npt.NDArray[np.bytes_], npt.NDArray[np.bytes_]] | None:
    """Return texts as words of the longest one's length, filled up with zero bytes; None as in `count_not_greater`."""
    texts = text_buffers(stored), text_buffers(wanted)
    width = max(int(np.diff(bounds).max(initial=0)) for bounds, _ in texts)
    size = sum(len(data) for _, data in texts)
    if (
        not width
        or width * (len(stored) + len(wanted)) > _FILLING * size
        or any((data == 0).any() for _, data in texts)
    ):
        return None
    first, second = (_filled(np.diff(bounds), data, width) for bounds, data in texts)
    return first, second


def _filled(lengths: Int64s, data: UInt8s, width: int) -> npt.NDArray[np.bytes_]:
    words = np.zeros((len(lengths), width), np.uint8)
    words[np.arange(width) < lengths[:, None]] = data
    return words.view(f"S{width}")[:, 0]


def _width(texts: pa.StringArray | pa.BinaryArray) -> int:
    """Return the bytes that each text has; 0 if they differ, or there is none."""
    bounds, data = text_buffers(texts)
    width = len(data) // max(1, len(texts))
    return width if len(data) == width * len(texts) and (np.diff(bounds) == width).all() else 0


def _search_words(stored: npt.NDArray[np.bytes_], wanted: npt.NDArray[np.bytes_]) -> tuple[Int64s, Flags]:
    """Search texts of one length, see `search_texts`; numpy compares their bytes without sign."""
    places = stored.searchsorted(wanted).astype(np.int64)
    return places, stored[np.minimum(places, len(stored) - 1)] == wanted


def _padded(offsets: Int64s, data: UInt8s) -> npt.NDArray[np.int16]:
    """Return texts as rows of bytes, int16 (texts, longest + 1), filled up with `_END`."""
    lengths = np.diff(offsets)
    return _bytes_of(offsets[:-1], lengths, data, int(lengths.max(initial=0)) + 1)


def _bytes_of(starts: Int64s, lengths: Int64s, data: UInt8s, width: int) -> npt.NDArray[np.int16]:
    columns = np.arange(width)
    inside = columns < lengths[:, None]
    places = np.where(inside, starts[:, None] + columns, 0)
    values = data[places].astype(np.int16) if len(data) else np.zeros(places.shape, np.int16)
    return np.where(inside, values, _END)


def _compare(starts: Int64s, lengths: Int64s, data: UInt8s, asked: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """Compare stored texts with those that are asked for: below 0 if the stored one is smaller, 0 if they are equal.

    A byte more than the longest text is compared, so that a stored text that goes on is larger.
    """
    difference = _bytes_of(starts, lengths, data, asked.shape[1]) - asked
    first = np.argmax(difference != 0, axis=1)
    found: npt.NDArray[np.int16] = difference[np.arange(len(first)), first]
    return found
