"""Drop tombstones that repeat a delete: the event before, in the same topic partition, deletes the same key.

A Debezium delete has an ordering value and is followed by a tombstone of the same key, which has none and would delete
newer rows. Offsets tell the preceding event, across batches and commits; dead letters are ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, flags, int64s, pc
from streaming_lsm.write.intake import control_columns
from streaming_lsm.write.plan import OpenDeletes

_LONGEST_KEY = 200
_POSITION = (control_columns.TOPIC, control_columns.TOPIC_PARTITION, control_columns.OFFSET)


@dataclass(frozen=True, slots=True)
class LastEvent:
    """Describes the last event of one topic partition that a task has seen.

    Attributes:
        offset: its offset.
        deleted_key: the record key it deletes, as `_kept` keeps it; None unless it is a delete that a tombstone may
            follow.
    """

    offset: int
    deleted_key: str | None

    @property
    def is_seen(self) -> bool:
        """Whether it is of this batch, instead of one before."""
        return self.offset >= 0


_UNKNOWN = LastEvent(-1, None)

LastEvents = Mapping[str, LastEvent]
"""By source, ``topic/partition``."""


def open_deletes(before: OpenDeletes, tasks: Iterable[LastEvents]) -> dict[str, str]:
    """Compute the open deletes for the next batch from the last events of this one; sources without events stay."""
    last: dict[str, LastEvent] = {}
    for events in tasks:
        for source, event in events.items():
            if source not in last or last[source].offset < event.offset:
                last[source] = event
    kept = {source: key for source, key in before.items() if source not in last}
    return kept | {source: event.deleted_key for source, event in last.items() if event.deleted_key is not None}


def topics_of(tasks: Iterable[LastEvents]) -> frozenset[str]:
    """Return the topics of the events of this batch."""
    return frozenset(source.rpartition("/")[0] for events in tasks for source, event in events.items() if event.is_seen)


def newest_events(before: LastEvents, after: LastEvents) -> LastEvents:
    """Select the later of two last events of each source."""
    newer = {source: new for source, new in after.items() if new.offset > before.get(source, _UNKNOWN).offset}
    return {**before, **newer}


def events_before(deletes: OpenDeletes) -> LastEvents:
    """Build the last events before a batch from its open deletes. Their offsets are unknown and sort below all."""
    return {source: LastEvent(-1, key) for source, key in deletes.items()}


def repeated_tombstones(
    batch: pa.RecordBatch, keys: pa.StringArray, deletes: Flags, tombstone: Flags, before: LastEvents
) -> tuple[Flags, LastEvents]:
    """Find the tombstones that repeat a delete, and the last events for the next batch.

    Args:
        batch: events. Those without topic, partition and offset are never matched.
        keys: their record keys.
        deletes: bool (rows,), the deletes that a tombstone may follow.
        tombstone: bool (rows,).
        before: the last event of each topic partition so far.

    Returns:
        bool (rows,), and `before` with the events of the batch.
    """
    repeats = np.zeros(batch.num_rows, np.bool_)
    if not has_sources(batch.schema):
        return repeats, before
    rows, begins = _by_source(batch)
    later = np.flatnonzero(tombstone[rows[1:]] & deletes[rows[:-1]] & ~begins[1:]) + 1
    one, other = (keys.take(pa.array(rows[places], pa.int64())) for places in (later - 1, later))
    repeats[rows[later]] = flags(pc.equal(one, other))
    found = {}
    for begin, end in pairwise([*np.flatnonzero(begins).tolist(), len(rows)]):
        first, last = int(rows[begin]), int(rows[end - 1])
        topic, partition, offset = (batch.column(name)[first].as_py() for name in _POSITION)
        known = before.get(f"{topic}/{partition}", _UNKNOWN)
        repeats[first] = tombstone[first] and known.offset < offset and known.deleted_key == _kept(keys[first].as_py())
        deleted_key = _kept(keys[last].as_py()) if deletes[last] else None
        found[f"{topic}/{partition}"] = LastEvent(batch.column(control_columns.OFFSET)[last].as_py(), deleted_key)
    return repeats, newest_events(before, found)


def _kept(key: str) -> str:
    """Return a key as the ledger keeps it: of a long one the hash, as each commit has the last keys of all sources."""
    return key if len(key) <= _LONGEST_KEY else f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def has_sources(schema: pa.Schema) -> bool:
    """Test whether a batch has the columns for topic partition, offset and tombstone."""
    return {*_POSITION, control_columns.TOMBSTONE} <= set(schema.names)


def _by_source(batch: pa.RecordBatch) -> tuple[Int64s, Flags]:
    """Sort the rows by topic partition and offset; rows with nulls in them are left out.

    Returns:
        int64, row numbers; bool, whether a topic partition begins there.
    """
    known = np.logical_and.reduce([flags(pc.is_valid(batch.column(name))) for name in _POSITION])
    rows = np.flatnonzero(known)
    topic, partition, offset = (batch.column(name) for name in _POSITION)
    numbers = [int64s(column)[rows] for column in (pc.dictionary_encode(topic).indices, partition, offset)]
    order = np.lexsort(numbers[::-1])
    begins = np.ones(len(rows), np.bool_)
    if len(rows):
        begins[1:] = np.logical_or.reduce([np.diff(column[order]) != 0 for column in numbers[:2]])
    return rows[order], begins
