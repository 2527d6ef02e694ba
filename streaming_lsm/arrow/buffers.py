"""Build Arrow arrays from numpy buffers, and read their buffers as numpy arrays, without per-value work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, UInt8s

# The published stubs declare few of the argument types that arrays and buffers accept.
_pa: Any = pa

Array: TypeAlias = "pa.Array[Any]"
Buffer: TypeAlias = "npt.NDArray[Any] | pa.Buffer | bytes | None"

_MAX_OFFSET = np.iinfo(np.int32).max


def array_of(kind: pa.DataType | None, rows: int, buffers: Sequence[Buffer], children: Sequence[Array] = ()) -> Array:
    """Build an array of `rows` values from the given buffers; the first buffer is the validity bitmap."""
    given = [None if buffer is None else _pa.py_buffer(buffer) for buffer in buffers]
    found: Array = _pa.Array.from_buffers(kind, rows, given, children=list(children) or None)
    return found


def nulls(rows: int, kind: pa.DataType | None) -> Array:
    """Build an array of `rows` nulls."""
    found: Array = _pa.nulls(rows, kind)
    return found


def bits(values: Flags | UInt8s) -> UInt8s:
    """Pack flags into an Arrow bitmap, eight per byte."""
    return np.packbits(values, bitorder="little")


def data_of(values: Array, place: int) -> UInt8s:
    """Return buffer `place` of an array as uint8; it may be longer than the values, and is empty if absent."""
    buffer = values.buffers()[place]
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(memoryview(buffer), np.uint8)


def offsets_of(values: Array) -> Int64s:
    """Return the offsets of a variable-length array: row i has the range [i] to [i + 1], int64 (rows + 1,)."""
    if not len(values):
        return np.zeros(1, np.int64)
    found = data_of(values, 1)[4 * values.offset : 4 * (values.offset + len(values) + 1)]
    return found.view(np.int32).astype(np.int64)


def spans(offsets: Int64s, data: UInt8s) -> pa.BinaryArray:
    """Build a binary array on contiguous `data`; `offsets` has the form that `offsets_of` returns."""
    found: pa.BinaryArray = array_of(pa.binary(), len(offsets) - 1, [None, offsets.astype(np.int32), data])  # type: ignore[assignment]
    return found


def gather(data: UInt8s, begin: Int64s, end: Int64s) -> pa.BinaryArray:
    """Build a binary array from byte ranges anywhere in `data`, from `begin` to `end`, int64 (rows,) each."""
    wide = len(data) > _MAX_OFFSET
    offsets = np.empty(2 * len(begin) + 2, np.int64 if wide else np.int32)
    offsets[0], offsets[1:-1:2], offsets[2:-1:2], offsets[-1] = 0, begin, end, len(data)
    # The offsets alternate between rows and the gaps between them; the gaps are dropped.
    kind = pa.large_binary() if wide else pa.binary()
    both = array_of(kind, len(offsets) - 1, [None, offsets, data])
    taken: Any = take(both, np.arange(1, len(offsets) - 1, 2, dtype=np.int32))
    found: pa.BinaryArray = taken.cast(pa.binary()) if wide else taken
    return found


def take(values: Array, nth: npt.NDArray[Any], without: Flags | None = None) -> Array:
    """Take the values at the indices `nth`; null where `without` is True."""
    found: Array = values.take(_pa.array(nth, mask=without))
    return found


def bytes_of(values: pa.BinaryArray) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return offsets of binary values, int32 (values + 1,), and the bytes that they point into; nothing is copied."""
    _, ends, data = values.buffers()
    assert ends is not None
    offsets = np.frombuffer(memoryview(ends), np.int32, len(values) + 1, values.offset * 4)
    if data is None:
        return offsets - offsets[0], np.zeros(0, np.uint8)
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - offsets[0], np.frombuffer(memoryview(data), np.uint8, last - first, first)
