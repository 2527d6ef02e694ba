"""Add a partition to a metadata table that exists.

See docs/format/07-index-and-metadata.md, "File groups of the metadata table".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.metadata.group_files import FIRST_INSTANT
from streaming_lsm.format.table.properties import listed
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.metadata.commit import erase
from streaming_lsm.metadata.creation import DEFINITIONS_KEY, PARTITIONS_KEY, create_partition, is_native
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.metadata.index_definitions import partition_entries, put_definition
from streaming_lsm.metadata.listing import metadata_listing
from streaming_lsm.metadata.partitions.base import DAMAGE, PartitionKind, Snapshot, TableContext
from streaming_lsm.metadata.removal import remove_folder
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.properties_file import load_properties, update_properties
from streaming_lsm.timeline.timeline import Timeline

MADE_KEY = "lsm.metadata.made"
"""Property of the table: number of the last first instant by which a partition was made, or was to be made."""
_MOST_NUMBERS = 999
_LOG = logging.getLogger(__name__)


def add_partition(
    kind: PartitionKind, name: str, context: TableContext, data: Timeline, times: InstantSource, lock: TableLock
) -> None:
    """Build a partition from the files of all completed actions, store it, and last register it.

    Args:
        kind: builds it.
        name: the partition.
        context: the table, whose lock is held, with a metadata table that is kept up to date.
        data: timeline of the table.
        times: instant times of the table.
        lock: its lock.

    Raises:
        CommitConflict: a former holder of the lock created a file of it at this moment.
        CorruptFileError: a data file, or the metadata table, cannot be read.
        Fenced: another writer took the lock.
        UnsupportedTable: the partition cannot be made for this table.
    """
    storage, metadata = context.storage, context.metadata
    properties = load_properties(storage)
    instant = _unused(Timeline.load(metadata), properties)
    snapshot = Snapshot(data, properties, metadata_listing(storage, data), instant)
    built = kind.build(name, context, snapshot)
    # A writer that loses the lock may create one more file of its instant, which nobody else must have then.
    update_properties(storage, {MADE_KEY: str(int(instant))}, lock.verify)
    folder = f"{METADATA_TABLE}/{name}"
    remove_folder(storage, folder, lock.verify)
    changes: dict[str, str | None] = {}
    if built.definition is not None:
        changes[DEFINITIONS_KEY] = put_definition(storage, properties, name, built.definition, lock)
    native, entries = is_native(properties), partition_entries(built.definition)
    try:
        count = create_partition(
            metadata, instant, built.groups, built.records, times, lock, native=native, entries=entries
        )
    except DAMAGE:
        # The records are read as they are written.
        remove_folder(storage, folder, lock.verify)
        erase(metadata, instant, (), lock)
        raise
    registered = dict.fromkeys([*listed(properties[PARTITIONS_KEY]), name])
    update_properties(storage, {PARTITIONS_KEY: ",".join(registered), **changes}, lock.verify)
    _LOG.info("created %s of the metadata table of %s: %d records", name, storage.uri, count)


def _unused(timeline: Timeline, properties: Mapping[str, str]) -> str:
    """Return the first instant after the last one that made a partition, of those that no action has.

    Raises:
        CorruptFileError: the properties have no number for it.
        UnsupportedTable: all are taken.
    """
    last = properties.get(MADE_KEY, "0")
    if not (last.isascii() and last.isdigit()):
        raise CorruptFileError(f"{MADE_KEY}={last!r:.40} is no number: remove it from hoodie.properties")
    known = {action.requested for action in timeline.instants}
    for number in range(_MOST_NUMBERS):
        instant = f"{(int(last) + number) % _MOST_NUMBERS + 1:0{len(FIRST_INSTANT)}d}"
        if instant not in known and not timeline.history.has_time(instant):
            return instant
    raise UnsupportedTable(
        f"{timeline.storage.uri} has had {_MOST_NUMBERS} partitions: drop the metadata table, it is made anew"
    )
