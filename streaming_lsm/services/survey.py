"""List the file slices of a table before its lock is acquired, and bring the list up to date while it is held.

A table may have many partitions: while the lock is held only those are listed that were written in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from streaming_lsm.errors import LsmError
from streaming_lsm.file_group.consistent_listing import list_file_slices
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.lost_files import checked_slices
from streaming_lsm.services.context import ServiceContext
from streaming_lsm.timeline.action_kind import SAVEPOINT
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.planned_actions import pending_cleans, pending_rewrites

T = TypeVar("T")
_LOOKS = 9


@dataclass(frozen=True)
class Survey:
    """The latest slice of every file group as of a timeline.

    Attributes:
        timeline: the timeline.
        slices: the slices, ordered by partition and file id; no committed file is missing.
    """

    timeline: Timeline
    slices: Sequence[FileSlice]

    @classmethod
    def of(cls, context: ServiceContext) -> Survey:
        """List the table as it is now; raises as `list_file_slices`."""
        return cls(*list_file_slices(lambda: context.view(context.load_timeline())))

    def at(self, context: ServiceContext, timeline: Timeline) -> Sequence[FileSlice]:
        """Return the slices as of a later timeline."""
        if not is_continued(self.timeline, timeline):
            return checked_slices(context.view(timeline))
        known = frozenset(self.timeline.completed_writes)
        written = _partitions(timeline, [write for write in timeline.completed_writes if write not in known])
        if not written:
            return self.slices
        view = context.view(timeline)
        kept = [found for found in self.slices if found.partition_path not in written]
        new = [found for path in sorted(written) for found in view.slices_in(path, context.storage.list(path))]
        return sorted([*kept, *new], key=lambda found: (found.partition_path, found.file_id))


def is_continued(before: Timeline, now: Timeline) -> bool:
    """Return whether all writes and savepoints of an earlier timeline are on a later one, which has no new savepoint.

    Then each file slice that was superseded before is so now. Writes may have been archived since, if there are none
    among them that the earlier timeline did not have: what such a write changed would be unknown.
    """
    if savepoints(before) != savepoints(now):
        return False
    known, left = frozenset(before.completed_writes), frozenset(now.completed_writes)
    if known and known <= left:  # older ones are archived first; an empty timeline has none that shows it
        return True
    archived = frozenset(now.history.writes_since(before.first))
    return archived <= known and known <= left | archived


def looked(context: ServiceContext, look: Callable[[Timeline], T]) -> T:
    """Look at a table without its lock, and look again if what was looked at was taken away meanwhile.

    Another process may roll back a write, or complete a planned action and archive it, between the load of the timeline
    and the read of a file that it names.

    Args:
        look: reads files of a timeline as of now.

    Raises:
        LsmError, OSError: what `look` raises though nothing was taken away.
    """
    for _ in range(_LOOKS):
        timeline = context.load_timeline()
        try:
            return look(timeline)
        except (LsmError, OSError):
            if _is_kept(timeline, context.load_timeline()):
                raise
    return look(context.load_timeline())


def _is_kept(before: Timeline, now: Timeline) -> bool:
    """Return whether a later timeline continues an earlier one, and has all plans that were pending on it."""
    return is_continued(before, now) and _plans(before) <= _plans(now)


def _plans(timeline: Timeline) -> set[str]:
    """Return the requested times of the pending plans."""
    return {plan.requested for plan in (*pending_rewrites(timeline), *pending_cleans(timeline))}


def savepoints(timeline: Timeline) -> list[Instant]:
    """Return the completed savepoints of a timeline, by requested time."""
    return [instant for instant in timeline.instants if instant.action == SAVEPOINT and instant.is_completed]


def _partitions(timeline: Timeline, writes: Sequence[Instant]) -> set[str]:
    """Return the paths of the partitions that some writes have changed."""
    found: set[str] = set()
    for write in writes:
        commit = timeline.read_commit(write)
        found.update(stat.partition_path for stat in commit.stats)
        found.update(commit.replaced or {})
    return found
