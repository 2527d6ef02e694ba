"""Partitions and files of a table, by its metadata table and by its folders.

See docs/format/07-index-and-metadata.md, "Metadata table".

Both see a file from the moment on at which its action is completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.metadata.files_partition import (
    FILE_GROUP,
    FIRST_INSTANT,
    PARTITION,
    LogName,
    Records,
    decode_base,
    decode_log,
)
from streaming_lsm.format.metadata.records import (
    ALL_PARTITIONS_KEY,
    FilesRecord,
    existing,
    merge_files,
    partition_key,
    partition_path,
)
from streaming_lsm.format.table.file_names import BaseFileName, InlineLogName, parse_file_name
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.instant import FLAT
from streaming_lsm.timeline.partition_folders import partition_listings
from streaming_lsm.timeline.timeline import Timeline

METADATA_TABLE = ".hoodie/metadata"

PartitionFiles = dict[str, dict[str, int]]
"""Size in bytes by file name, by partition path."""

_FIRST_DIGITS = 14
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class MetadataFileSlice:
    """The newest slice of the partition ``files``: base file and the logs that it has not absorbed, in order."""

    base: BaseFileName | None
    logs: tuple[LogName, ...]

    @classmethod
    def newest(cls, timeline: Timeline, names: Iterable[str]) -> MetadataFileSlice:
        """The slice as a timeline of the metadata table makes it visible; `names` is what lies in the folder.

        Raises:
            CorruptFileError: a file that belongs to it is gone.
        """
        names = frozenset(names)
        bases, logs = visible_files(timeline, names)
        base = max(bases, key=lambda name: name.instant, default=None)
        since = base.instant if base else ""
        kept = [log for log in logs if slice_time(timeline, log) >= since]
        _check_whole(timeline, since, {log.instant for log in kept}, names)
        return cls(base, tuple(sorted(kept, key=lambda name: name.sort_key)))

    def read(self, metadata: Storage, counts: Callable[[str], bool]) -> Records:
        """The slice's records, merged. There is nothing older that a tombstone could be for, so none is left.

        Args:
            metadata: the metadata table.
            counts: whether what an instant logged counts.

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
    """See that the newest slice is the one that the timeline says it is.

    Args:
        timeline: of the metadata table.
        since: instant of the newest base file that is there, ``""`` for none.
        logged: instants that have a log in its slice.
        names: what lies in the folder.
    """
    for write in timeline.completed_writes:
        if write.action == "commit" or (is_first(write.requested) and not since):
            is_there = write.requested <= since
        else:
            is_there = (write.completed or "") < since or write.requested in logged
        # Also one that is of other partitions only; their number is small, and compactions put an end to it.
        if not is_there and write.requested != since:
            for stat in timeline.read_commit(write).stats:
                if stat.partition_path == PARTITION and stat.file_name not in names:
                    raise CorruptFileError(f"{stat.path} in {timeline.storage.uri} is gone: drop the metadata table")


def visible_files(timeline: Timeline, names: Iterable[str]) -> tuple[list[BaseFileName], list[LogName]]:
    """Base files and logs of completed instants of the metadata table."""
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
    """What tells which slice a log belongs to: when it was completed; in layout 1 its base file's instant."""
    return log.instant if timeline.layout == FLAT else timeline.completion_time(log.instant) or ""


def counted_instants(data: Timeline) -> Callable[[str], bool]:
    """Whether what the metadata table says of an instant counts: the table's own action must be completed."""
    completed = {instant.requested for instant in data.instants if instant.is_completed}
    return lambda instant: instant in completed or instant < data.first or is_first(instant)


def is_first(instant: str) -> bool:
    """Whether an instant of the metadata table made a partition of it."""
    return instant.startswith(FIRST_INSTANT[:_FIRST_DIGITS])


def metadata_listing(storage: Storage, data: Timeline) -> PartitionFiles:
    """What the metadata table says of the table's partitions and files.

    Args:
        storage: the table.
        data: its timeline, as of now.

    Raises:
        CorruptFileError, UnsupportedTable: the metadata table cannot be read.
    """
    metadata = Subfolder(storage, METADATA_TABLE)
    for _ in range(_ATTEMPTS - 1):
        # Compactions and a clean in between may take away what the timeline that was read says is there.
        with suppress(CorruptFileError):
            return _listing(metadata, data)
    return _listing(metadata, data)


def _listing(metadata: Storage, data: Timeline) -> PartitionFiles:
    timeline = Timeline.load(metadata, data.layout)
    try:
        found = MetadataFileSlice.newest(timeline, metadata.names(PARTITION)).read(metadata, counted_instants(data))
    except FileNotFoundError as error:
        raise CorruptFileError(f"{error.filename or PARTITION} in {metadata.uri} went while it was read") from None
    return to_partition_files(found)


def to_partition_files(records: Records) -> PartitionFiles:
    """The files of all partitions."""
    partitions = records.get(ALL_PARTITIONS_KEY, FilesRecord({})).files
    return {partition_path(key): existing(records[key].files) if key in records else {} for key in existing(partitions)}


def folder_listing(storage: Storage, data: Timeline) -> PartitionFiles:
    """What lies in the folders of the table: data files of completed actions."""
    return {
        partition: {entry.name: entry.size for entry in entries if not entry.is_dir and _is_data(entry.name, data)}
        for partition, entries in partition_listings(storage).items()
    }


def listing_differences(storage: Storage, data: Timeline) -> list[str]:
    """What the metadata table says otherwise than the folders do; a line for each partition or file."""
    listed, real = metadata_listing(storage, data), folder_listing(storage, data)
    # A write that was rolled back leaves its folder. Hudi removes that of a partition that it has emptied, and goes on
    # listing it.
    unlisted = [partition for partition in sorted(real.keys() - listed.keys()) if real[partition]]
    lines = [f"partition {partition_key(name)} is not listed" for name in unlisted]
    gone = [partition for partition in sorted(listed.keys() - real.keys()) if listed[partition]]
    lines += [f"partition {partition_key(name)} is no folder" for name in gone]
    for partition in sorted(real.keys() & listed.keys()):
        lines += _differences(partition, listed[partition], real[partition])
    return lines


def _differences(partition: str, listed: Mapping[str, int], real: Mapping[str, int]) -> list[str]:
    lines = []
    for name in sorted(listed.keys() | real.keys()):
        sizes = (listed.get(name), real.get(name))
        if sizes[0] != sizes[1]:
            told = ["is not there" if size is None else f"has {size} bytes" for size in sizes]
            where = f"{partition_key(partition)}/{name}"
            lines.append(f"{where} {told[0]} by the metadata table, and {told[1]} in its folder")
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
    # The logs of layout 1 have their slice's base instant in the name.
    of_slice = data.layout == FLAT and isinstance(parsed, InlineLogName)
    return of_slice or data.completion_time(parsed.instant) is not None
