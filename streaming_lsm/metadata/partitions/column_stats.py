"""Keep the partition ``column_stats`` of the metadata table up to date: ranges of columns in data files.

See docs/format/07-index-and-metadata.md, "Column stats", "File groups of the metadata table".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm.config import METADATA_COLUMN_STATS, METADATA_RANGED_COLUMNS, Options
from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.metadata.column_stats import FILE_ID, PARTITION, encode_ranges
from streaming_lsm.format.metadata.group_files import base_name
from streaming_lsm.metadata.changed_ranges import by_group, changed_ranges
from streaming_lsm.metadata.column_ranges import ranges_groups, read_ranges
from streaming_lsm.metadata.commit import FileChanges, NewRecords
from streaming_lsm.metadata.file_slices import MetadataFileGroup, MetadataFileSlice
from streaming_lsm.metadata.index_definitions import ranged_columns, ranges_definition
from streaming_lsm.metadata.partitions.base import Encoded, NewPartition, RecordedAction, Snapshot, TableContext
from streaming_lsm.schema import COMMIT_TIME, PARTITION_PATH, RECORD_KEY, from_avro
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.timeline import Timeline

_GROUPS, _MOST_COLUMNS = 2, 32
_ALWAYS = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)


@dataclass(frozen=True)
class ColumnStats:
    """The partition of a table; see `KeptPartition`.

    Attributes:
        context: the table.
        columns: the columns whose ranges are kept.
        groups: the file groups.
    """

    context: TableContext
    columns: Sequence[str]
    groups: Sequence[MetadataFileGroup]
    name = PARTITION
    has_definition = True

    def records(self, action: RecordedAction) -> list[NewRecords]:
        """Return the ranges of columns in the files that an action adds, and tombstones for those that it deletes."""
        ranges = self.context.readers.ranges
        found = changed_ranges(action.changes, self.context.storage, self.columns, ranges)
        return [
            NewRecords(group, keys, encode_ranges(some, None)) for group, (keys, some) in by_group(found, self.groups)
        ]

    def merged(
        self, found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool], base_name: str
    ) -> Encoded:
        """Merge a slice: the newest range of each file and column."""
        return read_ranges(found, metadata, counts, base_name)


class ColumnStatsKind:
    """See `PartitionKind`."""

    def owns(self, name: str) -> bool:
        """Return whether a partition is ``column_stats``."""
        return name == PARTITION

    def asked(self, options: Options) -> Mapping[str, bool]:
        """Return what the options say of the partition."""
        return {PARTITION: options[METADATA_COLUMN_STATS]} if options.is_set(METADATA_COLUMN_STATS) else {}

    def open(self, name: str, context: TableContext, properties: Mapping[str, str]) -> ColumnStats:
        """Open the partition of a table.

        Raises:
            CorruptFileError: its definition, or a file group, is missing or damaged.
            UnsupportedTable: the index has another version than V2.
        """
        columns = ranged_columns(context.storage, properties)
        return ColumnStats(context, columns, ranges_groups(context.metadata.names(name)))

    def build(self, name: str, context: TableContext, snapshot: Snapshot) -> NewPartition:
        """Build the partition, with the ranges of all files of completed actions.

        Raises:
            CorruptFileError: a data file cannot be read.
            UnsupportedTable: the table has no schema yet, or not the columns that the options name.
        """
        storage, wanted = context.storage, context.options[METADATA_RANGED_COLUMNS]
        columns = (*_ALWAYS, *_chosen(snapshot.data, snapshot.properties, wanted, storage.uri))
        found = changed_ranges(FileChanges(snapshot.files), storage, columns, context.readers.ranges)
        groups = [MetadataFileGroup(name, FILE_ID.format(number)) for number in range(_GROUPS)]
        records = [
            NewRecords(group, keys, encode_ranges(some, str(base_name(group.file_id, snapshot.instant))))
            for group, (keys, some) in by_group(found, groups)
        ]
        return NewPartition(groups, records, ranges_definition(name, columns))


def _chosen(data: Timeline, properties: Mapping[str, str], columns: Sequence[str], uri: str) -> list[str]:
    avro = data.table_schema() or properties.get("hoodie.table.create.schema")
    if not avro:
        raise UnsupportedTable("the table has no schema yet")
    flat = [field.name for field in from_avro(avro, f"schema of {uri}") if not pa.types.is_nested(field.type)]
    absent = [column for column in columns if column not in flat and column not in _ALWAYS]
    if absent:
        raise UnsupportedTable(f"column {absent[0]!r} is nested or not in the table, which has {', '.join(flat)}")
    return [column for column in columns if column not in _ALWAYS] or flat[:_MOST_COLUMNS]
