"""Read the Avro events that are not plain: what each changes in the table, or why it cannot be read.

Datums are read many at a time (`record_reading`), then converted and judged one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import flags, pc
from streaming_lsm.decode.avro.avro_keys import KeyPlans, begins_with_magic
from streaming_lsm.decode.avro.avro_rows import columns_of
from streaming_lsm.decode.avro.exact_values import exact_converter, printed
from streaming_lsm.decode.avro.fitted_columns import selected
from streaming_lsm.decode.avro.frames import Frames, frame_reason
from streaming_lsm.decode.avro.record_reading import ChangeReading, FlatReading, ReadColumn, Rows
from streaming_lsm.decode.avro.schemas import Group, Groups
from streaming_lsm.decode.avro.unread_fields import UnreadFields
from streaming_lsm.decode.avro.written_types import WrittenType
from streaming_lsm.decode.envelope import DELETED_FLAGS, Envelope
from streaming_lsm.decode.exact_documents import ColumnReader, operation_reason, shown
from streaming_lsm.decode.exact_reader import Event, ExactReader, Judge, Reading
from streaming_lsm.decode.schema_fault import placed_at
from streaming_lsm.format.avro.cursor import Faults

_NOTHING = Reading(raw={}, values={}, misfits={}, delete=False, by_key=False)


@dataclass(frozen=True, slots=True)
class _Document:
    """Holds what the value of a message says.

    Attributes:
        reading: its values; without a row, those of Debezium's metadata.
        has_row: whether it has a row, else the key tells it.
        reason: why it is no event.
    """

    reading: Reading = field(default_factory=lambda: _NOTHING)
    has_row: bool = False
    reason: str | None = None

    @property
    def needs_key(self) -> bool:
        """Whether the key tells the row."""
        return self.reason is None and not self.has_row


class _Fields:
    """Converts the values of fields, one row at a time."""

    def __init__(self, read: Mapping[str, ReadColumn], zone: str, unread: UnreadFields | None = None) -> None:
        self._unread = unread
        self._fields = [(name, one, exact_converter(one, zone)) for name, one in read.items()]

    def readings(self, rows: Rows) -> Iterator[tuple[int, Reading]]:
        """Convert rows of natural values, with their positions; `delete` and `by_key` are not known here."""
        columns = [rows.values[name].to_pylist() for name, _, _ in self._fields]
        every = zip(*columns, strict=True) if columns else [()] * len(rows.places)
        unread = {} if self._unread is None else self._unread.present(rows.values, len(rows.places))
        for nth, (place, row) in enumerate(zip(rows.places.tolist(), every, strict=True)):
            unknown = frozenset(name for name, present in unread.items() if present[nth])
            yield place, self._reading(row, unknown)

    def _reading(self, row: Sequence[Any], unknown: frozenset[str]) -> Reading:
        raw: dict[str, Any] = {}
        values: dict[str, Any] = {}
        misfits: dict[str, str] = {}
        for (name, one, convert), held in zip(self._fields, row, strict=True):
            text = printed(held, one.written)
            if text is None:
                continue
            raw[name], values[name] = text, convert(held)
            if values[name] is None:
                misfits[name] = text
        return Reading(raw=raw, values=values, misfits=misfits, delete=False, by_key=False, unknown=unknown)


@dataclass(frozen=True)
class _Flat:
    """Reads the rows of a schema."""

    reading: FlatReading
    fields: _Fields


@dataclass(frozen=True)
class _Changes:
    """Reads the envelopes of a schema."""

    reading: ChangeReading
    row: _Fields
    before: _Fields
    metadata: _Fields


class ExactAvroReader:
    """Reads the events of an envelope's format; a reason is that of the JSON formats where they have the case, too."""

    def __init__(self, envelope: Envelope, zone: str = "UTC") -> None:
        """Prepare for the events of `envelope`; `zone` is that of dates and times that name none."""
        self._debezium, self._zone = envelope.format.is_debezium, zone
        self._row, self._metadata, self._flags = columns_of(envelope)
        self._judge = Judge(envelope, {one.name: ColumnReader(one, zone) for one in envelope.columns})
        self._nulls = dict.fromkeys(envelope.columns.names)
        self._groups: Groups[_Flat | _Changes | str] = Groups(envelope.schemas, self._plan)
        self._keys = _ExactKeys(envelope, zone)

    def events(self, values: pa.BinaryArray, keys: pa.BinaryArray) -> list[Event]:
        """Read messages; a value is null for a tombstone.

        Raises:
            SchemaFault: a schema cannot be had or does not fit the table.
        """
        dead = flags(pc.is_null(values))
        documents = [_Document()] * len(values)
        valued = np.flatnonzero(~dead)
        with placed_at(valued):
            for place, document in self._documents(values.take(valued)):
                documents[valued[place]] = document
        rowless = np.array([place for place, one in enumerate(documents) if one.needs_key], np.int64)
        with placed_at(rowless):
            by_key = dict(zip(rowless.tolist(), self._keys.readings(keys.take(rowless)), strict=True))
        return [
            self._event(document, by_key.get(place), tombstone=bool(dead[place]))
            for place, document in enumerate(documents)
        ]

    def _event(self, document: _Document, key: Reading | str | None, *, tombstone: bool) -> Event:
        if document.reason is not None or isinstance(key, str):
            return Event(tombstone=tombstone, reason=document.reason or str(key))
        found = document.reading if key is None else _merged(key, document.reading)
        return self._judge.event(replace(found, values=self._nulls | dict(found.values)), tombstone=tombstone)

    def _plan(self, written: WrittenType, where: str) -> _Flat | _Changes | str:
        """Plan the reading of a schema; returns the reason why its messages are no events if they are none."""
        if not written.is_record:
            return f"the value is not an Avro record: {where} is {written.text}"
        if not self._debezium:
            flat = FlatReading(written, [*self._row, *self._flags], where, marks=True)
            return _Flat(flat, _Fields(flat.columns, self._zone, flat.unread))
        if "op" not in written.fields:
            return str(operation_reason(None, has_after=False))
        changes = ChangeReading(written, self._row, self._row, self._metadata, where)
        row = _Fields(changes.row, self._zone, changes.unread)
        before, metadata = (_Fields(read, self._zone) for read in (changes.before, changes.metadata))
        return _Changes(changes, row, before, metadata)

    def _documents(self, messages: pa.BinaryArray) -> Iterator[tuple[int, _Document]]:
        """Yield the documents of messages, with their positions."""
        frames = Frames.of(messages)
        for place in np.flatnonzero(~frames.framed).tolist():
            yield place, _Document(reason=frame_reason(messages[place].as_py(), "value"))
        for group in self._groups.of(frames):
            plan = group.plan
            if isinstance(plan, str):
                documents = [_Document(reason=plan)] * len(group.places)
            elif isinstance(plan, _Flat):
                documents = self._flat(plan, group)
            else:
                documents = self._changes(plan, group)
            yield from zip(group.places.tolist(), documents, strict=True)

    def _flat(self, plan: _Flat, group: Group[Any]) -> list[_Document]:
        values, faults = plan.reading.read(group.datums)
        documents = _faulty(faults, group)
        for place, reading in plan.fields.readings(_sound(Rows(np.arange(len(documents)), values), faults)):
            documents[place] = self._flagged(reading)
        return documents

    def _flagged(self, reading: Reading) -> _Document:
        for one in self._flags:
            flag = reading.raw.get(one.name)
            if flag is not None and flag.lower() not in ("true", "false"):
                return _Document(reason=f"field '{one.name}' holds '{shown(flag)}', which is not BOOLEAN")
        delete = any(str(reading.raw.get(name)).lower() == "true" for name in DELETED_FLAGS)
        return _Document(replace(reading, delete=delete), has_row=True)

    def _changes(self, plan: _Changes, group: Group[Any]) -> list[_Document]:
        changes = plan.reading.read(group.datums)
        documents, faults = _faulty(changes.faults, group), changes.faults
        after = dict(plan.row.readings(_sound(changes.after, faults)))
        before = dict(plan.before.readings(_sound(changes.before, faults)))
        every = Rows(np.arange(len(documents)), changes.metadata)
        operations = changes.operation.to_pylist()
        for place, metadata in plan.metadata.readings(_sound(every, faults)):
            operation = operations[place]
            reason = operation_reason(operation, has_after=place in after)
            row = (before if operation == "d" else after).get(place)
            if reason is not None:
                documents[place] = _Document(reason=reason)
            elif row is None:
                documents[place] = _Document(metadata)
            else:
                merged = _merged(row, metadata)
                documents[place] = _Document(replace(merged, delete=operation == "d"), has_row=True)
        return documents


class _ExactKeys:
    """Reads the keys of deletes that have no row."""

    def __init__(self, envelope: Envelope, zone: str) -> None:
        self._zone, self._texts = zone, ExactReader(envelope, zone)
        self._groups: Groups[_Flat | str] = Groups(envelope.schemas, self._planned)
        self._plans = KeyPlans(envelope)

    def _planned(self, written: WrittenType, where: str) -> _Flat | str:
        reading = self._plans.plan(written, where)
        if reading is None:
            return f"the key is not a record of the record key columns: {where} is {written.text}"
        return _Flat(reading, _Fields(reading.columns, self._zone))

    def readings(self, keys: pa.BinaryArray) -> list[Reading | str]:
        """Read keys; returns the values of each, or the reason why it cannot be read."""
        avro = begins_with_magic(keys)
        found: list[Reading | str] = [
            "" if is_avro else self._texts.key_reading(key) for key, is_avro in zip(keys.to_pylist(), avro, strict=True)
        ]
        known = np.flatnonzero(avro)
        with placed_at(known):
            for place, reading in self._avro(keys.take(known)):
                found[known[place]] = reading
        return found

    def _avro(self, keys: pa.BinaryArray) -> Iterator[tuple[int, Reading | str]]:
        frames = Frames.of(keys)
        for place in np.flatnonzero(~frames.framed).tolist():
            yield place, frame_reason(keys[place].as_py(), "key")
        for group in self._groups.of(frames):
            plan = group.plan
            if isinstance(plan, str):
                yield from ((place, plan) for place in group.places.tolist())
                continue
            values, faults = plan.reading.read(group.datums)
            for nth, reason in _reasons(faults, group.where, "key"):
                yield int(group.places[nth]), reason
            for nth, reading in plan.fields.readings(_sound(Rows(np.arange(len(group.places)), values), faults)):
                yield int(group.places[nth]), replace(reading, delete=True, by_key=True)


def _merged(row: Reading, metadata: Reading) -> Reading:
    """Join the values of a row with those of Debezium's metadata."""
    return replace(
        row,
        raw={**row.raw, **metadata.raw},
        values={**row.values, **metadata.values},
        misfits={**row.misfits, **metadata.misfits},
    )


def _sound(rows: Rows, faults: Faults) -> Rows:
    """Leave out faults."""
    values, places = selected(rows.values, rows.places, ~faults.found[rows.places])
    return Rows(places, values)


def _faulty(faults: Faults, group: Group[Any]) -> list[_Document]:
    """Return documents that tell why each fault is one, and nothing of the others."""
    documents = [_Document()] * len(group.places)
    for place, reason in _reasons(faults, group.where, "value"):
        documents[place] = _Document(reason=reason)
    return documents


def _reasons(faults: Faults, where: str, what: str) -> Iterator[tuple[int, str]]:
    """Yield position and reason of each fault; `what` is the part of the message."""
    for place, (path, why) in (faults.reasons or {}).items():
        yield place, f"the {what} does not follow {where}: " + (f"field {path!r} {why}" if path else f"it {why}")
