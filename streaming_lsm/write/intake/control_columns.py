"""Define the control columns: they describe the events of a batch and are not stored."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from streaming_lsm.errors import SchemaError
from streaming_lsm.schema import IS_DELETED
from streaming_lsm.schema_evolution import ADD, FAIL, SchemaRules

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


def evolved_columns(
    batch: pa.Schema, table: pa.Schema, arrival_fields: Sequence[str], rules: SchemaRules, *, keys_only: bool
) -> pa.Schema:
    """Return the table's columns after a batch, whose control columns are left out.

    Args:
        arrival_fields: columns that order the batch and need not be stored.
        rules: how the table's columns follow those of the batch.
        keys_only: whether the batch may lack columns, as deletes do; they change no column.

    Raises:
        SchemaError: a column is missing, unknown or of a type that does not fit.
    """
    for field in batch:
        is_mark = field.name in (IS_DELETED, DELETE, TOMBSTONE)
        if is_mark and not (pa.types.is_boolean(field.type) or pa.types.is_null(field.type)):
            raise SchemaError(f"column {field.name!r} has type {field.type}, and marks deletes only as bool: cast it")
    control = _not_stored(table, arrival_fields)
    known = pa.schema([field for field in batch if field.name not in control])
    if not keys_only:
        return rules.evolved(table, known)
    there = set(known.names)
    strict = replace(rules, mode=FAIL if rules.mode == ADD else rules.mode)
    strict.evolved(pa.schema([field for field in table if field.name in there]), known)
    return table


def _not_stored(table: pa.Schema, arrival_fields: Sequence[str]) -> Collection[str]:
    return {*CONTROL_COLUMNS, IS_DELETED, *arrival_fields}.difference(table.names)
