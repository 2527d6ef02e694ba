"""Find the file slices of the metadata table's file groups.

See docs/format/07-index-and-metadata.md, "File groups of the metadata table".
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.group_files import FIRST_INSTANT, DeletedKeys, LogName, open_base, open_log
from streaming_lsm.format.metadata.record_index import PARTITION as RECORD_INDEX
from streaming_lsm.format.metadata.secondary_index import PREFIX as SECONDARY
from streaming_lsm.format.table.file_names import BaseFileName, LogFileName, parse_file_name
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import FLAT, Instant
from streaming_lsm.timeline.instant_facts import CreatedFiles, cached
from streaming_lsm.timeline.timeline import Timeline

_DATA = re.compile(r"\.(hfile|parquet)\Z|\.log\.(?!.*\.crc\Z)")
"""The names of data files, in part: other files beside them are markers, checksums and temporary files."""
METADATA_TABLE = ".hoodie/metadata"
_FIRST_DIGITS = 14
_LEFT_KEY = "lsm.left.files"
"""Key of the extra metadata of a compaction: JSON, names of files by partition; see `left_slices`."""


class DamagedAction(CorruptFileError):
    """A completed action of the metadata table cannot be read, which tells of files of all its partitions."""


@dataclass(frozen=True, slots=True)
class MetadataFileGroup:
    """A file group of the metadata table: its partition, and its file id."""

    partition: str
    file_id: str


@dataclass(frozen=True)
class StoredCells:
    """Cells of one or several files of a slice.

    Attributes:
        cells: in merge order, ascending by key within a file.
        schema_json: the ``schema`` of the files.
        source: name of the first file, for messages.
    """

    cells: Cells
    schema_json: str
    source: str


@dataclass(frozen=True, slots=True)
class MetadataFileSlice:
    """Represent the newest file slice of a file group.

    Attributes:
        group: the file group.
        base: its base file.
        logs: the later log files, in merge order.
        known: the records of logs that need not be read.
        is_flat: whether the logs are named by the instant of the base file, as in layout 1, and not by their own.
    """

    group: MetadataFileGroup
    base: BaseFileName | None
    logs: tuple[LogName, ...]
    known: Mapping[LogName, StoredCells] = field(default_factory=dict, compare=False, repr=False)
    is_flat: bool = False

    @classmethod
    def newest(cls, timeline: Timeline, names: Iterable[str], group: MetadataFileGroup) -> MetadataFileSlice:
        """Return the newest visible slice.

        Args:
            timeline: timeline of the metadata table.
            names: names of the files in the partition's folder.
            group: the file group.

        Raises:
            DamagedAction: a completed action cannot be read.
            CorruptFileError: a file of the slice is missing.
        """
        names = frozenset(names)
        found = cls._newest(timeline, names, group)
        _check_whole(timeline, [found], {group.file_id: names}, _told_files(timeline, group.partition))
        return found

    @classmethod
    def newest_of_all(
        cls, timeline: Timeline, names: Iterable[str], partition: str, *, all_groups: bool = False
    ) -> list[MetadataFileSlice]:
        """Return the newest visible slice of each file group of a partition, ordered by file id.

        Args:
            timeline: timeline of the metadata table.
            names: names of the files in the partition's folder.
            partition: the partition.
            all_groups: whether to check that no file group is missing, for which all commits are read.

        Raises:
            DamagedAction: a completed action cannot be read.
            CorruptFileError: a file of a slice is missing, or a file group.
            UnsupportedTable: a file has a name that is not read.
        """
        of_groups: dict[str, set[str]] = defaultdict(set)
        for text in names:
            parsed = parse_file_name(text)
            if parsed is not None:
                of_groups[parsed.file_id].add(text)
            elif _DATA.search(text):
                raise _not_understood(timeline, f"{partition}/{text}")
        told = _told_files(timeline, partition)
        every = [
            cls._newest(timeline, of_groups[file_id], MetadataFileGroup(partition, file_id))
            for file_id in sorted(of_groups)
        ]
        _check_whole(timeline, every, of_groups, told)
        # A group whose files are all of actions that are not completed is none.
        found = [one for one in every if one.base or one.logs]
        if all_groups:
            _check_all_there(timeline, found, told, partition)
        return found

    @classmethod
    def _newest(cls, timeline: Timeline, names: Set[str], group: MetadataFileGroup) -> MetadataFileSlice:
        bases, logs = visible_files(timeline, names, group)
        base = max(bases, key=lambda name: name.instant, default=None)
        since = base.instant if base else ""
        kept = [log for log in logs if slice_time(timeline, log) >= since]
        logs = sorted(kept, key=lambda name: name.sort_key)
        return cls(group, base, tuple(logs), is_flat=timeline.layout == FLAT)

    @property
    def names(self) -> Sequence[BaseFileName | LogName]:
        """The names of the files, in merge order."""
        return [*([self.base] if self.base else []), *self.logs]

    def parts(self, metadata: Storage, counts: Callable[[str], bool]) -> Iterator[HFile | DeletedKeys]:
        """Open the base file, and the HFiles and deletes of the logs that count, in merge order.

        Args:
            metadata: storage of the metadata table.
            counts: whether the log records of an instant are valid, see `counted_instants`.

        Raises:
            CorruptFileError, UnsupportedTable: a file cannot be read.
            FileNotFoundError: a file was deleted meanwhile.
        """
        for name in self.names:
            yield from self._opened(name, metadata, counts)

    def records(self, metadata: Storage, counts: Callable[[str], bool]) -> Iterator[HFile | DeletedKeys | StoredCells]:
        """Return `parts`, with the records that are `known` in place of their logs."""
        for name in self.names:
            known = None if isinstance(name, BaseFileName) else self.known.get(name)
            if known is None:
                yield from self._opened(name, metadata, counts)
            elif counts(name.instant):
                yield known

    def _opened(
        self, name: BaseFileName | LogName, metadata: Storage, counts: Callable[[str], bool]
    ) -> Iterator[HFile | DeletedKeys]:
        path = f"{self.group.partition}/{name}"
        if isinstance(name, BaseFileName):
            yield open_base(metadata.open_input(path), name, path)
            return
        for instant, file in open_log(metadata.read(path), name, path, is_flat=self.is_flat):
            if counts(instant):
                yield file


def completed_file(timeline: Timeline, partition: str, name: BaseFileName | LogName) -> tuple[str, str]:
    """Return the path of a file, and when it was completed, by which it differs from a later one of the same name."""
    return f"{partition}/{name}", timeline.completion_time(name.instant) or ""


def _not_understood(timeline: Timeline, path: str) -> UnsupportedTable:
    return UnsupportedTable(f"{path} in {timeline.storage.uri}: a file name that this release does not read")


_ToldFiles = Callable[[Instant], CreatedFiles]
"""Names of the files in a partition that a write of the metadata table has created or left, by file id."""


def left_slices(slices: Iterable[MetadataFileSlice]) -> dict[str, str]:
    """Name the files of slices that a compaction has left, in its extra metadata.

    The commits that wrote them may be archived then, and a file that is gone is still missed.
    """
    names: dict[str, list[str]] = defaultdict(list)
    for one in slices:
        names[one.group.partition] += map(str, one.names)
    return {_LEFT_KEY: json.dumps(names, separators=(",", ":"))} if names else {}


def _left_names(commit: CommitMetadata, partition: str) -> list[str]:
    try:
        return [str(name) for name in json.loads(commit.extra.get(_LEFT_KEY, "{}")).get(partition, ())]
    except (ValueError, AttributeError, TypeError) as error:
        raise CorruptFileError(f"{_LEFT_KEY} of a compaction of the metadata table is damaged: {error}") from None


def _told_files(timeline: Timeline, partition: str) -> _ToldFiles:
    def told(write: Instant) -> CreatedFiles:
        return cached(timeline.facts.files.setdefault(write, {}), partition, lambda _: read(write))

    def read(write: Instant) -> CreatedFiles:
        found: dict[str, list[str]] = defaultdict(list)
        try:
            commit = timeline.read_commit(write)
        except CorruptFileError as error:
            raise DamagedAction(f"{METADATA_TABLE}: {error}") from None
        names = [stat.file_name for stat in commit.stats if stat.partition_path == partition]
        for name in (*names, *_left_names(commit, partition)):
            parsed = parse_file_name(name)
            if parsed is None:
                raise _not_understood(timeline, f"{partition}/{name}")
            found[parsed.file_id].append(name)
        return found

    return told


def _may_have_deletes(partition: str, log: LogName) -> bool:
    """Return whether the instant of a log may have a second one in the file group, for records or for deletes.

    See docs/format/07-index-and-metadata.md, "Record index".
    """
    return isinstance(log, LogFileName) and tells_of_rows(partition)


def _check_all_there(timeline: Timeline, found: Sequence[MetadataFileSlice], told: _ToldFiles, partition: str) -> None:
    """Check that no file group is missing of those that the writes since the creation of the partition have written.

    Raises:
        CorruptFileError: one is.
    """
    known, made = {one.group.file_id for one in found}, _made(timeline, told)
    for write in timeline.completed_writes:
        if (write.completed or "") >= made and (gone := told(write).keys() - known):
            raise CorruptFileError(
                f"file group {min(gone)} of {partition} in {timeline.storage.uri} is gone: drop the metadata table"
            )


def _check_whole(
    timeline: Timeline, slices: Sequence[MetadataFileSlice], names: Mapping[str, Set[str]], told: _ToldFiles
) -> None:
    """Check that the newest slices of file groups have all files that the timeline names.

    Args:
        timeline: timeline of the metadata table.
        slices: of the existing files.
        names: names of the files in the partition's folder, by file id.
        told: see `_ToldFiles`.

    Raises:
        CorruptFileError: a file is missing.
    """
    if not slices:
        return
    partition = slices[0].group.partition
    since = {one.group.file_id: one.base.instant if one.base else "" for one in slices}
    # Instants whose only log in the slice is there.
    single = {
        one.group.file_id: {log.instant for log in one.logs if not _may_have_deletes(partition, log)} for one in slices
    }
    oldest, in_all = min(since.values()), set.intersection(*single.values())
    missing: list[tuple[Instant, str]] = []
    for write in timeline.completed_writes:
        # What no slice needs, or each has, is not read.
        if _is_there(write, oldest, in_all):
            continue
        for file_id, files in told(write).items():
            base = since.get(file_id)
            if base is not None and write.requested != base and not _is_there(write, base, single[file_id]):
                missing += [(write, name) for name in files if name not in names[file_id]]
    # A partition that was dropped and made again lacks the files of before.
    made = _made(timeline, told) if missing else ""
    for write, name in missing:
        if (write.completed or "") >= made:
            raise CorruptFileError(f"{partition}/{name} in {timeline.storage.uri} is gone: drop the metadata table")


def _is_there(write: Instant, base: str, single: Set[str]) -> bool:
    """Return whether a base file has the records of a write, or the slice its log.

    Args:
        write: a write of the metadata table.
        base: instant of the base file, ``""`` for none.
        single: instants whose only log in the slice is there.
    """
    if write.action == "commit" or (is_first(write.requested) and not base):
        return write.requested <= base
    return (write.completed or "") < base or write.requested in single


def _made(timeline: Timeline, told: _ToldFiles) -> str:
    """Return when a partition was made, the last time if it was dropped and made again; empty if that is archived.

    Delta commits write logs, but for those that make a partition, which have base files or the first instants.
    """
    return max(
        (
            write.completed or ""
            for write in timeline.completed_writes
            if write.action == "deltacommit"
            for names in told(write).values()
            if is_first(write.requested) or any(isinstance(parse_file_name(name), BaseFileName) for name in names)
        ),
        default="",
    )


def visible_files(
    timeline: Timeline, names: Iterable[str], group: MetadataFileGroup
) -> tuple[list[BaseFileName], list[LogName]]:
    """Return base files and log files of a file group, of completed instants of the metadata table."""
    bases: list[BaseFileName] = []
    logs: list[LogName] = []
    for text in names:
        name = parse_file_name(text)
        if name is None or name.file_id != group.file_id or timeline.completion_time(name.instant) is None:
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


def tells_of_rows(partition: str) -> bool:
    """Return whether a partition has a record for each row, and must know which file groups were replaced."""
    return partition == RECORD_INDEX or partition.startswith(SECONDARY)


def is_first(instant: str) -> bool:
    """Return whether an instant of the metadata table created one of its partitions."""
    return instant.startswith(FIRST_INSTANT[:_FIRST_DIGITS])
