"""Keep the metadata table up to date within a transaction, or drop it.

See docs/format/07-index-and-metadata.md, "Metadata table".

The partition ``files`` is kept up to date, and ``column_stats`` if there is one. Other partitions are dropped, because
stale ones would let readers miss rows. The whole metadata table is dropped if ``files`` cannot be kept; readers then
list folders.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from streaming_lsm.config import (
    ARCHIVE_AUTOMATIC,
    METADATA_COLUMN_STATS,
    METADATA_COMPACT_COMMITS,
    METADATA_ENABLE,
    METADATA_RANGED_COLUMNS,
    Options,
)
from streaming_lsm.errors import CorruptFileError, TableNotFound, UnsupportedTable
from streaming_lsm.format.metadata.column_stats import encode_ranges
from streaming_lsm.format.metadata.files_partition import PARTITION, encode_files
from streaming_lsm.format.table.properties import listed
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.metadata.changed_ranges import StoredRanges, by_group, changed_ranges
from streaming_lsm.metadata.commit import FileChanges, NewRecords, commit_records, erase
from streaming_lsm.metadata.creation import (
    DEFINITIONS_KEY,
    INFLIGHT_KEY,
    PARTITIONS_KEY,
    create_metadata_table,
    is_native,
)
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileGroup, MetadataFileSlice, counted_instants
from streaming_lsm.metadata.index_definitions import INDEX_DEFINITIONS, keep_definitions, ranged_columns
from streaming_lsm.metadata.listing import FILES, metadata_listing
from streaming_lsm.metadata.partitions import COLUMN_STATS, FILES_PARTITION, KEPT, KeptPartition
from streaming_lsm.metadata.ranges_creation import create_column_stats
from streaming_lsm.metadata.removal import remove_folder
from streaming_lsm.metadata.services import compact, compaction_is_due
from streaming_lsm.metadata.state import check_state
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.archive import HISTORY_FOLDER
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import FLAT_FOLDER, TIMELINE_FOLDER, Instant
from streaming_lsm.timeline.properties_file import load_properties, update_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.lost_completion import check_metadata_commits

# NotADirectoryError, IsADirectoryError: a file is in place of a folder, or a folder in place of a file.
_DAMAGE = (CorruptFileError, UnsupportedTable, TableNotFound, NotADirectoryError, IsADirectoryError)
_LOG = logging.getLogger(__name__)


def drop_metadata_table(storage: Storage, why: str, verify: Callable[[], None] = lambda: None) -> None:
    """Delete the metadata table, if there is one.

    It is removed from the properties first, so that readers list folders. Hudi creates a new one with its next write,
    unless ``hoodie.metadata.enable`` is false there.

    Args:
        why: reason, for the log.
        verify: raises `Fenced` if the caller does not hold the table's lock any more; by default nothing is verified,
            for tables without other writers.

    Raises:
        Fenced: another writer took the lock; a metadata table that it may have created was not deleted.
    """
    if not _partitions(load_properties(storage)):
        return
    update_properties(storage, dict.fromkeys([PARTITIONS_KEY, INFLIGHT_KEY, DEFINITIONS_KEY]), verify)
    _remove_table(storage, verify)
    remove_folder(storage, INDEX_DEFINITIONS, verify)
    _LOG.warning("dropped the metadata table of %s: %s", storage.uri, why)


class MetadataTable:
    """Maintain the metadata table within one transaction; for a table without one the methods do nothing.

    Methods that change it raise `Fenced` if another writer took the lock.
    """

    def __init__(
        self,
        storage: Storage,
        options: Options,
        lock: TableLock,
        timelines: TimelineCache,
        ranges: StoredRanges | None = None,
    ) -> None:
        """Prepare the hook; nothing is read yet.

        Args:
            storage: the table.
            options: its options.
            lock: its lock.
            timelines: caches the metadata table's timeline.
            ranges: finds the ranges of columns in data files; None for a hook that does not keep ``column_stats``.
        """
        self._storage = storage
        self._metadata = Subfolder(storage, METADATA_TABLE)
        self._lock = lock
        self._timelines = timelines
        self._wanted = options[METADATA_ENABLE] if options.is_set(METADATA_ENABLE) else None
        self._delta_commits = options[METADATA_COMPACT_COMMITS]
        self._archives = options[ARCHIVE_AUTOMATIC]
        self._native = False
        self._kept: tuple[KeptPartition, ...] = (FILES_PARTITION,)
        self._ranges = ranges
        self._wants_ranges = options[METADATA_COLUMN_STATS] if options.is_set(METADATA_COLUMN_STATS) else None
        self._wanted_columns = options[METADATA_RANGED_COLUMNS]
        # The columns whose ranges are kept, and the file groups that hold them.
        self._columns: Sequence[str] = ()
        self._groups: Sequence[MetadataFileGroup] = ()
        # Whether a delta commit belongs to a pending action of a living writer.
        self._is_unsettled = False
        # Timeline of the metadata table after `open`; None if no metadata table is kept up to date.
        self._timeline: Timeline | None = None
        # Timeline of the data table after its recovery, see `run_services`.
        self._data: Timeline | None = None

    @property
    def _names(self) -> list[str]:
        """Names of the partitions that are kept up to date."""
        return [kept.name for kept in self._kept]

    @property
    def last_time(self) -> str:
        """The largest time of the metadata table's timeline; ``""`` without a metadata table."""
        return self._timeline.last_time if self._timeline else ""

    @property
    def is_kept(self) -> bool:
        """Whether there is a metadata table that is kept up to date, or there is to be one."""
        return self._timeline is not None or bool(self._wanted)

    def open(self, data: Timeline, living: Collection[Instant] = ()) -> None:
        """Check the metadata table, undo delta commits without an action of the table, or drop what cannot be kept.

        Args:
            data: timeline of the data table, before its pending actions are undone.
            living: its pending actions of other living writers; their delta commits are kept.

        Raises:
            CorruptFileError: the table's timeline has lost a write, see `check_metadata_commits`.
        """
        self._timeline, self._data = None, data
        properties = load_properties(self._storage)
        if not _partitions(properties):
            if self._wanted is not None:
                self._clear(properties)
            return
        if self._wanted is False:
            self.drop(f"{METADATA_ENABLE.key}=false")
            return
        try:
            self._timeline = self._kept_timeline(properties, data, living)
        except _DAMAGE as error:
            self._check_known(data)
            self.drop(str(error))
            return
        self._native = is_native(properties)

    def undo(self, data: Timeline, files: Iterable[str], living: Collection[Instant] = ()) -> None:
        """Undo the delta commit of a rolled back write, or drop the metadata table if it lists a file of it still.

        It does if it was created after the write, or its delta commit is compacted and archived.

        Args:
            data: timeline of the data table, without the completed file of the write.
            files: paths of the files of the write.
            living: see `open`.
        """
        self.open(data, living)
        if self._timeline is None:
            return
        try:
            listing = metadata_listing(self._storage, data)
        except _DAMAGE as error:
            self.drop(str(error))
            return
        for partition, _, name in (path.rpartition("/") for path in files):
            if name in listing.get(partition, ()):
                self.drop(f"it lists {name} of a write that is rolled back")
                return

    def run_services(self, data: Timeline, times: InstantSource) -> None:
        """Compact the metadata table if that is due; create it if it is wanted and missing.

        Args:
            data: timeline of the data table after its recovery.
            times: instant times of the data table, later than `last_time`.
        """
        # A base file must not leave out the delta commit of an action that may yet be completed.
        due = self._timeline is not None and compaction_is_due(self._timeline, self._delta_commits)
        if self._timeline is not None and due and not self._is_unsettled:
            try:
                counts = counted_instants(data)
                compact(
                    metadata=self._metadata,
                    timeline=self._timeline,
                    partitions=self._kept,
                    counts=counts,
                    times=times,
                    lock=self._lock,
                    archives=self._archives,
                )
            except _DAMAGE as error:
                self.drop(str(error))
        if self._wanted and self._timeline is None:
            self._create(data, times)
        if self._wants_ranges and self._timeline is not None and COLUMN_STATS not in self._kept:
            self._create_ranges(data, times)
        self._data = data

    def record(self, action: Instant, data: bytes, times: InstantSource) -> None:
        """Commit the file changes of an action to the metadata table, just before the action is completed.

        Args:
            action: the running action.
            data: content of its completed file.
            times: instant times of the data table.

        Raises:
            Fenced: another writer took the lock; a completed delta commit is deleted.
        """
        if self._timeline is None:
            return
        try:
            changes = FileChanges.of(action, data)
            if changes.deleted and self._data is not None:
                changes = changes.known_to(metadata_listing(self._storage, self._data))
            records = [NewRecords(FILES, *encode_files(changes.records(), None)), *self._range_records(changes)]
            commit_records(
                metadata=self._metadata,
                requested=action.requested,
                records=records,
                partitions=self._names,
                times=times,
                lock=self._lock,
                native=self._native,
            )
        except (CorruptFileError, UnsupportedTable) as error:
            self.drop(str(error))

    def roll_back(self, action: Instant) -> None:
        """Undo the delta commit that `record` made for an action that is about to be undone."""
        if self._timeline is not None:
            erase(self._metadata, action.requested, self._names, self._lock)

    def _kept_timeline(self, properties: Mapping[str, str], data: Timeline, living: Collection[Instant]) -> Timeline:
        """Return the timeline of the metadata table, after actions and partitions that cannot be kept are removed."""
        if PARTITION not in listed(properties.get(PARTITIONS_KEY, "")):
            raise UnsupportedTable(f"it has no partition {PARTITION}")
        timeline, doomed = check_state(self._metadata, properties["hoodie.table.version"], data, self._timelines)
        self._kept = (FILES_PARTITION, *self._kept_ranges(properties, timeline))
        others = {pending.requested for pending in living}
        self._is_unsettled = any(found.requested in others for found in doomed)
        doomed = [found for found in doomed if found.requested not in others]
        self._drop_others(properties)
        for instant in doomed:
            _LOG.warning("undoing %s of the metadata table of %s", instant.file_name, self._storage.uri)
            erase(self._metadata, instant.requested, self._names, self._lock)
        for folder in (FLAT_FOLDER, TIMELINE_FOLDER, HISTORY_FOLDER, *self._names):
            self._metadata.sweep(folder)
        return self._timelines.load(self._metadata) if doomed else timeline

    def _kept_ranges(self, properties: Mapping[str, str], timeline: Timeline) -> Sequence[KeptPartition]:
        """Return the partition ``column_stats`` if there is one that can be kept."""
        is_there = COLUMN_STATS.name in listed(properties.get(PARTITIONS_KEY, ""))
        if self._ranges is None or not is_there or self._wants_ranges is False:
            return ()
        try:
            self._columns = ranged_columns(self._storage, properties)
            names = self._metadata.names(COLUMN_STATS.name)
            self._groups = COLUMN_STATS.groups(names)
            for group in self._groups:
                MetadataFileSlice.newest(timeline, names, group)
        except _DAMAGE as error:
            _LOG.warning("%s of the metadata table of %s: %s", COLUMN_STATS.name, self._storage.uri, error)
            return ()
        return (COLUMN_STATS,)

    def _range_records(self, changes: FileChanges) -> list[NewRecords]:
        """Return the ranges of columns in the files that an action adds, and tombstones for those that it deletes."""
        if COLUMN_STATS not in self._kept or self._ranges is None:
            return []
        found = by_group(changed_ranges(changes, self._storage, self._columns, self._ranges), self._groups)
        return [NewRecords(group, keys, encode_ranges(some, None)) for group, (keys, some) in found]

    def _check_known(self, data: Timeline) -> None:
        """Check, before the metadata table is dropped, that the timeline lacks no write with a delta commit."""
        try:
            timeline = Timeline.load(self._metadata)
        except _DAMAGE:
            return
        check_metadata_commits(self._storage, data, timeline)

    def _drop_others(self, properties: Mapping[str, str]) -> None:
        """Drop all partitions that are not kept, and delete leftovers of partitions dropped before."""
        others = {name for name in _partitions(properties) if name not in self._names}
        has_definitions = COLUMN_STATS in self._kept
        if others:
            changes = {PARTITIONS_KEY: ",".join(self._names), INFLIGHT_KEY: ""}
            update_properties(
                self._storage, changes if has_definitions else {**changes, DEFINITIONS_KEY: None}, self._lock.verify
            )
            names = ", ".join(sorted(others))
            _LOG.warning("dropped %s from the metadata table of %s: not kept up to date", names, self._storage.uri)
        _remove_partitions(self._storage, self._lock.verify, self._names)
        if has_definitions:
            keep_definitions(self._storage, properties, self._names, self._lock.verify)
        elif others or DEFINITIONS_KEY not in properties:
            self._remove_definitions()

    def _clear(self, properties: Mapping[str, str]) -> None:
        """Delete leftovers of a dropped metadata table; index definitions that the properties name are kept."""
        if DEFINITIONS_KEY not in properties:
            self._remove_definitions()
        if self._storage.exists(METADATA_TABLE):
            _remove_table(self._storage, self._lock.verify)

    def _remove_definitions(self) -> None:
        if self._storage.exists(INDEX_DEFINITIONS):
            remove_folder(self._storage, INDEX_DEFINITIONS, self._lock.verify)

    def _create(self, data: Timeline, times: InstantSource) -> None:
        try:
            create_metadata_table(self._storage, data, times, self._lock)
        except UnsupportedTable as error:
            _LOG.warning("no metadata table was created for %s: %s", self._storage.uri, error)
            return
        self._native = is_native(load_properties(self._storage))
        self._timeline = self._timelines.load(self._metadata)

    def _create_ranges(self, data: Timeline, times: InstantSource) -> None:
        if self._ranges is None:
            return
        try:
            create_column_stats(self._storage, data, self._wanted_columns, self._ranges, times, self._lock)
        except (CorruptFileError, UnsupportedTable) as error:
            _LOG.warning("no %s was created for %s: %s", COLUMN_STATS.name, self._storage.uri, error)
            return
        self._timeline = self._timelines.load(self._metadata)
        self._kept = (FILES_PARTITION, *self._kept_ranges(load_properties(self._storage), self._timeline))

    def drop(self, why: str) -> None:
        """Delete the metadata table, if there is one, and log why."""
        drop_metadata_table(self._storage, why, self._lock.verify)
        self._timeline = None


def _partitions(properties: Mapping[str, str]) -> list[str]:
    """Return the names of the partitions that exist or are being built."""
    return [name for key in (PARTITIONS_KEY, INFLIGHT_KEY) for name in listed(properties.get(key, ""))]


def _remove_table(storage: Storage, verify: Callable[[], None]) -> None:
    with suppress(NotADirectoryError):
        _remove_partitions(storage, verify)
    remove_folder(storage, METADATA_TABLE, verify)


def _remove_partitions(storage: Storage, verify: Callable[[], None], kept: Collection[str] = (PARTITION,)) -> None:
    """Delete all partitions that are not kept: the folders of a metadata table in which this package never writes."""
    for name in storage.names(METADATA_TABLE):
        if name not in (*kept, FLAT_FOLDER):
            remove_folder(storage, f"{METADATA_TABLE}/{name}", verify, foreign=name not in KEPT)
