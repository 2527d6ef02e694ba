"""List partitions and files of a table by its metadata table and by its folders, and compare both listings.

See docs/format/07-index-and-metadata.md, "Metadata table".

Both listings contain the files of completed actions only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.metadata.files_partition import (
    ALL_PARTITIONS_KEY,
    FILE_GROUP,
    FIRST_INSTANT,
    PARTITION,
    LogName,
    Records,
    decode_base,
    decode_log,
    existing,
    merge_files,
    partition_key,
    partition_path,
)
from streaming_lsm.format.metadata.records import FilesRecord
from streaming_lsm.format.table.file_names import BaseFileName, InlineLogName, parse_file_name
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.instant import FLAT
from streaming_lsm.timeline.partition_folders import partition_listings
from streaming_lsm.timeline.properties_file import BACKUP_PATH, PROPERTIES_PATH
from streaming_lsm.timeline.timeline import Timeline

METADATA_TABLE = ".hoodie/metadata"

PartitionFiles = dict[str, dict[str, int]]
"""Size in bytes by file name, by partition path."""

_FIRST_DIGITS = 14
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class MetadataFileSlice:
    """Represent the newest file slice of the partition ``files``: base file, and later log files in merge order."""

    base: BaseFileName | None
    logs: tuple[LogName, ...]

    @classmethod
    def newest(cls, timeline: Timeline, names: Iterable[str]) -> MetadataFileSlice:
        """Return the newest visible slice.

        Args:
            timeline: timeline of the metadata table.
            names: names of the files in the partition's folder.

        Raises:
            CorruptFileError: a file of the slice is missing.
        """
        names = frozenset(names)
        bases, logs = visible_files(timeline, names)
        base = max(bases, key=lambda name: name.instant, default=None)
        since = base.instant if base else ""
        kept = [log for log in logs if slice_time(timeline, log) >= since]
        _check_whole(timeline, since, {log.instant for log in kept}, names)
        return cls(base, tuple(sorted(kept, key=lambda name: name.sort_key)))

    def read(self, metadata: Storage, counts: Callable[[str], bool]) -> Records:
        """Read and merge the records of the slice, without tombstones.

        Args:
            metadata: storage of the metadata table.
            counts: whether the log records of an instant are valid, see `counted_instants`.

        Raises:
            CorruptFileError, UnsupportedTable: a file cannot be read.
        """
        merged: dict[str, FilesRecord] = {}
        if self.base is not None:
            path = f"{PARTITION}/{self.base}"
            merged.update(decode_base(metadata.read(path), path))
        for log in self.logs:
            path = f"{PARTITION}/{log}"
            for logged in decode_log(metadata.read(path), log, path):
                if counts(logged.instant):
                    _merge(merged, logged.records)
        return {key: _without_tombstones(record) for key, record in merged.items()}


def _without_tombstones(record: FilesRecord) -> FilesRecord:
    files = {name: entry for name, entry in record.files.items() if not entry.is_deleted}
    return FilesRecord(files, record.all_partitions)


def _check_whole(timeline: Timeline, since: str, logged: Set[str], names: Set[str]) -> None:
    """Check that the newest slice has all files that the timeline names.

    Args:
        timeline: timeline of the metadata table.
        since: instant of the newest existing base file, ``""`` for none.
        logged: instants of the log files of the slice.
        names: names of the files in the partition's folder.

    Raises:
        CorruptFileError: a file is missing.
    """
    for write in timeline.completed_writes:
        if write.action == "commit" or (is_first(write.requested) and not since):
            is_there = write.requested <= since
        else:
            is_there = (write.completed or "") < since or write.requested in logged
        # Includes commits to other partitions only; they are few until the next compaction.
        if not is_there and write.requested != since:
            for stat in timeline.read_commit(write).stats:
                if stat.partition_path == PARTITION and stat.file_name not in names:
                    raise CorruptFileError(f"{stat.path} in {timeline.storage.uri} is gone: drop the metadata table")


def visible_files(timeline: Timeline, names: Iterable[str]) -> tuple[list[BaseFileName], list[LogName]]:
    """Return base files and log files of completed instants of the metadata table."""
    bases: list[BaseFileName] = []
    logs: list[LogName] = []
    for text in names:
        name = parse_file_name(text)
        if name is None or name.file_id != FILE_GROUP or timeline.completion_time(name.instant) is None:
            continue
        if isinstance(name, BaseFileName):
            bases.append(name)
        else:
            logs.append(name)
    return bases, logs


def slice_time(timeline: Timeline, log: LogName) -> str:
    """Return the time that assigns a log file to a slice: its completion time; in layout 1 its base instant."""
    return log.instant if timeline.layout == FLAT else timeline.completion_time(log.instant) or ""


def counted_instants(data: Timeline) -> Callable[[str], bool]:
    """Return a predicate: whether the metadata records of an instant are valid, as the table's action is completed."""
    completed = {instant.requested for instant in data.instants if instant.is_completed}

    def counts(instant: str) -> bool:
        if instant in completed or instant < data.first or is_first(instant):
            return True
        # Its files may have been deleted while the folder was listed.
        return data.history.has_time(instant)

    return counts


def is_first(instant: str) -> bool:
    """Return whether an instant of the metadata table created one of its partitions."""
    return instant.startswith(FIRST_INSTANT[:_FIRST_DIGITS])


def metadata_listing(storage: Storage, data: Timeline) -> PartitionFiles:
    """List the table's partitions and files by its metadata table; retry if a compaction or clean deleted files.

    Args:
        storage: the table.
        data: its current timeline.

    Raises:
        CorruptFileError, UnsupportedTable: the metadata table is missing, or cannot be read.
    """
    metadata = Subfolder(storage, METADATA_TABLE)
    for _ in range(_ATTEMPTS - 1):
        # Compactions and a clean may have deleted files since the timeline was loaded.
        with suppress(CorruptFileError):
            return _listing(metadata, data)
    return _listing(metadata, data)


def _listing(metadata: Storage, data: Timeline) -> PartitionFiles:
    timeline = Timeline.load(metadata, data.layout)
    try:
        found = MetadataFileSlice.newest(timeline, metadata.names(PARTITION)).read(metadata, counted_instants(data))
    except FileNotFoundError as error:
        file = error.filename or PARTITION
        raise CorruptFileError(f"{file} in {metadata.uri} was deleted while it was read") from None
    # Checked after the read: a metadata table that is deleted loses this file before its timeline and its records.
    if not any(metadata.exists(path) for path in (PROPERTIES_PATH, BACKUP_PATH)):
        raise CorruptFileError(f"{metadata.uri} has no {PROPERTIES_PATH}: drop the metadata table")
    return to_partition_files(found)


def to_partition_files(records: Records) -> PartitionFiles:
    """Convert records of the partition ``files`` into files by partition path."""
    partitions = records.get(ALL_PARTITIONS_KEY, FilesRecord({})).files
    return {partition_path(key): existing(records[key].files) if key in records else {} for key in existing(partitions)}


def folder_listing(storage: Storage, data: Timeline) -> PartitionFiles:
    """List the data files of completed actions in the folders of the table."""
    return {
        partition: {entry.name: entry.size for entry in entries if not entry.is_dir and _is_data(entry.name, data)}
        for partition, entries in partition_listings(storage).items()
    }


def listing_differences(storage: Storage, data: Timeline) -> list[str]:
    """Compare the metadata table with the folders; return a line for each partition or file that differs."""
    listed, real = metadata_listing(storage, data), folder_listing(storage, data)
    # A rolled back write leaves its empty partition folder. Hudi deletes the folder of an emptied partition, and keeps
    # the partition in the list.
    unlisted = [partition for partition in sorted(real.keys() - listed.keys()) if real[partition]]
    lines = [f"partition {partition_key(name)} has files, but the metadata table does not list it" for name in unlisted]
    gone = [partition for partition in sorted(listed.keys() - real.keys()) if listed[partition]]
    lines += [f"partition {partition_key(name)} is in the metadata table, but has no folder" for name in gone]
    for partition in sorted(real.keys() & listed.keys()):
        lines += _differences(partition, listed[partition], real[partition])
    return lines


def _differences(partition: str, listed: Mapping[str, int], real: Mapping[str, int]) -> list[str]:
    lines = []
    for name in sorted(listed.keys() | real.keys()):
        sizes = (listed.get(name), real.get(name))
        if sizes[0] != sizes[1]:
            told = ["absent" if size is None else f"{size} bytes" for size in sizes]
            where = f"{partition_key(partition)}/{name}"
            lines.append(f"{where}: {told[0]} in the metadata table, {told[1]} in its folder")
    return lines


def _merge(merged: dict[str, FilesRecord], newer: Records) -> None:
    for key, record in newer.items():
        before = merged.get(key)
        files = record.files if before is None else merge_files(before.files, record.files)
        merged[key] = FilesRecord(files, record.all_partitions)


def _is_data(name: str, data: Timeline) -> bool:
    parsed = parse_file_name(name, rfc103_names=True)
    if parsed is None:
        return False
    # In layout 1 the name of a log file contains the base instant of its slice.
    of_slice = data.layout == FLAT and isinstance(parsed, InlineLogName)
    return of_slice or data.completion_time(parsed.instant) is not None
