"""Choose the partitions that a clean examines (docs/format/06-services.md, "Cleaning").

A clean by commits or hours deletes slices that writes have superseded which were completed before the earliest retained
write. An *incremental* clean examines the partitions of those writes that the last clean has not examined, instead of
every partition: what else a clean could find was deleted by the last one, or retained by a savepoint or a plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView
from streaming_lsm.file_group.lost_files import check_files, check_partitions
from streaming_lsm.format.actions.clean import CleanMetadata, Examined
from streaming_lsm.format.table.file_names import InlineLogName, LogFileName, parse_file_name
from streaming_lsm.services.survey import savepoints
from streaming_lsm.storage.base import Listing
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.partition_folders import listings_of
from streaming_lsm.timeline.timeline import Timeline

_MOST_COMMITS = 100
"""Commits that are read at most to find their partitions: where there are more, every partition is listed."""


@dataclass(frozen=True)
class PartitionScope:
    """The partitions that a clean examines.

    Attributes:
        timeline: the timeline as of which they are chosen.
        last: what the last clean has examined, with which this one goes on; None to examine every partition.
        partitions: their paths, ascending; None for every partition.
    """

    timeline: Timeline
    last: Examined | None = None
    partitions: tuple[str, ...] | None = None

    @classmethod
    def of(cls, timeline: Timeline, until: str) -> PartitionScope:
        """Choose the partitions in which a clean may find files; reads the last clean, and the commits since.

        Args:
            until: slices are deletable that a write completed before this time has superseded.
        """
        last = _last_examined(timeline)
        if last is None or until < last.until or not frozenset(_savepoint_names(timeline)).issuperset(last.savepoints):
            return cls(timeline)
        known = _writes_since(timeline, timeline.history.writes_since(last.since), last.until)
        writes = [write for write in known if (write.completed or "") < until]
        if len(writes) > _MOST_COMMITS:
            return cls(timeline)
        found = {*last.held, *(partition for write in writes for partition in _superseding(timeline, write))}
        return cls(timeline, last, tuple(sorted(found)))

    def listings(self, view: FileSystemView) -> Mapping[str, Listing]:
        """List the partitions, by their paths ascending."""
        if self.partitions is None:
            return dict(sorted(view.listings().items()))
        return listings_of(view.storage, self.partitions)

    def check(self, view: FileSystemView, slices: Iterable[FileSlice]) -> None:
        """Check that no committed file of the latest slices is missing; incrementally, of the last writes.

        Raises:
            CorruptFileError: a committed file is missing.
        """
        if self.partitions is None or self.last is None:
            check_files(view, slices)
        else:
            check_partitions(view, slices, self.partitions, self.last.until)

    def examined(self, until: str, held: Sequence[str]) -> Examined:
        """Return what is examined after this clean.

        Args:
            until: see `of`.
            held: partitions with slices that only a pending compaction retains.
        """
        timeline = self.timeline
        archived = (
            timeline.history.writes().values() if self.last is None else timeline.history.writes_since(self.last.since)
        )
        late = [write.requested for write in _writes_since(timeline, archived, until)]
        since = min([until, *late, *(pending.requested for pending in timeline.pending)])
        return Examined(until, since, tuple(_savepoint_names(timeline)), tuple(held))


def _last_examined(timeline: Timeline) -> Examined | None:
    """Return what the newest completed clean has examined; None if there is no clean, or it does not say so."""
    newest = timeline.completed_cleans[-1] if timeline.completed_cleans else timeline.history.newest_clean()
    if newest is None:
        return None
    return CleanMetadata.decode(timeline.read_content(newest), newest.path).examined


def _writes_since(timeline: Timeline, archived: Iterable[Instant], completed: str) -> list[Instant]:
    """Return the writes that were completed at a time or later, by requested time."""
    writes = {write.requested: write for write in (*archived, *timeline.completed_writes)}
    return [writes[time] for time in sorted(writes) if (writes[time].completed or "") >= completed]


def _superseding(timeline: Timeline, write: Instant) -> Iterator[str]:
    """Yield the partitions in which a write made base files, or replaced file groups."""
    commit = timeline.read_commit(write)
    yield from commit.replaced or {}
    for stat in commit.stats:
        # A file of a name that is not known may be anything.
        if not isinstance(parse_file_name(stat.file_name, rfc103_names=True), LogFileName | InlineLogName):
            yield stat.partition_path


def _savepoint_names(timeline: Timeline) -> list[str]:
    """Return the file names of the savepoints, which tell one that was made anew from the one before."""
    return [savepoint.file_name for savepoint in savepoints(timeline)]
