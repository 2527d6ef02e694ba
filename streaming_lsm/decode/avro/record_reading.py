"""Read the datums of one schema as columns of natural types, all datums at once.

*Side*: the row before or after a change, in a Debezium envelope. *Fault*: a datum that does not follow its schema; the
others are read with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s, flags, pc
from streaming_lsm.decode.avro.column_fit import check_fit, read_type
from streaming_lsm.decode.avro.frames import Datums
from streaming_lsm.decode.avro.unread_fields import UnreadFields, mark
from streaming_lsm.decode.avro.written_types import Sense, WrittenType
from streaming_lsm.decode.column_types import Field
from streaming_lsm.decode.envelope import ENVELOPE_COLUMNS
from streaming_lsm.errors import SchemaError
from streaming_lsm.format.avro.cursor import Cursor, Faults
from streaming_lsm.format.avro.record_reader import parts_of
from streaming_lsm.format.avro.schema_tree import Node, node
from streaming_lsm.format.avro.skipping import skip
from streaming_lsm.format.avro.value_reader import read
from streaming_lsm.format.avro.varints import Stretch

T = TypeVar("T")

_OPERATION = pa.field("op", pa.string())
_DELETE = "d"


@dataclass(frozen=True)
class ReadColumn:
    """Describes a column that is read from a field.

    Attributes:
        column: the column.
        written: type of the field.
    """

    column: Field
    written: WrittenType


Values = dict[str, Any]
"""Arrow arrays of natural types by column, and marks of unread fields (`unread_fields`)."""


@dataclass(frozen=True)
class Rows:
    """Holds values of some datums.

    Attributes:
        places: positions of the datums, int64, ascending.
        values: their values.
    """

    places: Int64s
    values: Values


class RecordReading:
    """Reads fields of a record.

    Attributes:
        columns: the columns that are read, by name.
        unread: the other fields.
    """

    def __init__(
        self, record: WrittenType, columns: Iterable[Field], where: str, path: str = "", *, marks: bool = False
    ) -> None:
        """Plan the reading of the fields that have the name of a column; the other fields are skipped.

        Args:
            record: the record.
            columns: the columns.
            where: the schema, for messages.
            path: path of the record's fields, as ``after.``, for messages.
            marks: whether it is noted which of the other fields are not null.

        Raises:
            SchemaError: a field can never be a value of its column, or its type is not read.
        """
        wanted = {column.name: column for column in columns}
        self.columns: dict[str, ReadColumn] = {}
        self.unread = UnreadFields(record, wanted.values())
        self._fields: list[tuple[str, Node, int | None]] = []
        for name, written in record.fields.items():
            column = wanted.get(name)
            if column is not None:
                check_fit(column, written, f"{where}: field {path + name!r}")
                self.columns[name] = ReadColumn(column, written)
            null = written.avro.index("null") if marks and name in self.unread.marked else None
            found = _node(written, path + name, None if column is None else column.type, where)
            self._fields.append((name, found, null))

    def read(self, cursor: Cursor) -> Values:
        """Read the next record of each datum, and advance the cursor."""
        values: Values = {}
        for name, field, null in self._fields:
            if field.arrow is not None:
                values[name] = read(field, cursor)
                continue
            if null is not None:
                values[mark(name)] = pa.array(cursor.stretch.data[cursor.at] != 2 * null)
            skip(field, cursor)
        return values


def _node(written: WrittenType, path: str, kind: Any, where: str) -> Node:
    try:
        return node(written.avro, path, None if kind is None else read_type(written, kind))
    except SchemaError as error:
        raise SchemaError(f"{where}: {error} (a type that contains itself is not read, either)") from None


class FlatReading:
    """Reads rows: datums that are records.

    Attributes:
        columns: the columns that are read, by name.
        unread: the other fields.
    """

    def __init__(self, record: WrittenType, columns: Iterable[Field], where: str, *, marks: bool = False) -> None:
        """Plan the reading of the columns from a record; see `RecordReading`."""
        self._record = RecordReading(record, columns, where, marks=marks)
        self.columns, self.unread = self._record.columns, self._record.unread

    def read(self, datums: Datums) -> tuple[Values, Faults]:
        """Read datums.

        Returns:
            Their values, undefined for faults; the faults.
        """
        faults = _no_faults(datums)
        return _joined([part for _, part in _parts(datums, faults, self._record.read)]), faults


@dataclass(frozen=True)
class Changes:
    """Holds the fields of Debezium envelopes; those of faults are undefined.

    Attributes:
        operation: ``op``, string (datums,).
        metadata: fields of the envelope and its source, of all datums, by column of the table.
        before: rows before deletes, where there is one.
        after: rows after changes, where there is one.
        faults: the faults.
    """

    operation: Any
    metadata: Values
    before: Rows
    after: Rows
    faults: Faults


class _SideReading:
    """Reads one side of changes."""

    def __init__(self, written: WrittenType, columns: Iterable[Field], where: str, path: str) -> None:
        if written.sense is not Sense.RECORD:
            raise SchemaError(f"{where}: field {path!r} is {written.text}, and in a Debezium envelope it is a record")
        self._node = _node(written, path, None, where)
        kinds = [child.kind for child in self._node.children] if self._node.kind == "union" else []
        self._valued = kinds.index("record") if kinds else None
        self.record = RecordReading(written, columns, where, f"{path}.", marks=path == "after")

    def skip(self, cursor: Cursor) -> None:
        skip(self._node, cursor)

    def read(self, cursor: Cursor) -> Rows:
        """Read the side of each datum, and advance the cursor."""
        if self._valued is None:
            return Rows(np.arange(len(cursor)), self.record.read(cursor))
        places = np.flatnonzero(cursor.branches(self._node) == self._valued)
        part = cursor.select(places)
        values = self.record.read(part)
        cursor.at[places] = part.at
        return Rows(places, values)


class ChangeReading:
    """Reads Debezium envelopes.

    Attributes:
        row: the columns that are read from rows after changes, by name.
        before: those that are read from rows before deletes.
        metadata: those that are read from the envelope.
        unread: the other fields of rows after changes; None without such rows.
    """

    def __init__(
        self, record: WrittenType, row: Sequence[Field], before: Sequence[Field], metadata: Sequence[Field], where: str
    ) -> None:
        """Plan the reading of envelopes.

        Args:
            record: the envelope, with a field ``op``.
            row: columns of the rows after changes.
            before: columns of the rows before deletes.
            metadata: columns among `ENVELOPE_COLUMNS`.
            where: the schema, for messages.

        Raises:
            SchemaError: a field can never be a value of its column, or its type is not read.
        """
        operation = record.fields["op"]
        if operation.sense is not Sense.TEXT:
            raise SchemaError(f"{where}: field 'op' is {operation.text}, and in a Debezium envelope it is text")
        self._sides = {
            name: _SideReading(record.fields[name], columns, where, name)
            for name, columns in (("before", before), ("after", row))
            if name in record.fields
        }
        self.row, self.before = (
            self._sides[name].record.columns if name in self._sides else {} for name in ("after", "before")
        )
        self.unread = self._sides["after"].record.unread if "after" in self._sides else None
        self.metadata: dict[str, ReadColumn] = {}
        kinds: dict[str, Any] = {"op": pa.string()}
        within: list[tuple[str, pa.DataType]] = []
        for column in metadata:
            path = ENVELOPE_COLUMNS[column.name]
            written = _at(record, path)
            if written is None:
                continue
            check_fit(column, written, f"{where}: field {'.'.join(path)!r}")
            self.metadata[column.name] = ReadColumn(column, written)
            if len(path) == 1:
                kinds[path[0]] = column.type
            else:
                within.append((path[1], column.type))
        if within:
            kinds["source"] = pa.struct(within)
        self._nodes = {
            name: _node(written, name, kinds.get(name), where)
            for name, written in record.fields.items()
            if name not in self._sides
        }
        self._names = list(record.fields)

    def read(self, datums: Datums) -> Changes:
        """Read datums."""
        faults = _no_faults(datums)
        parts = _parts(datums, faults, self._part)
        top = _joined([part for _, (part, _) in parts])
        metadata = {}
        for name in self.metadata:
            path = ENVELOPE_COLUMNS[name]
            metadata[name] = top[path[0]] if len(path) == 1 else pc.struct_field(top["source"], path[1])
        sides = {
            name: Rows(
                np.concatenate([first + sides[name].places for first, (_, sides) in parts]),
                _joined([sides[name].values for _, (_, sides) in parts]),
            )
            for name in self._sides
        }
        nothing = Rows(np.zeros(0, np.int64), {})
        return Changes(top["op"], metadata, sides.get("before", nothing), sides.get("after", nothing), faults)

    def _part(self, cursor: Cursor) -> tuple[Values, dict[str, Rows]]:
        every = np.arange(len(cursor))
        top: Values = {}
        sides: dict[str, Rows] = {}
        at_before = None
        for name in self._names:
            if name == "after":
                sides[name] = self._sides[name].read(cursor)
            elif name == "before":
                at_before = cursor.select(every)
                self._sides[name].skip(cursor)
            else:
                node = self._nodes[name]
                if node.arrow is None:
                    skip(node, cursor)
                else:
                    top[name] = read(node, cursor)
        if at_before is not None:
            # Only of a delete the row before counts; that it is one is known at the end.
            deletes = np.flatnonzero(flags(pc.equal(top["op"], _DELETE)))
            found = self._sides["before"].read(at_before.select(deletes))
            sides["before"] = Rows(deletes[found.places], found.values)
        return top, sides


def _at(record: WrittenType, path: Sequence[str]) -> WrittenType | None:
    found: WrittenType | None = record
    for name in path:
        found = None if found is None else found.fields.get(name)
    return found


def _no_faults(datums: Datums) -> Faults:
    return Faults(np.zeros(len(datums), np.bool_), {})


def _parts(datums: Datums, faults: Faults, read_part: Callable[[Cursor], T]) -> list[tuple[int, T]]:
    """Read datums part by part; returns what was read, with the position of its first datum."""
    found = []
    for part in parts_of(datums.starts, datums.ends):
        starts, ends = datums.starts[part], datums.ends[part]
        low, high = int(starts.min()), int(ends.max())
        records = np.arange(part.start, part.start + len(starts))
        cursor = Cursor(
            stretch=Stretch.copy_of(datums.data[low:high]), at=starts - low, end=ends - low, records=records,
            source="", faults=faults,
        )  # fmt: skip
        found.append((part.start, read_part(cursor)))
        if (left := cursor.at != cursor.end).any():
            cursor.refuse(left, "", "has bytes behind its last field")
    return found


def _joined(parts: Sequence[Values]) -> Values:
    if len(parts) == 1:
        return parts[0]
    return {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}
