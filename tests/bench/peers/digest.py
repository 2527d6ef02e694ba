"""Digest of a table's rows: equal where the rows are, in whatever order and types a reader gives them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.bench.peers.columns import Columns
from tests.bench.workload import KEY


def digest(rows: pa.Table, columns: Columns) -> str:
    """SHA-256 of the rows by ascending key, and their number in front.

    Args:
        rows: has at least the columns of `columns`; meta columns are left out.
        columns: the columns; types are cast to theirs.

    Raises:
        KeyError: a column is missing.
        pyarrow.ArrowInvalid: a value does not fit its column.
    """
    same = rows.select(columns.names).cast(columns.arrow)
    same = same.take(pc.sort_indices(same.column(KEY)))
    found = hashlib.sha256()
    for name in columns.names:
        for part in _parts(same.column(name)):
            found.update(part)
    return f"{same.num_rows}:{found.hexdigest()}"


def _parts(column: pa.ChunkedArray[Any]) -> list[bytes]:
    """The validity and the values of a column as bytes."""
    values: Any = column.combine_chunks()
    valid = np.packbits(pc.is_valid(values).to_numpy(zero_copy_only=False)).tobytes()
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.string())
    if pa.types.is_string(values.type):
        filled = pc.fill_null(values, "").cast(pa.large_string())
        lengths = pc.binary_length(filled).to_numpy().astype(np.int64)
        text = pa.array(["".join(filled.to_pylist())], pa.large_string()).buffers()[2]
        return [valid, lengths.tobytes(), b"" if text is None else text.to_pybytes()]
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    zero = False if pa.types.is_boolean(values.type) else 0
    return [valid, pc.fill_null(values, zero).to_numpy(zero_copy_only=False).tobytes()]
