"""Select the file slices that a clean deletes (docs/format/06-services.md, "Cleaning"); pure, without file access.

The retention is the number of commits, of hours or of file slices to keep. Retained files are those of pending
compactions and savepoints, which are kept in addition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.file_group.file_group import FileGroup, SliceFiles
from streaming_lsm.format.actions.clean import RetainedInstant
from streaming_lsm.services.context import FileGroupId
from streaming_lsm.timeline.action_kind import COMPACTIONS
from streaming_lsm.timeline.clock import instant_ms, instant_text
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

KEEP_COMMITS = "KEEP_LATEST_COMMITS"
KEEP_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"
KEEP_HOURS = "KEEP_LATEST_BY_HOURS"

_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Retention:
    """The cleaning policy and its limits.

    Attributes:
        policy: Hudi's name of the policy.
        commits: for `KEEP_COMMITS`, number of latest completed writes whose states stay readable.
        versions: for `KEEP_VERSIONS`, number of latest slices kept in each file group.
        hours: for `KEEP_HOURS`, number of last hours whose states stay readable.
    """

    policy: str = KEEP_COMMITS
    commits: int = 10
    versions: int = 3
    hours: int = 24

    @staticmethod
    def of(options: Options) -> Retention:
        """Read the retention from the options."""
        return Retention(
            options[config.CLEAN_POLICY] or KEEP_COMMITS,
            options[config.CLEAN_COMMITS],
            options[config.CLEAN_VERSIONS],
            options[config.CLEAN_HOURS],
        )

    def __str__(self) -> str:
        if self.by_commits:
            return f"{self.policy}, {config.CLEAN_COMMITS.key}={self.commits}"
        if self.policy == KEEP_HOURS:
            return f"{self.policy}, {config.CLEAN_HOURS.key}={self.hours}"
        return f"{self.policy}, {config.CLEAN_VERSIONS.key}={self.versions}"

    @property
    def by_commits(self) -> bool:
        """Whether the policy counts commits."""
        return self.policy == KEEP_COMMITS

    @property
    def by_versions(self) -> bool:
        """Whether the policy counts the slices of each file group; the others retain states of the table."""
        return self.policy == KEEP_VERSIONS

    def since(self, now_ms: int, zone: str) -> str:
        """Return the time since which states stay readable; "" if the policy does not count hours.

        A local zone may repeat an hour, whose times are not told apart: there an hour more is retained.

        Args:
            now_ms: milliseconds since the epoch. A clock that was set back retains more.
            zone: the timeline's zone, ``UTC`` or ``LOCAL``.
        """
        if self.policy != KEEP_HOURS:
            return ""
        hours = self.hours + (zone != "UTC")
        return instant_text(max(0, now_ms - hours * _HOUR_MS), zone)

    def earliest(self, timeline: Timeline, since: str, *, with_history: bool = False) -> RetainedInstant | None:
        """Return the earliest retained write: the oldest of the last `commits` writes, or an older pending one.

        By hours, the first one that was completed in these hours takes the place of the last `commits` writes. None if
        there are no more writes than `commits`, none was completed in the hours, or the policy counts file slices.
        Pending compactions are ignored, as the slices that they need are retained separately.

        Args:
            since: the time that `since` returned; used by hours.
            with_history: whether to count archived writes, too. Archiving by the same options leaves what is needed on
                the active timeline; by those of another process it may not.
        """
        found = self._first_completed(timeline, since, with_history=with_history)
        if found is None:
            return None
        pending = (instant for instant in timeline.pending if instant.is_write and instant.action not in COMPACTIONS)
        earliest: Instant = min([found, *pending], key=_requested)
        return RetainedInstant(earliest.requested, earliest.action, earliest.state.name)

    def _first_completed(self, timeline: Timeline, since: str, *, with_history: bool) -> Instant | None:
        writes = timeline.completed_writes
        if self.by_versions or not writes:
            return None
        if self.by_commits:
            if with_history and len(writes) <= self.commits:
                writes = timeline.every_write
            return writes[-self.commits] if len(writes) > self.commits else None
        if with_history and (writes[0].completed or "") >= since:
            writes = timeline.every_write
        # A write may be completed before one that was requested before it.
        return next((write for write in writes if (write.completed or "") >= since), None)

    def needs_since(self, timeline: Timeline, zone: str) -> str | None:
        """Return the requested time of the oldest write that `earliest` may return later; None if it needs none.

        Archiving leaves it on the active timeline, with all that is younger. Hours are counted from the last time of
        the timeline, so that a clock that was ahead for a moment archives no more.
        """
        by_hours = self.policy == KEEP_HOURS and bool(timeline.last_time)
        since = self.since(instant_ms(timeline.last_time, zone), zone) if by_hours else ""
        retained = self.earliest(timeline, since)
        return retained.requested if retained else None


@dataclass(frozen=True)
class RetainedFiles:
    """The files that a clean must not delete at any age.

    Attributes:
        pending: names of the files in pending compaction plans, by file group.
        savepoints: names of the files that savepoints keep, by partition path.
    """

    pending: Mapping[FileGroupId, Collection[str]]
    savepoints: Mapping[str, Collection[str]]

    def holds(self, group: FileGroup, old: SliceFiles) -> bool:
        """Return whether a slice must be kept, which one retained file suffices for."""
        return any(self.needs(group, name) for name in old.files)

    def waits(self, group: FileGroup, old: SliceFiles) -> bool:
        """Return whether a pending compaction names a file of a slice."""
        planned = self.pending.get((group.partition_path, group.file_id), ())
        return any(name in planned for name in old.files)

    def needs(self, group: FileGroup, name: str) -> bool:
        """Return whether a pending compaction or a savepoint names this file."""
        planned = self.pending.get((group.partition_path, group.file_id), ())
        return name in planned or name in self.savepoints.get(group.partition_path, ())


@dataclass(frozen=True)
class CleanTargets:
    """The files that a clean deletes.

    Attributes:
        files: names by partition path.
        superseded_by: newest requested time of the writes that superseded these slices, "" without files. The state
            as of that write is the earliest that stays readable.
        held: partitions with slices that a pending compaction retains, ascending.
    """

    files: Mapping[str, tuple[str, ...]]
    superseded_by: str
    held: tuple[str, ...] = ()


def select_clean_targets(
    groups: Iterable[FileGroup],
    retention: Retention,
    earliest: str,
    kept: RetainedFiles,
    completion_time: Callable[[str], str | None],
) -> CleanTargets:
    """Select the files to delete, always of whole slices.

    Args:
        groups: all file groups, or those of some partitions.
        retention: the cleaning policy.
        earliest: requested time of the earliest retained write; "" deletes nothing by commits or hours.
        kept: the files to keep at any age.
        completion_time: returns the completion time of the write at a requested time.
    """

    def is_older(requested: str) -> bool:
        # A compaction may be requested before the earliest retained write, and completed after it: readers of the
        # states in between need the slice that it superseded. Hudi compares requested times.
        return (completion_time(requested) or requested) < earliest

    deleted: dict[str, list[str]] = {}
    held: dict[str, None] = {}
    newest = ""
    for group in groups:
        for old in _replaced(group, retention, is_older) or _superseded(group, retention, is_older, kept):
            if kept.waits(group, old):
                held[group.partition_path] = None
            elif not kept.holds(group, old):
                deleted.setdefault(group.partition_path, []).extend(old.files)
                newest = max(newest, _successor(group, old))
    files = {partition: tuple(sorted(names)) for partition, names in sorted(deleted.items())}
    return CleanTargets(files, newest, tuple(sorted(held)))


def deletable_files(groups: Iterable[FileGroup], kept: RetainedFiles) -> Iterator[tuple[str, str]]:
    """List the (partition path, name) of every file that a clean may delete: those of old slices, not retained.

    Here files are retained one by one. If a clean was interrupted after it deleted a base file, the logs of that slice
    appear in the slice before; they may be deleted although other files of that slice are retained.
    """
    for group in groups:
        for old in group.slices if group.replaced else group.slices[:-1]:
            yield from ((group.partition_path, name) for name in old.files if not kept.needs(group, name))


def _requested(instant: Instant) -> str:
    return instant.requested


def _replaced(group: FileGroup, retention: Retention, is_older: Callable[[str], bool]) -> Sequence[SliceFiles]:
    if group.replaced is None or (not retention.by_versions and not is_older(group.replaced)):
        return ()
    return group.slices


def _superseded(
    group: FileGroup, retention: Retention, is_older: Callable[[str], bool], kept: RetainedFiles
) -> Sequence[SliceFiles]:
    """Select the old slices of a group; unless by versions, those before the newest one older than `earliest`."""
    if not retention.by_versions:
        # Hudi keeps the newest slice before the earliest write too, even if that write made a base file itself.
        newest = max((found.key for found in group.slices if is_older(found.key)), default="")
        return [found for found in group.slices if found.key < newest]
    waits = (group.partition_path, group.file_id) in kept.pending
    # The slice that a pending compaction will create is counted already.
    stay = max(1, retention.versions - waits)
    return group.slices[:-stay]


def _successor(group: FileGroup, old: SliceFiles) -> str:
    later = [found.key for found in group.slices if found.key > old.key]
    return min(later, default=group.replaced or "")
