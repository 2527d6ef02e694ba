"""Compare the latest file slices with the files recorded in the commits, and report committed files that are missing.

A file state is a checksum of the files of all latest slices, recorded in every commit of this writer. The newest
commit's file state is compared first, which reads no other commit. If it differs, or another program wrote the commit,
the write stats of the active timeline identify the missing file. That files of archived writes are missing shows in the
newest commit's file state, if it has one; then they are identified by the write stats in the history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from streaming_lsm.errors import CommitConflict, CorruptFileError, ReadOvertaken
from streaming_lsm.file_group.cleaned_files import cleaned_files
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView, LogFile
from streaming_lsm.file_group.latest_slices import FileSlices
from streaming_lsm.format.actions.clean import CleanMetadata
from streaming_lsm.format.actions.commit import CommitMetadata, WriteStat, file_path
from streaming_lsm.format.actions.file_state import FILES_KEY, FileState, RecordedFiles
from streaming_lsm.format.table.file_names import (
    BaseFileName,
    DataFileName,
    InlineLogName,
    LogFileName,
    parse_file_name,
)
from streaming_lsm.timeline.action_kind import CLEAN
from streaming_lsm.timeline.instant import FLAT, Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.lost_completion import check_instants, check_named_writes

Group = tuple[str, str]
"""Partition path and file id."""


@dataclass(frozen=True, slots=True)
class LostFile:
    """A file in the stats of a completed write that is missing from the slice it belongs to."""

    path: str
    write: Instant


def checked_slices(view: FileSystemView) -> FileSlices:
    """List and check the latest slice of every file group; raises as `FileSystemView.slices` and `check_files`."""
    slices = view.slices()
    check_files(view, slices)
    return slices


def check_files(view: FileSystemView, slices: Iterable[FileSlice]) -> None:
    """Compare the latest slices of all file groups with the files that the view's timeline has committed.

    If not all partitions were listed, by the metadata table, which was checked by its own timeline, the slices are
    compared with the files of the newest write only.

    Raises:
        CorruptFileError: a committed file, or the completed instant file of a write, is missing.
        ReadOvertaken: a file of a past state was cleaned.
        CommitConflict: a file was deleted since the timeline was loaded; read again.
    """
    found = FileSlices.of(slices)
    timeline = view.timeline
    check_instants(timeline, view.unknown)
    check_named_writes(timeline.whole, next_write(timeline))
    newest = _latest_write(timeline)
    if newest is None:
        return
    if found.left_out:
        check_partitions(view, found, found.partitions, _completed(newest))
        return
    recorded = RecordedFiles.of(timeline.read_commit(newest).extra, newest.path)
    if recorded is not None and recorded.state == found.state():
        return
    groups = {(part.partition_path, part.file_id): part for part in found}
    for lost in lost_files(view, groups):
        raise _explained(view, lost)
    check_named_writes(timeline.whole, timeline.completed_writes)
    if recorded is not None:
        _check_state(view, groups, newest, recorded)


def check_partitions(view: FileSystemView, slices: Iterable[FileSlice], partitions: Iterable[str], since: str) -> None:
    """Compare the latest slices of some partitions with the files that writes have committed since a time.

    Args:
        slices: the latest slice of every file group of these partitions.
        partitions: their paths.
        since: completion time from which on commits of the active timeline are read.

    Raises:
        CorruptFileError, ConfigError, CommitConflict: see `check_files`.
    """
    groups = {(found.partition_path, found.file_id): found for found in slices}
    check_instants(view.timeline, view.unknown)
    for lost in lost_files(view, groups, within=frozenset(partitions), since=since):
        raise _explained(view, lost)


def _check_state(
    view: FileSystemView, groups: Mapping[Group, FileSlice], newest: Instant, recorded: RecordedFiles
) -> None:
    """Report missing files of archived writes: the files are not those that the newest commit recorded.

    More files are no damage: a task that outlives its driver may leave the file of a failed attempt. The record counts
    only if the commit before is the one it names: else another program committed at the same time.
    """
    timeline, paths = view.timeline, [path for found in groups.values() for path in found.paths]
    before = max((write for write in _latest_writes(timeline) if write != newest), key=_completed, default=None)
    if before is not None and before.file_name != recorded.after:
        return
    missing = recorded.state.count - len(paths)
    if missing <= 0 and recorded.state == FileState.of(_without_strays(timeline, paths)):
        return
    if not _shows_all_until(timeline, newest):
        return
    storage = timeline.storage
    now = Timeline.load(storage, timeline.layout)
    is_latest = _latest_write(now) == newest
    if is_latest or timeline.until is not None:
        # A missing base file may bring back as many files of the slice before it.
        for lost in lost_files(view, groups, archived=True):
            raise _explained(view, lost)
    if missing <= 0:
        return
    if is_latest:
        raise CorruptFileError(
            f"{missing} data files of archived writes in {storage.uri} are gone, or not listed, "
            f"by the number of files in {newest.path}: restore the data files and .hoodie_partition_metadata of all "
            "partitions; if files are listed from the metadata table, drop that table"
        )
    if timeline.until is None:
        raise CommitConflict(f"files in {storage.uri} were deleted while the table was listed: try again")


def _without_strays(timeline: Timeline, paths: Iterable[str]) -> Iterator[str]:
    """Leave out the files of writes on the timeline that these writes have not committed."""
    committed = {
        write.requested: frozenset(stat.path for stat in timeline.read_commit(write).stats)
        for write in timeline.completed_writes
    }
    for path in paths:
        name = parse_file_name(path.rpartition("/")[2])
        of_write = None if name is None or isinstance(name, InlineLogName) else committed.get(name.instant)
        if of_write is None or path in of_write:
            yield path


def _shows_all_until(timeline: Timeline, newest: Instant) -> bool:
    """Return whether a timeline shows all writes that were completed before its newest one, archived ones included.

    One as of a requested time does not show a write that was requested later and completed earlier.
    """
    if not timeline.until_by_request:
        return True
    earlier = (write for write in timeline.whole.every_write if _completed(write) < _completed(newest))
    return all(write.requested <= (timeline.until or "") for write in earlier)


def _completed(write: Instant) -> str:
    return write.completed or ""


def check_group(view: FileSystemView, group: Group, found: FileSlice | None) -> None:
    """Compare the latest slice of one file group, None when it has none; raises as `check_files`."""
    for lost in lost_files(view, {} if found is None else {group: found}, group):
        raise _explained(view, lost)


def _latest_writes(timeline: Timeline) -> Sequence[Instant]:
    """Return the completed writes; the archived ones of a past state if it has no others."""
    return timeline.completed_writes or tuple(_archived_writes(timeline))


def _latest_write(timeline: Timeline) -> Instant | None:
    return max(_latest_writes(timeline), key=_completed, default=None)


def newest_write(timeline: Timeline) -> Instant | None:
    """Return the write with the latest completion time, None without any."""
    return max(timeline.completed_writes, key=_completed, default=None)


def next_write(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the first write of the whole table that took effect after a restricted timeline; () if there is none.

    It names the write before it, which may be the lost newest write of the restricted timeline.
    """
    if timeline.until is None:
        return ()
    newest = newest_write(timeline)
    since = "" if newest is None else _completed(newest)
    later = (write for write in timeline.whole.completed_writes if _completed(write) > since)
    first = min(later, key=_completed, default=None)
    return () if first is None else (first,)


def recorded_files(timeline: Timeline, state: FileState) -> dict[str, str]:
    """Build the extra metadata by which the next commit records the file state.

    Args:
        timeline: the timeline before that commit.
        state: the files of all latest slices after it.
    """
    before = newest_write(timeline)
    return {FILES_KEY: RecordedFiles(state, "" if before is None else before.file_name).encode()}


@dataclass(frozen=True)
class FilesChange:
    """Describe how an action changes the files of the latest slices, beside which others may be completed.

    Attributes:
        before: the timeline with which the action began.
        state: files of all latest slices then.
        removed: paths that are in the latest slices before the action only.
        added: paths that are in them after it only.
    """

    before: Timeline
    state: FileState
    removed: Sequence[str]
    added: Sequence[str]

    def recorded(self, timeline: Timeline) -> dict[str, str]:
        """Build the extra metadata of the action, see `recorded_files`; none after a commit of another program.

        Args:
            timeline: the timeline just before the action is completed.
        """
        state, newest = self.state, newest_write(timeline)
        if newest is not None and newest != newest_write(self.before):
            recorded = RecordedFiles.of(timeline.read_commit(newest).extra, newest.path)
            if recorded is None:
                return {}
            state = recorded.state
        # The files of groups that were replaced since the action was planned are in no latest slice.
        return recorded_files(timeline, state.changed(_live(timeline, self.removed), _live(timeline, self.added)))


def _live(timeline: Timeline, paths: Iterable[str]) -> list[str]:
    """Leave out the paths of replaced file groups."""
    return [path for path in paths if not _is_replaced(timeline, path)]


def _is_replaced(timeline: Timeline, path: str) -> bool:
    partition, _, file_name = path.rpartition("/")
    replaced = timeline.replaced_groups.get(partition)
    name = parse_file_name(file_name) if replaced else None
    return bool(name and replaced and name.file_id in replaced)


def lost_files(
    view: FileSystemView,
    slices: Mapping[Group, FileSlice],
    only: Group | None = None,
    *,
    archived: bool = False,
    within: Collection[str] | None = None,
    since: str = "",
) -> Iterator[LostFile]:
    """List the files that belong to the latest slices by the write stats and are missing from them.

    Args:
        view: the view from which the slices were listed.
        slices: by partition path and file id.
        only: the one file group to check; None for all.
        archived: whether the write stats of the visible archived writes are read, too, which takes long.
        within: the partitions to check; None for all.
        since: completion time of the first write whose files are checked.
    """
    there = {path for found in slices.values() for path in found.paths}
    if view.rfc103_names:
        there |= {_usual_path(found, log) for found in slices.values() for log in found.logs}
    bases = {group: found.base.name.instant for group, found in slices.items() if found.base}
    absent: list[tuple[LostFile, Group, DataFileName]] = []
    # Commits completed before the group's base instant are absorbed by that base file.
    first = bases.get(only, "") if only else since
    timeline = view.timeline
    active = ((write, timeline.read_commit(write)) for write in timeline.completed_writes if _completed(write) >= first)
    for write, commit in (*(_archived_commits(timeline) if archived else ()), *active):
        for stat in commit.stats:
            group = (stat.partition_path, stat.file_id)
            is_asked = only in (None, group) and (within is None or stat.partition_path in within)
            lost = _absent(view, write, stat, there, bases.get(group, "")) if is_asked else None
            if lost is not None:
                absent.append((lost[0], group, lost[1]))
    for _, group, name in absent:
        if isinstance(name, BaseFileName):
            bases[group] = max(bases.get(group, ""), name.instant)
    replaced = _replaced_by_archived(timeline, {group for _, group, _ in absent})
    for lost_file, group, name in absent:
        if lost_file.write.requested < replaced.get(group, ""):
            continue
        time = name.instant if isinstance(name, BaseFileName) else view.log_time(name)
        if time >= bases.get(group, ""):
            yield lost_file


def _archived_writes(timeline: Timeline) -> Iterator[Instant]:
    writes = timeline.history.writes().values() if timeline.layout != FLAT else ()
    return (write for write in writes if timeline.completion_time(write.requested) is not None)


def _replaced_by_archived(timeline: Timeline, groups: Collection[Group]) -> dict[Group, str]:
    """Return when archived writes replaced some file groups, the last time, by their completion.

    A compaction that was planned before its file group was replaced, and completed later, stays on the timeline when
    its files were cleaned and the replacecommit archived. The id may be that of a new file group since.
    """
    found: dict[Group, str] = {}
    for write, commit in _archived_commits(timeline, "replacecommit") if groups else ():
        for group in commit.replaced_groups.intersection(groups):
            found[group] = max(found.get(group, ""), _completed(write))
    return found


def _archived_commits(timeline: Timeline, *actions: str) -> Iterator[tuple[Instant, CommitMetadata]]:
    """Read the visible archived writes, of some actions or of all."""
    writes = [write for write in _archived_writes(timeline) if not actions or write.action in actions]
    contents = timeline.history.contents({write.action for write in writes}) if writes else {}
    for write in writes:
        content = contents.get(write.of_action)
        yield write, timeline.read_commit(write) if content is None else CommitMetadata.decode(content, write.path)


def _usual_path(found: FileSlice, log: LogFile) -> str:
    """Return the path of a log under its current name, also for an RFC-103 name.

    See docs/format/01-table.md, "Native log names", "Names of RFC-103's first text".
    """
    name = replace(log.name, rfc103=False) if isinstance(log.name, LogFileName) else log.name
    return file_path(found.partition_path, str(name))


def _absent(
    view: FileSystemView, write: Instant, stat: WriteStat, there: set[str], since: str
) -> tuple[LostFile, DataFileName] | None:
    """Return the file of a write stat and its parsed name if it is missing and not older than the base at `since`."""
    path = file_path(stat.partition_path, stat.file_name)
    # Other programs write stats of zero bytes for files that were never created.
    if path in there or not stat.total_bytes:
        return None
    name = parse_file_name(stat.file_name, rfc103_names=True)
    if name is None or not view.counts(name) or view.is_replaced(stat.partition_path, name.file_id):
        return None
    if isinstance(name, BaseFileName):
        return (LostFile(path, write), name) if name.instant >= since else None
    return (LostFile(path, write), name) if not name.is_change_log and view.log_time(name) >= since else None


def _explained(view: FileSystemView, lost: LostFile) -> Exception:
    """Build the error for a missing file: a clean in progress, a cleaned past state, or a lost file."""
    storage, write = view.storage, lost.write
    is_known = storage.exists(write.path) or view.timeline.is_archived(write.requested)
    if not is_known or _is_cleaned(view, lost, known=False):
        return CommitConflict(f"{lost.path} in {storage.uri} was deleted while the table was listed: try again")
    if _is_cleaned(view, lost, known=True):
        if view.timeline.until is None:
            return CorruptFileError(
                f"{lost.path} in {storage.uri}, of {write.path}, was cleaned, but the timeline has no compaction or "
                "other write that replaced it: the completed instant file of that write was lost; restore it"
            )
        return ReadOvertaken(
            f"{lost.path} in {storage.uri}, of {write.path}, was cleaned: read a later state "
            "(hoodie.clean.commits.retained, hoodie.clean.hours.retained and hoodie.clean.fileversions.retained keep "
            "more, each by its policy)"
        )
    if storage.exists(lost.path):
        return CorruptFileError(
            f"{lost.path} in {storage.uri}, of {write.path}, exists but is not listed: restore the partition's "
            ".hoodie_partition_metadata; if files are listed from the metadata table, drop that table"
        )
    return CorruptFileError(
        f"{lost.path} in {storage.uri} is gone, though {write.path} has committed it: restore the file"
    )


def _is_cleaned(view: FileSystemView, lost: LostFile, *, known: bool) -> bool:
    """Return whether a clean deletes a file.

    Args:
        known: whether to look at the completed cleans of the view's timeline, or at all other cleans.
    """
    before = set(view.timeline.completed_cleans)
    partition, _, file = lost.path.rpartition("/")
    for clean in Timeline.load(view.timeline.storage, view.timeline.layout).instants:
        if clean.action == "clean" and (clean in before) == known and clean.requested > lost.write.requested:
            deleted = cleaned_files(view.timeline.storage, clean).get(partition, ())
            if any(name.rpartition("/")[2] == file for name in deleted):
                return True
    if not known:
        return False
    archived = view.timeline.history.contents({CLEAN}, lost.write.requested)
    cleans = (CleanMetadata.decode(content, f"{time}.{CLEAN}") for (time, _), content in archived.items())
    return any(name.rpartition("/")[2] == file for clean in cleans for name in clean.files.get(partition, ()))
