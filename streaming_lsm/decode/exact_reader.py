"""Read one event at a time: what it changes in the table, or why it cannot be read.

This reader decides what is an event. `document_rows` reads many documents at a time where all of it is plain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from streaming_lsm.decode.envelope import ENVELOPE_COLUMNS, Envelope
from streaming_lsm.decode.exact_documents import ColumnReader, Document, DocumentReader, RawRow, shown
from streaming_lsm.decode.unknown_fields import row_fields
from streaming_lsm.decode.values.unavailable import unavailable


@dataclass(slots=True)
class Event:
    """Describes an event.

    Attributes:
        values: the table's columns, unless there is a reason: null is left out; dates as days, timestamps as
            microseconds since 1970.
        keys: the record key of a bad tombstone that could be read, in order; None otherwise.
        delete: whether the event deletes its key.
        tombstone: whether the event has no value.
        reason: why the event cannot be read; None when it can.
        unknown: fields of an upserted row that the table does not have (`unknown_fields`).
    """

    values: dict[str, Any] = field(default_factory=dict)
    keys: tuple[Any, ...] | None = None
    delete: bool = False
    tombstone: bool = False
    reason: str | None = None
    unknown: frozenset[str] = frozenset()


@dataclass(slots=True, kw_only=True)
class Reading:
    """Holds what was read of an event.

    Attributes:
        raw: what each column holds, mostly as text; null is left out, or None.
        values: the values in the types of the columns; None for null, and for a value that does not fit.
        misfits: the texts of values that do not fit, by column.
        delete: whether the event deletes its row.
        by_key: whether the row was read from the message's key.
        complaint: whether a value inside a nested field does not fit.
        unknown: fields of the row that the table does not have, unless it is deleted.
    """

    raw: Mapping[str, Any]
    values: Mapping[str, Any]
    misfits: Mapping[str, str]
    delete: bool
    by_key: bool
    complaint: bool = False
    unknown: frozenset[str] = frozenset()


class Judge:
    """Decides whether the values of a message make an event."""

    def __init__(self, envelope: Envelope, columns: Mapping[str, ColumnReader]) -> None:
        """Take the roles of columns from the envelope."""
        self._envelope, self._columns = envelope, columns
        self._debezium = envelope.format.is_debezium
        self._unavailable = unavailable(envelope.unavailable)
        self._identity = {*envelope.record_key, *envelope.partition, *envelope.ordering}
        self._required = list(envelope.ordering) + [
            column.name for column in envelope.columns if not column.nullable and column.name not in envelope.ordering
        ]

    def event(self, found: Reading, *, tombstone: bool) -> Event:
        """Return the event, good or bad."""
        reason = self._reason(found)
        if reason is None:
            unknown = frozenset[str]() if found.delete else found.unknown
            return Event(self._kept(found.values, delete=found.delete), None, found.delete, tombstone, unknown=unknown)
        keys = tuple(found.values[name] for name in self._envelope.record_key)
        readable = tombstone and self._null_key(found.values) is None
        return Event(keys=keys if readable else None, tombstone=tombstone, reason=reason)

    def _kept(self, values: Mapping[str, Any], *, delete: bool) -> dict[str, Any]:
        """Select the values that the table gets: those of a delete are its key, partition and ordering values."""
        if not delete:
            return dict(values)
        envelope = self._envelope
        kept = {*envelope.record_key, *envelope.partition, "_hoodie_is_deleted"}
        # A delete has all of its ordering values or none, as a partly null tuple is not ordered.
        if all(values[name] is not None for name in envelope.ordering):
            kept.update(envelope.ordering)
        return {name: value for name, value in values.items() if name in kept}

    def _reason(self, found: Reading) -> str | None:
        for name, column in self._columns.items():
            if found.delete and name not in self._identity:
                continue
            wrong = self._wrong_value(column, found)
            if wrong is not None:
                return wrong
        null_key = self._null_key(found.values)
        if null_key is not None:
            return null_key
        for name in self._envelope.partition:
            if name not in self._envelope.record_key:
                unplaced = self._unplaced(name, found)
                if unplaced is not None:
                    return unplaced
        if found.delete:
            return None
        for name in self._required:
            if found.values[name] is None:
                if name in self._envelope.ordering:
                    return f"ordering column '{name}' is null"
                return f"column '{name}' is null, declared NOT NULL"
        return "a value inside a nested field has not the declared type" if found.complaint else None

    def _wrong_value(self, column: ColumnReader, found: Reading) -> str | None:
        name = column.name
        # A text that is no decimal is a misfit.
        held = found.values[name] if column.by_json_type else found.raw.get(name)
        if self._debezium and self._unavailable.is_form(held, self._envelope.filled(name)):
            return f"column '{name}' was not sent (unchanged large value): set REPLICA IDENTITY FULL"
        if name not in found.misfits:
            return None
        return f"column '{name}' holds '{shown(found.misfits[name])}', which is not {column.sql}"

    def _null_key(self, values: Mapping[str, Any]) -> str | None:
        names = self._envelope.record_key
        if any(values[name] not in (None, "", b"") for name in names):
            return None
        if len(names) == 1:
            return f"record key column '{names[0]}' is null or empty"
        return f"record key columns {', '.join(names)} are all null or empty"

    def _unplaced(self, name: str, found: Reading) -> str | None:
        if found.values[name] is not None:
            return None
        if found.by_key:
            return (
                "a delete without a value is placed by its key, and the key has no partition column "
                f"'{name}': only a table whose partition follows from the key, or without partitions, can take it"
            )
        if not found.delete or any(found.raw.get(other) is not None for other in self._facts(name)):
            return None
        if not self._debezium:
            return f"the delete has no partition column '{name}'"
        return (
            f"the deleted row ('before') has nothing but its key, so partition column '{name}' is not known: "
            "set REPLICA IDENTITY FULL"
        )

    def _facts(self, name: str) -> Sequence[str]:
        """Return columns whose presence shows that a delete has the whole row, so that a null `name` is its value."""
        passed_over = {*self._envelope.record_key, name, *(ENVELOPE_COLUMNS if self._debezium else ())}
        return [other for other in self._columns if other not in passed_over]


class ExactReader:
    """Reads events one by one."""

    def __init__(self, envelope: Envelope, zone: str = "UTC") -> None:
        """Prepare for the events of `envelope`.

        Args:
            envelope: the format of events.
            zone: zone of timestamps that name none.
        """
        self._documents = DocumentReader(envelope, zone)
        self._columns = self._documents.columns
        self._judge = Judge(envelope, self._columns)
        self._fields = row_fields(envelope)

    def events(self, values: pa.BinaryArray, keys: pa.BinaryArray) -> list[Event]:
        """Read messages; a value is null for a tombstone."""
        return [self.read(value, key) for value, key in zip(values.to_pylist(), keys.to_pylist(), strict=True)]

    def read(self, value: bytes | None, key: bytes | None) -> Event:
        """Read a message.

        Args:
            value: its value; None of a tombstone.
            key: its key.
        """
        document = Document()
        if value is not None:
            document = self._documents.document(value)
            if document.reason is not None:
                return Event(reason=document.reason)
        delete = value is None or document.delete
        if document.row is None:
            reading = self.key_reading(key, document)
            if isinstance(reading, str):
                return Event(tombstone=value is None, reason=reading)
        else:
            reading = self._reading(document.row, document, delete=delete, complaint=document.complaint)
        return self._judge.event(reading, tombstone=value is None)

    def key_reading(self, key: bytes | None, document: Document | None = None) -> Reading | str:
        """Read a delete without a row.

        Args:
            key: the message's key.
            document: the document of the message; None without one.

        Returns:
            The values, or the reason why the key cannot be read.
        """
        row, reason = self._documents.key_row(key)
        if reason is not None:
            return reason
        known = document or Document()
        return self._reading(row, known, delete=True, complaint=known.complaint or row.complaint, by_key=True)

    def _reading(
        self, row: RawRow, document: Document, *, delete: bool, complaint: bool, by_key: bool = False
    ) -> Reading:
        raw = {**row.raw, **document.envelope} if document.envelope else row.raw
        values = {
            name: column.value(raw.get(name), document.semantics.get(name)) for name, column in self._columns.items()
        }
        misfits = self._misfits(raw, values, row, complaint=complaint)
        fields = None if delete else row.members
        return Reading(
            raw=raw,
            values=values,
            misfits=misfits,
            delete=delete,
            by_key=by_key,
            complaint=complaint,
            unknown=frozenset() if fields is None else frozenset(self._fields.unknown_in(fields)),
        )

    def _misfits(
        self, raw: Mapping[str, Any], values: Mapping[str, Any], row: RawRow, *, complaint: bool
    ) -> Mapping[str, str]:
        found = {}
        for name, column in self._columns.items():
            held = raw.get(name)
            if values[name] is not None:
                continue
            if not column.by_json_type:
                text = held
            else:
                misfit = isinstance(held, Decimal) or (held is None and complaint)
                text = row.text(name) if misfit else None
            if text is not None:
                found[name] = text
        return found
