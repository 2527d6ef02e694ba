"""Prune the files and row groups of one file slice by the statistics of their footers.

Two rules keep the rows of the merge as they are:

- A row group with no key of the filter is skipped, by statistics or by its bloom filter: all versions of its rows have
  these keys.
- Row groups whose key ranges overlap form a *cluster*, in which any row may meet versions of itself. A cluster is
  skipped if none of its row groups may have a row of the filter, by all columns. A row group that overlaps with no
  other, as those of a slice without logs, is a cluster of its own. Where a row is made of several versions, by partial
  updates or by a record merger, it may have values together that no version has: then only a cluster of one row group
  is skipped by its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s
from streaming_lsm.file_group.data_file import DataFile, key_ranges
from streaming_lsm.file_group.key_filters import WantedKeys
from streaming_lsm.file_group.key_search import files_of_keys
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
        by_key: row groups without a key of the filter, by their statistics.
        by_values: other row groups of clusters without a row of the filter.
        by_bloom: other row groups whose bloom filters have no key of the filter.
        rows: rows of the row groups that are read, deletes included; those of inline logs are not counted.
        whole_slices: slices whose files are all read, as they are merged by hash or are too many.
        inline_logs: inline logs among the files; they are read whole.
        unopened: logs that are not among the files: the key entries of newer logs tell that they have no key of it.
    """

    files: int = 0
    files_skipped: int = 0
    row_groups: int = 0
    by_key: int = 0
    by_values: int = 0
    by_bloom: int = 0
    rows: int = 0
    whole_slices: int = 0
    inline_logs: int = 0
    unopened: int = 0

    @staticmethod
    def of_whole(files: Sequence[DataFile], inline_logs: int = 0) -> RowGroupCounts:
        """Count a slice of which all is read.

        Args:
            files: its Parquet files.
            inline_logs: number of its other files.
        """
        return RowGroupCounts(
            files=len(files) + inline_logs,
            row_groups=sum(file.stored_groups for file in files),
            rows=sum(file.rows for file in files),
            whole_slices=1,
            inline_logs=inline_logs,
        )

    def __add__(self, other: RowGroupCounts) -> RowGroupCounts:
        return RowGroupCounts(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class RowGroupPruner:
    """Prunes the row groups of slices by one predicate.

    Attributes:
        predicate: the filter, with the conditions on the record key that follow from it.
        keys: the columns of which all versions of a row have the same value.
        schema: the columns of a data file, as the reader sees them.
        wanted: the record keys of all rows of the filter; None if they are not known, or too many.
        takes_winner: see `MergeRule.takes_winner`.
    """

    predicate: Predicate
    keys: frozenset[str]
    schema: pa.Schema
    wanted: WantedKeys | None = None
    takes_winner: bool = True

    def prune(self, files: Sequence[DataFile]) -> tuple[list[DataFile], RowGroupCounts]:
        """Leave out the files and row groups that the filter does not need.

        Args:
            files: all files of a slice, in merge order, whole or reduced to some row groups; all are kept if one is not
                open.

        Returns:
            The files that are left, in the same order, some with a part of their row groups only.

        Raises:
            CorruptFileError: a footer or a bloom filter is damaged.
        """
        opened = [file.opened for file in files if file.opened is not None]
        if len(opened) < len(files):
            return list(files), RowGroupCounts.of_whole(files)
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
        if not self.takes_winner:
            numbers, sizes = np.unique(np.concatenate([*clusters, np.zeros(0, np.int64)]), return_counts=True)
            needed |= set(numbers[sizes > 1].tolist())
        left, counts = [], RowGroupCounts()
        may_hold = [True] * len(files) if self.wanted is None else files_of_keys(files, self.wanted).tolist()
        for file, has_key, cluster, may in zip(files, with_keys, clusters, may_hold, strict=True):
            read = has_key & np.isin(cluster, list(needed))
            if file.groups is not None:
                read &= np.isin(np.arange(len(read)), file.groups)
            spanned, read = read, self._admitted(file, read) if may else np.zeros(len(read), np.bool_)
            part = file if read.all() else file.part(np.flatnonzero(read).tolist())
            counts += RowGroupCounts(
                files=1,
                files_skipped=int(not read.any()),
                row_groups=len(read),
                by_key=int(np.count_nonzero(~has_key)),
                by_values=int(np.count_nonzero(has_key & ~spanned)),
                by_bloom=int(np.count_nonzero(spanned & ~read)),
                rows=part.rows if read.any() else 0,
            )
            if read.any():
                left.append(part)
        return left, counts

    def _admitted(self, file: DataFile, read: Flags) -> Flags:
        """Flag those of some row groups that may hold a wanted key; bloom filters of others are not read."""
        if self.wanted is None:
            return read
        found = file.admitting(self.wanted, np.flatnonzero(read).tolist())
        return np.isin(np.arange(len(read)), found)


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
