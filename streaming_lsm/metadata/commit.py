"""Commit the file changes of an action of the data table as a delta commit of its metadata table.

See docs/format/07-index-and-metadata.md, "Metadata table".

The delta commit has the requested time of the action, and is completed before the action: readers of the metadata
table ignore delta commits whose action is not completed. If the data-table action is rolled back, its metadata delta
commit is rolled back too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from streaming_lsm.errors import CommitConflict, Fenced, UnsupportedTable
from streaming_lsm.format.actions.clean import CleanMetadata
from streaming_lsm.format.actions.commit import CommitMetadata, WriteStat, log_file_stat
from streaming_lsm.format.metadata.files_partition import ALL_PARTITIONS_KEY, Records, partition_key
from streaming_lsm.format.metadata.group_files import LOCK_KEY, delete_log_content, log_content, log_name
from streaming_lsm.format.metadata.records import FilesRecord, MetadataFileInfo
from streaming_lsm.format.metadata.schema import metadata_schema
from streaming_lsm.format.table.file_names import LogFileName, LogKind, parse_file_name
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.lock.markers import marker_folder
from streaming_lsm.metadata.file_slices import MetadataFileGroup
from streaming_lsm.metadata.removal import remove_file
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, WRITE_ACTIONS, Instant, State

DELTA_COMMIT = "deltacommit"


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Record which data files an action adds and deletes.

    Attributes:
        added: size in bytes by file name, by partition path; includes partitions without new files.
        deleted: file names by partition path.
    """

    added: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    deleted: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, action: Instant, data: bytes, commit: CommitMetadata | None = None) -> FileChanges:
        """Return the file changes of an action.

        Args:
            action: a write or a clean; other actions change no files.
            data: content of its completed file.
            commit: `data`, decoded, if it is at hand.
        """
        if commit is not None:
            return cls(added=_added(commit.stats))
        if action.completes_as in WRITE_ACTIONS:
            return cls(added=_added(CommitMetadata.decode(data, action.path).stats))
        if action.action == "clean":
            return cls(deleted=CleanMetadata.decode(data, action.path).files)
        return cls()

    def known_to(self, listing: Mapping[str, Mapping[str, int]]) -> FileChanges:
        """Leave out deletions of files that the metadata table does not list, which Hudi treats as corruption.

        Such files were deleted before the metadata table was created, by a clean that was not completed yet.
        """
        deleted = {
            partition: [name for name in names if name in listing.get(partition, ())]
            for partition, names in self.deleted.items()
        }
        return FileChanges(self.added, {partition: names for partition, names in deleted.items() if names})

    def records(self) -> Records:
        """Return the records of the partition ``files``; a write records all its partitions, new or not, as Hudi does.

        Raises:
            UnsupportedTable: a partition has the name of the record that lists all partitions.
        """
        if ALL_PARTITIONS_KEY in {*self.added, *self.deleted}:
            raise UnsupportedTable(f"a partition has the name of the record that lists them all, {ALL_PARTITIONS_KEY}")
        found: dict[str, FilesRecord] = {}
        if self.added or not self.deleted:
            touched = {partition_key(partition): MetadataFileInfo(0) for partition in self.added}
            found[ALL_PARTITIONS_KEY] = FilesRecord(touched, all_partitions=True)
        for partition in {*self.added, *self.deleted}:
            files = {name: MetadataFileInfo(size) for name, size in self.added.get(partition, {}).items()}
            files |= {name: MetadataFileInfo(0, is_deleted=True) for name in self.deleted.get(partition, ())}
            found[partition_key(partition)] = FilesRecord(files)
        return found


def _added(stats: Sequence[WriteStat]) -> dict[str, dict[str, int]]:
    added: dict[str, dict[str, int]] = {}
    for stat in stats:
        files = added.setdefault(stat.partition_path, {})
        files[stat.file_name] = stat.total_bytes
        files.update((path.rpartition("/")[2], size) for path, size in stat.cdc_files)
    return added


@dataclass(frozen=True, slots=True)
class NewRecords:
    """Records that a delta commit logs to one file group.

    Attributes:
        group: the file group.
        keys: their keys, ascending.
        values: the encoded records.
        deleted: keys whose records are deleted, ascending, none of which is in `keys`; None for none.
    """

    group: MetadataFileGroup
    keys: pa.BinaryArray
    values: pa.BinaryArray
    deleted: pa.BinaryArray | None = None


def commit_records(
    metadata: Storage,
    requested: str,
    records: Sequence[NewRecords],
    partitions: Sequence[str],
    times: InstantSource,
    lock: TableLock,
    *,
    native: bool,
    is_rerun: bool,
) -> Instant:
    """Write and complete a delta commit of the metadata table; return the completed instant.

    Args:
        metadata: storage of the metadata table.
        requested: requested time of the action.
        records: what is logged to each file group.
        partitions: all partitions that are kept.
        times: instant times of the data table, whose lock is held.
        native: whether log files are native, as in version 10.
        is_rerun: whether the action may have had an earlier run, whose delta commit is deleted.

    Raises:
        CommitConflict: a former holder of the lock created a file of the action at this moment.
        Fenced: another writer took the lock; a completed file that was created is deleted.
    """
    logs: dict[WriteStat, bytes] = {}
    for new in records:
        logs |= encode_logs(new, requested, times.now_ms(), lock.owner.token, native=native)
    if is_rerun:
        erase(metadata, requested, partitions, lock)
    try:
        begin(metadata, Instant(requested, DELTA_COMMIT, State.REQUESTED))
        metadata.put_all_if_absent({stat.path: log for stat, log in logs.items()})
    except FileExistsError as error:
        lock.verify()
        raise created_by_former(requested, metadata) from error
    return complete(
        metadata=metadata,
        running=Instant(requested, DELTA_COMMIT, State.INFLIGHT),
        stats=tuple(logs),
        operation="UPSERT_PREPPED",
        times=times,
        lock=lock,
    )


def encode_logs(
    new: NewRecords, requested: str, created_ms: int, token: str, *, native: bool
) -> dict[WriteStat, bytes]:
    """Encode the logs of a file group by their write stats: a native one has records or deletes, an inline one both."""
    partition, count = new.group.partition, 0 if new.deleted is None else len(new.deleted)
    name = log_name(new.group.file_id, requested, native=native)
    logs: dict[WriteStat, bytes] = {}
    if len(new.keys) or not (count and native):
        inline = None if native or not count else new.deleted
        log = log_content(new.keys, new.values, name, created_ms, token, inline, partition)
        deletes = 0 if inline is None else count
        stat = log_file_stat(partition, name, total_bytes=len(log), num_updates=len(new.keys), num_deletes=deletes)
        logs[stat] = log
    if new.deleted is not None and count and native:
        name = log_name(new.group.file_id, requested, native=native, kind=LogKind.DELETES)
        assert isinstance(name, LogFileName)
        log = delete_log_content(new.deleted, name, created_ms, token)
        logs[log_file_stat(partition, name, total_bytes=len(log), num_deletes=count)] = log
    return logs


def created_by_former(requested: str, metadata: Storage) -> CommitConflict:
    """Build the error for a file of an action that a former holder of the lock created at this moment."""
    return CommitConflict(
        f"a file of {requested} in {metadata.uri} was created by a writer that lost the lock before: retry"
    )


def begin(metadata: Storage, instant: Instant, plan: bytes = b"") -> None:
    """Create the requested and inflight files of an action of the metadata table."""
    metadata.put_if_absent(instant.at(State.REQUESTED).path, plan)
    metadata.put_if_absent(instant.at(State.INFLIGHT).path, b"")


def complete(
    metadata: Storage,
    running: Instant,
    stats: tuple[WriteStat, ...],
    operation: str,
    times: InstantSource,
    lock: TableLock,
    extra: Mapping[str, str] | None = None,
) -> Instant:
    """Complete a write of the metadata table; return the completed instant. Raises as `commit_records`."""
    is_compaction = running.completes_as == "commit"
    extra = {"schema": metadata_schema(meta_columns=False), LOCK_KEY: lock.owner.token, **(extra or {})}
    content = CommitMetadata(stats, operation, extra, compacted=is_compaction)
    return put_completed(metadata, running, content.encode(), times, lock)


def put_completed(metadata: Storage, running: Instant, data: bytes, times: InstantSource, lock: TableLock) -> Instant:
    """Create the completed file of an action, and return the completed instant; raises as `commit_records`."""
    completed = running.completed_at(times.next())
    lock.verify()
    metadata.put_if_absent(completed.path, data)
    try:
        # A later holder of the lock erases this file; one that took the lock before may have listed already.
        lock.verify()
    except Fenced:
        metadata.delete_if_unchanged(completed.path, data)
        raise
    return completed


def erase(metadata: Storage, requested: str, partitions: Sequence[str], lock: TableLock) -> None:
    """Delete all files of an action in partitions; an interrupted call is finished by the next one.

    Its completed file is deleted first, and its pending instant files last. These are empty, so that a writer that lost
    the lock may delete those of a later run of the action: its log is found by the next call, without instant files.

    Raises:
        Fenced: another writer took the lock, and may run an action of the same instant; none of its files was deleted,
            except pending instant files.
    """
    found = [
        instant
        for name in metadata.names(TIMELINE_FOLDER)
        if name.startswith(requested) and (instant := Instant.parse(name)) and instant.requested == requested
    ]
    files = [
        f"{partition}/{name}"
        for partition in partitions
        for name in metadata.names(partition)
        if _is_of(name, requested)
    ]
    for path in (*(instant.path for instant in found if instant.is_completed), *files):
        remove_file(metadata, path, lock.verify)
    if found:
        lock.verify()
        metadata.delete_folder(marker_folder(requested))
    for path in dict.fromkeys(path for instant in found for path in instant.pending_paths()):
        remove_file(metadata, path, lock.verify)


def _is_of(name: str, requested: str) -> bool:
    parsed = parse_file_name(name)
    return parsed is not None and parsed.instant == requested
