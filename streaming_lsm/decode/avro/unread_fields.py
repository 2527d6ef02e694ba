"""Find the fields of rows that the table has no column for.

*Unread field*: a field of the writer's schema that the table does not have, or, as ``column.field``, one of the record
in a STRUCT column that the column does not have. *Mark*: whether an unread field of a row is not null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, flags, pc
from streaming_lsm.decode.avro.column_fit import is_readable
from streaming_lsm.decode.avro.written_types import Sense, WrittenType
from streaming_lsm.decode.column_types import Field


class UnreadFields:
    """Knows the unread fields of a writer's schema.

    Attributes:
        marked: the fields of the record that may be null, which are read as marks.
    """

    def __init__(self, record: WrittenType, columns: Iterable[Field]) -> None:
        """Compare the fields of a record with the columns that are read from it."""
        known = {column.name: column for column in columns}
        unread = {name: one for name, one in record.fields.items() if name not in known and one.sense is not Sense.NULL}
        self.marked = frozenset(name for name, one in unread.items() if isinstance(one.avro, list))
        self._certain = sorted(set(unread) - self.marked)
        # Of each STRUCT column the unread fields, and whether they are read to see whether they are null.
        self._inside: dict[str, dict[str, bool]] = {}
        for name, column in known.items():
            written = record.fields.get(name)
            if written is not None and pa.types.is_struct(column.type) and written.sense is Sense.RECORD:
                inside = {one.name for one in column.type.fields}
                self._inside[name] = {
                    other: is_readable(one)
                    for other, one in written.fields.items()
                    if other not in inside and one.sense is not Sense.NULL
                }

    def present(self, values: Mapping[str, Any], count: int) -> Mapping[str, Flags]:
        """Flag the rows in which each unread field is not null.

        A union of several types inside a STRUCT column is not read, and counts as a value.

        Args:
            values: values of the record by column, and marks by `mark`.
            count: number of rows.
        """
        found = {name: np.ones(count, np.bool_) for name in self._certain}
        found |= {name: flags(values[mark(name)]) for name in sorted(self.marked)}
        for column, inside in self._inside.items():
            row = values[column]
            for name, is_read in inside.items():
                valid = flags(pc.is_valid(row))
                found[f"{column}.{name}"] = valid & flags(pc.is_valid(row.field(name))) if is_read else valid
        return found


def mark(name: str) -> str:
    """Return the name of the marks of a field, which no field has."""
    return f"{name}?"


def counted(present: Mapping[str, Flags], chosen: Flags) -> Mapping[str, int]:
    """Count the chosen rows, bool (rows,), by unread field; fields that none has are left out."""
    counts = {name: int((each & chosen).sum()) for name, each in present.items()}
    return {name: count for name, count in counts.items() if count}
