"""Schedule and find planned actions (compactions, clusterings, cleans), and revert failed runs that wrote files.

A *planned action* is on the timeline with its plan before it is run. A failed write is rolled back, and its instant is
not used again; a failed compaction or clustering is reverted to requested, and its next run has the same instant. So a
task of the first run may finish during the second run, and its file would become visible with those of the second.
Therefore the markers of all runs are kept until one run completes: its reconciliation deletes every file that a marker
names and the stats do not.
"""

from __future__ import annotations

from collections.abc import Set
from contextlib import suppress

from streaming_lsm.errors import CommitConflict, Fenced
from streaming_lsm.format.actions.rollback import RollbackMetadata
from streaming_lsm.format.avro.container import check_readable
from streaming_lsm.lock.heartbeat import revoke_heartbeat
from streaming_lsm.lock.lock import Held, TableLock
from streaming_lsm.lock.markers import delete_files, list_marked_files
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import CLEAN, CLUSTERING, COMPACTIONS, REWRITES, ROLLBACK
from streaming_lsm.timeline.instant import WRITE_ACTIONS, Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from streaming_lsm.txn.plan_record import cancel_plan, plan_record_path


def pending_compactions(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the pending compactions, the oldest first, log compactions among them."""
    return tuple(instant for instant in timeline.pending if instant.action in COMPACTIONS)


def pending_clusterings(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the pending clusterings, the oldest first."""
    return tuple(instant for instant in timeline.pending if instant.action == CLUSTERING)


def pending_rewrites(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the pending compactions and clusterings, the oldest first."""
    return tuple(instant for instant in timeline.pending if instant.action in REWRITES)


def pending_cleans(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the pending cleans, requested or inflight, the oldest first."""
    return tuple(instant for instant in timeline.pending if instant.action == CLEAN)


def create_pending(storage: Storage, instant: Instant, plan: bytes = b"") -> None:
    """Create a file of a new pending action.

    Raises:
        CommitConflict: a writer that was stopped and has lost the lock created it; it had drawn the same time.
    """
    try:
        storage.put_if_absent(instant.path, plan)
    except FileExistsError:
        raise CommitConflict(
            f"{instant.path} in {storage.uri} was made by a writer that lost the lock, and had drawn the same time: "
            "nothing was committed; retry"
        ) from None


def schedule(storage: Storage, lock: TableLock, planned: Instant, plan: bytes) -> None:
    """Schedule a planned action, see `Transaction.schedule`; the plan is cancelled if the lock is lost meanwhile."""
    lock.verify()
    check_readable(plan, f"{storage.uri}/{planned.path}")
    create_pending(storage, planned, plan)
    try:
        lock.verify()
    except Fenced:
        cancel_plan(storage, plan_record_path(DECISION_FOLDER, planned), plan)
        raise


def refuse_reused_time(storage: Storage, timeline: Timeline, planned: Instant) -> None:
    """Cancel a plan if another action has its requested time, or a write that was rolled back had it.

    Its writer, or that of the other action, drew the time, was stopped and lost the lock before it created the
    requested file; the next one, whose clock is behind the last time of the timeline, too, drew the same time. A plan
    with the time of a rolled back write, of which a run was accepted before, is run: no other action has its time now.

    Raises:
        CommitConflict: the plan was cancelled.
    """
    present = _other_action(timeline, planned)
    other = present or _rolled_back_write(timeline, planned)
    if other is None:
        return
    path = planned.at(State.REQUESTED).path
    with suppress(FileNotFoundError):
        cancel_plan(storage, plan_record_path(DECISION_FOLDER, planned), storage.read(path))
    if present is None and storage.exists(path):
        return
    which = other.path if present else f"the rolled back {other.action} {other.requested}"
    raise CommitConflict(
        f"{path} in {storage.uri} has the requested time of {which}, as its writer lost the lock while it "
        "scheduled the action: the plan was cancelled; schedule it again if it is due"
    )


def revert_to_requested(storage: Storage, lock: TableLock, rewrite: Instant) -> None:
    """Revert a compaction or clustering whose run is undone to requested; plan and markers are kept.

    The steps: fence its tasks; delete its files; delete the inflight file. If the writer dies in between, the
    action stays inflight, and is reverted again before its next run.

    Args:
        lock: the table's, held by the caller.

    Raises:
        Fenced: the lock is not held any more.
    """
    revoke_heartbeat(storage, lock, rewrite.requested, runs_again=True)
    delete_uncommitted_files(storage, lock, rewrite)
    lock.verify()
    storage.delete(rewrite.at(State.INFLIGHT).path)


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


def _other_action(timeline: Timeline, planned: Instant) -> Instant | None:
    """Return another action with the requested time of a planned one; None if there is none."""
    same_time = (found for found in timeline.instants if found.requested == planned.requested)
    return next((found for found in same_time if found.of_action != planned.of_action), None)


def _rolled_back_write(timeline: Timeline, planned: Instant) -> Instant | None:
    """Return a write with the requested time of a planned action that was rolled back; None if there is none.

    Other programs roll back compactions, too, and run them again.
    """
    rollback = timeline.finished_rollbacks(since=planned.requested).get(planned.requested)
    if rollback is None or rollback.action != ROLLBACK:
        return None
    try:
        undone = RollbackMetadata.decode(timeline.storage.read(rollback.path), rollback.path)
    except FileNotFoundError:  # archived meanwhile
        return None
    is_write = undone.action in WRITE_ACTIONS
    return Instant(undone.instant, undone.action, State.REQUESTED) if is_write else None
