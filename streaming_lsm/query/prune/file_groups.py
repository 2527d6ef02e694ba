"""Prune file groups by partition and bucket, before any file is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, text_list
from streaming_lsm.errors import ConfigError, UnsupportedTable
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.latest_slices import FileSlices
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import bucket_of
from streaming_lsm.format.table.key_generation import key_generator
from streaming_lsm.format.table.properties import NUM_BUCKETS_KEY
from streaming_lsm.query.prune.bounds import may_be_true
from streaming_lsm.query.prune.keys import KeyColumns
from streaming_lsm.query.prune.partitions import PartitionColumns
from streaming_lsm.query.prune.predicate import Predicate, columns_of


@dataclass(frozen=True)
class SkippedSlices:
    """Counts the file slices and partitions that a filter leaves out.

    Attributes:
        by_partition: slices in partitions without a row of the filter, of those partitions that were listed.
        by_bucket: other slices, in buckets without a key of it.
        by_ranges: other slices, whose files have no row of it by the ranges of columns in the metadata table.
        by_record_index: other slices, without a key of it by the record index of the metadata table.
        by_secondary_index: the same, of keys that a secondary index has for a value of it.
        by_expression_index: other slices, whose files have no row of it by the ranges of an expression index.
        by_partition_ranges: other slices, in partitions without a row of it by the ranges of columns there.
        secondary_index: its name; empty without one.
        expression_indexes: names of those that tell of some slice.
        partitions: partitions without a row of the filter, by their partition columns.
        partitions_read: all others.
    """

    by_partition: int = 0
    by_bucket: int = 0
    partitions: int = 0
    partitions_read: int = 0
    by_ranges: int = 0
    by_record_index: int = 0
    by_secondary_index: int = 0
    by_partition_ranges: int = 0
    by_expression_index: int = 0
    secondary_index: str = ""
    expression_indexes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileGroupPruner:
    """Knows how the rows of a table are distributed to partitions and buckets.

    Attributes:
        partitions: the partition columns.
        keys: the columns of the record key.
    """

    partitions: PartitionColumns
    keys: KeyColumns

    @staticmethod
    def of(table: TableConfig, schema: pa.Schema, *, follows: bool = True) -> FileGroupPruner | None:
        """Build it for a table with the columns `schema`; None if its key generator is none that this package knows.

        Args:
            table: the table's config.
            schema: its columns.
            follows: see `PartitionColumns`.
        """
        try:
            generator = key_generator(table)
        except ConfigError:
            return None
        # A number of buckets that only an option gives may be wrong, which must not leave out rows.
        buckets = table.num_buckets if NUM_BUCKETS_KEY in table.properties else 0
        return FileGroupPruner(
            PartitionColumns(generator, schema, follows), KeyColumns(generator, schema, table.hash_fields, buckets)
        )

    def derived(self, predicate: Predicate) -> Predicate:
        """Add the conditions that follow from the table's keys and partition paths."""
        return self.partitions.with_levels(self.keys.with_record_key(predicate))

    def prune(self, slices: Sequence[FileSlice], predicate: Predicate) -> tuple[FileSlices, SkippedSlices]:
        """Leave out slices in which a predicate, as `derived` returns it, is true for no row."""
        found = FileSlices.of(slices)
        used = np.unique(found.partition)
        read = np.zeros(len(found.partitions), np.bool_)
        read[used] = self.reads([found.partitions[place] for place in used], predicate)
        there = found if read[used].all() else found.at(read[found.partition])
        buckets = self.keys.buckets(predicate)
        left = there
        if buckets is not None:
            left = there.at(np.array([_may_be_in(file_id, buckets) for file_id in text_list(there.file_ids)], np.bool_))
        count = int(np.count_nonzero(read[used]))
        return left, SkippedSlices(
            by_partition=len(found) - len(there),
            by_bucket=len(there) - len(left),
            partitions=len(used) - count + found.left_out,
            partitions_read=count,
        )

    def reads(self, paths: Sequence[str], predicate: Predicate) -> Flags:
        """Return whether a predicate, as `derived` returns it, may be true for a row of each partition."""
        return may_be_true(predicate, self.partitions.bounds(paths, columns_of(predicate)), len(paths))


def _may_be_in(file_id: str, buckets: frozenset[int]) -> bool:
    try:
        return bucket_of(file_id) in buckets
    except UnsupportedTable:  # a file group of another index
        return True
