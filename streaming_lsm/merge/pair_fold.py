"""Fold the rows of each key pair by pair with a record merger, for all keys at once.

In each round the outcome so far of every key that has rows left is merged with its next row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s
from streaming_lsm.merge.fold import last_marked
from streaming_lsm.merge.record_merger import merged_rows
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.schema import META_COLUMNS, OPERATION


def fold_live_pairs(
    values: pa.Table, starts: Int64s, places: Int64s, deleted: Flags, rule: MergeRule
) -> tuple[pa.Table, Flags]:
    """Fold the rows of each key that follow its last delete.

    Args:
        values: rows.
        starts: int64 (keys,), the first record of each key.
        places: int64 (records,), places in `values`, by key and then in merge order; that of a delete does not count.
        deleted: bool (records,), whether it is a delete.
        rule: has the record merger.

    Returns:
        One row for each key whose last record is a row, as `fold_pairs`; and bool (keys,), which these are.
    """
    lengths = np.diff(np.append(starts, len(places)))
    lives: Flags = ~deleted[starts + lengths - 1]
    follows = np.arange(len(places)) > np.repeat(last_marked(starts, deleted), lengths)
    counts = follows & np.repeat(lives, lengths)
    begins: Int64s = (np.cumsum(counts) - counts)[starts[lives]]
    return fold_pairs(values, begins, places[counts], rule), lives


def fold_pairs(values: pa.Table, starts: Int64s, places: Int64s, rule: MergeRule) -> pa.Table:
    """Fold the rows of each key from left to right.

    Args:
        values: rows.
        starts: int64 (keys,), where the rows of each key begin in `places`; each key has one at least.
        places: int64, places in `values`, by key and then in merge order.
        rule: has the record merger.

    Returns:
        One row for each key. The meta columns are those of its newest row.
    """
    counts = np.diff(np.append(starts, len(places)))
    by_count = np.argsort(-counts, kind="stable")
    counts, begins = counts[by_count], starts[by_count]
    rows = _take(values, places[begins])
    ended = []
    for number in range(1, int(counts.max(initial=0))):
        left = int(np.searchsorted(-counts, -number))
        if left < len(rows):
            ended.append(rows.slice(left))
        rows = merge_pairs(rows.slice(0, left), _take(values, places[begins[:left] + number]), rule)
    found = pa.concat_tables([rows, *reversed(ended)])
    return _take(found, np.argsort(by_count, kind="stable"))


def merge_pairs(older: pa.Table, newer: pa.Table, rule: MergeRule) -> pa.Table:
    """Merge each row with the newer one in the same place.

    Meta columns, and those that the merger may not change (`MergeRule.fixed`), are those of the newer row.
    """
    assert rule.merger is not None
    columns = [name for name in newer.schema.names if name not in META_COLUMNS and name != OPERATION]
    made = {*columns} - rule.fixed
    if not made:  # a query of meta columns reads no others
        return newer
    found = merged_rows(rule.merger, older.select(columns), newer.select(columns))
    taken = [found.column(name) if name in made else newer.column(name) for name in newer.schema.names]
    return pa.table(taken, schema=newer.schema)


def _take(rows: pa.Table, places: Int64s) -> pa.Table:
    return rows.take(pa.array(places, pa.int64()))
