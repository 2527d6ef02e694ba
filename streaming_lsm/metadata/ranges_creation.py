"""Create the partition ``column_stats`` of a metadata table.

See docs/format/07-index-and-metadata.md, "Column stats", "File groups of the metadata table".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.actions.commit import base_file_stat
from streaming_lsm.format.metadata.column_stats import FILE_ID, PARTITION, encode_ranges
from streaming_lsm.format.metadata.group_files import (
    FIRST_INSTANT,
    LOCK_KEY,
    base_content,
    base_name,
    log_content,
    log_name,
)
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME, print_partition_metadata
from streaming_lsm.format.table.properties import listed
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.metadata.changed_ranges import StoredRanges, by_group, changed_ranges
from streaming_lsm.metadata.commit import DELTA_COMMIT, FileChanges, begin, complete, created_by_former
from streaming_lsm.metadata.creation import DEFINITIONS_KEY, PARTITIONS_KEY, is_native
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileGroup
from streaming_lsm.metadata.index_definitions import put_definition
from streaming_lsm.metadata.listing import metadata_listing
from streaming_lsm.metadata.removal import remove_folder
from streaming_lsm.schema import COMMIT_TIME, PARTITION_PATH, RECORD_KEY, from_avro
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import Instant, State
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
) -> Sequence[str]:
    """Create the partition, with the ranges of all files of completed actions, and last register it.

    Args:
        storage: the table, whose lock is held, with a metadata table that is kept up to date.
        data: timeline of the table.
        columns: the columns whose ranges are kept; none for the first 32 that are not nested.
        ranges: finds the ranges of columns in a data file.
        times: instant times of the table.
        lock: its lock.

    Returns:
        The columns whose ranges are kept.

    Raises:
        CommitConflict: a former holder of the lock created a file of it at this moment.
        CorruptFileError: a data file, or the metadata table, cannot be read.
        Fenced: another writer took the lock.
        UnsupportedTable: the table has no schema yet, or not these columns.
    """
    metadata, properties, token = Subfolder(storage, METADATA_TABLE), load_properties(storage), lock.owner.token
    chosen = (*_ALWAYS, *_chosen(data, properties, columns, storage.uri))
    instant = _unused(Timeline.load(metadata))
    found = changed_ranges(FileChanges(metadata_listing(storage, data)), storage, chosen, ranges)
    remove_folder(storage, f"{METADATA_TABLE}/{PARTITION}", lock.verify)
    groups = [MetadataFileGroup(PARTITION, FILE_ID.format(number)) for number in range(_GROUPS)]
    none: Any = pa.array([], pa.binary())
    stats = []
    try:
        marker = print_partition_metadata(instant, PARTITION, f"{LOCK_KEY}={token}")
        metadata.put_if_absent(f"{PARTITION}/{PARTITION_METADATA_NAME}", marker)
        begin(metadata, Instant(instant, DELTA_COMMIT, State.REQUESTED))
        for group in groups:
            log = log_name(group.file_id, instant, native=is_native(properties))
            metadata.put_if_absent(f"{PARTITION}/{log}", log_content(none, none, log, times.now_ms(), token))
        for group, (keys, some) in by_group(found, groups):
            name = base_name(group.file_id, instant)
            base = base_content(keys, encode_ranges(some, str(name)), times.now_ms(), token)
            stat = base_file_stat(PARTITION, name, total_bytes=len(base), num_writes=len(keys), num_inserts=len(keys))
            metadata.put_if_absent(stat.path, base)
            stats.append(stat)
        path = put_definition(storage, properties, chosen, lock.verify)
    except FileExistsError as error:
        lock.verify()
        raise created_by_former(instant, metadata) from error
    running = Instant(instant, DELTA_COMMIT, State.INFLIGHT)
    complete(
        metadata=metadata,
        running=running,
        stats=tuple(stats),
        operation="BULK_INSERT_PREPPED",
        times=times,
        lock=lock,
    )
    kept = dict.fromkeys([*listed(properties[PARTITIONS_KEY]), PARTITION])
    update_properties(storage, {PARTITIONS_KEY: ",".join(kept), DEFINITIONS_KEY: path}, lock.verify)
    _LOG.info("created %s of the metadata table of %s: %d columns", PARTITION, storage.uri, len(chosen))
    return chosen


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
