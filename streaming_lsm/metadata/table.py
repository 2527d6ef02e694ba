"""Keep the metadata table up to date within a transaction, or drop it.

See docs/format/07-index-and-metadata.md, "Metadata table".

The partition ``files`` is kept up to date, and those of the kinds in `streaming_lsm.metadata.partitions.registry` that
there are. Other partitions are dropped, because stale ones would let readers miss rows, and so is one that cannot be
kept. The whole metadata table is dropped if ``files`` cannot be kept; readers then list folders.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from streaming_lsm.config import (
    ARCHIVE_AUTOMATIC,
    METADATA_COMPACT_COMMITS,
    METADATA_ENABLE,
    Options,
)
from streaming_lsm.errors import CommitConflict, CorruptFileError, ReadOvertaken, UnsupportedTable
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.metadata.files_partition import PARTITION
from streaming_lsm.format.table.file_names import BaseFileName
from streaming_lsm.format.table.properties import listed
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.metadata.addition import add_partition
from streaming_lsm.metadata.cache import MetadataCache
from streaming_lsm.metadata.commit import FileChanges, NewRecords, commit_records, erase
from streaming_lsm.metadata.creation import INFLIGHT_KEY, PARTITIONS_KEY, create_metadata_table, is_native
from streaming_lsm.metadata.dropping import drop_metadata_table, drop_others, partition_names, remove_leftovers
from streaming_lsm.metadata.file_slices import (
    METADATA_TABLE,
    DamagedAction,
    MetadataFileSlice,
    counted_instants,
    is_first,
    tells_of_rows,
)
from streaming_lsm.metadata.index_build import IndexBuild
from streaming_lsm.metadata.listing import metadata_listing
from streaming_lsm.metadata.partitions.base import (
    DAMAGE,
    FileReaders,
    KeptPartition,
    NothingToIndex,
    PartitionKind,
    RecordedAction,
    TableContext,
    check_name,
)
from streaming_lsm.metadata.partitions.files import FilesPartition
from streaming_lsm.metadata.partitions.registry import KINDS
from streaming_lsm.metadata.removal import remove_folder
from streaming_lsm.metadata.services import compact, compaction_is_due
from streaming_lsm.metadata.state import check_replacements, check_state
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.action_kind import INDEXING, kind_of
from streaming_lsm.timeline.archive import HISTORY_FOLDER
from streaming_lsm.timeline.cache import KnownMetadata, TimelineCache
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import FLAT_FOLDER, TIMELINE_FOLDER, WRITE_ACTIONS, Instant
from streaming_lsm.timeline.properties_file import load_properties, update_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.indexing import partitions_in_work
from streaming_lsm.txn.lost_completion import check_metadata_commits
from streaming_lsm.txn.planned_actions import pending_cleans

_LOG = logging.getLogger(__name__)


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
        readers: FileReaders | None = None,
        cache: MetadataCache | None = None,
    ) -> None:
        """Prepare the hook; nothing is read yet.

        Args:
            storage: the table.
            options: its options.
            lock: its lock.
            timelines: caches the metadata table's timeline.
            readers: read data files; None for a hook that keeps no partition but ``files``.
            cache: what the open table knows from former transactions; None for nothing.
        """
        self._storage = storage
        self._metadata = Subfolder(storage, METADATA_TABLE)
        self._lock = lock
        self._timelines = timelines
        self._wanted = options[METADATA_ENABLE] if options.is_set(METADATA_ENABLE) else None
        self._delta_commits = options[METADATA_COMPACT_COMMITS]
        self._archives = options[ARCHIVE_AUTOMATIC]
        self._native = False
        self._cache = MetadataCache() if cache is None else cache
        caches = timelines, self._cache.shard_files
        self._context = (
            None if readers is None else TableContext(storage, self._metadata, options, readers, lock, *caches)
        )
        self._asked = {kind: kind.asked(options) for kind in KINDS}
        self._kept: Sequence[KeptPartition] = (FilesPartition(),)
        # Partitions that living processes build, and the one that this transaction does.
        self._in_work: frozenset[str] = frozenset()
        self._build: IndexBuild | None = None
        # Properties and instants of the metadata table for which partitions were opened.
        self._opened: tuple[Mapping[str, str], Sequence[Instant]] | None = None
        # Whether a delta commit belongs to a pending action of a living writer.
        self._is_unsettled = False
        self._known: KnownMetadata | None = None
        # Timeline of the metadata table after `open`; None if no metadata table is kept up to date.
        self._timeline: Timeline | None = None
        # Timeline of the data table after its recovery, see `run_services`.
        self._data: Timeline | None = None

    @property
    def _names(self) -> list[str]:
        """Names of the partitions that are kept up to date."""
        return [kept.name for kept in self._kept]

    @property
    def partitions(self) -> Sequence[str]:
        """Names of the partitions that are kept up to date; none without a metadata table."""
        return self._names if self._timeline is not None else ()

    @property
    def ranged_columns(self) -> Sequence[str]:
        """Columns whose ranges it records."""
        return tuple(dict.fromkeys(column for kept in self._kept for column in kept.columns))

    @property
    def last_time(self) -> str:
        """The largest time of the metadata table's timeline; ``""`` without a metadata table."""
        return self._timeline.last_time if self._timeline else ""

    @property
    def known(self) -> KnownMetadata | None:
        """Return what `resume` needs while nobody else changes the metadata table; None if it has to be opened."""
        is_settled = self._build is None and not (self._in_work or self._is_unsettled)
        return self._known if is_settled else None

    def open(self, data: Timeline, living: Collection[Instant] = ()) -> None:
        """Check the metadata table, undo delta commits without an action of the table, or drop what cannot be kept.

        Args:
            data: timeline of the data table, before its pending actions are undone.
            living: its pending actions of other living writers; their delta commits are kept.

        Raises:
            CorruptFileError: the table's timeline has lost a write, see `check_metadata_commits`.
        """
        self._timeline, self._data, self._known = None, data, None
        self._in_work = partitions_in_work(self._storage, living)
        properties = load_properties(self._storage)
        if not partition_names(properties):
            self._kept, self._opened = (FilesPartition(),), None
            if self._wanted is not None:
                remove_leftovers(self._storage, properties, self._lock.verify)
            self._known = KnownMetadata(properties, None)
            return
        if self._wanted is False:
            self.drop(f"{METADATA_ENABLE.key}=false")
            return
        try:
            self._timeline = self._kept_timeline(properties, data, living)
        except DAMAGE as error:
            self._check_known(data)
            self.drop(str(error))
            return
        self._native = is_native(properties)
        self._remember(properties)

    def resume(self, known: KnownMetadata, data: Timeline) -> None:
        """Go on with what is known in place of `open`, as `MetadataHook.resume`."""
        timeline, properties = known.timeline, known.properties
        self._timeline, self._data, self._known = timeline, data, known
        self._in_work, self._is_unsettled = frozenset(), False
        if timeline is None:
            self._kept = (FilesPartition(),)
            return
        self._native = is_native(properties)
        try:
            if self._opened != (properties, timeline.instants):
                self._kept = self._open_partitions(properties, timeline)
            is_kept = self._remember(properties)
        except DamagedAction:
            is_kept = False
        if is_kept:
            self._opened = properties, timeline.instants
        else:  # what cannot be kept is dropped
            self._opened = None
            self.open(data)

    def _remember(self, properties: Mapping[str, str]) -> bool:
        """Remember the metadata table for the next time the lock is acquired, unless a partition cannot be kept."""
        is_kept = set(self._names) == set(partition_names(properties))
        self._known = KnownMetadata(properties, self._timeline) if is_kept else None
        return is_kept

    def forget(self, data: Timeline, write: Instant, living: Collection[Instant] = ()) -> None:
        """Drop the partitions, other than ``files``, of which base files may have records of a completed write.

        Args:
            data: timeline of the data table.
            write: the write, which is about to be rolled back.
            living: see `open`.
        """
        self.open(data, living)
        others = (kept.name for kept in self._kept if kept.name != PARTITION)
        later = [name for name in others if self._was_made_or_merged_since(name, write.completed or "")]
        if later:
            self._drop_partitions(dict.fromkeys(later, f"it may have records of {write.path}, which is rolled back"))

    def _was_made_or_merged_since(self, partition: str, completed: str) -> bool:
        """Whether a file group of a partition has a base file that was made after a completion time.

        Or the partition was itself: one that was made of a table without rows has logs without records only.
        """
        assert self._timeline is not None  # as there are other partitions than `files`
        slices = MetadataFileSlice.newest_of_all(self._timeline, self._metadata.names(partition), partition)
        names = [name for one in slices for name in one.names]
        made = {name.instant for name in names if isinstance(name, BaseFileName) or is_first(name.instant)}
        return any((self._timeline.completion_time(instant) or "~") > completed for instant in made)

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
        places = [path.rpartition("/")[::2] for path in files]
        try:
            listing = metadata_listing(self._storage, data, {partition for partition, _ in places})
        except DAMAGE as error:
            self.drop(str(error))
            return
        for partition, name in places:
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
        if self._timeline is not None and not self._is_unsettled:
            self._compact(self._timeline, data, times)
        if self._wanted and self._timeline is None:
            try:
                self._create(data, times)
            except UnsupportedTable as error:
                _LOG.warning("no metadata table was created for %s: %s", self._storage.uri, error)
        # Neither must a partition that is made now.
        for kind, asked in self._asked.items():
            for name, wanted in asked.items():
                if wanted and name not in (*self._names, *self._in_work) and not self._is_unsettled:
                    self._add_asked(kind, name, data, times)
        self._data = data

    def _add_asked(self, kind: PartitionKind, name: str, data: Timeline, times: InstantSource) -> None:
        """Add a partition that the options ask for, unless this open table has tried in vain."""
        if name in self._cache.refused:
            return
        if self._timeline is None:
            if not self._wanted:
                self._cache.refused.add(name)
                _LOG.warning(
                    "no %s was created for %s: it has no metadata table, set %s=true",
                    *(name, self._storage.uri, METADATA_ENABLE.key),
                )
            return
        cleans = pending_cleans(data)
        if cleans:
            # It may have deleted files that are listed until it is completed, perhaps by this transaction.
            if name not in self._cache.put_off:
                self._cache.put_off.add(name)
                _LOG.warning(
                    "%s of %s is created when clean %s is completed, which deletes files that it would be made of",
                    *(name, self._storage.uri, cleans[0].requested),
                )
            return
        try:
            check_name(name)
            self._add(kind, name, self._context, data, times)
        except NothingToIndex as error:
            _LOG.info("no %s was created for %s yet: %s", name, self._storage.uri, error)
        except (*DAMAGE, ReadOvertaken) as error:
            self._cache.refused.add(name)
            _LOG.warning(
                "no %s was created for %s, it is tried again when the table is opened anew: %s",
                *(name, self._storage.uri, error),
            )

    def record(self, action: Instant, data: bytes, times: InstantSource, commit: CommitMetadata | None = None) -> None:
        """Commit the file changes of an action to the metadata table, just before the action is completed.

        Args:
            action: the running action.
            data: content of its completed file.
            times: instant times of the data table.
            commit: `data`, decoded, if it is at hand, with what the write stats tell beside.

        Raises:
            Fenced: another writer took the lock; a completed delta commit is deleted.
        """
        if self._timeline is None or self._data is None:
            return
        try:
            if commit is None and action.completes_as in WRITE_ACTIONS:
                commit = CommitMetadata.decode(data, action.path)
            changes = FileChanges.of(action, data, commit)
            if changes.deleted and self._data is not None:
                changes = changes.known_to(metadata_listing(self._storage, self._data, changes.deleted))
            records = self._records(RecordedAction(action, data, changes, self._data, commit))
            completed = commit_records(
                metadata=self._metadata,
                requested=action.requested,
                records=records,
                partitions=self._names,
                times=times,
                lock=self._lock,
                native=self._native,
                is_rerun=kind_of(action.action).has_runs,
            )
            self._timeline = self._timeline.with_latest(completed)
            self._known = self._known and replace(self._known, timeline=self._timeline)
            self._cache.logged.put(records, completed, native=self._native)
            self._cache.shard_files.put(records, completed, native=self._native)
        except (CorruptFileError, UnsupportedTable) as error:
            self.drop(str(error))

    def roll_back(self, action: Instant) -> None:
        """Undo the delta commit that `record` made for an action that is about to be undone."""
        if self._timeline is not None:
            self._known = None
            erase(self._metadata, action.requested, self._names, self._lock)
        if self._timeline is not None and action.action == INDEXING:
            self._build = None
            self._drop_others("it was not built to the end")

    def _kept_timeline(self, properties: Mapping[str, str], data: Timeline, living: Collection[Instant]) -> Timeline:
        """Return the timeline of the metadata table, after actions and partitions that cannot be kept are removed."""
        if PARTITION not in listed(properties.get(PARTITIONS_KEY, "")):
            raise UnsupportedTable(f"it has no partition {PARTITION}")
        timeline, doomed = check_state(self._metadata, properties["hoodie.table.version"], data, self._timelines)
        # The lock is acquired again before an action is completed, mostly without a change meanwhile.
        is_known, self._opened = self._opened == (properties, timeline.instants), (properties, timeline.instants)
        if not is_known:
            self._kept = self._open_partitions(properties, timeline)
        others = {pending.requested for pending in living}
        self._is_unsettled = any(found.requested in others for found in doomed)
        doomed = [found for found in doomed if found.requested not in others]
        if not is_known:
            self._drop_others()
        for instant in doomed:
            _LOG.warning("undoing %s of the metadata table of %s", instant.file_name, self._storage.uri)
            erase(self._metadata, instant.requested, self._names, self._lock)
        if doomed or self._lock.formers or not self._timelines.is_recovered:
            # Dead writers may have left temporary files.
            for folder in (FLAT_FOLDER, TIMELINE_FOLDER, HISTORY_FOLDER, *self._names):
                self._metadata.sweep(folder)
        return self._timelines.load(self._metadata) if doomed else timeline

    def _open_partitions(self, properties: Mapping[str, str], timeline: Timeline) -> Sequence[KeptPartition]:
        """Return ``files``, and the other partitions that can be kept.

        Raises:
            DamagedAction: a completed action cannot be read, so that none can be kept.
        """
        registered = listed(properties.get(PARTITIONS_KEY, ""))
        found: list[KeptPartition] = [FilesPartition()]
        for kind, asked in self._asked.items():
            for name in registered:
                if self._context is None or not kind.owns(name) or asked.get(name) is False:
                    continue
                try:
                    kept = kind.open(name, self._context, properties)
                    if kept.definition not in (None, name, *(one.name for one in found)):
                        raise UnsupportedTable(f"{kept.definition} is not kept, whose columns it has")
                    MetadataFileSlice.newest_of_all(timeline, self._metadata.names(name), name)
                except DamagedAction:
                    raise
                except DAMAGE as error:
                    self._warn(name, str(error))
                else:
                    found.append(kept)
        return found

    def _records(self, action: RecordedAction) -> list[NewRecords]:
        """Return the records of all partitions that an action adds; a partition that cannot be kept is dropped."""
        records: list[NewRecords] = []
        for kept in tuple(self._kept):
            try:
                records += kept.records(action)
            except DAMAGE as error:
                if kept.name == PARTITION:
                    raise
                self._drop_partitions({kept.name: str(error)})
        return records

    def _compact(self, timeline: Timeline, data: Timeline, times: InstantSource) -> None:
        """Compact the metadata table if that is due; what cannot be read is dropped."""
        if not compaction_is_due(timeline, self._delta_commits):
            return
        # Once the actions of that time are archived, nobody could tell that a replacement is not known.
        if behind := self._behind(timeline, data):
            self._drop_partitions(behind)
        try:
            faults = compact(
                metadata=self._metadata,
                timeline=timeline,
                partitions=self._kept,
                counts=counted_instants(data),
                times=times,
                lock=self._lock,
                logged=self._cache.logged,
                archives=self._archives,
            )
        except DAMAGE as error:
            self.drop(str(error))
            return
        if PARTITION in faults:
            self.drop(faults[PARTITION])
            return
        if faults:
            self._drop_partitions(faults)
        # It may have made file groups.
        self._reload()

    def _behind(self, timeline: Timeline, data: Timeline) -> Mapping[str, str]:
        """Tell, by name, which partitions do not know of file groups that another program has replaced."""
        found = {}
        for kept in self._kept:
            if tells_of_rows(kept.name):
                try:
                    check_replacements(timeline, data, kept.name)
                except CorruptFileError as error:
                    found[kept.name] = str(error)
        return found

    def _drop_partitions(self, faults: Mapping[str, str]) -> None:
        """Drop partitions that cannot be kept, and log why, by name."""
        for name, why in faults.items():
            self._warn(name, why)
        self._kept = [kept for kept in self._kept if not {kept.name, kept.definition} & faults.keys()]
        self._opened = self._known = None
        self._drop_others()

    def _drop_others(self, why: str = "not kept up to date") -> None:
        properties, built = load_properties(self._storage), self._built_names
        drop_others(self._storage, properties, self._kept, self._lock.verify, why, built)

    @property
    def _built_names(self) -> frozenset[str]:
        return self._in_work | ({self._build.name} if self._build else set())

    def _warn(self, name: str, why: str) -> None:
        _LOG.warning("%s of the metadata table of %s: %s", name, self._storage.uri, why)

    def _check_known(self, data: Timeline) -> None:
        """Check, before the metadata table is dropped, that the timeline lacks no write with a delta commit."""
        try:
            timeline = Timeline.load(self._metadata)
        except DAMAGE:
            return
        check_metadata_commits(self._storage, data, timeline)

    def _reload(self) -> Mapping[str, str]:
        """Load the metadata table's timeline after a change of this transaction; return the table's properties."""
        properties = load_properties(self._storage)
        self._timeline = self._timelines.load(self._metadata)
        self._kept = self._open_partitions(properties, self._timeline)
        if not self._remember(properties):  # what cannot be kept is dropped
            self._drop_others()
        return properties

    def _create(self, data: Timeline, times: InstantSource) -> None:
        create_metadata_table(self._storage, data, times, self._lock)
        self._native = is_native(self._reload())

    def _add(
        self, kind: PartitionKind, name: str, context: TableContext | None, data: Timeline, times: InstantSource
    ) -> None:
        """Add a partition to the metadata table, if there is one."""
        if context is None or self._timeline is None:
            return
        add_partition(kind, name, context, data, times, self._lock)
        self._reload()

    def add_partition(self, name: str, options: Options, data: Timeline, times: InstantSource) -> None:
        """Create a partition, or by the name ``files`` the metadata table; nothing is done if it exists.

        Args:
            name: the partition.
            options: options of the new partition, beside those of the writer.
            data: timeline of the data table.
            times: instant times of the data table.

        Raises:
            CommitConflict: a delta commit belongs to a pending action of another writer.
            CorruptFileError: a data file, or the metadata table, cannot be read.
            UnsupportedTable: there is no metadata table, or it cannot have the partition.
        """
        if self._timeline is not None and name in self._names:
            return
        if self._is_unsettled:
            raise CommitConflict(f"another writer of {self._storage.uri} is completing an action: try again")
        if name == PARTITION:
            remove_leftovers(self._storage, load_properties(self._storage), self._lock.verify)
            self._create(data, times)
            return
        kind, context = self._place(name, options)
        self._add(kind, name, context, data, times)
        self._cache.refused.discard(name)
        self._check_kept(name)

    def _place(self, name: str, options: Options) -> tuple[PartitionKind, TableContext]:
        kind = next((kind for kind in KINDS if kind.owns(name)), None)
        if kind is None or self._context is None or self._timeline is None:
            raise UnsupportedTable(f"{self._storage.uri} has no metadata table that can have the partition {name}")
        check_name(name)
        return kind, replace(self._context, options=self._context.options.merged(options))

    def _check_kept(self, name: str) -> None:
        if name not in self._names:
            raise UnsupportedTable(f"{name} of {self._storage.uri} was made, and cannot be kept up to date")

    def start_build(self, name: str, options: Options, indexing: Instant, verify: Callable[[], None]) -> None:
        """Begin to build a partition, as `MetadataHook.start_build`; leftovers of its name are deleted."""
        kind, context = self._place(name, options)
        if name in self._in_work:
            raise CommitConflict(f"{name} of {self._storage.uri} is being built by another process: wait for it")
        remove_folder(self._storage, f"{METADATA_TABLE}/{name}", self._lock.verify)
        self._build = IndexBuild(kind, name, context, indexing.requested, verify)

    def build(self, now: Callable[[], int]) -> None:
        """Read the table, and write the partition's base files, as `MetadataHook.build`."""
        self._building().write(now)

    def announce_build(self) -> None:
        """List the partition among those that are being built."""
        name, properties = self._building().name, self._listed_properties()
        announced = ",".join(dict.fromkeys([*listed(properties.get(INFLIGHT_KEY, "")), name]))
        update_properties(self._storage, {INFLIGHT_KEY: announced}, self._lock.verify)

    def catch_up(self) -> None:
        """Read what was completed meanwhile, as `MetadataHook.catch_up`."""
        self._building().catch_up()

    def finish_build(self, data: Timeline, times: InstantSource) -> Mapping[str, str | None]:
        """Catch up for the last time, as `MetadataHook.finish_build`."""
        build, properties = self._building(), self._listed_properties()
        if self._is_unsettled:
            raise CommitConflict(f"another writer of {self._storage.uri} is completing an action: try again")
        if build.name not in listed(properties.get(INFLIGHT_KEY, "")):
            raise CommitConflict(f"{build.name} of {self._storage.uri} was dropped while it was built")
        return build.finish(data, times, self._lock)

    def register_build(self, changes: Mapping[str, str | None]) -> None:
        """Register the partition that was built, whose indexing action is completed."""
        name, properties = self._building().name, load_properties(self._storage)
        left = ",".join(one for one in listed(properties.get(INFLIGHT_KEY, "")) if one != name)
        names = ",".join(dict.fromkeys([*listed(properties[PARTITIONS_KEY]), name]))
        changed = {**changes, PARTITIONS_KEY: names, INFLIGHT_KEY: left}
        update_properties(self._storage, changed, self._lock.verify)
        self._build = None
        self._reload()
        self._check_kept(name)

    def _building(self) -> IndexBuild:
        if self._build is None:
            raise RuntimeError("no partition is being built")
        return self._build

    def _listed_properties(self) -> Mapping[str, str]:
        """Return the table's properties; raises `CommitConflict` if its metadata table was dropped meanwhile."""
        if self._timeline is None:
            raise CommitConflict(f"the metadata table of {self._storage.uri} was dropped while an index was built")
        return load_properties(self._storage)

    def drop_partitions(self, names: Collection[str], why: str) -> None:
        """Drop partitions, the metadata table if ``files`` is among them, and log why."""
        if PARTITION in names:
            self.drop(why)
        if self._timeline is None:
            return
        in_work = sorted(self._built_names.intersection(names))
        if in_work:
            raise CommitConflict(f"{in_work[0]} of {self._storage.uri} is being built: stop the process that builds it")
        self._kept = [kept for kept in self._kept if kept.name not in names]
        self._opened = self._known = None
        self._drop_others(why)
        # Others may need one of them, as secondary indexes do.
        self._kept = self._open_partitions(load_properties(self._storage), self._timeline)
        self._drop_others()

    def drop(self, why: str) -> None:
        """Delete the metadata table, if there is one, and log why."""
        drop_metadata_table(self._storage, why, self._lock.verify)
        self._timeline, self._kept, self._opened, self._known = None, (FilesPartition(),), None, None
