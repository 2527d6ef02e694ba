"""Compare the rows of one file group before and after a write or compaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm.arrow.columns import Column, pc
from streaming_lsm.arrow.distinct_rows import distinct_rows
from streaming_lsm.schema import COMMIT_TIME, RECORD_KEY


@dataclass(frozen=True)
class ComparedRows:
    """What has changed.

    Attributes:
        written: the rows after, that were inserted or updated.
        places: their places among the rows before, int32; null where they were inserted.
        gone: the rows before, whose keys are no more there.
    """

    written: pa.Table
    places: Column
    gone: pa.Table


def compare_rows(before: pa.Table, after: pa.Table, values: Sequence[str] = ()) -> ComparedRows:
    """Find the changes: rows of another commit time than the row of their key before.

    Also a row of an older commit may be inserted again, or up to version 9 take the place of a later one: where a late
    row hides an unordered delete (docs/format/05-merge.md, "Pairwise rule").

    Args:
        before, after: rows with their record keys and commit times.
        values: columns whose values are compared, too, where rows of one commit time may differ
            (`MergeRule.takes_winner`).
    """
    keys = before.column(RECORD_KEY)
    places = pc.index_in(after.column(RECORD_KEY), value_set=keys)
    times = before.column(COMMIT_TIME).take(places)
    is_changed = pc.fill_null(pc.not_equal(after.column(COMMIT_TIME), times), True)
    if values:
        differs = distinct_rows(before.select(values).take(places), after.select(values))
        is_changed = pc.or_(is_changed, pa.array(differs))
    gone = before.filter(pc.invert(pc.is_in(keys, value_set=after.column(RECORD_KEY))))
    return ComparedRows(after.filter(is_changed), places.filter(is_changed), gone)
