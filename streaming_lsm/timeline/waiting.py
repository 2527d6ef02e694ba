"""Compactions and cleans that wait on the timeline with their plan, and what becomes of one whose run ended early.

A write that fails is rolled back, and its instant never comes back. A compaction that fails goes back to requested, and
its next run has the same instant. So a task of the first run may finish while the second is under way, and its file
would become visible with the second's. Therefore the markers of all runs stay until one of them completes: its
reconciliation deletes every file that a marker names and its stats do not.
"""

from __future__ import annotations

from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.heartbeat import close_instant, heartbeat_path
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.markers import delete_files, list_marked_files
from streaming_lsm.timeline.timeline import Timeline

COMPACTION, CLEAN = "compaction", "clean"

SERVICES = frozenset({COMPACTION, CLEAN})
"""Actions that are planned first and carried out later, maybe by another process."""


def pending_compactions(timeline: Timeline) -> tuple[Instant, ...]:
    """Full compactions that wait or run, the oldest first."""
    return tuple(instant for instant in timeline.pending if instant.action == COMPACTION)


def pending_cleans(timeline: Timeline) -> tuple[Instant, ...]:
    """Cleans that wait or were begun, the oldest first."""
    return tuple(instant for instant in timeline.pending if instant.action == CLEAN)


def was_begun(storage: Storage, compaction: Instant) -> bool:
    """Whether a run of a pending compaction was begun, and not put back since."""
    return compaction.state is State.INFLIGHT or storage.exists(heartbeat_path(compaction.requested))


def put_back(storage: Storage, compaction: Instant) -> None:
    """Take a compaction whose run is over back to requested; the table's lock must be held.

    Its tasks are shut out, its files are deleted, and last it stops being inflight: whoever dies in between leaves
    it inflight, and the next writer puts it back again. Plan and markers stay.
    """
    close_instant(storage, compaction.requested)
    delete_files(storage, list_marked_files(storage, compaction.requested))
    storage.delete(compaction.at(State.INFLIGHT).path)
