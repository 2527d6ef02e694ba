"""Find planned actions (compactions and cleans), and revert failed runs of compactions.

A *planned action* is on the timeline with its plan before it is run. A failed write is rolled back, and its instant is
not used again; a failed compaction is reverted to requested, and its next run has the same instant. So a task of the
first run may finish during the second run, and its file would become visible with those of the second. Therefore the
markers of all runs are kept until one run completes: its reconciliation deletes every file that a marker names and the
stats do not.
"""

from __future__ import annotations

from collections.abc import Set

from streaming_lsm.lock.heartbeat import revoke_heartbeat
from streaming_lsm.lock.lock import Held, TableLock
from streaming_lsm.lock.markers import delete_files, list_marked_files
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import CLEAN, COMPACTION
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline


def pending_compactions(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the pending compactions, the oldest first, without log compactions."""
    return tuple(instant for instant in timeline.pending if instant.action == COMPACTION)


def pending_cleans(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the pending cleans, requested or inflight, the oldest first."""
    return tuple(instant for instant in timeline.pending if instant.action == CLEAN)


def revert_to_requested(storage: Storage, lock: TableLock, compaction: Instant) -> None:
    """Revert a compaction whose run is undone to requested; plan and markers are kept.

    The steps: fence its tasks; delete its files; delete the inflight file. If the writer dies in between, the
    compaction stays inflight, and is reverted again before its next run.

    Args:
        lock: the table's, held by the caller.

    Raises:
        Fenced: the lock is not held any more.
    """
    revoke_heartbeat(storage, lock, compaction.requested, runs_again=True)
    delete_uncommitted_files(storage, lock, compaction)
    lock.verify()
    storage.delete(compaction.at(State.INFLIGHT).path)


def delete_uncommitted_files(storage: Storage, held: Held, instant: Instant, kept: Set[str] = frozenset()) -> None:
    """Delete every file that a marker of the instant names, except the files in `kept` and those of a completed write.

    Another action may have the same requested time: a writer whose clock is behind draws the time again that a stopped
    writer has drawn. That write's markers may remain, when its files are committed.

    What is held is verified after the markers are listed: a later writer may run the same instant, and the markers of
    that run are not in the list.

    Args:
        held: the lock, or the claim of the instant.

    Raises:
        Fenced: it is not held any more.
    """
    marked = set(list_marked_files(storage, instant.requested)) - kept
    if marked:
        delete_files(storage, held, marked - _committed_files(storage, instant.requested))


def _committed_files(storage: Storage, requested: str) -> Set[str]:
    """Return the paths of the files of all completed writes with a requested time."""
    timeline = Timeline.load(storage)
    writes = [write for write in timeline.completed_writes if write.requested == requested]
    return {path for write in writes for path in timeline.read_commit(write).paths}


def other_action(timeline: Timeline, planned: Instant) -> Instant | None:
    """Return another action with the requested time of a planned one; None if there is none."""
    same_time = (found for found in timeline.instants if found.requested == planned.requested)
    return next((found for found in same_time if found.of_action != planned.of_action), None)
