"""Columns of checked events, and what they say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming_lsm.arrow.columns import Column, Flags, Int64s, strings
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.write.plan import WritePlan

CODE = "_lsm_code"
"""int64: number of the file group in the task's `GroupNumbers`, once the events are settled; see `Index`."""
FLAGS = "_lsm_flags"
"""uint8: 1 for a delete of any kind, else 0."""
ARRIVAL = "_lsm_arrival_"
"""Prefix of the int64 columns that order the events of a key, numbered from 0, the most significant first."""


@dataclass(frozen=True)
class EventShape:
    """Defines the columns of checked events: record key, three kinds of control columns, then the table's columns.

    Attributes:
        schema: columns of the events; those of the table may be null, as in a delete.
        rows: columns of the table.
        key_column: the table's column that is the record key itself; it is held once, as the key.
        arrivals: names of the arrival columns.
    """

    schema: pa.Schema
    rows: pa.Schema
    key_column: str | None
    arrivals: tuple[str, ...]

    @staticmethod
    def of(plan: WritePlan) -> EventShape:
        """Build the shape of the events of `plan`."""
        shared = _key_column(plan)
        arrivals = tuple(f"{ARRIVAL}{place}" for place in range(len(plan.arrival_fields)))
        key, code, bits = pa.field(RECORD_KEY, pa.string()), pa.field(CODE, pa.int64()), pa.field(FLAGS, pa.uint8())
        fields: list[pa.Field[Any]] = [key, code, bits, *(pa.field(name, pa.int64()) for name in arrivals)]
        fields += [field.with_nullable(True) for field in plan.schema if field.name != shared]
        return EventShape(pa.schema(fields), plan.schema, shared, arrivals)

    def table_rows(self, events: pa.Table) -> pa.Table:
        """Select the table's columns of events that are no deletes."""
        names = (RECORD_KEY if name == self.key_column else name for name in self.rows.names)
        return pa.table([events.column(name) for name in names], names=self.rows.names).cast(self.rows)


def _key_column(plan: WritePlan) -> str | None:
    if plan.keys.composite:
        return None
    (name,) = plan.keys.record_key_fields
    # The merge rule looks for its ordering fields by their own names.
    # A record merger sees whole rows.
    if name not in plan.schema.names or name in plan.rule.ordering_fields or plan.rule.strategy:
        return None
    return name if pa.types.is_string(plan.schema.field(name).type) else None


def deleted_flags(events: pa.Table) -> Flags:
    """Test whether events are deletes, bool (rows,)."""
    bits: npt.NDArray[np.uint8] = np.asarray(events.column(FLAGS), np.uint8)
    return bits.astype(np.bool_)


def codes(events: pa.Table | pa.RecordBatch) -> Int64s:
    """Return the file group number of each event, int64 (rows,)."""
    return np.asarray(events.column(CODE), np.int64)


def with_column(events: pa.Table, name: str, values: Column) -> pa.Table:
    """Replace the values of a column of events."""
    place = events.schema.get_field_index(name)
    return events.set_column(place, events.schema.field(place), values)


def event_keys(events: pa.Table) -> pa.StringArray:
    """Return the record keys of events as one array."""
    return strings(events.column(RECORD_KEY))


def parts_of(count: int, size: int) -> Iterator[slice]:
    """Cut `count` rows into parts of at most `size`."""
    return (slice(first, first + size) for first in range(0, count, max(size, 1)))
