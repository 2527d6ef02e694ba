"""Define the control columns: they describe the events of a batch and are not stored."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streaming_lsm.errors import SchemaError
from streaming_lsm.schema import IS_DELETED, check_fits

CONTROL_PREFIX = "_lsm_"
"""No column of a table may begin with it."""

DELETE = "_lsm_delete"
"""boolean: the event deletes its key."""
TOMBSTONE = "_lsm_tombstone"
"""boolean: the event is a tombstone: a delete that has a key only."""
BAD = "_lsm_bad"
"""text: why the event could not be read; null when it could."""
TOPIC = "_lsm_topic"
TOPIC_PARTITION = "_lsm_partition"
OFFSET = "_lsm_offset"
PAYLOAD = "_lsm_payload"
"""The event's raw value, kept for the dead letters."""
ROW = "_lsm_row"
"""int64: position of the row in Spark, the order of arrival when no fields are named for it."""

CONTROL_COLUMNS = (DELETE, TOMBSTONE, BAD, TOPIC, TOPIC_PARTITION, OFFSET, PAYLOAD, ROW)


def check_columns(batch: pa.Schema, table: pa.Schema, arrival_fields: Sequence[str], *, keys_only: bool) -> None:
    """Check a batch's columns, the control columns left out, against the table's.

    Args:
        arrival_fields: columns that order the batch and need not be stored.
        keys_only: whether the batch may lack columns, as deletes do.

    Raises:
        SchemaError: a column is missing, unknown or of another type.
    """
    for field in batch:
        is_mark = field.name in (IS_DELETED, DELETE, TOMBSTONE)
        if is_mark and not (pa.types.is_boolean(field.type) or pa.types.is_null(field.type)):
            raise SchemaError(f"column {field.name!r} has type {field.type}, and marks deletes only as bool: cast it")
    control = {*CONTROL_COLUMNS, IS_DELETED, *arrival_fields}.difference(table.names)
    known = pa.schema([field for field in batch if field.name not in control])
    there = set(known.names)
    check_fits(known, pa.schema([field for field in table if field.name in there]) if keys_only else table)
