"""Derive the latest file slices of a table from its timeline and its listing.

A file slice is a base file, if any, and the log files that it has not absorbed. A file is visible when the write that
made it is completed on the timeline, so that a timeline cut at an instant gives the slices as of that instant.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.file_group.file_slice import BaseFile, FileSlice, LogFile
from streaming_lsm.file_group.latest_slices import FileSlices, latest_slices
from streaming_lsm.format.table.file_names import (
    BaseFileName,
    DataFileName,
    InlineLogName,
    LogFileName,
    parse_file_name,
)
from streaming_lsm.metadata.files import metadata_files
from streaming_lsm.metadata.listed_files import ListedFiles
from streaming_lsm.metadata.listing import ChoosePartitions
from streaming_lsm.storage.base import FileEntry, Listing, Storage
from streaming_lsm.timeline.instant import FLAT
from streaming_lsm.timeline.partition_folders import partition_listings, refuse_special
from streaming_lsm.timeline.timeline import Timeline

__all__ = ["METADATA_FOLDER", "BaseFile", "FileSlice", "FileSystemView", "LogFile"]

METADATA_FOLDER = ".hoodie"


@dataclass(frozen=True)
class FileSystemView:
    """Lists the partitions, files and file slices of a table that are visible by one timeline.

    Attributes:
        storage: the table's files.
        timeline: the instants whose files are visible, for example those up to a point in time.
        rfc103_names: whether logs under the names of RFC-103's first text are read.
        by_metadata: whether partitions and files are listed from the metadata table, if the table has one.
        choose: the partitions whose slices are asked for, if files are listed from the metadata table; None for all.
        unknown: a file of each instant that is on the timeline in no state; filled by `visible_name`.
    """

    storage: Storage
    timeline: Timeline
    rfc103_names: bool = False
    by_metadata: bool = False
    choose: ChoosePartitions | None = field(default=None, compare=False)
    unknown: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def partitions(self) -> list[str]:
        """List the paths of all partitions, ascending: the folders that hold partition metadata."""
        return sorted(self.listings())

    def listings(self) -> dict[str, Listing]:
        """List each partition's direct entries; from the metadata table, its data files only."""
        found = self._listed_by_metadata(None)
        return partition_listings(self.storage) if found is None else found.entries()

    def _listed_by_metadata(self, choose: ChoosePartitions | None) -> ListedFiles | None:
        return metadata_files(self.storage, self.timeline.layout, choose) if self.by_metadata else None

    def slices(self) -> FileSlices:
        """List the latest slice of every file group, ordered by partition and file id.

        Folders are listed of all partitions, whatever is chosen: the result is checked by the files of all.

        Raises:
            UnsupportedTable: a partition holds logs under RFC-103 names and `rfc103_names` is not set, or data files
                of another format than Parquet.
        """
        found = self._listed_by_metadata(self.choose)
        if found is not None:
            return latest_slices(self, found)
        listings = replace(self, by_metadata=False).listings()
        try:
            found = ListedFiles.of(listings)
        except UnicodeEncodeError:  # a name that is no text
            every = (one for path, entries in sorted(listings.items()) for one in self.slices_in(path, entries))
            return FileSlices.of(every)
        return latest_slices(self, found)

    def slices_in(self, partition: str, entries: Listing) -> list[FileSlice]:
        """List the latest slice of every file group of one partition, by file id; `entries` is its listing."""
        bases: dict[str, list[BaseFile]] = defaultdict(list)
        logs: dict[str, list[LogFile]] = defaultdict(list)
        for file in self.visible_files(entries):
            if isinstance(file, BaseFile):
                bases[file.name.file_id].append(file)
            else:
                logs[file.name.file_id].append(file)
        groups = sorted(group for group in {*bases, *logs} if not self.is_replaced(partition, group))
        return [self.slice_of(partition, group, bases[group], logs[group]) for group in groups]

    def is_replaced(self, partition: str, file_id: str) -> bool:
        """Return whether a completed replacecommit replaced a file group."""
        return file_id in self.timeline.replaced_groups.get(partition, ())

    def visible_name(self, entry: FileEntry) -> DataFileName | None:
        """Parse the name of a visible data file; None for every other entry. Adds files to `unknown`.

        Raises:
            UnsupportedTable: a log under an RFC-103 name and `rfc103_names` is not set, as skipping it would drop rows
                silently; or a link or special file, see `refuse_special`.
        """
        if entry.special:
            refuse_special(entry, self.storage.uri)
        name = None if entry.is_dir else parse_file_name(entry.name, rfc103_names=True)
        if name is None:
            return None
        counts = self.counts(name)
        if not counts or self.timeline.layout == FLAT:
            self._note(entry.path, name.instant)
        if not counts:
            return None
        if isinstance(name, LogFileName) and name.rfc103 and not self.rfc103_names:
            raise UnsupportedTable(
                f"{entry.path} is a log under the name of RFC-103's first text: set lsm.read.rfc103.names=true, for "
                "every reader, writer and table service of the table"
            )
        return name

    def _note(self, path: str, instant: str) -> None:
        """Add a file to `unknown` if the timeline has its write in no state.

        In layout 1 rollbacks are archived on their own, so that they do not explain all files of failed writes. There
        only an empty timeline tells that instants were lost: the last write of a table is not archived.
        """
        whole = self.timeline.whole
        if not (whole.instants if self.timeline.layout == FLAT else whole.has(instant)):
            self.unknown.setdefault(instant, path)

    def counts(self, name: DataFileName) -> bool:
        """Return whether the write of a file is completed on the timeline."""
        # A log of layout 1 is named by its slice's base instant and has blocks of several instants.
        if self.timeline.layout == FLAT and isinstance(name, InlineLogName):
            return True
        return self.timeline.completion_time(name.instant) is not None

    def visible_files(self, entries: Listing) -> Iterator[BaseFile | LogFile]:
        """List the visible base files and logs of a partition, of all slices; `entries` is its listing."""
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

    def slice_of(self, partition: str, group: str, bases: list[BaseFile], logs: list[LogFile]) -> FileSlice:
        """Form the latest slice of a file group: the newest base file and all logs completed since its instant.

        Args:
            partition, group: partition path and file id.
            bases, logs: its visible files. See docs/format/10-rules.md, "Rule 8".
        """
        base = self._newest(bases)
        since = base.name.instant if base else ""
        open_logs = self._committed([log for log in logs if self.log_time(log.name) >= since])
        return FileSlice(partition, group, base, tuple(sorted(open_logs, key=lambda log: log.name.sort_key)))

    def _committed(self, logs: list[LogFile]) -> list[LogFile]:
        """Leave out logs of repeated attempts that are not in the commit's write stats.

        A task that outlives its driver may leave or create such a file at any time, and delete it later.
        """
        attempts = Counter(_attempted(log.name) for log in logs)
        if len(attempts) == len(logs):  # nearly always
            return logs
        doubtful = {log.name.instant for log in logs if attempts[_attempted(log.name)] > 1}
        written = {instant: self._written(instant) for instant in sorted(doubtful)}
        return [log for log in logs if (paths := written.get(log.name.instant)) is None or log.path in paths]

    def _written(self, requested: str) -> frozenset[str] | None:
        """Return the paths in the write stats of a write; None if it is archived."""
        writes = [write for write in self.timeline.completed_writes if write.requested == requested]
        return frozenset().union(*(self.timeline.read_commit(write).paths for write in writes)) if writes else None

    def log_time(self, name: LogFileName | InlineLogName) -> str:
        """Return the time that is compared with a base instant to decide whether the base file has absorbed a log.

        It is the completion time of the log's instant; for an inline log of layout 1 the base instant in its name.
        """
        if self.timeline.layout == FLAT and isinstance(name, InlineLogName):
            return name.instant
        return self.timeline.completion_time(name.instant) or ""

    def _newest(self, bases: list[BaseFile]) -> BaseFile | None:
        """Return the newest base file; of several attempts at one instant, the one in the commit's write stats.

        A task that outlives its driver may leave the file of a failed attempt, complete or not.
        """
        newest = max((base.name.instant for base in bases), default="")
        attempts = [base for base in bases if base.name.instant == newest]
        if len(attempts) > 1:
            written = self._written(newest) or ()
            attempts = [base for base in attempts if base.path in written] or attempts
        return attempts[0] if attempts else None


def _attempted(name: LogFileName | InlineLogName) -> tuple[object, ...]:
    """Return what the attempts at one log have in common."""
    task = None if name.token is None else name.token.task
    return name.instant, name.version, task, name.kind if isinstance(name, LogFileName) else None


def _check_parquet(path: str, kind: str) -> None:
    if kind != "parquet":
        raise UnsupportedTable(f"{path}: data files in the format {kind} are not supported, only Parquet is")
