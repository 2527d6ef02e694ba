"""Read one event at a time: what it changes in the table, or why it cannot be read.

This reader decides what is an event. `document_rows` reads many documents at a time where all of it is plain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from streaming_lsm.decode.envelope import Envelope, EventFormat
from streaming_lsm.decode.exact_documents import PARTIAL, ColumnReader, Document, DocumentReader, RawRow, shown
from streaming_lsm.decode.unknown_fields import row_fields

UNAVAILABLE = ("__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")
"""Debezium's placeholder for a large column that an update did not change: as text, and as base64."""


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
class _Reading:
    """Holds what was read of an event, to find a reason against it."""

    raw: Mapping[str, Any]
    values: Mapping[str, Any]
    row: RawRow
    delete: bool
    by_key: bool
    complaint: bool


class ExactReader:
    """Reads events one by one."""

    def __init__(self, envelope: Envelope, zone: str = "UTC") -> None:
        """Prepare for the events of `envelope`.

        Args:
            envelope: the format of events.
            zone: zone of timestamps that name none.
        """
        self._envelope = envelope
        self._debezium = envelope.format is EventFormat.DEBEZIUM
        self._documents = DocumentReader(envelope, zone)
        self._columns = self._documents.columns
        self._fields = row_fields(envelope)
        self._identity = {*envelope.record_key, *envelope.partition, *envelope.ordering}
        self._required = list(envelope.ordering) + [
            column.name for column in envelope.columns if not column.nullable and column.name not in envelope.ordering
        ]

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
        by_key = document.row is None
        row = document.row or RawRow()
        complaint = document.complaint
        if by_key:
            row, reason = self._documents.key_row(key)
            if reason is not None:
                return Event(tombstone=value is None, reason=reason)
            complaint = complaint or row.complaint
        delete = value is None or document.delete
        raw = {**row.raw, **document.envelope} if document.envelope else row.raw
        values = {
            name: column.value(raw.get(name), document.semantics.get(name)) for name, column in self._columns.items()
        }
        reason = self._reason(
            _Reading(raw=raw, values=values, row=row, delete=delete, by_key=by_key, complaint=complaint)
        )
        if reason is not None:
            keys = tuple(values[name] for name in self._envelope.record_key)
            readable = value is None and self._null_key(values) is None
            return Event(keys=keys if readable else None, tombstone=value is None, reason=reason)
        unknown = self._fields.unknown_in(row.members) if not delete and row.members is not None else ()
        return Event(self._kept(values, delete=delete), None, delete, value is None, unknown=frozenset(unknown))

    def _kept(self, values: dict[str, Any], *, delete: bool) -> dict[str, Any]:
        """Select the values that the table gets: those of a delete are its key, partition and ordering values."""
        if not delete:
            return values
        envelope = self._envelope
        kept = {*envelope.record_key, *envelope.partition, "_hoodie_is_deleted"}
        # A delete has all of its ordering values or none, as a partly null tuple is not ordered.
        if all(values[name] is not None for name in envelope.ordering):
            kept.update(envelope.ordering)
        return {name: value for name, value in values.items() if name in kept}

    def _reason(self, found: _Reading) -> str | None:
        for name, column in self._columns.items():
            if found.delete and name not in self._identity:
                continue
            wrong = self._wrong_type(column, found)
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

    def _wrong_type(self, column: ColumnReader, found: _Reading) -> str | None:
        name = column.name
        raw, value = found.raw.get(name), found.values[name]
        if value is PARTIAL:
            return None
        if not column.by_json_type:
            if self._debezium and raw in UNAVAILABLE:
                return f"column '{name}' was not sent (unchanged large value): set REPLICA IDENTITY FULL"
            if raw is None or value is not None:
                return None
            return f"column '{name}' holds '{shown(raw)}', which is not {column.sql}"
        misfit = raw is not None and isinstance(raw, Decimal)
        if value is not None or not (misfit or (raw is None and found.complaint)):
            return None
        text = found.row.text(name)
        return None if text is None else f"column '{name}' holds '{shown(text)}', which is not {column.sql}"

    def _null_key(self, values: Mapping[str, Any]) -> str | None:
        names = self._envelope.record_key
        if any(values[name] not in (None, "", b"") for name in names):
            return None
        if len(names) == 1:
            return f"record key column '{names[0]}' is null or empty"
        return f"record key columns {', '.join(names)} are all null or empty"

    def _unplaced(self, name: str, found: _Reading) -> str | None:
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
        passed_over = {*self._envelope.record_key, name}
        return [other for other in self._documents.in_row if other not in passed_over]
