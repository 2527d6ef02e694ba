"""What pyarrow alone does with an array of keys."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def sort_order(keys: pa.StringArray) -> pa.UInt64Array:
    """Row numbers by ascending key; neither repeats are found nor words are made."""
    return pc.sort_indices(keys)
