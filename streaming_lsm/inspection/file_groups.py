"""List the file groups of a table with what the footers of their files say.

Rows are counted as they are stored: those of one key in several files count several times. Footers are read of the
latest slices only, as a clean may delete the files of older ones at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from streaming_lsm.engine import LocalEngine
from streaming_lsm.file_group.data_file import DataFile, open_base, open_log
from streaming_lsm.file_group.file_group import FileGroup, SliceFiles, file_groups_in
from streaming_lsm.file_group.file_system_view import BaseFile, FileSlice, FileSystemView, LogFile
from streaming_lsm.file_group.log_facts import LogFacts, LogFactsReader
from streaming_lsm.format.actions.commit import file_path
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.services.compaction.operation_choice import LogRun
from streaming_lsm.services.compaction.planner import live_runs
from streaming_lsm.storage.base import Storage


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One data file.

    Attributes:
        path: relative to the table.
        size: in bytes.
        rows: rows of its footer; None for an inline log, and for files of old slices, whose footers are not read.
        key_range: bounds of the record keys by its statistics, which may be wider; None if they have none.
        is_delete: whether it is a delete log.
    """

    path: str
    size: int
    rows: int | None = None
    key_range: tuple[str, str] | None = None
    is_delete: bool = False


@dataclass(frozen=True, slots=True)
class SliceFacts:
    """One file slice.

    Attributes:
        instant: its base instant; without a base file its smallest log instant.
        is_latest: whether queries read it.
        files: the base file first; change logs of the latest slice are left out.
        runs: sorted runs of the latest slice that no log compaction replaced, in merge order.
    """

    instant: str
    is_latest: bool
    files: tuple[FileFacts, ...]
    runs: tuple[LogRun, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def rows(self) -> int | None:
        """Stored rows but those of delete logs; None if a file does not say how many it has."""
        counts = [file.rows for file in self.files if not file.is_delete]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def key_range(self) -> tuple[str, str] | None:
        """Bounds of the record keys; None if a file with rows has none."""
        ranges = [file.key_range for file in self.files if file.rows != 0]
        known = [found for found in ranges if found is not None]
        if not known or len(known) < len(ranges):
            return None
        return min(low for low, _ in known), max(high for _, high in known)


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One file group.

    Attributes:
        replaced: requested time of the write that replaced it; None while it is live.
        slices: the oldest first.
    """

    partition_path: str
    file_id: str
    replaced: str | None
    slices: tuple[SliceFacts, ...]


@dataclass(frozen=True)
class FooterReader:
    """Reads the footers of latest slices."""

    storage: Storage
    rule: MergeRule

    def slice(self, found: FileSlice) -> SliceFacts:
        """Read those of one slice; raises as `open_slice`, but partial rows are allowed."""
        base = found.base
        files = [] if base is None else [self._base(base)]
        read = [self._log(log) for log in found.logs]
        runs = live_runs(found.logs, [facts for _, facts in read]).runs
        instant = base.name.instant if base else min((log.name.instant for log in found.logs), default="")
        return SliceFacts(instant, True, (*files, *(file for file, _ in read)), runs)

    def _base(self, base: BaseFile) -> FileFacts:
        with ExitStack() as files:
            return _of_footer(open_base(self.storage, base, files), base.size)

    def _log(self, log: LogFile) -> tuple[FileFacts, LogFacts]:
        if not log.is_native:
            (facts,) = LogFactsReader(self.storage, self.rule)([log])
            return FileFacts(log.path, log.size), facts
        with ExitStack() as files:
            opened, header = open_log(self.storage, log, self.rule, files)
            return _of_footer(opened, log.size), LogFacts(header.compacted, header.is_partial)


def _of_footer(file: DataFile, size: int) -> FileFacts:
    return FileFacts(file.path, size, file.rows, file.key_range, file.is_delete)


def live_groups(slices: Sequence[FileSlice], reader: FooterReader, engine: LocalEngine) -> Iterator[GroupFacts]:
    """Yield the file groups with their latest slices alone."""
    read = engine.map(reader.slice, slices)
    for found, facts in zip(slices, read, strict=True):
        yield GroupFacts(found.partition_path, found.file_id, None, (facts,))


def all_groups(
    view: FileSystemView, slices: Sequence[FileSlice], reader: FooterReader, engine: LocalEngine, partition: str | None
) -> Iterator[GroupFacts]:
    """Yield the file groups with all slices that are not cleaned, replaced groups included.

    Args:
        slices: the latest slices of live groups.
        partition: the one partition to list; None for all.
    """
    latest = {(group.partition_path, group.file_id): group.slices[0] for group in live_groups(slices, reader, engine)}
    for path, entries in sorted(view.listings().items()):
        if partition not in (None, path):
            continue
        sizes = {entry.name: entry.size for entry in entries}
        for group in file_groups_in(view, path, entries):
            yield _whole(group, latest.get((path, group.file_id)), sizes)


def _whole(group: FileGroup, latest: SliceFacts | None, sizes: dict[str, int]) -> GroupFacts:
    old = [found for found in group.slices if latest is None or found.key < latest.instant]
    slices = [_unread(group, found, sizes) for found in old]
    found = (*slices, *([latest] if latest else []))
    return GroupFacts(group.partition_path, group.file_id, group.replaced, found)


def _unread(group: FileGroup, old: SliceFiles, sizes: dict[str, int]) -> SliceFacts:
    files = (FileFacts(file_path(group.partition_path, name), sizes[name]) for name in old.files)
    return SliceFacts(old.key, False, tuple(files))
