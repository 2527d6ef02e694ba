"""Create a metadata table from the listed folders of its data table.

See docs/format/07-index-and-metadata.md, "Metadata table".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streaming_lsm.format.actions.commit import base_file_stat
from streaming_lsm.format.metadata.files_partition import FILE_GROUP, PARTITION, encode_files
from streaming_lsm.format.metadata.group_files import (
    FIRST_INSTANT,
    LOCK_KEY,
    base_content,
    base_name,
    log_content,
    log_name,
)
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME, print_partition_metadata
from streaming_lsm.format.table.properties import CURRENT_VERSION, table_checksum
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.metadata.commit import DELTA_COMMIT, FileChanges, NewRecords, begin, complete, created_by_former
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileGroup
from streaming_lsm.metadata.listing import FILES, folder_listing
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.properties_file import create_table_files, load_properties, update_properties
from streaming_lsm.timeline.timeline import Timeline

PARTITIONS_KEY = "hoodie.table.metadata.partitions"
INFLIGHT_KEY = "hoodie.table.metadata.partitions.inflight"
DEFINITIONS_KEY = "hoodie.table.index.defs.path"

_LOG = logging.getLogger(__name__)


def create_metadata_table(storage: Storage, data: Timeline, times: InstantSource, lock: TableLock) -> None:
    """Create a metadata table with the partition ``files``, and last register it in the table's properties.

    Every file with content has the token of the lock, so that files of two metadata tables never have equal content.

    Args:
        storage: the table, whose lock is held; files of earlier metadata tables were deleted.
        data: timeline of the table; files of pending actions are left out.
        times: instant times of the table.

    Raises:
        CommitConflict: a former holder of the lock created a file of it at this moment.
        Fenced: another writer took the lock.
        UnsupportedTable: a name cannot be recorded in a metadata table; nothing was created.
    """
    metadata = Subfolder(storage, METADATA_TABLE)
    properties = load_properties(storage)
    records, name = FileChanges(folder_listing(storage, data)).records(), base_name(FILE_GROUP, FIRST_INSTANT)
    token = lock.owner.token
    encoded = NewRecords(FILES, *encode_files(records, str(name)))
    try:
        create_table_files(metadata, _properties(properties), times.now_ms, title=f"{LOCK_KEY}={token}")
    except FileExistsError as error:
        lock.verify()
        raise created_by_former(FIRST_INSTANT, metadata) from error
    create_partition(metadata, FIRST_INSTANT, [FILES], [encoded], times, lock, native=is_native(properties))
    update_properties(storage, {PARTITIONS_KEY: PARTITION, INFLIGHT_KEY: ""}, lock.verify)
    _LOG.info("created the metadata table of %s: %d partitions", storage.uri, len(records) - 1)


def create_partition(
    metadata: Storage,
    instant: str,
    groups: Sequence[MetadataFileGroup],
    records: Iterable[NewRecords],
    times: InstantSource,
    lock: TableLock,
    *,
    native: bool,
    entries: Mapping[str, str] | None = None,
) -> int:
    """Create a partition by a completed delta commit, and return how many records it has; it is not registered.

    Args:
        metadata: storage of the metadata table.
        instant: requested time of the delta commit.
        groups: the file groups, each of which gets a log without records.
        records: what is in the base files, which the records name; of a file group without records there is none. They
            are written one by one.
        times: instant times of the data table.
        lock: its lock.
        native: whether log files are native, as in version 10.
        entries: further entries of its partition metadata file, see `partition_entries`.

    Raises:
        CommitConflict: a former holder of the lock created a file of it at this moment.
        Fenced: another writer took the lock.
    """
    partition, token = groups[0].partition, lock.owner.token
    none: Any = pa.array([], pa.binary())
    stats = []
    try:
        marker = print_partition_metadata(instant, partition, f"{LOCK_KEY}={token}", more=entries)
        metadata.put_if_absent(f"{partition}/{PARTITION_METADATA_NAME}", marker)
        begin(metadata, Instant(instant, DELTA_COMMIT, State.REQUESTED))
        names = [log_name(group.file_id, instant, native=native) for group in groups]
        logs = {f"{partition}/{log}": log_content(none, none, log, times.now_ms(), token) for log in names}
        metadata.put_all_if_absent(logs)
        for new in records:
            name, count = base_name(new.group.file_id, instant), len(new.keys)
            base = base_content(new.keys, new.values, times.now_ms(), token)
            stat = base_file_stat(partition, name, total_bytes=len(base), num_writes=count, num_inserts=count)
            metadata.put_if_absent(stat.path, base)
            stats.append(stat)
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
    return sum(stat.num_writes for stat in stats)


def is_native(properties: Mapping[str, str]) -> bool:
    """Return whether the metadata table has native log files, by the properties of its data table."""
    return int(properties["hoodie.table.version"]) >= CURRENT_VERSION


def _properties(table: Mapping[str, str]) -> dict[str, str]:
    name, version = f"{table['hoodie.table.name']}_metadata", table["hoodie.table.version"]
    return {
        "hoodie.table.name": name,
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": version,
        "hoodie.table.initial.version": version,
        "hoodie.table.checksum": table_checksum(None, name),
        "hoodie.table.base.file.format": "HFILE",
        "hoodie.table.recordkey.fields": "key",
        "hoodie.table.keygenerator.type": "HOODIE_TABLE_METADATA",
        "hoodie.populate.meta.fields": "false",
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
        "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
    }
