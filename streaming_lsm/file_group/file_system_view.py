"""Which files make up the table as of an instant: partitions, file groups, file slices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.table.file_names import (
    BaseFileName,
    DataFileName,
    InlineLogName,
    LogFileName,
    LogKind,
    parse_file_name,
)
from streaming_lsm.metadata.files import metadata_files
from streaming_lsm.storage.base import FileEntry, Listing, Storage
from streaming_lsm.timeline.instant import FLAT
from streaming_lsm.timeline.partition_folders import partition_listings, refuse_special
from streaming_lsm.timeline.timeline import Timeline

METADATA_FOLDER = ".hoodie"


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A base file: `path` relative to the table's root, `size` in bytes."""

    path: str
    name: BaseFileName
    size: int


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file: `path` relative to the table's root, `size` in bytes."""

    path: str
    name: LogFileName | InlineLogName
    size: int

    @property
    def is_native(self) -> bool:
        """Whether it is a file of its own format and not a sequence of inline blocks."""
        return isinstance(self.name, LogFileName)

    @property
    def is_delete(self) -> bool:
        """Whether it is a native delete log."""
        return isinstance(self.name, LogFileName) and self.name.kind is LogKind.DELETES


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One file group's rows as of an instant: a base file, if any, and the logs on top of it.

    Attributes:
        partition_path: relative folder; empty when the table is not partitioned.
        file_id: the file group.
        base: the newest visible base file.
        logs: visible logs that the base file has not absorbed, the oldest first (docs/format/01-table.md, "Order of log
            files").
    """

    partition_path: str
    file_id: str
    base: BaseFile | None
    logs: tuple[LogFile, ...]

    @property
    def is_native(self) -> bool:
        """Whether no log has inline blocks."""
        return all(log.is_native for log in self.logs)

    @property
    def paths(self) -> tuple[str, ...]:
        """Relative paths of all files, the oldest first."""
        return (*((self.base.path,) if self.base else ()), *(log.path for log in self.logs))


@dataclass(frozen=True)
class FileSystemView:
    """The files of a table that one timeline makes visible.

    Attributes:
        storage: the table's files.
        timeline: the instants that count, for example as of a point in time.
        rfc103_names: whether logs under the names of RFC-103's first text are read.
        by_metadata: whether the metadata table is asked for partitions and files, where there is one.
    """

    storage: Storage
    timeline: Timeline
    rfc103_names: bool = False
    by_metadata: bool = False

    def partitions(self) -> list[str]:
        """Paths of all partitions, ascending: the folders that hold partition metadata."""
        return sorted(self.listings())

    def listings(self) -> dict[str, Listing]:
        """What lies directly in each partition; of the metadata table: the data files among it."""
        found = metadata_files(self.storage, self.timeline.layout) if self.by_metadata else None
        return partition_listings(self.storage) if found is None else found

    def slices(self) -> list[FileSlice]:
        """The latest slice of every file group, by partition and file id.

        Raises:
            UnsupportedTable: a partition holds logs under the older names that were not asked for, or files of another
                format than Parquet.
        """
        listings = sorted(self.listings().items())
        return [found for partition, entries in listings for found in self.slices_in(partition, entries)]

    def slices_in(self, partition: str, entries: Listing) -> list[FileSlice]:
        """The latest slice of every file group of one partition, by file id; `entries` is what lies there."""
        bases: dict[str, list[BaseFile]] = defaultdict(list)
        logs: dict[str, list[LogFile]] = defaultdict(list)
        for file in self.visible_files(entries):
            if isinstance(file, BaseFile):
                bases[file.name.file_id].append(file)
            else:
                logs[file.name.file_id].append(file)
        groups = sorted(group for group in {*bases, *logs} if not self.is_replaced(partition, group))
        return [self._slice(partition, group, bases[group], logs[group]) for group in groups]

    def is_replaced(self, partition: str, file_id: str) -> bool:
        """Whether a replacecommit made a file group invisible."""
        return file_id in self._replaced.get(partition, ())

    @cached_property
    def _replaced(self) -> dict[str, frozenset[str]]:
        """File groups by partition that a replacecommit made invisible.

        See docs/format/02-timeline.md, "Replacecommit".
        """
        replaced: dict[str, frozenset[str]] = {}
        for write in self.timeline.completed_writes:
            if write.action == "replacecommit":
                for partition, file_ids in (self.timeline.read_commit(write).replaced or {}).items():
                    replaced[partition] = replaced.get(partition, frozenset()).union(file_ids)
        return replaced

    def visible_name(self, entry: FileEntry) -> DataFileName | None:
        """What the name of a data file says whose write counts; None for everything else.

        Raises:
            UnsupportedTable: a log under the older name that was not asked for: without it rows would be missing, and
                nobody would know. Or a link or special file, see `refuse_special`.
        """
        if entry.special:
            refuse_special(entry, self.storage.uri)
        name = None if entry.is_dir else parse_file_name(entry.name, rfc103_names=True)
        if name is None or not self.counts(name):
            return None
        if isinstance(name, LogFileName) and name.rfc103 and not self.rfc103_names:
            raise UnsupportedTable(
                f"{entry.path} is a log under the name of RFC-103's first text: set lsm.read.rfc103.names=true, also "
                "for everybody who writes, compacts or cleans the table"
            )
        return name

    def counts(self, name: DataFileName) -> bool:
        """Whether the write of a file counts."""
        # The logs of layout 1 have their slice's base instant in the name, and blocks of several instants in them.
        if self.timeline.layout == FLAT and isinstance(name, InlineLogName):
            return True
        return self.timeline.completion_time(name.instant) is not None

    def visible_files(self, entries: Listing) -> Iterator[BaseFile | LogFile]:
        """The base files and logs of a partition whose writes count, of all slices; `entries` is what lies there."""
        for entry in entries:
            name = self.visible_name(entry)
            if name is None:
                continue
            if isinstance(name, BaseFileName):
                _check_parquet(entry.path, name.extension)
                yield BaseFile(entry.path, name, entry.size)
                continue
            if isinstance(name, LogFileName):
                _check_parquet(entry.path, name.format)
            if not name.is_change_log:
                yield LogFile(entry.path, name, entry.size)

    def _slice(self, partition: str, group: str, bases: list[BaseFile], logs: list[LogFile]) -> FileSlice:
        """The newest base and the logs completed since its instant, whatever lies between.

        See docs/format/10-rules.md, "Rule 8".
        """
        base = self._newest(bases)
        since = base.name.instant if base else ""
        open_logs = [log for log in logs if self.log_time(log.name) >= since]
        return FileSlice(partition, group, base, tuple(sorted(open_logs, key=lambda log: log.name.sort_key)))

    def log_time(self, name: LogFileName | InlineLogName) -> str:
        """What tells whether a base file has absorbed a log: its completion time, or the base instant it stands on."""
        if self.timeline.layout == FLAT and isinstance(name, InlineLogName):
            return name.instant
        return self.timeline.completion_time(name.instant) or ""

    def _newest(self, bases: list[BaseFile]) -> BaseFile | None:
        """The newest base file; of several attempts at one instant the one that its commit lists.

        A task that outlives its driver may leave a file of an attempt that does not count, whole or not.
        """
        newest = max((base.name.instant for base in bases), default="")
        attempts = [base for base in bases if base.name.instant == newest]
        if len(attempts) > 1:
            writes = [write for write in self.timeline.completed_writes if write.requested == newest]
            listed = {stat.file_name for write in writes for stat in self.timeline.read_commit(write).stats}
            attempts = [base for base in attempts if str(base.name) in listed] or attempts
        return attempts[0] if attempts else None


def _check_parquet(path: str, kind: str) -> None:
    if kind != "parquet":
        raise UnsupportedTable(f"{path}: data files in the format {kind} are not read, only Parquet is")
