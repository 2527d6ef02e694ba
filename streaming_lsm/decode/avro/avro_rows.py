"""Read the rows and changes of many Avro messages at a time, where all of it is plain.

What is not vouched for is left to `exact_events`, which decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, flags, pc
from streaming_lsm.decode.avro.fitted_columns import fit_columns, selected
from streaming_lsm.decode.avro.frames import Datums, Frames
from streaming_lsm.decode.avro.record_reading import ChangeReading, FlatReading, ReadColumn, Values
from streaming_lsm.decode.avro.schemas import Groups
from streaming_lsm.decode.avro.unread_fields import UnreadFields, counted
from streaming_lsm.decode.avro.written_types import WrittenType
from streaming_lsm.decode.column_types import Field
from streaming_lsm.decode.envelope import DELETED_FLAGS, ENVELOPE_COLUMNS, Envelope
from streaming_lsm.decode.table_rows import Rows, TableRows
from streaming_lsm.decode.values.unavailable import unavailable

_UPSERTS = pa.array(["c", "r", "u"])
_Plan = FlatReading | ChangeReading | None


class AvroRows:
    """Reads the values of messages of an envelope's format."""

    def __init__(
        self, envelope: Envelope, zone: str = "UTC", count: Callable[[Mapping[str, int]], None] = lambda _: None
    ) -> None:
        """Prepare for the messages of `envelope`.

        Args:
            envelope: the format of messages.
            zone: zone of dates and times that name none.
            count: takes the numbers of upserted rows by unread field that is not null.
        """
        self._envelope, self._zone, self._count = envelope, zone, count
        self._debezium = envelope.format.is_debezium
        self._unavailable = unavailable(envelope.unavailable)
        self._table = TableRows(envelope)
        self._row, self._metadata, self._flags = columns_of(envelope)
        self._groups: Groups[_Plan] = Groups(envelope.schemas, self._plan)

    def _plan(self, written: WrittenType, where: str) -> _Plan:
        if not written.is_record:
            return None
        if not self._debezium:
            return FlatReading(written, [*self._row, *self._flags], where, marks=True)
        if "op" not in written.fields:
            return None
        before = [one for one in self._row if one.name in self._table.of_deletes]
        return ChangeReading(written, self._row, before, self._metadata, where)

    def read(self, messages: pa.BinaryArray) -> Iterator[Rows]:
        """Read messages; yields the rows of each schema.

        Args:
            messages: values of messages, without nulls.

        Raises:
            SchemaFault: a schema cannot be had or does not fit the table.
        """
        for group in self._groups.of(Frames.of(messages)):
            if isinstance(group.plan, FlatReading):
                yield self._flat(group.plan, group.datums, group.places)
            elif group.plan is not None:
                yield from self._changes(group.plan, group.datums, group.places)

    def _flat(self, plan: FlatReading, datums: Datums, places: Int64s) -> Rows:
        values, faults = plan.read(datums)
        values, places = selected(values, places, ~faults.found)
        columns, good = self._fitted(values, plan.columns, len(places))
        delete = np.zeros(len(places), np.bool_)
        for name in DELETED_FLAGS:
            if name in values:
                flag = values[name]
                if pa.types.is_string(flag.type):
                    flag = pc.equal(pc.utf8_lower(flag), "true")
                if pa.types.is_boolean(flag.type):
                    delete |= flags(flag)
        for column in self._flags:
            columns.pop(column.name, None)
        rows = self._table.rows(places, columns, delete, good)
        self._count_unread(plan.unread, values, places, rows)
        return rows

    def _count_unread(self, unread: UnreadFields, values: Values, places: Int64s, rows: Rows) -> None:
        """Count the unread fields of the rows that are upserted."""
        upserts = rows.places[~rows.delete]
        self._count(counted(unread.present(values, len(places)), np.isin(places, upserts, assume_unique=True)))

    def _changes(self, plan: ChangeReading, datums: Datums, places: Int64s) -> Iterator[Rows]:
        changes = plan.read(datums)
        upserts = flags(pc.is_in(changes.operation, _UPSERTS))
        sides = ((changes.after, plan.row, upserts, False), (changes.before, plan.before, ~upserts, True))
        for side, read, wanted, delete in sides:
            kept = wanted[side.places] & ~changes.faults.found[side.places]
            values, chosen = selected(side.values, side.places, kept)
            if not len(chosen):
                continue
            columns, good = self._fitted(values, read, len(chosen))
            metadata = changes.metadata
            if len(chosen) < len(datums):
                metadata = {name: value.take(pa.array(chosen)) for name, value in metadata.items()}
            more, found = self._fitted(metadata, plan.metadata, len(chosen))
            rows = self._table.rows(places[chosen], columns | more, np.full(len(chosen), delete), good & found)
            if plan.unread is not None and not delete:
                self._count_unread(plan.unread, values, places[chosen], rows)
            yield rows

    def _fitted(self, values: Values, read: Mapping[str, ReadColumn], count: int) -> tuple[dict[str, Any], Flags]:
        columns, good = fit_columns(values, read, count, self._zone)
        if self._debezium:
            for name in read:
                suspects = self._unavailable.suspects(values[name], self._envelope.filled(name))
                if suspects is not None:
                    good &= ~suspects
        return columns, good


def columns_of(envelope: Envelope) -> tuple[list[Field], list[Field], list[Field]]:
    """Return the columns of a row, those of Debezium's metadata, and flags of deletes that are no columns."""
    if envelope.format.is_debezium:
        row = [one for one in envelope.columns if one.name not in ENVELOPE_COLUMNS]
        return row, [one for one in envelope.columns if one.name in ENVELOPE_COLUMNS], []
    marks = [pa.field(name, pa.bool_()) for name in DELETED_FLAGS if name not in envelope.columns.names]
    return list(envelope.columns), [], marks
