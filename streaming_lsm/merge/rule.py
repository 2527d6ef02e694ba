"""Define how records of one key merge: merge mode, ordering fields, delete marks and partial update mode."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.arrow.columns import Column, Flags, Float64s, Int64s, filled, flags, float64s, int64s
from streaming_lsm.errors import SchemaError
from streaming_lsm.format.table.merge_mode import EVENT_TIME_ORDERING
from streaming_lsm.keys.java_text import to_java_text
from streaming_lsm.merge.record_merger import RecordMerger, find_merger
from streaming_lsm.schema import IS_DELETED, OPERATION

Ranks = Int64s
_MARKS: dict[str, pa.DataType] = {IS_DELETED: pa.bool_(), OPERATION: pa.string()}


@dataclass(frozen=True)
class MergeRule:
    """The merge semantics of a table (docs/format/05-merge.md, "Modes", "Pairwise rule").

    Attributes:
        event_time: whether the larger ordering value wins, the later record on ties; if not, the later record wins.
        ordering_fields: the columns compared in event-time mode, from left to right.
        delete_field: column that marks deletes, with `delete_marker` as its text.
        partial: the partial update mode, by which a winner's columns are filled from the loser; None when the winner
            is taken whole.
        unavailable: the text that marks a value as not sent.
        strategy: the id of a record merger, which merges the rows of a key instead of choosing a winner; empty without.
        fixed: columns that it may not change: those of record key and partition path, and the marks of deletes.
        logs_first: whether the merge of unsorted files folds the logs before it looks at the base row, so that an
            unordered delete that is followed by a row does not remove the base row; as Hudi does up to version 9.
    """

    event_time: bool
    ordering_fields: tuple[str, ...] = ()
    delete_field: str | None = None
    delete_marker: str | None = None
    partial: str | None = None
    unavailable: str = ""
    logs_first: bool = False
    strategy: str = ""
    fixed: frozenset[str] = frozenset()

    @property
    def takes_winner(self) -> bool:
        """Whether the outcome of a key is one of its records, rather than made of several."""
        return self.partial is None and not self.strategy

    @property
    def merger(self) -> RecordMerger | None:
        """The record merger of the strategy; raises as `find_merger`."""
        return find_merger(self.strategy, "the table") if self.strategy else None

    @staticmethod
    def of(
        mode: str,
        ordering_fields: tuple[str, ...],
        field: str | None,
        marker: str | None,
        partial: str | None = None,
        unavailable: str = "",
        *,
        logs_first: bool = False,
        strategy: str = "",
        identity: Iterable[str] = (),
    ) -> MergeRule:
        """Build the rule of a table; in commit-time mode, or without ordering fields, the later record wins.

        `identity` are the columns of record key and partition path, those inside structs by the column around them.
        """
        event_time = mode == EVENT_TIME_ORDERING and bool(ordering_fields)
        return MergeRule(
            event_time=event_time,
            ordering_fields=ordering_fields if event_time else (),
            delete_field=field,
            delete_marker=marker,
            partial=partial,
            unavailable=unavailable,
            logs_first=logs_first,
            strategy=strategy,
            fixed=frozenset([*identity, IS_DELETED, *([field] if field else [])]),
        )

    def columns(self, schema: pa.Schema) -> tuple[str, ...]:
        """List the columns of `schema` that a merge needs besides the record key: ordering fields and delete marks."""
        marks = [name for name in (IS_DELETED, OPERATION, self.delete_field) if name in schema.names]
        return tuple(dict.fromkeys([*self.ordering_fields, *(name for name in marks if name)]))

    def deletes(self, rows: pa.Table | pa.RecordBatch) -> Flags:
        """Mark the rows that are deletes by their own columns.

        See docs/format/05-merge.md, "What makes a row a delete", 2 to 4.
        """
        deleted = np.zeros(rows.num_rows, np.bool_)
        check_delete_marks(rows.schema)
        names = rows.schema.names
        if IS_DELETED in names:
            deleted |= flags(rows.column(IS_DELETED))
        if OPERATION in names:
            deleted |= flags(pc.is_in(rows.column(OPERATION), pa.array(["D", "-U"])))
        if self.delete_field in names:
            deleted |= flags(
                pc.equal(_as_text(rows.column(self.delete_field)), pa.scalar(self.delete_marker, pa.string()))
            )
        return deleted

    def unordered_deletes(self, rows: pa.Table | pa.RecordBatch, deleted: Flags) -> Flags:
        """Mark the unordered deletes, which win over every older record whatever its ordering value.

        They are the deletes without an ordering value; in an int column 0 counts as none (docs/format/05-merge.md,
        "Ordering value"; docs/format/10-rules.md, "Rule 5", "Rule 6"). In commit-time mode every delete is one.
        """
        if not self.event_time:
            return deleted
        missing = deleted.copy()
        for name in self.ordering_fields:
            missing &= flags(pc.is_null(rows.column(name)))
        if len(self.ordering_fields) == 1 and rows.schema.field(self.ordering_fields[0]).type == pa.int32():
            missing |= deleted & flags(pc.equal(rows.column(self.ordering_fields[0]), pa.scalar(0)))
        return missing

    def ranks(self, rows: pa.Table | pa.RecordBatch) -> Ranks | None:
        """Compute int64 ranks that compare as the rows' ordering values do; None in commit-time mode."""
        if not self.event_time:
            return None
        ranks = [_rank(rows.column(name)) for name in self.ordering_fields]
        combined = ranks[0]
        for rank in ranks[1:]:
            rank = _dense(rank)
            combined = _dense(combined) * (int(rank.max(initial=0)) + 1) + rank
        return combined


def check_delete_marks(schema: pa.Schema) -> None:
    """Check the types of the meta columns that make a row a delete.

    Raises:
        SchemaError: one of them has another type.
    """
    for name, wanted in _MARKS.items():
        found = schema.field(name).type if name in schema.names else wanted
        if found != wanted and not pa.types.is_null(found):
            raise SchemaError(f"column {name!r} has type {found}, but marks deletes only as {wanted}: cast it")


def _as_text(column: Column) -> Column:
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([to_java_text(chunk) for chunk in column.chunks], pa.string())
    return to_java_text(column)


def _dense(rank: Ranks) -> Ranks:
    return np.unique(rank, return_inverse=True)[1].astype(np.int64)


def _rank(column: Column) -> Ranks:
    """Map one column to order-preserving int64; a null is 0 in numeric columns, lowest in others.

    See docs/format/10-rules.md, "Rule 12".
    """
    kind = column.type
    if pa.types.is_integer(kind):
        return int64s(column)
    if pa.types.is_floating(kind):
        return _float_rank(float64s(column))
    if pa.types.is_decimal(kind):
        return _dense_rank(filled(column, 0))
    if pa.types.is_timestamp(kind):
        return _nulls_lowest(int64s(column), column)
    if pa.types.is_date32(kind):
        return _nulls_lowest(int64s(pc.cast(column, pa.int32())), column)
    return _nulls_lowest(_dense_rank(column), column)


def _dense_rank(column: Column) -> Ranks:
    return np.asarray(pc.rank(column, tiebreaker="dense"), np.int64)


def _nulls_lowest(rank: Ranks, column: Column) -> Ranks:
    if column.null_count:
        rank = np.where(np.asarray(pc.is_null(column)), np.iinfo(np.int64).min, rank)
    return rank


def _float_rank(values: Float64s) -> Ranks:
    """Rank doubles in Java's order: -0.0 before 0.0, every NaN equal and above infinity."""
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits)
