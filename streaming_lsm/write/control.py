"""Columns that travel with a batch to say what an event is, and are never stored."""

from __future__ import annotations

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
