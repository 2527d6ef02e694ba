"""Keep the partition ``partition_stats`` of the metadata table up to date: ranges of columns in the table's partitions.

See docs/format/07-index-and-metadata.md, "Partition stats". The ranges of the files that an action adds are logged as
bounds that are not tight, which readers unite with those before: they stay right in whatever order writes complete, and
nothing is read for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streaming_lsm.config import METADATA_PARTITION_STATS, Options
from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.metadata import column_stats
from streaming_lsm.format.metadata.column_stats import (
    NO_TYPE,
    RANGES,
    encode_range_rows,
    encode_ranges,
    range_key,
    range_rows,
)
from streaming_lsm.format.metadata.group_files import base_name
from streaming_lsm.format.metadata.partition_stats import FILE_ID, PARTITION
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.changed_ranges import PartitionRows
from streaming_lsm.metadata.column_ranges import decoded_ranges
from streaming_lsm.metadata.commit import FileChanges, NewRecords
from streaming_lsm.metadata.creation import PARTITIONS_KEY
from streaming_lsm.metadata.file_slices import MetadataFileGroup, MetadataFileSlice
from streaming_lsm.metadata.followed_columns import flat_columns
from streaming_lsm.metadata.index_definitions import ranged_columns
from streaming_lsm.metadata.partition_ranges import of_types, united_ranges
from streaming_lsm.metadata.partitions.base import (
    Encoded,
    NewPartition,
    RecordedAction,
    Snapshot,
    TableContext,
    changes_between,
)
from streaming_lsm.metadata.slice_records import numbered_groups, slice_records
from streaming_lsm.storage.base import Storage


@dataclass
class PartitionStats:
    """The partition of a table; see `KeptPartition`.

    Attributes:
        context: the table.
        columns: the columns whose ranges are kept: those of ``column_stats``.
        groups: the file group.
    """

    context: TableContext
    columns: Sequence[str]
    groups: Sequence[MetadataFileGroup]
    name = PARTITION
    definition = column_stats.PARTITION
    _added: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def caught_up(self, before: Snapshot, after: Snapshot) -> list[NewRecords]:
        """Return the ranges of all files that are new since the first call, united by partition; see `CatchUp`."""
        found = self.context.ranges(FileChanges(changes_between(before, after).added), self.columns)
        self._added += found
        touched = {partition for partition, _ in found}
        return self._united([row for row in self._added if row[0] in touched])

    def _united(self, found: PartitionRows) -> list[NewRecords]:
        keys, ranges = united_by_partition(found)
        (group,) = self.groups
        # They are few: as columns they would take milliseconds.
        values = encode_range_rows(range_rows(ranges), None, of_partitions=True)
        return [NewRecords(group, keys, values)] if len(keys) else []

    def records(self, action: RecordedAction) -> list[NewRecords]:
        """Return the ranges of columns in the files that an action adds, united by partition.

        Raises:
            UnsupportedTable: the action changes the type of a column, whose ranges cannot be united then.
        """
        if not action.changes.added:
            return []
        self.columns = action.followed(self.columns, self.context.options)
        self._check_types(action)
        return self._united(self.context.ranges(action.changes, self.columns, action.ranges))

    def _check_types(self, action: RecordedAction) -> None:
        before, after = (flat_columns(avro) if avro else {} for avro in action.schemas)
        for column in self.columns:
            if column in before and column in after and before[column] != after[column]:
                raise UnsupportedTable(f"column {column!r} was {before[column]} and is {after[column]} now")

    def merged(
        self, found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool], base_name: str
    ) -> Encoded:
        """Merge a slice: the ranges of each partition and column, united."""
        keys, ranges = united_ranges(*decoded_ranges(slice_records(found, metadata, counts)))
        return keys, encode_ranges(ranges, base_name, of_partitions=True)


class PartitionStatsKind:
    """See `PartitionKind`."""

    def owns(self, name: str) -> bool:
        """Return whether a partition is ``partition_stats``."""
        return name == PARTITION

    def asked(self, options: Options) -> Mapping[str, bool]:
        """Return what the options say of the partition."""
        return {PARTITION: options[METADATA_PARTITION_STATS]} if options.is_set(METADATA_PARTITION_STATS) else {}

    def open(self, name: str, context: TableContext, properties: Mapping[str, str]) -> PartitionStats:
        """Open the partition of a table.

        Raises:
            CorruptFileError: the definition of ``column_stats``, or a file group, is missing or damaged.
            UnsupportedTable: the index has another version than V2, or several file groups; or the table is not
                partitioned.
        """
        _check_partitioned(properties)
        groups = numbered_groups(name, FILE_ID, context.metadata.names(name))
        if len(groups) != 1:
            raise UnsupportedTable(f"{name} has {len(groups)} file groups; one is kept")
        return PartitionStats(context, ranged_columns(context.storage, properties), groups)

    def build(self, name: str, context: TableContext, snapshot: Snapshot) -> NewPartition:
        """Build the partition from the ranges of all files of completed actions.

        Raises:
            CorruptFileError: a data file cannot be read.
            UnsupportedTable: the table has no partitions, or no ``column_stats``; or a column has bounds that its type
                does not hold.
        """
        if column_stats.PARTITION not in listed(snapshot.properties[PARTITIONS_KEY]):
            raise UnsupportedTable(
                f"the metadata table has no {column_stats.PARTITION}, whose columns it takes: create that first"
            )
        _check_partitioned(snapshot.properties)
        columns = ranged_columns(context.storage, snapshot.properties)
        avro = snapshot.data.table_schema() or snapshot.properties.get("hoodie.table.create.schema")
        found = context.ranges(FileChanges(snapshot.files), columns)
        keys, ranges = united_by_partition(of_types(found, flat_columns(avro) if avro else {}))
        group = MetadataFileGroup(name, FILE_ID.format(0))
        values = encode_ranges(ranges, str(base_name(group.file_id, snapshot.instant)), of_partitions=True)
        catch_up = PartitionStats(context, columns, [group]).caught_up
        return NewPartition([group], [NewRecords(group, keys, values)] if len(keys) else [], catch_up)


def _check_partitioned(properties: Mapping[str, str]) -> None:
    if not properties.get("hoodie.table.partition.fields"):
        raise UnsupportedTable("the table is not partitioned")


def united_by_partition(found: PartitionRows) -> tuple[pa.BinaryArray, pa.StructArray]:
    """Unite the ranges of files by partition; return their keys, ascending, and the ranges, of the type `RANGES`.

    Those of files without rows, as of a log of deletes, are left out: they bound nothing, and Hudi fails to merge one
    without a type with others.
    """
    keyed = [
        (range_key(row["columnName"], partition), {**row, "fileName": partition})
        for partition, row in found
        if row["valueType"]["typeOrdinal"] != NO_TYPE
    ]
    keyed.sort(key=lambda one: one[0])
    keys: Any = pa.array([key.encode() for key, _ in keyed], pa.binary())
    ranges: Any = pa.array([row for _, row in keyed], RANGES)
    return united_ranges(keys, ranges)
