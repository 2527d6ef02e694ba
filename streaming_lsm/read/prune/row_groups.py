"""Prune the files and row groups of one file slice by the statistics of their footers.

Two rules keep the rows of the merge as they are:

- A row group with no key of the filter is skipped: all versions of its rows have these keys.
- Row groups whose key ranges overlap form a *cluster*, in which any row may meet versions of itself. A cluster is
  skipped if none of its row groups may have a row of the filter, by all columns. A row group that overlaps with no
  other, as those of a slice without logs, is a cluster of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.arrow.columns import Int64s
from streaming_lsm.file_group.data_file import DataFile, key_ranges
from streaming_lsm.read.prune.bounds import UNKNOWN, Bounds, may_be_true
from streaming_lsm.read.prune.predicate import Predicate, columns_of


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
            files: all files of a slice, in merge order; all are kept if one is not open.

        Returns:
            The files that are left, in the same order, some with a part of their row groups only.
        """
        metadata = [file.opened.parquet.metadata for file in files if file.opened is not None]
        if len(metadata) < len(files):
            return list(files), RowGroupCounts(len(files))
        with_keys, matching = [], []
        for file, footer in zip(files, metadata, strict=True):
            bounds = dict(self._bounds(footer))
            of_keys = {name: bounds[name] for name in self.keys if name in bounds}
            count = footer.num_row_groups
            with_keys.append(may_be_true(self.predicate, of_keys, count))
            # A delete log has no row to return.
            everything = np.zeros(count, np.bool_) if file.is_delete else may_be_true(self.predicate, bounds, count)
            matching.append(everything)
        clusters = _clusters([key_ranges(footer) for footer in metadata], [len(flags) for flags in with_keys])
        needed = {int(number) for place, flags in enumerate(matching) for number in clusters[place][flags]}
        left, counts = [], RowGroupCounts()
        for file, has_key, cluster in zip(files, with_keys, clusters, strict=True):
            read = has_key & np.isin(cluster, list(needed))
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

    def _bounds(self, footer: pq.FileMetaData) -> Iterator[tuple[str, Bounds]]:
        """Read the statistics of the predicate's columns, where they are of the types of the table."""
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        if not groups:
            return
        paths = {groups[0].column(place).path_in_schema: place for place in range(footer.num_columns)}
        for name in columns_of(self.predicate) | self.keys:
            kind = _type_at(self.schema, name)
            if name not in paths or kind is None:
                continue
            found = _of_statistics([group.column(paths[name]) for group in groups], kind)
            if found is not None:
                yield name, found


def _type_at(schema: pa.Schema, path: str) -> pa.DataType | None:
    """Return the type of a column, or of a field of a struct; None if it is in a list or map, or nowhere."""
    name, *steps = path.split(".")
    if name not in schema.names:
        return None
    kind: pa.DataType = schema.field(name).type
    for step in steps:
        place = kind.get_field_index(step) if isinstance(kind, pa.StructType) else -1
        if place < 0:
            return None
        kind = kind.field(place).type
    return None if pa.types.is_nested(kind) else kind


def _of_statistics(chunks: Sequence[pq.ColumnChunkMetaData], kind: pa.DataType) -> Bounds | None:
    facts = [_facts(chunk.statistics) for chunk in chunks]
    return Bounds.of(
        kind,
        [low for low, _, _ in facts],
        [high for _, high, _ in facts],
        [nulls for _, _, nulls in facts],
        [chunk.num_values for chunk in chunks],
    )


def _facts(statistics: pq.Statistics | None) -> tuple[Any, Any, int]:
    """Return the smallest and the largest value of a column chunk, None where unknown, and its number of nulls."""
    if statistics is None:
        return None, None, UNKNOWN
    nulls = UNKNOWN if statistics.null_count is None else statistics.null_count
    if not statistics.has_min_max:
        return None, None, nulls
    try:
        return statistics.min, statistics.max, nulls
    except (UnicodeDecodeError, ValueError, OverflowError):  # such as a bound that was cut inside a character
        return None, None, nulls


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
