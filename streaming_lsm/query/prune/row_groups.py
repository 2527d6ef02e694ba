"""Prune the files and row groups of one file slice by the statistics of their footers.

Two rules keep the rows of the merge as they are:

- A row group with no key of the filter is skipped: all versions of its rows have these keys.
- Row groups whose key ranges overlap form a *cluster*, in which any row may meet versions of itself. A cluster is
  skipped if none of its row groups may have a row of the filter, by all columns. A row group that overlaps with no
  other, as those of a slice without logs, is a cluster of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s
from streaming_lsm.file_group.data_file import DataFile, key_ranges
from streaming_lsm.query.prune.bounds import may_be_true
from streaming_lsm.query.prune.predicate import Predicate, columns_of
from streaming_lsm.query.prune.statistics import file_bounds


@dataclass(frozen=True)
class RowGroupCounts:
    """Counts what a filter leaves of the files of slices.

    Attributes:
        files: files whose footers were read.
        files_skipped: those of which no row group is read.
        row_groups: row groups of all files.
        by_key: row groups without a key of the filter.
        by_values: other row groups of clusters without a row of the filter.
        rows: rows of the row groups that are read, deletes included.
    """

    files: int = 0
    files_skipped: int = 0
    row_groups: int = 0
    by_key: int = 0
    by_values: int = 0
    rows: int = 0

    def __add__(self, other: RowGroupCounts) -> RowGroupCounts:
        return RowGroupCounts(*(one + another for one, another in zip(self._all, other._all, strict=True)))

    @property
    def _all(self) -> tuple[int, ...]:
        return self.files, self.files_skipped, self.row_groups, self.by_key, self.by_values, self.rows


@dataclass(frozen=True)
class RowGroupPruner:
    """Prunes the row groups of slices by one predicate.

    Attributes:
        predicate: the filter, with the conditions on the record key that follow from it.
        keys: the columns of which all versions of a row have the same value.
        schema: the columns of a data file, as the reader sees them.
    """

    predicate: Predicate
    keys: frozenset[str]
    schema: pa.Schema

    def prune(self, files: Sequence[DataFile]) -> tuple[list[DataFile], RowGroupCounts]:
        """Leave out the files and row groups that the filter does not need.

        Args:
            files: all files of a slice, in merge order, whole or reduced to some row groups; all are kept if one is not
                open.

        Returns:
            The files that are left, in the same order, some with a part of their row groups only.
        """
        opened = [file.opened for file in files if file.opened is not None]
        if len(opened) < len(files):
            return list(files), RowGroupCounts(len(files))
        names = columns_of(self.predicate)
        with_keys, matching = [], []
        for file, found in zip(files, opened, strict=True):
            alike = names if file.names is None else {name for name in names if file.names.is_same(name)}
            bounds = file_bounds(found, file.path, self.schema, alike) if alike else {}
            of_keys = {name: bounds[name] for name in self.keys if name in bounds}
            count = found.parquet.metadata.num_row_groups
            with_keys.append(may_be_true(self.predicate, of_keys, count))
            # A delete log has no row to return.
            everything = np.zeros(count, np.bool_) if file.is_delete else may_be_true(self.predicate, bounds, count)
            matching.append(everything)
        ranges = [key_ranges(found.parquet.metadata) for found in opened]
        clusters = _clusters(ranges, [len(flags) for flags in with_keys])
        needed = {int(number) for place, flags in enumerate(matching) for number in clusters[place][flags]}
        left, counts = [], RowGroupCounts()
        for file, has_key, cluster in zip(files, with_keys, clusters, strict=True):
            read = has_key & np.isin(cluster, list(needed))
            if file.groups is not None:
                read &= np.isin(np.arange(len(read)), file.groups)
            part = file if read.all() else file.part(np.flatnonzero(read).tolist())
            counts += RowGroupCounts(
                files=1,
                files_skipped=int(not read.any()),
                row_groups=len(read),
                by_key=int(np.count_nonzero(~has_key)),
                by_values=int(np.count_nonzero(has_key & ~read)),
                rows=part.rows if read.any() else 0,
            )
            if read.any():
                left.append(part)
        return left, counts


def _clusters(ranges: Sequence[Sequence[tuple[str, str]]], counts: Sequence[int]) -> list[Int64s]:
    """Number the clusters of row groups: those whose key ranges overlap, through others as well, have one number.

    Args:
        ranges: the key ranges of the row groups of each file; none if they are not known.
        counts: the number of row groups of each file.

    Returns:
        int64 arrays, for each file the numbers of its row groups.
    """
    numbers = [np.zeros(count, np.int64) for count in counts]
    if any(len(known) < count for known, count in zip(ranges, counts, strict=True)):
        return numbers
    every = sorted((span, file, group) for file, known in enumerate(ranges) for group, span in enumerate(known))
    number, end = -1, ""
    for (low, high), file, group in every:
        if number < 0 or low > end:
            number, end = number + 1, high
        end = max(end, high)
        numbers[file][group] = number
    return numbers
