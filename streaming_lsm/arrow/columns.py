"""Convert Arrow columns to numpy arrays."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

# The published stubs reject the plain Python scalars that every kernel accepts.
pc: Any = pyarrow.compute

Column: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"

AnyColumn = TypeVar("AnyColumn", bound="pa.Array[Any] | pa.ChunkedArray[Any]")

Flags = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]
UInt8s = npt.NDArray[np.uint8]


def filled(column: Column, value: object) -> Column:
    """Replace every null of `column` by `value`."""
    without_nulls: Column = pc.fill_null(column, value)
    return without_nulls


def flags(column: Column) -> Flags:
    """Convert a boolean column to bool (rows,); a null is False."""
    return np.asarray(filled(column, False), np.bool_)


def int64s(column: Column) -> Int64s:
    """Convert a column that casts to int64 to int64 (rows,): timestamps in their own unit; a null is 0."""
    return np.asarray(filled(pc.cast(column, pa.int64()), 0), np.int64)


def float64s(column: Column) -> Float64s:
    """Convert a numeric column to float64 (rows,); a null is 0."""
    return np.asarray(filled(pc.cast(column, pa.float64()), 0.0), np.float64)


def without(values: AnyColumn, others: Column) -> AnyColumn:
    """Return the values that are not among `others`, in order."""
    if not len(values) or not len(others):
        return values
    whole = others.combine_chunks() if isinstance(others, pa.ChunkedArray) else others
    left: Any = values.filter(pc.invert(pc.is_in(values, value_set=whole)))
    return left  # type: ignore[no-any-return]


def is_utf8(values: pa.BinaryArray) -> Flags:
    """Flag the values that are UTF-8, bool (rows,); a null is."""
    try:
        pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        if len(values) == 1:
            return np.zeros(1, np.bool_)
    else:
        return np.ones(len(values), np.bool_)
    half = len(values) // 2
    return np.concatenate([is_utf8(values.slice(0, half)), is_utf8(values.slice(half))])


def strings(column: Column) -> pa.StringArray:
    """Convert a string column to one array; copied only when it has several chunks.

    Raises:
        TypeError: the column has another type.
    """
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not isinstance(whole, pa.StringArray):
        raise TypeError(f"expected a column of strings, not of {whole.type}")
    return whole


def texts_at(texts: pa.StringArray, places: Int64s) -> pa.StringArray:
    """Take the texts at indices."""
    return texts.take(pa.array(places, pa.int64()))


def text_list(texts: pa.StringArray) -> list[str]:
    """Return texts without nulls as a list."""
    found: Any = texts.to_pylist()
    return found  # type: ignore[no-any-return]


def text_bytes(texts: pa.StringArray) -> tuple[Int64s, UInt8s]:
    """Return the offsets and the UTF-8 bytes of all texts.

    Returns:
        offsets, int64 (rows + 1,), ascending from 0; bytes, uint8 (last offset,), not copied.
    """
    bounds, data = text_buffers(texts)
    offsets = bounds.astype(np.int64)
    return offsets - offsets[0], data


def text_buffers(texts: pa.StringArray | pa.BinaryArray) -> tuple[Int32s, UInt8s]:
    """Return the bounds and the UTF-8 bytes of all texts; nothing is copied.

    Returns:
        bounds, int32 (rows + 1,), ascending, of which the first need not be 0; bytes, uint8, from the first one on.
    """
    _, offsets, data = texts.buffers()
    if offsets is None:
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    first, last = texts.offset, texts.offset + len(texts)
    bounds = np.frombuffer(memoryview(offsets), np.int32)[first : last + 1]
    everything = np.zeros(0, np.uint8) if data is None else np.frombuffer(memoryview(data), np.uint8)
    return bounds, everything[bounds[0] : bounds[-1]]
