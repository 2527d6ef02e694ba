"""Prune file slices by ranges of columns in their files, before any file is opened.

The rows of a slice are made of those of its files. Where each row is one of them, a slice is skipped if none of its
files may have a row of the filter. A row that is made of several, by partial updates or a record merger, may have
values together that no file has: then only a slice of one file is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import nulls, take
from streaming_lsm.arrow.columns import Flags, int64s, pc
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.metadata.column_stats import bounds_of
from streaming_lsm.metadata.column_ranges import FoundRanges
from streaming_lsm.query.prune.bounds import UNKNOWN, Bounds, may_be_true
from streaming_lsm.query.prune.predicate import Predicate

_NO_ROWS = -2
"""Differs from each number of nulls, so that no file of an unknown number of rows counts as one of nulls."""


def ranged_files(slices: Sequence[FileSlice]) -> list[tuple[str, str]]:
    """List partition path and name of the files of slices that have rows: all but delete logs."""
    return [
        (found.partition_path, path.rpartition("/")[2])
        for found in slices
        for path in (
            *((found.base.path,) if found.base else ()),
            *(log.path for log in found.logs if not log.is_delete),
        )
    ]


def read_slices(
    slices: Sequence[FileSlice],
    predicate: Predicate,
    schema: pa.Schema,
    ranges: Mapping[str, FoundRanges],
    *,
    takes_winner: bool,
) -> Flags:
    """Flag the slices that may have a row of a filter, bool (slices,).

    Args:
        slices: the slices.
        predicate: the filter.
        schema: the columns whose ranges tell about the rows that a query returns.
        ranges: ranges of columns in the files that `ranged_files` lists.
        takes_winner: see `MergeRule.takes_winner`.
    """
    counts = np.array([bool(found.base) + sum(not log.is_delete for log in found.logs) for found in slices], np.int64)
    files = int(counts.sum())
    bounds = {name: _bounds(found, schema.field(name).type, files) for name, found in ranges.items()}
    matching = may_be_true(predicate, bounds, files)
    of_slice = np.repeat(np.arange(len(slices)), counts)
    read: Flags = np.bincount(of_slice[matching], minlength=len(slices)) > 0
    if not takes_winner:
        read |= counts > 1
    return read


def read_partitions(
    partitions: int, predicate: Predicate, schema: pa.Schema, ranges: Mapping[str, FoundRanges]
) -> Flags:
    """Flag the partitions that may have a row of a filter, bool (partitions,).

    Numbers of nulls tell nothing: a file that is older than a column has no range of it, and nulls only.

    Args:
        partitions: number of partitions.
        predicate: the filter.
        schema: the columns whose ranges tell about the rows that a query returns.
        ranges: ranges of columns in the partitions.
    """
    found = {name: _bounds(some, schema.field(name).type, partitions) for name, some in ranges.items()}
    unknown, no_rows = np.full(partitions, UNKNOWN), np.full(partitions, _NO_ROWS)
    bounds = {name: Bounds(some.low, some.high, unknown, no_rows) for name, some in found.items()}
    return may_be_true(predicate, bounds, partitions)


def _bounds(found: FoundRanges, kind: pa.DataType, files: int) -> Bounds:
    """Bound a column in each file; a file with no range, or with several, may have any value."""
    low, high = bounds_of(found.ranges, kind)
    times = np.bincount(found.files, minlength=files)
    place = np.zeros(files, np.int64)
    place[found.files] = np.arange(len(found.files))
    ranges = found.ranges
    counted = pc.and_(ranges.field("valueCount").is_valid(), ranges.field("nullCount").is_valid())
    usable = np.asarray(pc.and_(counted, pc.invert(ranges.field("isDeleted"))), np.bool_)
    known = times == 1
    known[known] = usable[place[known]]
    if not known.any():
        unknown = nulls(files, kind)
        return Bounds(unknown, unknown, np.full(files, UNKNOWN), np.full(files, _NO_ROWS))
    # Hudi up to 0.13 counts no nulls among the values: a column with a bound does not have nulls only.
    bare = ~np.asarray(pc.or_(ranges.field("minValue").is_valid(), ranges.field("maxValue").is_valid()), np.bool_)
    null_counts, rows = (int64s(ranges.field(name))[place] for name in ("nullCount", "valueCount"))
    return Bounds(
        low=take(low, place, ~known),
        high=take(high, place, ~known),
        nulls=np.where(known, null_counts, UNKNOWN),
        rows=np.where(known & bare[place], rows, _NO_ROWS),
    )
