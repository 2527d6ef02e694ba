"""Measure the bytes of each row, and cut rows by size: a few rows may hold most of a batch's bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s, int64s, pc

_OFFSET_BYTES = 4


def row_sizes(rows: pa.Table | pa.RecordBatch) -> Int64s:
    """Compute the bytes of each row, int64 (rows,), bits rounded up; at least 1.

    Exact for the types that a table stores. Other types are estimated by their average.
    """
    sizes = np.ones(rows.num_rows, np.int64)
    for column in rows.columns:
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        begin = 0
        for chunk in chunks:
            sizes[begin : begin + len(chunk)] += _value_sizes(chunk)
            begin += len(chunk)
    return sizes


def _value_sizes(values: pa.Array[Any]) -> Int64s | int:
    """Compute the bytes of each value, or one size if all have the same."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return int64s(pc.binary_length(values)) + _OFFSET_BYTES
    if isinstance(values, pa.ListArray | pa.MapArray):
        # The offsets of a slice are its own; the values below are those of the whole list it was cut from.
        offsets = int64s(values.offsets)
        inner = values.values.slice(offsets[0], offsets[-1] - offsets[0])
        before = np.append(0, np.cumsum(np.broadcast_to(_value_sizes(inner), len(inner))))
        sizes: Int64s = np.diff(before[offsets - offsets[0]]) + _OFFSET_BYTES
        return sizes
    if isinstance(values, pa.StructArray):
        sizes = np.zeros(len(values), np.int64)
        for place in range(kind.num_fields):
            sizes += _value_sizes(values.field(place))
        return sizes
    return -(-values.nbytes // max(1, len(values)))


def cuts(ends: Int64s, begin: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
    """Cut the rows from `begin` to `end` into stretches of at most `limit` bytes, but for rows that are larger.

    Args:
        ends: running sum of the rows' bytes, int64 (rows,).
    """
    while begin < end:
        before = int(ends[begin - 1]) if begin else 0
        stop = min(end, max(begin + 1, int(np.searchsorted(ends, before + limit, "right"))))
        yield begin, stop
        begin = stop
