"""Which file slices a clean deletes (docs/format/06-services.md, "Cleaning"). No files are touched here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.file_group.file_group import FileGroup, SliceFiles
from streaming_lsm.format.actions.clean import RetainedInstant
from streaming_lsm.services.context import FileGroupId
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

KEEP_COMMITS = "KEEP_LATEST_COMMITS"
KEEP_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"


@dataclass(frozen=True)
class Retention:
    """What a clean keeps.

    Attributes:
        policy: Hudi's name of the policy.
        commits: `KEEP_COMMITS`: so many of the last completed writes stay readable as of their time.
        versions: `KEEP_VERSIONS`: so many slices of each file group stay.
    """

    policy: str = KEEP_COMMITS
    commits: int = 10
    versions: int = 3

    @staticmethod
    def of(options: Options) -> Retention:
        """The retention that the options ask for."""
        return Retention(
            options[config.CLEAN_POLICY] or KEEP_COMMITS,
            options[config.CLEAN_COMMITS],
            options[config.CLEAN_VERSIONS],
        )

    @property
    def by_commits(self) -> bool:
        """Whether the timeline decides."""
        return self.policy == KEEP_COMMITS

    def earliest(self, timeline: Timeline) -> RetainedInstant | None:
        """The earliest write whose state is to stay readable: of the last so many, or an older one that is pending.

        None when there are not more writes than that, or the policy does not count writes. A compaction that waits
        does not hold cleaning up: the slices it needs are kept by themselves.
        """
        writes = timeline.completed_writes
        if not self.by_commits or len(writes) <= self.commits:
            return None
        pending = (instant for instant in timeline.pending if instant.is_write and instant.action != "compaction")
        earliest: Instant = min([writes[-self.commits], *pending], key=lambda instant: instant.requested)
        return RetainedInstant(earliest.requested, earliest.action, earliest.state.name)


@dataclass(frozen=True)
class RetainedFiles:
    """What a clean must not delete, whatever its age.

    Attributes:
        pending: by file group the files that pending compactions are to merge.
        savepoints: by partition path the files that savepoints keep.
    """

    pending: Mapping[FileGroupId, Collection[str]]
    savepoints: Mapping[str, Collection[str]]

    def holds(self, group: FileGroup, old: SliceFiles) -> bool:
        """Whether a slice stays, as a whole, because of one of its files."""
        return any(self.needs(group, name) for name in old.files)

    def needs(self, group: FileGroup, name: str) -> bool:
        """Whether a pending compaction or a savepoint names this file."""
        planned = self.pending.get((group.partition_path, group.file_id), ())
        return name in planned or name in self.savepoints.get(group.partition_path, ())


@dataclass(frozen=True)
class CleanTargets:
    """What a clean deletes.

    Attributes:
        files: names by partition path.
        superseded_by: newest requested time of a write that made one of these slices old, "" without files. The
            state as of that write is the earliest that stays readable.
    """

    files: Mapping[str, tuple[str, ...]]
    superseded_by: str


def select_clean_targets(
    groups: Iterable[FileGroup], retention: Retention, earliest: str, kept: RetainedFiles
) -> CleanTargets:
    """The files to delete; whole slices only.

    Args:
        groups: all file groups, or those of some partitions.
        earliest: requested time of the earliest write to stay readable; "" deletes nothing by commits.
        kept: what stays whatever its age.
    """
    deleted: dict[str, list[str]] = {}
    newest = ""
    for group in groups:
        for old in _replaced(group, retention, earliest) or _superseded(group, retention, earliest, kept):
            if not kept.holds(group, old):
                deleted.setdefault(group.partition_path, []).extend(old.files)
                newest = max(newest, _successor(group, old))
    return CleanTargets({partition: tuple(sorted(names)) for partition, names in sorted(deleted.items())}, newest)


def deletable_files(groups: Iterable[FileGroup], kept: RetainedFiles) -> Iterator[tuple[str, str]]:
    """(Partition path, name) of every file that some clean may delete: not what readers or pending services need.

    Kept files count one by one here. When a clean has deleted a base file and died, logs of its slice seem to belong
    to the slice before; they may go although that one is kept.
    """
    for group in groups:
        for old in group.slices if group.replaced else group.slices[:-1]:
            yield from ((group.partition_path, name) for name in old.files if not kept.needs(group, name))


def _replaced(group: FileGroup, retention: Retention, earliest: str) -> Sequence[SliceFiles]:
    if group.replaced is None or (retention.by_commits and group.replaced >= earliest):
        return ()
    return group.slices


def _superseded(group: FileGroup, retention: Retention, earliest: str, kept: RetainedFiles) -> Sequence[SliceFiles]:
    """Old slices of a group: by commits those before the newest one that is older than `earliest`."""
    if retention.by_commits:
        older = [found for found in group.slices[:-1] if found.key < earliest]
        # Hudi keeps the newest slice before the earliest write too, even where that write made a base file itself.
        newest = max((found.key for found in group.slices if found.key < earliest), default="")
        return [found for found in older if found.key != newest]
    waits = (group.partition_path, group.file_id) in kept.pending
    # A pending compaction is about to make a slice: it is counted before it is there.
    stay = max(1, retention.versions - waits)
    return group.slices[:-stay]


def _successor(group: FileGroup, old: SliceFiles) -> str:
    later = [found.key for found in group.slices if found.key > old.key]
    return min(later, default=group.replaced or "")
