"""Convert checked events to Arrow batches of one shape, for memory, spilled runs and the exchange between tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Column, Flags, Int64s, flags, int64s, pc
from streaming_lsm.casts import fit
from streaming_lsm.errors import RecordError, SchemaError
from streaming_lsm.index.base import GroupNumbers, Index
from streaming_lsm.index.lookup_index import LookupIndex
from streaming_lsm.index.table_index import index_of
from streaming_lsm.write.intake import control_columns
from streaming_lsm.write.intake.event_shape import CODE, EventShape, codes, event_keys, parts_of, with_column
from streaming_lsm.write.intake.partition_moves import PartitionMoves
from streaming_lsm.write.intake.tombstones import LastEvents, events_before, repeated_tombstones
from streaming_lsm.write.plan import DELETE, WritePlan


class Intake(Protocol):
    """Checks the batches of one task, or takes those that another task has checked."""

    @property
    def shape(self) -> EventShape:
        """Their columns."""
        ...

    @property
    def sorted_runs(self) -> bool:
        """Whether each batch is sorted."""
        ...

    @property
    def last_events(self) -> LastEvents:
        """The last event of each topic partition so far."""
        ...

    @property
    def settles(self) -> bool:
        """Whether the file groups of checked events are yet to be found."""
        ...

    def check(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Check a batch and return the events that count."""
        ...

    def settled(self, events: pa.Table) -> Iterator[pa.Table]:
        """Find the file groups of events, which have one chunk a column; no event of their keys comes later.

        Returns:
            The events; then, some at a time, copies of those of keys that have rows in further file groups, for these.
        """
        ...

    @property
    def groups(self) -> GroupNumbers:
        """The file groups by number."""
        ...


class EventIntake:
    """Checks the batches of one task and gives them the shape of events.

    Attributes:
        shape: the events' columns.
        settles: whether the keys of checked events are yet to be looked up.
        sorted_runs: whether each batch is sorted: they come as they are.
        last_events: the last event of each topic partition so far, that before the batch included.
    """

    def __init__(self, plan: WritePlan) -> None:
        """Create an intake for one task of `plan`."""
        self._plan = plan
        self._index = index_of(plan.config, plan.lookup)
        self._moves = partition_moves(plan, self._index)
        self.settles = isinstance(self._index, LookupIndex)
        self._row_schema = pa.schema([field.with_nullable(True) for field in plan.schema])
        self.shape = EventShape.of(plan)
        self.sorted_runs = False
        self.last_events: LastEvents = events_before(plan.open_deletes)

    def check(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Check a batch with the table's columns and, optionally, control columns; its columns are not copied.

        Tombstones that only repeat the delete before them are left out; then the others are copied.

        Raises:
            RecordError: null or empty record key, null ordering value, unusable partition value.
            SchemaError: a column is missing or of another type.
        """
        plan = self._plan
        deleted, tombstone = self._deleted(batch), _flags(batch, control_columns.TOMBSTONE)
        keys = plan.keys.record_keys(batch)
        rows = self._fit(batch)
        self._check_values(rows, keys, deleted)
        arrival = [pa.array(_arrival(batch, name)) for name in plan.arrival_fields]
        code = self._index.locate(keys, plan.keys.partition_paths(batch))
        repeats, self.last_events = repeated_tombstones(batch, keys, deleted & ~tombstone, tombstone, self.last_events)
        values = [rows.column(name) for name in self.shape.schema.names[3 + len(arrival) :]]
        columns: list[pa.Array[Any]] = [keys, pa.array(code), pa.array(deleted.view(np.uint8)), *arrival, *values]
        events = pa.RecordBatch.from_arrays(columns, schema=self.shape.schema)
        return events.filter(pa.array(~repeats)) if repeats.any() else events

    def settled(self, events: pa.Table) -> Iterator[pa.Table]:
        """Find the file groups of events; see `Intake.settled`.

        Raises:
            CorruptFileError: a file of the table, in which keys are looked up, is missing or damaged.
        """
        return settled_events(events, codes(events), self._index, self._moves)

    @property
    def groups(self) -> GroupNumbers:
        """The file groups of the events so far, by number."""
        return self._index.groups

    def _deleted(self, batch: pa.RecordBatch) -> Flags:
        if self._plan.operation == DELETE:
            return np.ones(batch.num_rows, np.bool_)
        flagged = self._plan.rule.deletes(batch)
        return flagged | _flags(batch, control_columns.DELETE) | _flags(batch, control_columns.TOMBSTONE)

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Fit the batch to the table's columns. A delete needs key and ordering columns only."""
        if self._plan.operation == DELETE or self._plan.fills_missing:
            for field in self._row_schema:
                if batch.schema.get_field_index(field.name) < 0:
                    batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
        return fit(batch, self._row_schema)

    def _check_values(self, rows: pa.RecordBatch, keys: pa.StringArray, deleted: Flags) -> None:
        kept = pa.array(~deleted)
        required = {field.name for field in self._plan.schema if not field.nullable}
        for name in sorted(required.union(self._plan.rule.ordering_fields)):
            missing = pc.and_(pc.is_null(rows.column(name)), kept)
            if pc.any(missing).as_py():
                key = keys[pc.index(missing, True).as_py()].as_py()
                what = "ordering field" if name in self._plan.rule.ordering_fields else "required column"
                raise RecordError(f"{what} {name!r} is null in the row with key {key!r}; every upserted row needs it")
        self._check_delete_order(rows, keys, deleted)
        self._check_text(rows, keys)

    def _check_text(self, rows: pa.RecordBatch, keys: pa.StringArray) -> None:
        """Refuse text that is not UTF-8: no reader could decode the file."""
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if has_text(column.type) and not _is_valid(column):
                key = keys[_first_invalid(column)].as_py()
                raise RecordError(
                    f"column {name!r} holds text that is not UTF-8 in the row with key {key!r}; decode it first"
                )

    def _check_delete_order(self, rows: pa.RecordBatch, keys: pa.StringArray, deleted: Flags) -> None:
        nulls = [np.asarray(pc.is_null(rows.column(name))) for name in self._plan.rule.ordering_fields]
        if len(nulls) < 2:
            return
        partly = deleted & np.logical_or.reduce(nulls) & ~np.logical_and.reduce(nulls)
        if partly.any():
            key = keys[int(np.argmax(partly))].as_py()
            fields = ", ".join(self._plan.rule.ordering_fields)
            raise RecordError(f"the delete of key {key!r} has some of the ordering fields {fields}; give all or none")


def settled_events(events: pa.Table, located: Int64s, index: Index, moves: PartitionMoves | None) -> Iterator[pa.Table]:
    """Set the file groups of events; see `Intake.settled`.

    Args:
        events: one chunk a column.
        located: what `index` noted of them, int64 (events,).
        index: finds the file groups.
        moves: settles them with a global index; None with another one.
    """
    if moves is not None:
        yield from moves.settled(with_column(events, CODE, pa.array(located)))
        return
    found = index.settle(event_keys(events), located)
    yield events if found.groups is located else with_column(events, CODE, pa.array(found.groups))
    for some in parts_of(len(found.copied), len(events)):
        copies = events.take(pa.array(found.copied[some], pa.int64()))
        yield with_column(copies, CODE, pa.array(found.copies[some])).combine_chunks()


def partition_moves(plan: WritePlan, index: Index) -> PartitionMoves | None:
    """Return what settles events with a global index; None with another one, or if keys are not looked up."""
    lookup = plan.lookup
    if lookup is None or lookup.lookup is None or not lookup.is_global or not isinstance(index, LookupIndex):
        return None
    return PartitionMoves(plan.rule, index, moves=lookup.moves)


def has_text(kind: pa.DataType) -> bool:
    """Test whether values of a type hold text at any depth."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return True
    return any(has_text(kind.field(place).type) for place in range(kind.num_fields))


def _is_valid(column: pa.Array[Any]) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _first_invalid(column: pa.Array[Any]) -> int:
    """Find the first row whose text is not UTF-8; there is one."""
    begin, end = 0, len(column)
    while end - begin > 1:
        middle = (begin + end) // 2
        # Taken, not sliced: a slice of a list is checked with all its list's values.
        half = column.take(np.arange(begin, middle))
        begin, end = (middle, end) if _is_valid(half) else (begin, middle)
    return begin


def _flags(batch: pa.RecordBatch, name: str) -> Flags:
    index = batch.schema.get_field_index(name)
    if index < 0:
        return np.zeros(batch.num_rows, np.bool_)
    return flags(batch.column(index))


def _arrival(batch: pa.RecordBatch, name: str) -> Int64s:
    index = batch.schema.get_field_index(name)
    if index < 0:
        raise SchemaError(f"arrival column {name!r} is missing; the batch has {', '.join(batch.schema.names)}")
    column: Column = batch.column(index)
    signed = pa.types.is_integer(column.type) and column.type != pa.uint64()
    if column.null_count or not (signed or pa.types.is_timestamp(column.type)):
        raise SchemaError(
            f"arrival column {name!r} is {column.type} with {column.null_count} nulls: cast it to a whole number of at "
            "most 64 bits with sign, or to a timestamp, and fill it"
        )
    return int64s(column)
