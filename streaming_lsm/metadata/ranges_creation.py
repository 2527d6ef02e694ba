"""Create the partition ``column_stats`` of a metadata table.

See docs/format/07-index-and-metadata.md, "Column stats", "File groups of the metadata table".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import pyarrow as pa

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.metadata.column_stats import FILE_ID, PARTITION, encode_ranges
from streaming_lsm.format.metadata.group_files import (
    FIRST_INSTANT,
    base_name,
)
from streaming_lsm.format.table.properties import listed
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.metadata.changed_ranges import StoredRanges, by_group, changed_ranges
from streaming_lsm.metadata.commit import FileChanges, NewRecords
from streaming_lsm.metadata.creation import DEFINITIONS_KEY, PARTITIONS_KEY, create_partition, is_native
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileGroup
from streaming_lsm.metadata.index_definitions import put_definition
from streaming_lsm.metadata.listing import metadata_listing
from streaming_lsm.metadata.removal import remove_folder
from streaming_lsm.schema import COMMIT_TIME, PARTITION_PATH, RECORD_KEY, from_avro
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.properties_file import load_properties, update_properties
from streaming_lsm.timeline.timeline import Timeline

_GROUPS, _MOST_COLUMNS = 2, 32
_ALWAYS = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)
_LOG = logging.getLogger(__name__)


def create_column_stats(
    storage: Storage,
    data: Timeline,
    columns: Sequence[str],
    ranges: StoredRanges,
    times: InstantSource,
    lock: TableLock,
) -> None:
    """Create the partition, with the ranges of all files of completed actions, and last register it.

    Args:
        storage: the table, whose lock is held, with a metadata table that is kept up to date.
        data: timeline of the table.
        columns: the columns whose ranges are kept; none for the first 32 that are not nested.
        ranges: finds the ranges of columns in a data file.
        times: instant times of the table.
        lock: its lock.

    Raises:
        CommitConflict: a former holder of the lock created a file of it at this moment.
        CorruptFileError: a data file, or the metadata table, cannot be read.
        Fenced: another writer took the lock.
        UnsupportedTable: the table has no schema yet, or not these columns.
    """
    metadata, properties = Subfolder(storage, METADATA_TABLE), load_properties(storage)
    chosen = (*_ALWAYS, *_chosen(data, properties, columns, storage.uri))
    instant = _unused(Timeline.load(metadata))
    found = changed_ranges(FileChanges(metadata_listing(storage, data)), storage, chosen, ranges)
    remove_folder(storage, f"{METADATA_TABLE}/{PARTITION}", lock.verify)
    groups = [MetadataFileGroup(PARTITION, FILE_ID.format(number)) for number in range(_GROUPS)]
    records = [
        NewRecords(group, keys, encode_ranges(some, str(base_name(group.file_id, instant))))
        for group, (keys, some) in by_group(found, groups)
    ]
    path = put_definition(storage, properties, chosen, lock)
    create_partition(metadata, instant, groups, records, times, lock, native=is_native(properties))
    kept = dict.fromkeys([*listed(properties[PARTITIONS_KEY]), PARTITION])
    update_properties(storage, {PARTITIONS_KEY: ",".join(kept), DEFINITIONS_KEY: path}, lock.verify)
    _LOG.info("created %s of the metadata table of %s: %d columns", PARTITION, storage.uri, len(chosen))


def _chosen(data: Timeline, properties: Mapping[str, str], columns: Sequence[str], uri: str) -> list[str]:
    avro = data.table_schema() or properties.get("hoodie.table.create.schema")
    if not avro:
        raise UnsupportedTable("the table has no schema yet")
    flat = [field.name for field in from_avro(avro, f"schema of {uri}") if not pa.types.is_nested(field.type)]
    absent = [column for column in columns if column not in flat and column not in _ALWAYS]
    if absent:
        raise UnsupportedTable(f"column {absent[0]!r} is nested or not in the table, which has {', '.join(flat)}")
    return [column for column in columns if column not in _ALWAYS] or flat[:_MOST_COLUMNS]


def _unused(timeline: Timeline) -> str:
    """Return the first instant, of those that create partitions, that no action of the metadata table has."""
    known = {action.requested for action in timeline.instants}
    number = 1
    while (instant := f"{number:0{len(FIRST_INSTANT)}d}") in known or timeline.history.has_time(instant):
        number += 1
    return instant
