"""Compactions and cleans that wait on the timeline with their plan, and what becomes of one whose run ended early.

A write that fails is rolled back, and its instant never comes back. A compaction that fails goes back to requested, and
its next run has the same instant. So a task of the first run may finish while the second is under way, and its file
would become visible with the second's. Therefore the markers of all runs stay until one of them completes: its
reconciliation deletes every file that a marker names and its stats do not.
"""

from __future__ import annotations

from collections.abc import Set

from streaming_lsm.lock.heartbeat import delete_heartbeat
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.lock.markers import delete_files, list_marked_files
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import CLEAN, COMPACTION
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline


def pending_compactions(timeline: Timeline) -> tuple[Instant, ...]:
    """Full compactions that wait or run, the oldest first."""
    return tuple(instant for instant in timeline.pending if instant.action == COMPACTION)


def pending_cleans(timeline: Timeline) -> tuple[Instant, ...]:
    """Cleans that wait or were begun, the oldest first."""
    return tuple(instant for instant in timeline.pending if instant.action == CLEAN)


def revert_to_requested(storage: Storage, lock: TableLock, compaction: Instant) -> None:
    """Take a compaction whose run is undone back to requested.

    Its tasks are shut out, its files are deleted, and last it stops being inflight: a writer that dies in between
    leaves it inflight, and its next run puts it back again. Plan and markers stay.

    Args:
        lock: the table's, held by the caller.

    Raises:
        Fenced: it is not held any more.
    """
    lock.verify()
    delete_heartbeat(storage, compaction.requested)
    delete_uncommitted_files(storage, lock, compaction)
    lock.verify()
    storage.delete(compaction.at(State.INFLIGHT).path)


def delete_uncommitted_files(storage: Storage, lock: TableLock, instant: Instant, kept: Set[str] = frozenset()) -> None:
    """Delete every file that a marker of the instant names, apart from those to be kept.

    The lock is looked at after the markers were listed: a later holder of the lock may run the same instant, and the
    markers of that run are then not among these.

    Raises:
        Fenced: the lock is not held any more.
    """
    delete_files(storage, lock, set(list_marked_files(storage, instant.requested)) - kept)
