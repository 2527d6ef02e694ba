"""Create a metadata table from the listed folders of its data table.

See docs/format/07-index-and-metadata.md, "Metadata table".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from streaming_lsm.format.actions.commit import base_file_stat
from streaming_lsm.format.metadata.files_partition import FILE_GROUP, PARTITION, encode_base, encode_log
from streaming_lsm.format.metadata.group_files import FIRST_INSTANT, LOCK_KEY, base_name, log_name
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME, print_partition_metadata
from streaming_lsm.format.table.properties import CURRENT_VERSION, table_checksum
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.metadata.commit import DELTA_COMMIT, FileChanges, begin, complete, created_by_former
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.metadata.listing import folder_listing
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
    native = is_native(properties)
    records, name = FileChanges(folder_listing(storage, data)).records(), base_name(FILE_GROUP, FIRST_INSTANT)
    token = lock.owner.token
    base = encode_base(records, name, times.now_ms(), token)
    count = len(records)
    stat = base_file_stat(PARTITION, name, total_bytes=len(base), num_writes=count, num_inserts=count)
    instant = Instant(FIRST_INSTANT, DELTA_COMMIT, State.REQUESTED)
    try:
        create_table_files(metadata, _properties(properties), times.now_ms, title=f"{LOCK_KEY}={token}")
        marker = f"{PARTITION}/{PARTITION_METADATA_NAME}"
        metadata.put_if_absent(marker, print_partition_metadata(FIRST_INSTANT, PARTITION, f"{LOCK_KEY}={token}"))
        begin(metadata, instant)
        log = log_name(FILE_GROUP, FIRST_INSTANT, native=native)
        metadata.put_if_absent(f"{PARTITION}/{log}", encode_log({}, log, times.now_ms(), token))
        metadata.put_if_absent(stat.path, base)
    except FileExistsError as error:
        lock.verify()
        raise created_by_former(FIRST_INSTANT, metadata) from error
    complete(metadata=metadata, running=instant, stats=(stat,), operation="BULK_INSERT_PREPPED", times=times, lock=lock)
    update_properties(storage, {PARTITIONS_KEY: PARTITION, INFLIGHT_KEY: ""}, lock.verify)
    _LOG.info("created the metadata table of %s: %d partitions", storage.uri, count - 1)


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
