"""What pyarrow alone does with an array of keys, and with rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def sorted_rows(batches: Sequence[pa.RecordBatch], key: str) -> pa.Table:
    """Rows by ascending key; repeated keys stay."""
    rows = pa.Table.from_batches(batches)
    return rows.take(pc.sort_indices(rows.column(key)))


def sort_order(keys: pa.StringArray) -> pa.UInt64Array:
    """Row numbers by ascending key; neither repeats are found nor words are made."""
    return pc.sort_indices(keys)
