"""Tombstones that only repeat a delete, also when the delete was the last event of the batch before.

A Debezium delete carries an ordering value and is followed by a tombstone of the same key, which carries none.
Taken for a delete of its own the tombstone would remove rows that are newer than the delete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.columns import Flags, flags
from streaming_lsm.write import control

_SOURCE = (control.TOPIC, control.TOPIC_PARTITION)


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The last event that a task saw of one topic partition.

    Attributes:
        offset: its offset.
        deleted_key: the record key it deletes; None unless it is a delete that a tombstone may follow.
    """

    offset: int
    deleted_key: str | None


LastEvents = Mapping[str, LastEvent]
"""By source, ``topic/partition``."""

OpenDeletes = Mapping[str, str]
"""Record key by source: the delete of this key was the last event, its tombstone may come next."""


def open_deletes(before: OpenDeletes, tasks: Iterable[LastEvents]) -> dict[str, str]:
    """What the next batch has to know, from what the tasks of this one saw; sources without events stay."""
    last: dict[str, LastEvent] = {}
    for events in tasks:
        for source, event in events.items():
            if source not in last or last[source].offset < event.offset:
                last[source] = event
    kept = {source: key for source, key in before.items() if source not in last}
    return kept | {source: event.deleted_key for source, event in last.items() if event.deleted_key is not None}


def newest_events(before: LastEvents, after: LastEvents) -> LastEvents:
    """The later one of two last events of each source."""
    none = LastEvent(-1, None)
    return {**before, **{source: new for source, new in after.items() if new.offset > before.get(source, none).offset}}


def last_events(batch: pa.RecordBatch, keys: pa.StringArray, deleted: Flags, tombstone: Flags) -> dict[str, LastEvent]:
    """The last event of each topic partition; nothing for batches that do not come from Kafka."""
    if not has_sources(batch):
        return {}
    found = {}
    for source, rows in _by_source(batch):
        rows &= flags(pc.is_valid(batch.column(control.OFFSET)))
        if not rows.any():
            continue
        offsets = batch.column(control.OFFSET).filter(pa.array(rows))
        last = int(np.flatnonzero(rows)[int(np.argmax(np.asarray(offsets)))])
        deletes = bool(deleted[last] and not tombstone[last])
        found[source] = LastEvent(batch.column(control.OFFSET)[last].as_py(), keys[last].as_py() if deletes else None)
    return found


def answered(batch: pa.RecordBatch, keys: pa.StringArray, tombstone: Flags, expected: OpenDeletes) -> Flags:
    """Tombstones of keys whose delete ended the batch before, bool (rows,); the first event of the key counts."""
    rows = np.zeros(batch.num_rows, np.bool_)
    if not expected or not tombstone.any() or not has_sources(batch):
        return rows
    for source, of_source in _by_source(batch):
        if source in expected:
            rows |= of_source & tombstone & flags(pc.equal(keys, pa.scalar(expected[source])))
    return rows


def has_sources(batch: pa.RecordBatch) -> bool:
    """Whether the events say which topic partition and offset they come from."""
    return {*_SOURCE, control.OFFSET, control.TOMBSTONE} <= set(batch.schema.names)


def _by_source(batch: pa.RecordBatch) -> Iterable[tuple[str, Flags]]:
    """Each topic partition with its rows, bool (rows,); rows that do not say where they come from are in none."""
    topic, partition = (batch.column(name) for name in _SOURCE)
    distinct = pa.table([topic, partition], names=list(_SOURCE)).group_by(list(_SOURCE)).aggregate([])
    for row in distinct.to_pylist():
        if None in row.values():
            continue
        rows = pc.and_(pc.equal(topic, row[control.TOPIC]), pc.equal(partition, row[control.TOPIC_PARTITION]))
        yield f"{row[control.TOPIC]}/{row[control.TOPIC_PARTITION]}", flags(rows)
