"""Find the record keys of a filter's rows by the secondary indexes of the metadata table, before any file is opened.

See docs/format/07-index-and-metadata.md, "Secondary index".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streaming_lsm.metadata.secondary_entries import keys_of_values
from streaming_lsm.query.prune.predicate import Predicate, columns_of, possible_values
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.timeline import Timeline

_MOST_VALUES = 1_000
_MOST_KEYS = 100_000
_INTEGERS = (pa.int32(), pa.int64())


def possible_keys_of_values(
    storage: Storage, timeline: Timeline, predicate: Predicate, schema: pa.Schema, timelines: TimelineCache
) -> tuple[pa.StringArray, str] | None:
    """Return record keys among which are those of all rows for which a predicate is true.

    Args:
        storage: the table.
        timeline: of the query, without restrictions.
        predicate: the predicate.
        schema: columns of the table.
        timelines: caches the timelines of the table and of its metadata table.

    Returns:
        The keys, and the name of the index that tells them; None if no index does, or too many keys.
    """
    for column in sorted(columns_of(predicate) & set(schema.names)):
        found = possible_values(predicate, column)
        texts = None if found is None or len(found) > _MOST_VALUES else _texts(found, schema.field(column).type)
        told = None if texts is None else keys_of_values(storage, timeline, column, texts, timelines)
        if told is not None and len(told[0]) <= _MOST_KEYS:
            return told
    return None


def _texts(values: Sequence[pa.Scalar[Any]], kind: pa.DataType) -> pa.StringArray | None:
    """Return values as an index has them; None if they are not of the column's type."""
    if not all(value.is_valid for value in values):
        return None
    if pa.types.is_string(kind) and all(pa.types.is_string(value.type) for value in values):
        return pa.array([value.as_py() for value in values], pa.string())
    if kind in _INTEGERS and all(pa.types.is_integer(value.type) for value in values):
        return pa.array([str(value.as_py()) for value in values], pa.string())
    return None
