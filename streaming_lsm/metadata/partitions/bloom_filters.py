"""Keep the partition ``bloom_filters`` of the metadata table up to date: the bloom filters of base files.

See docs/format/07-index-and-metadata.md, "Bloom filters of the metadata table". A base file without a filter has no
record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streaming_lsm.config import METADATA_BLOOM_FILTERS, Options
from streaming_lsm.format.metadata.bloom_filters import (
    FILE_ID,
    FILTERS,
    PARTITION,
    encode_filters,
    filter_key,
    filter_row,
)
from streaming_lsm.format.metadata.group_files import base_name
from streaming_lsm.format.table.file_names import BaseFileName, parse_file_name
from streaming_lsm.metadata.changed_ranges import shares, split_records
from streaming_lsm.metadata.commit import FileChanges, NewRecords
from streaming_lsm.metadata.file_blooms import newest_filters
from streaming_lsm.metadata.file_slices import MetadataFileGroup, MetadataFileSlice
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
from streaming_lsm.storage.parallel import read_in_threads

_GROUPS = 4
_File = tuple[str, BaseFileName]


@dataclass(frozen=True)
class BloomFilters:
    """The partition of a table; see `KeptPartition`.

    Attributes:
        context: the table.
        groups: the file groups.
    """

    context: TableContext
    groups: Sequence[MetadataFileGroup]
    name = PARTITION
    columns: Sequence[str] = ()
    definition = None

    def records(self, action: RecordedAction) -> list[NewRecords]:
        """Return the filters of the base files that an action adds, and tombstones for those that it deletes."""
        return self._changed(action.changes)

    def caught_up(self, before: Snapshot, after: Snapshot) -> list[NewRecords]:
        """Return the filters of new base files, and tombstones for those that are gone; see `CatchUp`."""
        return self._changed(changes_between(before, after))

    def _changed(self, changes: FileChanges) -> list[NewRecords]:
        rows = _filters(self.context, _base_files(changes.added))
        for partition, name in _base_files(changes.deleted):
            tombstone = filter_row("", name.instant, b"", is_deleted=True)
            rows.append((filter_key(partition, str(name)), tombstone))
        keys, filters = _sorted(rows)
        return split_records(keys, encode_filters(filters, None), self.groups) if len(keys) else []

    def merged(
        self, found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool], base_name: str
    ) -> Encoded:
        """Merge a slice: the newest filter of each file."""
        keys, filters = newest_filters(slice_records(found, metadata, counts))
        return keys, encode_filters(filters, base_name)


class BloomFiltersKind:
    """See `PartitionKind`."""

    def owns(self, name: str) -> bool:
        """Return whether a partition is ``bloom_filters``."""
        return name == PARTITION

    def asked(self, options: Options) -> Mapping[str, bool]:
        """Return what the options say of the partition."""
        return {PARTITION: options[METADATA_BLOOM_FILTERS]} if options.is_set(METADATA_BLOOM_FILTERS) else {}

    def open(self, name: str, context: TableContext, _properties: Mapping[str, str]) -> BloomFilters:
        """Open the partition of a table; raises `CorruptFileError` if a file group is missing."""
        return BloomFilters(context, numbered_groups(name, FILE_ID, context.metadata.names(name)))

    def build(self, name: str, context: TableContext, snapshot: Snapshot) -> NewPartition:
        """Build the partition from the base files of completed actions; raises as `stored_bloom`."""
        keys, filters = _sorted(_filters(context, _base_files(snapshot.files)))
        texts: Any = keys
        records: Any = filters
        groups = [MetadataFileGroup(name, FILE_ID.format(number)) for number in range(_GROUPS)]
        new = []
        for group, wanted in shares(keys, groups):
            values = encode_filters(records.filter(wanted), str(base_name(group.file_id, snapshot.instant)))
            new.append(NewRecords(group, texts.filter(wanted).cast(pa.binary()), values))
        return NewPartition(groups, new, BloomFilters(context, groups).caught_up)


def _base_files(files: Mapping[str, Iterable[str]]) -> list[_File]:
    named = [(partition, parse_file_name(name)) for partition, names in files.items() for name in names]
    return [(partition, name) for partition, name in named if isinstance(name, BaseFileName)]


def _filters(context: TableContext, files: Sequence[_File]) -> list[tuple[str, dict[str, object]]]:
    """Read the filters of files, by key."""
    paths = [f"{partition}/{name}" if partition else str(name) for partition, name in files]
    found = read_in_threads(
        lambda path: context.readers.bloom(context.storage, path), paths, context.storage, context.threads
    )
    return [
        (filter_key(partition, str(name)), filter_row(bloom[0], name.instant, bloom[1]))
        for (partition, name), bloom in zip(files, found, strict=True)
        if bloom is not None
    ]


def _sorted(rows: list[tuple[str, dict[str, object]]]) -> tuple[pa.StringArray, pa.StructArray]:
    rows.sort(key=lambda row: row[0])
    keys: Any = pa.array([key for key, _ in rows], pa.string())
    filters: Any = pa.array([row for _, row in rows], FILTERS)
    return keys, filters
