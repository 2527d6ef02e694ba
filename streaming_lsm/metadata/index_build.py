"""Build a partition of the metadata table while writers go on, by an indexing action.

See docs/format/07-index-and-metadata.md, "Building beside writers". The base files are made without the table's lock,
of a state of the table; what later states add is read without the lock, too, until little is left. The rest is read
while the lock is held, and logged with all that was added. The files have the instant of the indexing action, which no
other action has: those of a process that was overruled never become visible.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from streaming_lsm.arrow.columns import pc, without
from streaming_lsm.errors import CommitConflict, CorruptFileError, ReadOvertaken
from streaming_lsm.format.actions.commit import WriteStat, base_file_stat
from streaming_lsm.format.metadata.group_files import LOCK_KEY, base_content, base_name
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME, print_partition_metadata
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.metadata.commit import DELTA_COMMIT, NewRecords, begin, complete, encode_logs
from streaming_lsm.metadata.creation import DEFINITIONS_KEY, is_native
from streaming_lsm.metadata.file_slices import MetadataFileGroup
from streaming_lsm.metadata.index_definitions import partition_entries, put_definition
from streaming_lsm.metadata.listing import metadata_listing
from streaming_lsm.metadata.partitions.base import NewPartition, PartitionKind, Snapshot, TableContext
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH, load_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.planned_actions import pending_cleans

_ATTEMPTS = 6
_MOST_ROUNDS = 20
_GONE = (CorruptFileError, ReadOvertaken, FileNotFoundError)
"""Errors of a read whose file may have been deleted meanwhile."""
_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class IndexBuild:
    """Builds one partition; the methods are called in the order in which they are written."""

    def __init__(
        self, kind: PartitionKind, name: str, context: TableContext, instant: str, verify: Callable[[], None]
    ) -> None:
        """Prepare; nothing is read.

        Args:
            kind: builds the partition.
            name: the partition.
            context: the table.
            instant: requested time of the indexing action.
            verify: raises `Fenced` if the action is not this process's any more.
        """
        self.name = name
        self._kind, self._context, self._instant, self._verify = kind, context, instant, verify
        self._stats: dict[MetadataFileGroup, WriteStat] = {}
        self._late: dict[MetadataFileGroup, NewRecords] = {}
        self._seen: Snapshot | None = None
        self._new: NewPartition | None = None
        self._marker = b""

    def write(self, now: Callable[[], int]) -> None:
        """Read the table, and write the base files; the lock is not held.

        Args:
            now: the clock's time, epoch milliseconds.

        Raises:
            CommitConflict: a pending clean deletes files that are read.
            CorruptFileError: a data file, or the metadata table, cannot be read.
            Fenced: another writer has undone the action.
            UnsupportedTable: the partition cannot be made for this table.
        """
        self._seen, self._new = self._attempted(self._built)
        token, entries = self._context.lock.owner.token, partition_entries(self._new.definition)
        self._marker = print_partition_metadata(self._instant, self.name, f"{LOCK_KEY}={token}", more=entries)
        self._put(f"{self.name}/{PARTITION_METADATA_NAME}", self._marker)
        for new in self._new.records:
            self._put_base(new, now())
        for group in self._new.groups:
            if group not in self._stats:
                self._put_base(_none_of(group), now())

    def catch_up(self) -> None:
        """Read what was completed meanwhile, until no round finds less than the one before; the lock is not held.

        Raises:
            CommitConflict: the columns of the table have changed since `write`, or a pending clean deletes files that
                are read.
            CorruptFileError, Fenced, UnsupportedTable: see `write`.
        """
        last = -1
        for _ in range(_MOST_ROUNDS):
            found = self._attempted(lambda: self._follow(self._snapshot(Timeline.load(self._context.storage))))
            if not found or 0 <= last <= found:
                return
            last = found

    def finish(self, data: Timeline, times: InstantSource, lock: TableLock) -> dict[str, str | None]:
        """Catch up for the last time, and complete the delta commit of the partition; the lock is held.

        Args:
            data: timeline of the table.
            times: its instant times.
            lock: its lock.

        Returns:
            Changes of the table's properties with which the partition is to be registered, when the indexing action is
            completed.

        Raises:
            CommitConflict, CorruptFileError, UnsupportedTable: see `catch_up`.
            Fenced: another writer took the lock.
        """
        storage, metadata, new = self._context.storage, self._context.metadata, self._new
        assert new is not None
        self._check_kept()
        self._attempted(lambda: self._follow(self._snapshot(data)), attempts=1)
        for group in self._late.keys() - self._stats.keys():
            self._put_base(_none_of(group), times.now_ms())
        properties, changes = load_properties(storage), dict[str, str | None]()
        if new.definition is not None:
            changes[DEFINITIONS_KEY] = put_definition(storage, properties, self.name, new.definition, lock)
        logs: dict[WriteStat, bytes] = {}
        native, token = is_native(properties), lock.owner.token
        for late in self._late.values():
            logs |= encode_logs(late, self._instant, times.now_ms(), token, native=native)
        begin(metadata, Instant(self._instant, DELTA_COMMIT, State.REQUESTED))
        metadata.put_all_if_absent({stat.path: log for stat, log in logs.items()})
        complete(
            metadata=metadata,
            running=Instant(self._instant, DELTA_COMMIT, State.INFLIGHT),
            stats=(*self._stats.values(), *logs),
            operation="BULK_INSERT_PREPPED",
            times=times,
            lock=lock,
        )
        count = sum(stat.num_writes for stat in self._stats.values())
        _LOG.info("built %s of the metadata table of %s: %d records", self.name, storage.uri, count)
        return changes

    def _built(self) -> tuple[Snapshot, NewPartition]:
        snapshot = self._snapshot(Timeline.load(self._context.storage))
        return snapshot, self._kind.build(self.name, self._context, snapshot)

    def _snapshot(self, data: Timeline) -> Snapshot:
        storage = self._context.storage
        return Snapshot(data, load_properties(storage), metadata_listing(storage, data), self._instant)

    def _attempted(self, read: Callable[[], T], attempts: int = _ATTEMPTS) -> T:
        """Read again if a file is gone: cleans go on meanwhile. While the lock is held, no state is newer: try once."""
        left = attempts
        while True:
            try:
                return read()
            except _GONE as error:
                self._verify()
                left -= 1
                if not left:
                    raise self._told(error) from None
                _LOG.debug("%s is read again for %s: %s", self._context.storage.uri, self.name, error)

    def _told(self, error: Exception) -> Exception:
        """Return what an error of the last attempt means, if the action is still this process's."""
        storage = self._context.storage
        if isinstance(error, ReadOvertaken):
            cleans = pending_cleans(Timeline.load(storage))
            if not cleans:
                return error
            return CommitConflict(
                f"clean {cleans[0].requested} of {storage.uri} is pending and deletes files that {self.name} is made "
                f"of: complete it (lsm clean), and create {self.name} again"
            )
        if not self._context.metadata.exists(PROPERTIES_PATH):
            return self._dropped()
        if isinstance(error, FileNotFoundError):
            return CorruptFileError(f"{error.filename} in {storage.uri} is gone")
        return error

    def _check_kept(self) -> None:
        """Check that the metadata table was not dropped since `write` began, and base files with it; it may be anew."""
        try:
            is_kept = self._context.metadata.read(f"{self.name}/{PARTITION_METADATA_NAME}") == self._marker
        except FileNotFoundError:
            is_kept = False
        if not is_kept:
            raise self._dropped()

    def _dropped(self) -> CommitConflict:
        return CommitConflict(
            f"the metadata table of {self._context.storage.uri} was dropped while {self.name} was built: try again"
        )

    def _follow(self, now: Snapshot) -> int:
        """Take over what a state of the table adds; return the number of records."""
        seen, new = self._seen, self._new
        assert seen is not None
        assert new is not None
        before, after = seen.data.table_schema(), now.data.table_schema()
        if before != after:
            raise CommitConflict(
                f"the columns of {self._context.storage.uri} were changed while {self.name} was built: create it again"
            )
        records = new.catch_up(seen, now)
        self._seen = now
        for one in records:
            self._late[one.group] = _merged(self._late.get(one.group), one)
        return sum(_size(one) for one in records)

    def _put_base(self, new: NewRecords, now_ms: int) -> None:
        name, count = base_name(new.group.file_id, self._instant), len(new.keys)
        content = base_content(new.keys, new.values, now_ms, self._context.lock.owner.token)
        stat = base_file_stat(self.name, name, total_bytes=len(content), num_writes=count, num_inserts=count)
        self._put(stat.path, content)
        self._stats[new.group] = stat

    def _put(self, path: str, content: bytes) -> None:
        self._verify()
        self._context.metadata.put_if_absent(path, content)


def _none_of(group: MetadataFileGroup) -> NewRecords:
    none: Any = pa.array([], pa.binary())
    return NewRecords(group, none, none)


def _size(new: NewRecords) -> int:
    return len(new.keys) + (0 if new.deleted is None else len(new.deleted))


def _merged(older: NewRecords | None, newer: NewRecords) -> NewRecords:
    """Merge the records of two logs of a file group: those of the newer one replace others of their keys."""
    if older is None:
        return newer
    none: Any = pa.array([], pa.binary())
    deletes: Sequence[Any] = [none if one.deleted is None else one.deleted for one in (older, newer)]
    told = pa.concat_arrays([newer.keys, deletes[1]])
    is_kept = pc.invert(pc.is_in(older.keys, value_set=told))
    keys: Any = pa.concat_arrays([older.keys.filter(is_kept), newer.keys])
    values: Any = pa.concat_arrays([older.values.filter(is_kept), newer.values])
    order = pc.sort_indices(keys)
    deleted: Any = pa.concat_arrays([without(deletes[0], told), deletes[1]])
    deleted = deleted.take(pc.sort_indices(deleted))
    return NewRecords(newer.group, keys.take(order), values.take(order), deleted if len(deleted) else None)
