"""Convert batches of Kafka messages to batches of events for a table.

Documents are read many at a time (`document_rows`); what is not plain in them is read one by one (`exact_events`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.batches import rebatched
from streaming_lsm.arrow.columns import Flags, Int64s, flags, pc
from streaming_lsm.decode.envelope import Envelope
from streaming_lsm.decode.exact_reader import Event, ExactReader
from streaming_lsm.decode.message_keys import MessageKeys
from streaming_lsm.decode.plain_documents import PlainDocuments
from streaming_lsm.decode.schema_fault import SchemaFault, placed_at
from streaming_lsm.decode.table_rows import Rows
from streaming_lsm.decode.unknown_fields import UnknownFields
from streaming_lsm.decode.values.zones import session_zone
from streaming_lsm.schema_evolution import SchemaRules
from streaming_lsm.write.intake import control_columns
from streaming_lsm.write.numbers import Counts

if TYPE_CHECKING:
    from streaming_lsm.decode.avro.followed_schemas import FollowedSchemas

_Part = tuple[Int64s, pa.RecordBatch]
"""Places among the messages, and their rows."""

PAYLOAD_BYTES = 65_536
"""Number of bytes of a bad event's value that are kept."""

_CONTROLS: dict[str, pa.DataType] = {
    control_columns.DELETE: pa.bool_(),
    control_columns.TOMBSTONE: pa.bool_(),
    control_columns.BAD: pa.string(),
    control_columns.TOPIC: pa.string(),
    control_columns.TOPIC_PARTITION: pa.int32(),
    control_columns.OFFSET: pa.int64(),
    control_columns.PAYLOAD: pa.binary(),
}
_SOURCES = {
    control_columns.TOPIC: "topic",
    control_columns.TOPIC_PARTITION: "partition",
    control_columns.OFFSET: "offset",
}


MESSAGE_COLUMNS = ("key", "value", "topic", "partition", "offset")
"""Columns of messages, those of Spark's Kafka source."""
_TOGETHER_ROWS, _TOGETHER_BYTES = 16_384, 4 << 20
"""Messages that are decoded at a time: with few of them the calls take longer than the work."""


@dataclass(frozen=True)
class Messages:
    """Tells a task how to decode messages.

    Attributes:
        envelope: the format of messages.
        zone: zone of timestamps that name none.
        rules: how the table's columns may follow the schemas of messages; None if they are fixed.
    """

    envelope: Envelope
    zone: str
    rules: SchemaRules | None = None

    def decoder(self) -> Decoder:
        """Create the decoder of one task."""
        return Decoder(self.envelope, self.zone, self.rules)

    def after(self, changing: Iterable[int]) -> Messages:
        """Return the same for the columns that the table has after messages of changing schemas.

        Args:
            changing: ids of the schemas.

        Raises:
            RegistryError: a schema cannot be had.
            SchemaError: the rules refuse the columns of a schema.
        """
        from streaming_lsm.decode.avro.followed_schemas import columns_after

        if self.rules is None:
            return self
        columns = columns_after(self.envelope, self.rules, changing)
        return replace(self, envelope=replace(self.envelope, columns=columns))


class Decoder:
    """Converts the messages of one task, in the order of their offsets.

    Attributes:
        schema: the table's columns, which may be null, then ``_lsm_delete`` and ``_lsm_tombstone`` (bool), ``_lsm_bad``
            (reason, null for a good event), ``_lsm_topic``, ``_lsm_partition``, ``_lsm_offset`` and ``_lsm_payload``
            (the first `PAYLOAD_BYTES` of a bad event's value).
    """

    def __init__(self, envelope: Envelope, zone: str = "UTC", rules: SchemaRules | None = None) -> None:
        """Prepare for the messages of `envelope`.

        Args:
            envelope: the format of messages.
            zone: zone of timestamps that name none; any that Spark accepts as the session's.
            rules: how the table's columns may follow the schemas of Avro messages. From the first message on whose
                schema changes them, nothing is decoded: `changing_schemas` are collected.

        Raises:
            ConfigError: the zone is not known.
        """
        self._envelope = envelope
        self._unknown = UnknownFields()
        self._schemas = None if rules is None else _followed_schemas(envelope, rules)
        readers = _avro_readers if envelope.format.is_avro else _json_readers
        self._documents, self._keys, self._exact = readers(envelope, session_zone(zone), self._unknown)
        outside = set(envelope.partition) - set(envelope.record_key)
        self._drops_tombstones = envelope.format.is_debezium and bool(outside)
        self._columns = pa.schema([field.remove_metadata().with_nullable(True) for field in envelope.columns])
        self.schema = pa.schema([*self._columns, *pa.schema(_CONTROLS)])
        # By topic and partition: the record key that the last event deletes, or None.
        self._last: dict[tuple[str, int], tuple[Any, ...] | None] = {}

    @property
    def unknown_fields(self) -> Counts:
        """Number of upserts so far by field that the table does not have and that was not null (`unknown_fields`)."""
        return self._unknown.counts

    @property
    def changing_schemas(self) -> Set[int]:
        """Ids of the schemas so far that change the table's columns. If there is one, messages were left out."""
        return frozenset() if self._schemas is None else self._schemas.changing

    def decoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode the batches of one task; small ones are joined."""
        return map(self.decode, rebatched(batches, size=_TOGETHER_BYTES, rows=_TOGETHER_ROWS))

    def decode(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Convert messages.

        Args:
            messages: columns ``key``, ``value`` (binary), ``topic`` (string), ``partition`` (int32) and ``offset``
                (int64).

        Returns:
            One row of `schema` for each message, except tombstones that repeat the delete before them where the
            message's key does not give their partition. The table's columns are null in bad events; a delete has only
            key, partition and ordering values. A bad event with ``_lsm_tombstone`` true has its record key, and is bad
            only if the last event before the batch was not a delete of that key.

        Raises:
            RegistryError: the schema of a message cannot be had.
            SchemaError: the schema of a message never fits the table's columns, or is not Avro, or has columns that
                the rules refuse.
        """
        try:
            if not len(messages) or self._changes_columns(messages):
                return pa.RecordBatch.from_pylist([], self.schema)
            return self._decoded(messages)
        except SchemaFault as fault:
            topic, partition, offset = (messages.column(name)[fault.place] for name in MESSAGE_COLUMNS[2:])
            raise type(fault.error)(
                f"topic {str(topic)!r}, partition {partition}, offset {offset}: {fault.error}"
            ) from fault.error

    def _changes_columns(self, messages: pa.RecordBatch) -> bool:
        """Tell whether a schema so far, those of `messages` included, changes the table's columns."""
        if self._schemas is None:
            return False
        values = _binary(messages.column("value"))
        valued = np.flatnonzero(flags(pc.is_valid(values)))
        with placed_at(valued):
            self._schemas.meet(_selected(values, valued))
        return bool(self._schemas.changing)

    def _decoded(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        values, keys = (_binary(messages.column(name)) for name in ("value", "key"))
        tombstone = flags(pc.is_null(values))
        parts = [
            *self._plain_values(values, np.flatnonzero(~tombstone)),
            *self._plain_keys(keys, np.flatnonzero(tombstone)),
        ]
        left = np.ones(len(values), np.bool_)
        for places, _ in parts:
            left[places] = False
        parts += self._one_by_one(np.flatnonzero(left), keys, values, unplaced=self._drops_tombstones)
        found = _in_order(parts, len(values))
        dropped = np.zeros(len(values), np.bool_)
        if self._drops_tombstones:
            found, dropped = self._without_repeats(found, messages, keys, values)
        for name, source in _SOURCES.items():
            found[name] = pc.cast(messages.column(source), self.schema.field(name).type)
        batch = pa.RecordBatch.from_arrays([found[name] for name in self.schema.names], schema=self.schema)
        return batch.filter(pa.array(~dropped)) if dropped.any() else batch

    def _plain_values(self, values: pa.BinaryArray, valued: Int64s) -> Iterator[_Part]:
        """Read the values that are plain."""
        with placed_at(valued):
            for rows in self._documents.read(_selected(values, valued)) if len(valued) else ():
                yield valued[rows.places], self._good(rows.columns, rows.delete)

    def _plain_keys(self, keys: pa.BinaryArray, dead: Int64s) -> Iterator[_Part]:
        """Read the keys of tombstones that are plain."""
        with placed_at(dead):
            for rows in self._keys.read(_selected(keys, dead)) if len(dead) else ():
                placed = self._have_partition(rows.columns, len(rows.places))
                every = self._good(rows.columns, rows.delete, dead=True)
                kept = placed if not self._drops_tombstones else np.ones(len(placed), np.bool_)
                yield dead[rows.places][kept], every.filter(pa.array(kept))

    def _have_partition(self, columns: Mapping[str, Any], count: int) -> Flags:
        """Flag tombstones whose key gives the partition."""
        found = np.ones(count, np.bool_)
        for name in self._envelope.partition:
            if name not in self._envelope.record_key:
                found &= flags(pc.is_valid(columns[name])) if name in columns else False
        return found

    def _one_by_one(
        self, places: Int64s, keys: pa.BinaryArray, values: pa.BinaryArray, *, unplaced: bool = False
    ) -> list[_Part]:
        """Read messages one by one; `unplaced` tombstones are kept with their record key, without their reason."""
        if not len(places):
            return []
        chosen = places
        with placed_at(places):
            events = self._exact.events(values.take(chosen), keys.take(chosen))
        if unplaced:
            events = [event if event.keys is None else self._unplaced(event.keys) for event in events]
        return [(places, self._read(events, values.take(chosen)))]

    def _unplaced(self, keys: Sequence[Any]) -> Event:
        return Event(dict(zip(self._envelope.record_key, keys, strict=True)), delete=True, tombstone=True)

    def _without_repeats(
        self, found: dict[str, Any], messages: pa.RecordBatch, keys: pa.BinaryArray, values: pa.BinaryArray
    ) -> tuple[dict[str, Any], Flags]:
        """Drop tombstones without a partition that repeat the delete before them, and give the others their reason.

        A tombstone that begins its topic partition in this task keeps its record key: the sink knows the event before.
        """
        count = len(values)
        tombstone, good = flags(pc.is_null(values)), flags(pc.is_null(found[control_columns.BAD]))
        unplaced = tombstone & good & ~self._have_partition(found, count)
        deletes = flags(found[control_columns.DELETE]) & good & ~tombstone
        record_key = [found[name] for name in self._envelope.record_key]
        before, begins, sources = _events_before(messages)
        repeats = np.zeros(count, np.bool_)
        later = np.flatnonzero(unplaced & (before >= 0))
        same = deletes[before[later]]
        for column in record_key:
            one, other = (column.take(rows) for rows in (later, before[later]))
            both_null = flags(pc.and_(pc.is_null(one), pc.is_null(other)))
            same = same & (both_null | flags(pc.fill_null(pc.equal(one, other), False)))
        repeats[later] = same
        asks = np.zeros(count, np.bool_)
        for row, source in zip(begins.tolist(), sources, strict=True):
            if unplaced[row]:
                asks[row] = source not in self._last
                known = self._last.get(source)
                repeats[row] = known is not None and known == tuple(column[row].as_py() for column in record_key)
        self._note_last(messages, deletes, record_key)
        wrong = np.flatnonzero(unplaced & ~repeats)
        if not len(wrong):
            return found, repeats
        ((_, rows),) = self._one_by_one(wrong, keys, values)
        order = np.arange(count)
        order[wrong] = count + np.arange(len(wrong))
        chosen, asking = order, pa.array(asks)
        joined = {name: pa.concat_arrays([found[name], rows.column(name)]).take(chosen) for name in rows.schema.names}
        joined[control_columns.TOMBSTONE] = pc.or_(joined[control_columns.TOMBSTONE], asking)
        for name, column in zip(self._envelope.record_key, record_key, strict=True):
            joined[name] = pc.if_else(asking, column, joined[name])
        return joined, repeats

    def _note_last(self, messages: pa.RecordBatch, deletes: Flags, record_key: Sequence[Any]) -> None:
        order, begins = _by_source(messages)
        last = order[np.append(np.flatnonzero(begins)[1:], len(order)) - 1] if len(order) else order
        for row, source in zip(last.tolist(), _sources(messages, last), strict=True):
            self._last[source] = tuple(column[row].as_py() for column in record_key) if deletes[row] else None

    def _good(self, columns: Mapping[str, Any], delete: Flags, *, dead: bool = False) -> pa.RecordBatch:
        count = len(delete)
        control = {
            control_columns.DELETE: pa.array(delete),
            control_columns.TOMBSTONE: pa.array(np.full(count, dead)),
            control_columns.BAD: pa.nulls(count, pa.string()),
            control_columns.PAYLOAD: pa.nulls(count, pa.binary()),
        }
        nothing = {field.name: pa.nulls(count, field.type) for field in self._columns if field.name not in columns}
        return pa.RecordBatch.from_pydict({**columns, **nothing, **control})

    def _read(self, events: Sequence[Event], values: pa.BinaryArray) -> pa.RecordBatch:
        self._unknown.add(Counter(name for event in events for name in event.unknown))
        columns = {
            field.name: pa.array([event.values.get(field.name) for event in events], field.type)
            for field in self._columns
        }
        bad = pa.array([event.reason is not None for event in events])
        payloads = pc.if_else(bad, pc.binary_slice(values, 0, PAYLOAD_BYTES), pa.scalar(None, pa.binary()))
        control = {
            control_columns.DELETE: pa.array([event.delete for event in events]),
            control_columns.TOMBSTONE: pa.array([event.tombstone and event.reason is None for event in events]),
            control_columns.BAD: pa.array([event.reason for event in events], pa.string()),
            control_columns.PAYLOAD: payloads,
        }
        return pa.RecordBatch.from_pydict({**columns, **control})


class _PlainReader(Protocol):
    """Reads values, or keys, that are plain; yields their rows. It raises `SchemaFault`."""

    def read(self, messages: pa.BinaryArray, /) -> Iterator[Rows]: ...


class _ExactReader(Protocol):
    """Reads the events that are not plain; a value is null for a tombstone. It raises `SchemaFault`."""

    def events(self, values: pa.BinaryArray, keys: pa.BinaryArray) -> list[Event]: ...


_Readers = tuple[_PlainReader, _PlainReader, _ExactReader]
"""Readers of values, of keys, and of what these leave."""


def _json_readers(envelope: Envelope, zone: str, unknown: UnknownFields) -> _Readers:
    return PlainDocuments(envelope, zone, unknown), MessageKeys(envelope, zone), ExactReader(envelope, zone)


def _avro_readers(envelope: Envelope, zone: str, unknown: UnknownFields) -> _Readers:
    # JSON needs none of these modules, whose import takes time when a worker starts.
    from streaming_lsm.decode.avro.avro_keys import AvroKeys
    from streaming_lsm.decode.avro.avro_rows import AvroRows
    from streaming_lsm.decode.avro.exact_events import ExactAvroReader

    return AvroRows(envelope, zone, unknown.add), AvroKeys(envelope, zone), ExactAvroReader(envelope, zone)


def _followed_schemas(envelope: Envelope, rules: SchemaRules) -> FollowedSchemas:
    from streaming_lsm.decode.avro.followed_schemas import FollowedSchemas

    return FollowedSchemas(envelope, rules)


def _binary(column: Any) -> pa.BinaryArray:
    binary: pa.BinaryArray = pc.cast(column, pa.binary())
    return binary


def _selected(values: pa.BinaryArray, places: Int64s) -> pa.BinaryArray:
    return values if len(places) == len(values) else values.take(places)


def _by_source(messages: pa.RecordBatch) -> tuple[Int64s, Flags]:
    """Sort messages by topic, partition and offset; returns their rows, and whether a topic partition begins."""
    topic = np.asarray(pc.dictionary_encode(messages.column("topic")).indices)
    partition, offset = (np.asarray(messages.column(name)) for name in ("partition", "offset"))
    order = np.lexsort([offset, partition, topic])
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (np.diff(topic[order]) != 0) | (np.diff(partition[order]) != 0)
    return order, begins


def _events_before(messages: pa.RecordBatch) -> tuple[Int64s, Int64s, list[tuple[str, int]]]:
    """Find the message before each in its topic partition.

    Returns:
        Its row or -1, int64; the rows that begin a topic partition, and those topic partitions.
    """
    order, begins = _by_source(messages)
    before = np.full(len(order), -1, np.int64)
    inside = np.flatnonzero(~begins)
    before[order[inside]] = order[inside - 1]
    first = order[begins]
    return before, first, _sources(messages, first)


def _sources(messages: pa.RecordBatch, rows: Int64s) -> list[tuple[str, int]]:
    """Return topic and partition of messages."""
    topics: list[Any] = messages.column("topic").take(rows).to_pylist()
    partitions: list[Any] = messages.column("partition").take(rows).to_pylist()
    return list(zip(topics, partitions, strict=True))


def _in_order(parts: Sequence[_Part], count: int) -> dict[str, Any]:
    """Join the rows of parts in the order of their places; each place is in one part."""
    names = parts[0][1].schema.names
    if len(parts) == 1:
        return {name: parts[0][1].column(name) for name in names}
    every = np.concatenate([places for places, _ in parts])
    order = np.empty(count, np.int64)
    order[every] = np.arange(count)
    chosen = order
    return {name: pa.concat_arrays([rows.column(name) for _, rows in parts]).take(chosen) for name in names}
