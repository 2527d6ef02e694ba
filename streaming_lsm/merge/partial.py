"""Merge partial updates: columns that were not sent with the winner are filled from the loser.

A value counts as sent if the row's block has the column and the value is not the marker of the table's partial update
mode (null, or the text of an unavailable value). An ordering value always does: a row keeps the one by which it won.

See docs/format/05-merge.md, "Partial updates".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Column, Flags, Int64s, flags, pc
from streaming_lsm.format.table.merge_mode import FILL_UNAVAILABLE, IGNORE_DEFAULTS
from streaming_lsm.merge.fold import Positions, last_marked
from streaming_lsm.merge.rule import MergeRule


@dataclass(frozen=True)
class SentValues:
    """Masks of the values that were sent.

    Attributes:
        rows: number of rows.
        columns: bool (rows,) by column; a column without a mask was sent with every row.
    """

    rows: int
    columns: Mapping[str, Flags]

    def of(self, name: str) -> Flags:
        """Return the mask of one column, bool (rows,)."""
        found = self.columns.get(name)
        return np.ones(self.rows, np.bool_) if found is None else found

    def take(self, rows: Int64s) -> SentValues:
        """Take the masks of the rows at the given positions."""
        return SentValues(len(rows), {name: sent[rows] for name, sent in self.columns.items()})


def sent_values(rows: pa.Table, parts: Sequence[tuple[frozenset[str] | None, int]], rule: MergeRule) -> SentValues:
    """Compute which values of the rows were sent.

    Args:
        rows: the rows of several blocks, concatenated.
        parts: the columns of each block (None for all), and its number of rows.
        rule: gives the partial update mode and the text of an unavailable value.
    """
    lengths = [length for _, length in parts]
    found: dict[str, Flags] = {}
    for name in rows.schema.names:
        has = np.array([columns is None or name in columns for columns, _ in parts], np.bool_)
        sent = np.repeat(has, lengths)
        if name not in rule.ordering_fields:
            sent &= _meant(rows.column(name), rule)
        if not sent.all():
            found[name] = sent
    return SentValues(len(rows), found)


def _meant(column: Column, rule: MergeRule) -> Flags:
    if rule.partial == IGNORE_DEFAULTS:
        return flags(pc.is_valid(column))
    is_text = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    if rule.partial == FILL_UNAVAILABLE and is_text:
        marker = pa.scalar(rule.unavailable.encode()).cast(column.type)
        return ~flags(pc.equal(column, marker))
    return np.ones(len(column), np.bool_)


@dataclass(frozen=True)
class FoldedColumns:
    """The outcome per key of a fold by columns; positions are those of the folded records.

    Attributes:
        ruling: int64 (keys,), the record whose ordering value is kept.
        barrier: int64 (keys,), the newest delete that has ruled, before which no value counts; -1 without one.
        places: int64 (keys,) by column, the record whose value is kept.
        present: bool (keys,) by column, whether any record sent a value.
    """

    ruling: Positions
    barrier: Positions
    places: Mapping[str, Positions]
    present: SentValues


def fold_columns(
    starts: Positions, deleted: Flags, unordered_deletes: Flags, ranks: Int64s | None, sent: SentValues
) -> FoldedColumns:
    """Fold the records of each key from left to right, each column separately.

    A record rules when its ordering value is not smaller than that of the fold so far. A ruling delete, ordered or not,
    drops all values before it; after it, records count from the first ruling one on. The value of a column comes from
    the last ruling record that sent it, else from the first record that sent it.

    Args:
        starts, deleted, unordered_deletes, ranks: records in merge order, as for `fold.fold`.
        sent: the values that were sent with the records.
    """
    count = len(deleted)
    position = np.arange(count, dtype=np.int64)
    lengths = np.diff(np.append(starts, count))
    rules = _rules(starts, unordered_deletes, ranks)
    barrier = last_marked(starts, rules & deleted)
    first = np.repeat(_first(starts, rules & ~deleted & (position > np.repeat(barrier, lengths))), lengths)
    counts = ~deleted & (position >= first)
    ruling = last_marked(starts, rules)
    places, present = {}, {}
    for name, has in sent.columns.items():
        last = last_marked(starts, counts & rules & has)
        any_sent = _first(starts, counts & has)
        found = np.where(last >= 0, last, np.where(any_sent < count, any_sent, -1))
        present[name] = found >= 0
        places[name] = np.where(found >= 0, found, ruling)
    return FoldedColumns(ruling, barrier, places, SentValues(len(starts), present))


def _rules(starts: Positions, unordered_deletes: Flags, ranks: Int64s | None) -> Flags:
    """Mark the records whose rank is not smaller than any before it of its key, back to the last unordered delete."""
    count = len(unordered_deletes)
    if ranks is None:
        return np.ones(count, np.bool_)
    begins = np.zeros(count, np.bool_)
    begins[starts] = True
    begins[1:] |= unordered_deletes[:-1]
    # The heights of each stretch lie above those of all stretches before, so that one running maximum serves all.
    rank = np.where(unordered_deletes, 0, np.unique(ranks, return_inverse=True)[1])
    height = np.cumsum(begins) * (count + 1) + rank
    rules: Flags = unordered_deletes | (height >= np.maximum.accumulate(height))
    return rules


def _first(starts: Positions, marked: Flags) -> Positions:
    """Find the position of the first marked record of each key, the number of records without one."""
    place = np.where(marked, np.arange(len(marked), dtype=np.int64), np.int64(len(marked)))
    return np.minimum.reduceat(place, starts)


def take_columns(rows: pa.Table, places: Mapping[str, Int64s], ruling: Int64s) -> pa.Table:
    """Assemble one row per key: each column from the rows at its `places`, else from the row at `ruling`."""
    columns = [
        column.take(pa.array(places.get(name, ruling), pa.int64()))
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.table(columns, schema=rows.schema)
