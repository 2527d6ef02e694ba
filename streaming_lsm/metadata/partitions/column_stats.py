"""Keep the partition ``column_stats`` of the metadata table up to date: ranges of columns in data files.

See docs/format/07-index-and-metadata.md, "Column stats", "File groups of the metadata table".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import pyarrow as pa

from streaming_lsm.config import METADATA_COLUMN_STATS, METADATA_RANGED_COLUMNS, Options
from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.actions.commit import WrittenRanges
from streaming_lsm.format.metadata.column_stats import FILE_ID, PARTITION, encode_range_rows
from streaming_lsm.format.metadata.group_files import base_name
from streaming_lsm.metadata.changed_ranges import deleted_ranges, keyed_rows, shares, split_records
from streaming_lsm.metadata.column_ranges import merged_ranges
from streaming_lsm.metadata.commit import FileChanges, NewRecords
from streaming_lsm.metadata.file_slices import MetadataFileGroup, MetadataFileSlice
from streaming_lsm.metadata.followed_columns import MOST_COLUMNS, flat_columns
from streaming_lsm.metadata.index_definitions import put_definition, ranged_columns, ranges_definition
from streaming_lsm.metadata.partitions.base import (
    Encoded,
    NewPartition,
    RecordedAction,
    Snapshot,
    TableContext,
    changes_between,
)
from streaming_lsm.metadata.slice_records import numbered_groups, slice_records
from streaming_lsm.schema import COMMIT_TIME, PARTITION_PATH, RECORD_KEY
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline

# Hudi makes two by default; each costs a commit a log.
_GROUPS = 1
_ALWAYS = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)


@dataclass
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
    definition = PARTITION

    def records(self, action: RecordedAction) -> list[NewRecords]:
        """Return the ranges of columns in the files that an action adds, and tombstones for those that it deletes."""
        self._follow(action)
        return self._changed(action.changes, action.ranges)

    def caught_up(self, before: Snapshot, after: Snapshot) -> list[NewRecords]:
        """Return the ranges of new files, and tombstones for those that are gone; see `CatchUp`."""
        return self._changed(changes_between(before, after), {})

    def _changed(self, changes: FileChanges, written: Mapping[str, WrittenRanges]) -> list[NewRecords]:
        added = self.context.ranges(changes, self.columns, written)
        keys, rows = keyed_rows([*added, *deleted_ranges(changes, self.columns)])
        return split_records(keys, encode_range_rows(rows, None), self.groups) if rows else []

    def _follow(self, action: RecordedAction) -> None:
        """Record the ranges of the columns that the table has after an action, and define the index so."""
        storage, columns = self.context.storage, action.followed(self.columns, self.context.options)
        if columns != tuple(self.columns):
            definition = ranges_definition(PARTITION, columns)
            put_definition(storage, load_properties(storage), PARTITION, definition, self.context.lock)
            self.columns = columns

    def merged(
        self, found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool], base_name: str
    ) -> Encoded:
        """Merge a slice: the newest range of each file and column."""
        old = None if found.base is None else str(found.base)
        return merged_ranges(slice_records(found, metadata, counts), old, base_name)


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
        return ColumnStats(context, columns, numbered_groups(name, FILE_ID, context.metadata.names(name)))

    def build(self, name: str, context: TableContext, snapshot: Snapshot) -> NewPartition:
        """Build the partition, with the ranges of all files of completed actions.

        Raises:
            CorruptFileError: a data file cannot be read.
            UnsupportedTable: the table has no schema yet, or not the columns that the options name.
        """
        chosen = _chosen(snapshot.data, snapshot.properties, context.options[METADATA_RANGED_COLUMNS])
        columns = tuple(dict.fromkeys((*_ALWAYS, *chosen)))
        keys, rows = keyed_rows(context.ranges(FileChanges(snapshot.files), columns))
        texts: Any = keys
        groups = [MetadataFileGroup(name, FILE_ID.format(number)) for number in range(_GROUPS)]
        records = []
        for group, wanted in shares(keys, groups):
            of_group = list(compress(rows, wanted.to_pylist()))
            values = encode_range_rows(of_group, str(base_name(group.file_id, snapshot.instant)))
            records.append(NewRecords(group, texts.filter(wanted).cast(pa.binary()), values))
        catch_up = ColumnStats(context, columns, groups).caught_up
        return NewPartition(groups, records, catch_up, ranges_definition(name, columns))


def _chosen(data: Timeline, properties: Mapping[str, str], columns: Sequence[str]) -> list[str]:
    avro = data.table_schema() or properties.get("hoodie.table.create.schema")
    if not avro:
        raise UnsupportedTable("the table has no schema yet")
    flat = list(flat_columns(avro))
    absent = [column for column in columns if column not in flat and column not in _ALWAYS]
    if absent:
        raise UnsupportedTable(f"column {absent[0]!r} is nested or not in the table, which has {', '.join(flat)}")
    return [column for column in columns if column not in _ALWAYS] or flat[:MOST_COLUMNS]
