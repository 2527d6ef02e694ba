"""Read the keys of many messages without a value at a time, where all of it is plain.

A key that begins with the magic byte is Avro: a record of the columns (Debezium), or, for one record key column, its
value. Other keys are read as those of the JSON formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, flags, pc
from streaming_lsm.decode.avro.fitted_columns import fit_columns, selected
from streaming_lsm.decode.avro.frames import MAGIC, Frames
from streaming_lsm.decode.avro.record_reading import FlatReading
from streaming_lsm.decode.avro.schemas import Groups
from streaming_lsm.decode.avro.written_types import WrittenType
from streaming_lsm.decode.envelope import Envelope, EventFormat
from streaming_lsm.decode.message_keys import MessageKeys
from streaming_lsm.decode.schema_fault import placed_at
from streaming_lsm.decode.table_rows import Rows, TableRows


class KeyPlans:
    """Plans how the Avro keys of an envelope's messages are read."""

    def __init__(self, envelope: Envelope) -> None:
        """Take the record key and partition columns from the envelope."""
        in_key = {*envelope.record_key, *envelope.partition}
        self._columns = [one.with_nullable(True) for one in envelope.columns if one.name in in_key]
        self._record_key = envelope.record_key

    def plan(self, written: WrittenType, where: str) -> FlatReading | None:
        """Plan the reading of a schema's keys; None if they are no record, and the record key has several columns.

        Raises:
            SchemaError: a field can never be a value of its column.
        """
        if written.is_record:
            return FlatReading(written, self._columns, where)
        if len(self._record_key) == 1:
            return FlatReading(written.in_field(self._record_key[0]), self._columns, where)
        return None


class AvroKeys:
    """Reads the record key and partition columns from message keys."""

    def __init__(self, envelope: Envelope, zone: str = "UTC") -> None:
        """Prepare for the keys of `envelope`'s messages; `zone` is that of timestamps that name none."""
        self._texts, self._zone = MessageKeys(envelope, zone), zone
        form = replace(envelope, partition=(), ordering=(), format=EventFormat.JSON, follows_schemas=False)
        self._table = TableRows(replace(form, columns=_nullable(envelope.columns)))
        self._groups = Groups(envelope.schemas, KeyPlans(envelope).plan)

    def read(self, keys: pa.BinaryArray) -> Iterator[Rows]:
        """Read keys; yields the rows that have a record key, their partition columns may be null.

        Args:
            keys: keys of messages without a value; null where a message has none.

        Raises:
            SchemaFault: a schema cannot be had or does not fit the table.
        """
        avro = begins_with_magic(keys)
        known = np.flatnonzero(avro)
        if len(known):
            with placed_at(known):
                for rows in self._avro(keys.take(known)):
                    yield Rows(known[rows.places], rows.columns, rows.delete)
        others = np.flatnonzero(~avro)
        for rows in self._texts.read(keys.take(others)) if len(others) else ():
            yield Rows(others[rows.places], rows.columns, rows.delete)

    def _avro(self, keys: pa.BinaryArray) -> Iterator[Rows]:
        for group in self._groups.of(Frames.of(keys)):
            if group.plan is None:
                continue
            values, faults = group.plan.read(group.datums)
            values, places = selected(values, group.places, ~faults.found)
            columns, good = fit_columns(values, group.plan.columns, len(places), self._zone)
            rows = self._table.rows(places, columns, np.zeros(len(places), np.bool_), good)
            yield Rows(rows.places, rows.columns, np.ones(len(rows.places), np.bool_))


def begins_with_magic(messages: pa.BinaryArray) -> Flags:
    """Flag messages that begin with the magic byte; null does not."""
    return flags(pc.fill_null(pc.starts_with(messages, bytes([MAGIC])), False))


def _nullable(columns: pa.Schema) -> pa.Schema:
    return pa.schema([one.with_nullable(True) for one in columns])
