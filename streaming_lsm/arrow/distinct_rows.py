"""Find the rows in which two tables differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import offsets_of
from streaming_lsm.arrow.columns import Flags, flags, pc
from streaming_lsm.arrow.ranges import places_in


def distinct_rows(ours: pa.Table, theirs: pa.Table) -> Flags:
    """Mark the rows that differ in a value; a null, and NaN, equals itself.

    Args:
        ours, theirs: as many rows of the same columns.

    Returns:
        bool (rows,).
    """
    found = np.zeros(len(ours), np.bool_)
    for one, other in zip(ours.columns, theirs.columns, strict=True):
        found |= _distinct(one.combine_chunks(), other.combine_chunks())
    return found


def _distinct(one: Any, other: Any) -> Flags:
    kind = one.type
    valid, there = flags(pc.is_valid(one)), flags(pc.is_valid(other))
    found: Flags = valid != there
    if pa.types.is_struct(kind):
        for mine, its in zip(one.flatten(), other.flatten(), strict=True):
            found |= _distinct(mine, its)
    elif pa.types.is_list(kind):
        found |= _distinct_lists(one, other, valid & there, [(one.values, other.values)])
    elif pa.types.is_map(kind):
        found |= _distinct_lists(one, other, valid & there, [(one.keys, other.keys), (one.items, other.items)])
    else:
        equal = flags(pc.equal(one, other))
        if pa.types.is_floating(kind):
            equal |= flags(pc.is_nan(one)) & flags(pc.is_nan(other))
        found |= valid & there & ~equal
    return found


def _distinct_lists(one: Any, other: Any, both: Flags, inside: list[tuple[Any, Any]]) -> Flags:
    """Compare lists, where `both` are valid, by the elements `inside` of all lists."""
    begins, others = offsets_of(one), offsets_of(other)
    lengths = np.diff(begins)
    same = lengths == np.diff(others)
    found: Flags = both & ~same
    rows = np.flatnonzero(both & same & (lengths > 0))
    counts = lengths[rows]
    starts = np.cumsum(counts) - counts
    places = [pa.array(places_in(offsets[rows], counts), pa.int64()) for offsets in (begins, others)]
    for mine, its in inside:
        differs = _distinct(mine.take(places[0]), its.take(places[1]))
        found[rows] |= np.logical_or.reduceat(differs, starts) if len(rows) else False
    return found
