"""The metadata table during a transaction: what of it is kept up to date, and what is dropped (format 07).

Its partition ``files`` is kept up to date. Whatever else it has would fall behind, and a reader that relies on it would
miss rows; so it is dropped, and so is the whole when ``files`` cannot be kept. Readers then list folders.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from streaming_lsm.config import METADATA_COMPACT_COMMITS, METADATA_ENABLE, Options
from streaming_lsm.errors import CorruptFileError, TableNotFound, UnsupportedTable
from streaming_lsm.format.files_partition import PARTITION
from streaming_lsm.format.table_properties import listed
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import FLAT_FOLDER, Instant
from streaming_lsm.timeline.lock import TableLock
from streaming_lsm.timeline.metadata_commit import DELTA_COMMIT, FileChanges, commit_records, erase
from streaming_lsm.timeline.metadata_creation import (
    DEFINITIONS_KEY,
    INFLIGHT_KEY,
    PARTITIONS_KEY,
    create_metadata_table,
    is_native,
)
from streaming_lsm.timeline.metadata_listing import METADATA_TABLE, counted_instants, is_first
from streaming_lsm.timeline.metadata_services import compact, compaction_is_due
from streaming_lsm.timeline.properties_file import load_properties, update_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.timeline.waiting import CLEAN, COMPACTION

INDEX_DEFINITIONS = ".hoodie/.index_defs"

_SETTINGS = {
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.base.file.format": "HFILE",
    "hoodie.timeline.layout.version": "2",
    "hoodie.populate.meta.fields": "false",
}
_UNDONE = frozenset({DELTA_COMMIT, COMPACTION, CLEAN})
_KNOWN = frozenset({"commit", CLEAN, "rollback"})
_LOG = logging.getLogger(__name__)


def drop_metadata_table(storage: Storage, why: str) -> None:
    """Remove the metadata table, if there is one; the table's lock must be held.

    The properties go first: readers then list folders, as they do in tables without a metadata table. Hudi builds it
    anew with its next write, unless ``hoodie.metadata.enable`` is false there.
    """
    if not _partitions(load_properties(storage)):
        return
    update_properties(storage, dict.fromkeys([PARTITIONS_KEY, INFLIGHT_KEY, DEFINITIONS_KEY]))
    storage.delete_folder(METADATA_TABLE)
    storage.delete_folder(INDEX_DEFINITIONS)
    _LOG.warning("dropped the metadata table of %s: %s", storage.uri, why)


class MetadataTable:
    """The metadata table of a table, as one transaction has it. There need not be one: then nothing is done."""

    def __init__(self, storage: Storage, options: Options) -> None:
        """Prepare; nothing is looked at yet."""
        self._storage = storage
        self._metadata = Subfolder(storage, METADATA_TABLE)
        self._wanted = options[METADATA_ENABLE] if options.is_set(METADATA_ENABLE) else None
        self._delta_commits = options[METADATA_COMPACT_COMMITS]
        self._native = False
        # Of the metadata table, as `open` left it; None where there is nothing to keep up to date.
        self._timeline: Timeline | None = None

    @property
    def last_time(self) -> str:
        """The largest time of its timeline; ``""`` when there is none."""
        return self._timeline.last_time if self._timeline else ""

    def open(self, data: Timeline) -> None:
        """Look what there is, and drop what cannot be kept; what belongs to no completed action is undone.

        Args:
            data: the table's timeline, before anything on it is undone.
        """
        properties = load_properties(self._storage)
        partitions = _partitions(properties)
        if not partitions:
            return
        if self._wanted is False:
            drop_metadata_table(self._storage, f"{METADATA_ENABLE.key}=false")
            return
        try:
            self._timeline = self._settled(properties, partitions, data)
        except (CorruptFileError, UnsupportedTable, TableNotFound) as error:
            drop_metadata_table(self._storage, str(error))
            return
        self._native = is_native(properties)

    def serve(self, data: Timeline, times: InstantSource, lock: TableLock) -> None:
        """Compact it when that is due; make one where one is wanted and there is none.

        Args:
            data: the table's timeline, with nothing left to be undone.
            times: of the table, later than `last_time`.
        """
        if self._timeline is not None and compaction_is_due(self._timeline, self._delta_commits):
            self._compact(self._timeline, data, times, lock)
        if self._wanted and self._timeline is None:
            create_metadata_table(self._storage, data, times, lock)
            self._native = is_native(load_properties(self._storage))
            self._timeline = Timeline.load(self._metadata)

    def record(self, action: Instant, data: bytes, times: InstantSource, lock: TableLock) -> None:
        """Write down what an action does to the files, just before its completed file is put.

        Args:
            action: the running action.
            data: what the completed file is to hold.

        Raises:
            Fenced: another writer took the lock; nothing was published, or it was taken back.
        """
        if self._timeline is not None:
            records = FileChanges.of(action, data).records()
            commit_records(self._metadata, action.requested, records, times, lock, native=self._native)

    def forget(self, action: Instant) -> None:
        """Take back what `record` wrote of an action that is about to be undone."""
        if self._timeline is not None:
            erase(self._metadata, action.requested)

    def _settled(self, properties: Mapping[str, str], partitions: list[str], data: Timeline) -> Timeline:
        """Its timeline, without what is not to stay; see `open`."""
        if PARTITION not in listed(properties.get(PARTITIONS_KEY, "")):
            raise UnsupportedTable(f"it has no partition {PARTITION}")
        found = load_properties(self._metadata)
        for key, value in {**_SETTINGS, "hoodie.table.version": properties["hoodie.table.version"]}.items():
            if found.get(key, "").strip().lower() != value.lower():
                raise UnsupportedTable(f"{METADATA_TABLE}: {key}={found.get(key)!r:.80} instead of {value}")
        timeline = Timeline.load(self._metadata)
        doomed = _unsettled(timeline, data)
        self._drop_others([name for name in partitions if name != PARTITION])
        for instant in doomed:
            _LOG.warning("undoing %s of the metadata table of %s", instant.file_name, self._storage.uri)
            erase(self._metadata, instant.requested)
        return Timeline.load(self._metadata) if doomed else timeline

    def _drop_others(self, partitions: list[str]) -> None:
        """Drop all partitions but ``files``, and what is left of those that were dropped before."""
        if partitions:
            update_properties(self._storage, {PARTITIONS_KEY: PARTITION, INFLIGHT_KEY: "", DEFINITIONS_KEY: None})
            names = ", ".join(sorted(set(partitions)))
            _LOG.warning("dropped %s from the metadata table of %s: not kept up to date", names, self._storage.uri)
        for name in self._metadata.names(""):
            if name not in (PARTITION, FLAT_FOLDER):
                self._metadata.delete_folder(name)
        if partitions:
            self._storage.delete_folder(INDEX_DEFINITIONS)

    def _compact(self, timeline: Timeline, data: Timeline, times: InstantSource, lock: TableLock) -> None:
        try:
            compact(self._metadata, timeline, counted_instants(data), times, lock)
        except (CorruptFileError, UnsupportedTable) as error:
            drop_metadata_table(self._storage, str(error))
            self._timeline = None


def _partitions(properties: Mapping[str, str]) -> list[str]:
    """Names of the partitions that there are, or are being made."""
    return [name for key in (PARTITIONS_KEY, INFLIGHT_KEY) for name in listed(properties.get(key, ""))]


def _unsettled(timeline: Timeline, data: Timeline) -> list[Instant]:
    """Actions of a metadata table that are to be undone.

    Raises:
        UnsupportedTable: there is an action that this release does not know how to treat.
    """
    counts = counted_instants(data)
    doomed = []
    for instant in timeline.instants:
        if instant.is_completed and (instant.action in _KNOWN or counts(instant.requested)):
            continue
        known = not is_first(instant.requested) and instant.action in _UNDONE
        if not known or (instant.is_completed and not _is_over(data, instant.requested)):
            raise UnsupportedTable(f"{METADATA_TABLE}/{instant.path}: an action that is not known here")
        doomed.append(instant)
    return doomed


def _is_over(data: Timeline, requested: str) -> bool:
    """Whether an action of the table has not come to its end, or was undone."""
    return any(i.requested == requested for i in data.pending) or requested in data.finished_rollbacks()
