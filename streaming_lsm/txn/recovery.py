"""What a writer does first: undo what the dead left, so that it builds on a clean table."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from streaming_lsm.errors import CommitConflict, UnsupportedTable
from streaming_lsm.format.actions.rollback import RollbackPlan
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER, delete_heartbeat, heartbeat_path
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.lock.markers import TEMP_FOLDER, delete_files, delete_markers, list_marked_files
from streaming_lsm.lock.owner import Owner
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import CLEAN, COMPACTION, ROLLBACK
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, WRITE_ACTIONS, Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision import DECISION_FOLDER, reap_decisions, settle
from streaming_lsm.txn.lost_completion import check_pending
from streaming_lsm.txn.planned_actions import pending_compactions, revert_to_requested
from streaming_lsm.txn.rollback import clear_rolled_back, read_plan, resume_rollback, roll_back

_LOG = logging.getLogger(__name__)


def settle_pending(storage: Storage, timeline: Timeline) -> Timeline:
    """Decide what becomes of all that other writers have left pending, before any of it is touched.

    Their writers may only have been stopped, and be about to publish: what they decided first is completed here, and
    from here on they cannot publish the rest (see `settle`).

    Returns:
        The timeline afterwards; writes that are still pending are to be rolled back.

    Raises:
        CommitUnknown: the storage does not tell what was decided.
        CorruptFileError: a decision is damaged; or a write that seems to be a dead writer's was completed, see
            `check_pending`.
    """
    check_pending(storage, timeline)
    ours = [pending for pending in timeline.pending if pending.action in (*WRITE_ACTIONS, COMPACTION, CLEAN, ROLLBACK)]
    if not ours:
        return timeline
    decisions = frozenset(storage.names(DECISION_FOLDER))
    completed = [pending for pending in ours if settle(storage, pending, decisions)]
    for pending in completed:
        _LOG.warning("completed %s in %s, as its writer had decided", pending.path, storage.uri)
    return Timeline.load(storage, previous=timeline) if completed else timeline


def recover(
    storage: Storage, lock: TableLock, timeline: Timeline, times: InstantSource, *, sweep: bool = True
) -> Timeline:
    """Finish begun rollbacks, roll back writes of dead writers, and remove what late tasks of theirs left.

    A compaction whose heartbeat names a dead owner goes back to requested. Other compactions, cleans and clusterings
    are left alone: one that is inflight without such a heartbeat may be another program's (docs/format/02-timeline.md,
        "Rollback").

    Args:
        lock: the table's, held by the caller, who has refused to go on beside a living writer.
        timeline: as `settle_pending` left it.
        sweep: whether the timeline's folder is searched for half made files even where nothing had to be undone. That
            lists the folder once more, so it is done once for each table that is opened.

    Returns:
        The timeline afterwards.

    Raises:
        Fenced: another writer took the lock; it does what is left.
    """
    resumed = _resume_rollbacks(storage, lock, timeline, times)
    dead = [write for write in _pending_writes(timeline) if write.requested not in resumed]
    if dead:
        _roll_back_writes(storage, lock, timeline, times, dead)
    returned = _put_compactions_back(storage, lock, timeline)
    if resumed or dead or returned:
        timeline = Timeline.load(storage, previous=timeline)
    _reap_markers(storage, lock, timeline)
    _reap_heartbeats(storage, lock, timeline)
    reap_decisions(storage, lock, frozenset(instant.requested for instant in timeline.pending))
    storage.sweep(".hoodie")
    if sweep or resumed or dead or returned:
        storage.sweep(TIMELINE_FOLDER)
    return timeline


def refuse_concurrent_writers(storage: Storage, timeline: Timeline, runtime: Runtime, lease_ms: int) -> None:
    """See that nobody writes who has not taken the lock; nothing is changed.

    Args:
        lease_ms: a heartbeat that does not name its owner, as Hudi's, counts as living for so long.

    Raises:
        CommitConflict: a pending write belongs to a living writer.
    """
    beats = {entry.path: entry.modified_ms for entry in storage.list(HEARTBEAT_FOLDER)}
    for write in (*_pending_writes(timeline), *pending_compactions(timeline)):
        path = heartbeat_path(write.requested)
        if path not in beats:
            continue
        try:
            owner = Owner.decode(storage.read(path))
        except FileNotFoundError:
            continue
        fresh = runtime.clock() - beats[path] <= lease_ms
        if fresh if owner is None else runtime.is_alive(owner, beats[path]):
            raise CommitConflict(
                f"{write.path} in {storage.uri} is being written by {owner or 'a writer that does not name itself'}; "
                "retry when it is done"
            )


def _resume_rollbacks(storage: Storage, lock: TableLock, timeline: Timeline, times: InstantSource) -> set[str]:
    """Carry out what is pending; the requested times of the writes that this undid."""
    plans = [(rollback, _checked_plan(storage, timeline, rollback)) for rollback in _pending_rollbacks(timeline)]
    for rollback, plan in plans:
        _LOG.warning("resuming the rollback %s of %s in %s", rollback.requested, plan.instant, storage.uri)
        resume_rollback(storage, lock, rollback, plan, times)
    return {plan.instant for _, plan in plans}


def _roll_back_writes(
    storage: Storage, lock: TableLock, timeline: Timeline, times: InstantSource, dead: Sequence[Instant]
) -> None:
    finished = timeline.finished_rollbacks(since=dead[0].requested)
    # The newest first, as Hudi does: an older write never sees the files of a newer one that is half gone.
    for write in reversed(dead):
        if write.requested in finished:
            lock.verify()
            delete_heartbeat(storage, write.requested)
            clear_rolled_back(storage, lock, write)
        else:
            _LOG.warning("rolling back %s in %s, whose writer is dead", write.path, storage.uri)
            roll_back(storage, lock, write, times)


def _put_compactions_back(storage: Storage, lock: TableLock, timeline: Timeline) -> bool:
    """Whether there was one to be put back."""
    found = False
    for compaction in pending_compactions(timeline):
        if _names_owner(storage, heartbeat_path(compaction.requested)):
            _LOG.warning("putting %s in %s back to requested, as its writer is dead", compaction.path, storage.uri)
            revert_to_requested(storage, lock, compaction)
            found = True
    return found


def _names_owner(storage: Storage, heartbeat: str) -> bool:
    try:
        return Owner.decode(storage.read(heartbeat)) is not None
    except FileNotFoundError:
        return False


def _reap_markers(storage: Storage, lock: TableLock, timeline: Timeline) -> None:
    pending = {instant.requested for instant in timeline.pending}
    over = [
        entry.name
        for entry in storage.list(TEMP_FOLDER)
        if entry.is_dir and entry.name.isdigit() and entry.name not in pending
    ]
    for instant in over:
        # After the listing: the writes of a later holder of the lock are not among these, though not on `timeline`.
        lock.verify()
        _reap(storage, lock, timeline, instant)


def _reap(storage: Storage, lock: TableLock, timeline: Timeline, instant: str) -> None:
    """Remove the markers of a write that is over, and the files they name that it did not commit."""
    written = next((write for write in timeline.completed_writes if write.requested == instant), None)
    marked = set(list_marked_files(storage, instant))
    if written is not None:
        marked -= timeline.read_commit(written).paths
    elif timeline.completion_time(instant) is not None:
        _LOG.warning("%s/%s in %s: its instant is archived, so it stays", TEMP_FOLDER, instant, storage.uri)
        return
    delete_heartbeat(storage, instant)
    delete_files(storage, lock, marked)
    delete_markers(storage, instant)


def _reap_heartbeats(storage: Storage, lock: TableLock, timeline: Timeline) -> None:
    pending = {instant.requested for instant in timeline.pending}
    over = [name for name in storage.names(HEARTBEAT_FOLDER) if name.isdigit() and name not in pending]
    for instant in over:
        lock.verify()
        delete_heartbeat(storage, instant)


def _pending_writes(timeline: Timeline) -> tuple[Instant, ...]:
    return tuple(instant for instant in timeline.pending if instant.action in WRITE_ACTIONS)


def _pending_rollbacks(timeline: Timeline) -> tuple[Instant, ...]:
    return tuple(instant for instant in timeline.pending if instant.action == ROLLBACK)


def _checked_plan(storage: Storage, timeline: Timeline, rollback: Instant) -> RollbackPlan:
    plan = read_plan(storage, rollback)
    if any(write.requested == plan.instant for write in timeline.completed_writes):
        raise UnsupportedTable(
            f"{rollback.path} would undo the completed instant {plan.instant}, which this release cannot: "
            "finish it with Hudi, or delete the file to keep the instant"
        )
    return plan
