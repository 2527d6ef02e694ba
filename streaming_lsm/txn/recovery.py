"""Recover a table at the start of a transaction: complete decided actions, and roll back failed writes.

*Recovery* also deletes leftovers of completed and rolled back actions: markers, heartbeats, decision records and
temporary files.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.actions.rollback import RollbackPlan
from streaming_lsm.format.internal_schema import SCHEMA_FOLDER
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER, heartbeat_path, is_alone, revoke_heartbeat, waiting_path
from streaming_lsm.lock.lease import Renewal
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.lock.markers import TEMP_FOLDER, delete_files, delete_markers, list_marked_files
from streaming_lsm.lock.owner import Owner
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Listing, Storage
from streaming_lsm.timeline.action_kind import CLEAN, RESTORE, REWRITES, ROLLBACK
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, WRITE_ACTIONS, Instant, State
from streaming_lsm.timeline.properties_file import finish_update
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.completed_rollback import UNRECORD_NOTHING, Unrecord, delete_revived, resume_completed
from streaming_lsm.txn.decision import reap_decisions, settle
from streaming_lsm.txn.decision_record import DECISION_FOLDER, Decision, decision_path
from streaming_lsm.txn.indexing import leave_timeline, own_indexings
from streaming_lsm.txn.lost_completion import check_later_writes, check_pending
from streaming_lsm.txn.plan_record import PLAN_RECORD, finish_cancellation
from streaming_lsm.txn.planned_actions import pending_rewrites, revert_to_requested
from streaming_lsm.txn.restore import DropMetadata, resume_restores
from streaming_lsm.txn.reverted_action import RevertedActions
from streaming_lsm.txn.rollback import clear_rolled_back, read_plan, resume_rollback, roll_back
from streaming_lsm.txn.savepoint import finish_savepoint, unfinished_savepoints

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Living:
    """Another living writer, whose action is pending.

    Attributes:
        owner: the writer; None for one that does not name itself.
        renewed_ms: when its heartbeat was renewed, milliseconds since the epoch.
        alone: whether other writes are to wait for its action.
    """

    owner: Owner | None
    renewed_ms: int
    alone: bool = False


def find_living(
    storage: Storage,
    timeline: Timeline,
    heartbeats: Listing,
    runtime: Runtime,
    lease_ms: int,
    own: Owner | None = None,
    formers: Set[str] = frozenset(),
) -> Mapping[Instant, Living]:
    """Find the pending actions of other living writers, which are theirs to complete; nothing is changed.

    Args:
        heartbeats: listing of the heartbeats' folder, made after the timeline was loaded.
        lease_ms: milliseconds without a renewal after which a heartbeat without an owner, as Hudi's, is nobody's.
        own: this transaction, if there is one.
        formers: tokens of the owners from which the lock was just taken. They count as dead, so their instants do, too.

    Returns:
        The actions with their writers.
    """
    beats = {entry.path: entry.modified_ms for entry in heartbeats}
    living: dict[Instant, Living] = {}
    for pending in timeline.pending:
        path = heartbeat_path(pending.requested)
        if path not in beats:
            continue
        try:
            seen = Renewal(storage.read(path), beats[path])
        except FileNotFoundError:
            continue
        owner, file = Owner.decode(seen.content), f"{storage.uri}/{path}"
        if owner is None:
            lives = runtime.is_fresh(file, seen, lease_ms)
        else:
            lives = owner != own and owner.token not in formers and runtime.is_writing(owner, file, seen)
        if lives:
            living[pending] = Living(owner, seen.modified_ms, is_alone(seen.content))
    return living


def settle_pending(
    storage: Storage,
    timeline: Timeline,
    decisions: frozenset[str],
    living: Collection[Instant] = (),
    own: Collection[Instant] = (),
) -> Timeline:
    """Decide every action that dead writers left pending, before any of its files is changed (see `settle`).

    Their writers may be stopped, not dead, and about to publish. Actions that they decided to complete are completed
    here, unless another program undoes them; the others they cannot publish any more.

    Args:
        decisions: as listed before `timeline` was loaded, see `settle`.
        living: actions of living writers, which are settled only if they are decided.
        own: this writer's own, which are not settled.

    Returns:
        The timeline afterwards; writes that are still pending, and not living, are to be rolled back.

    Raises:
        CommitUnknown: the storage failed, and a decision record could not be read.
        CorruptFileError: a decision record is damaged; or a pending write had been completed, see `check_pending`.
    """
    if delete_revived(storage, timeline):
        timeline = Timeline.load(storage, previous=timeline)
    timeline = _without_leftovers(storage, timeline, living, own)
    check_pending(storage, timeline)
    plans = (f"{DECISION_FOLDER}/{name}" for name in sorted(decisions) if name.endswith(PLAN_RECORD))
    cancelled = [path for path in plans if finish_cancellation(storage, path)]
    savepoints = unfinished_savepoints(decisions)
    for record in savepoints:
        finish_savepoint(storage, record)
    if cancelled or savepoints:
        timeline = Timeline.load(storage, previous=timeline)
    known = (*WRITE_ACTIONS, *REWRITES, CLEAN, ROLLBACK, RESTORE)
    left = {pending.requested for pending in own}
    indexings = own_indexings(storage, timeline.pending)
    found = [pending for pending in timeline.pending if pending.action in known or pending in indexings]
    found = [pending for pending in found if pending.requested not in left]
    if not found:
        return timeline
    reverted, lives = RevertedActions(storage), {pending.requested for pending in living}
    completed = [
        pending
        for pending in found
        if settle(storage, pending, decisions, reverted.has, is_living=pending.requested in lives)
    ]
    for pending in completed:
        _LOG.warning("completed %s in %s, as its writer had decided", pending.path, storage.uri)
    return Timeline.load(storage, previous=timeline) if completed or reverted.found else timeline


def _without_leftovers(
    storage: Storage, timeline: Timeline, living: Collection[Instant], own: Collection[Instant]
) -> Timeline:
    """Delete the instant files of void writes, archived and restored actions, and return the timeline without them.

    Void writes (see `Timeline.void_writes`) are not rolled back: files and markers of that requested time are those of
    the completed write. An archived action looks pending if its files were deleted while the folder was listed, or if
    its writer was stopped before it created one of them, and resumed when others had completed and archived it. So does
    a compaction or clean whose writer was stopped before it created the inflight file, and that a restore has undone.
    """
    void = [write for write in timeline.void_writes if write.action in WRITE_ACTIONS and write not in living]
    for write in void:
        _LOG.warning("deleting %s in %s: its requested time is that of another write", write.path, storage.uri)
    dead = [found for found in timeline.pending if not (found in living or found in own or found in void)]
    archived = [found for found in dead if _may_be_archived(timeline, found) and timeline.history.has(found)]
    undone = [found for found in dead if _is_undone(timeline, found)]
    for left in (*void, *archived, *undone):
        for path in left.pending_paths():
            storage.delete(path)
    return Timeline.load(storage, previous=timeline) if void or archived or undone else timeline


def _is_undone(timeline: Timeline, pending: Instant) -> bool:
    """Return whether a restore has deleted the plan of an action, of which an inflight file is left."""
    if pending.action not in (*REWRITES, CLEAN) or timeline.has_plan(pending):
        return False
    undone = timeline.finished_rollbacks(since=pending.requested)
    return pending.requested in undone or timeline.history.is_undone(pending.requested)


def _may_be_archived(timeline: Timeline, pending: Instant) -> bool:
    """Return whether the history is to be read: a plan may wait for long.

    Only what is oldest is archived, or a clean before a later one.
    """
    if pending.action not in (*REWRITES, CLEAN):
        return True
    if pending.action == CLEAN and any(clean.requested > pending.requested for clean in timeline.completed_cleans):
        return True
    return all(found.requested > pending.requested for found in timeline.instants if found.is_completed)


def recover(
    storage: Storage,
    lock: TableLock,
    timeline: Timeline,
    times: InstantSource,
    living: Collection[Instant] = (),
    *,
    unrecord: Unrecord = UNRECORD_NOTHING,
    drop_metadata: DropMetadata = lambda _: None,
    sweep: bool = True,
    lazy: bool = False,
) -> Timeline:
    """Finish pending rollbacks, roll back writes of dead writers, and delete files that their late tasks left.

    A compaction or clustering whose heartbeat names a dead owner is reverted to requested. Other ones, and cleans, are
    not changed: without such a heartbeat they may be another program's (docs/format/02-timeline.md, "Rollback").

    Args:
        lock: the table's, held by the caller.
        timeline: as returned by `settle_pending`.
        living: actions of living writers, which are left to them.
        unrecord: takes completed writes out of the metadata table.
        drop_metadata: drops the metadata table.
        sweep: whether temporary files are deleted from the folders of lock, timeline, columns, heartbeats and decisions
            even if nothing was undone and the lock was not taken over, and a failed update of the properties is undone.
            That lists the folders once more, so callers request it once for each opened table.
        lazy: whether writes of dead writers are left for a later recovery.

    Returns:
        The timeline afterwards.

    Raises:
        Fenced: another writer took the lock; it finishes the recovery.
        CorruptFileError: the completed instant file of a restore or of a write is gone, see `resume_restores` and
            `check_later_writes`.
    """
    # What begins from now on, a writer of another program that does not know this lock, is no dead writer's.
    seen = {write.requested for write in _pending_writes(timeline)}
    is_restored = resume_restores(storage, lock, timeline, times, drop_metadata)
    if is_restored:
        timeline = Timeline.load(storage, previous=timeline)
    resumed, is_changed = _resume_rollbacks(storage, lock, timeline, times, unrecord)
    if is_changed:
        timeline = Timeline.load(storage, previous=timeline)
    left = {pending.requested for pending in living}
    dead = [write for write in _pending_writes(timeline) if write.requested in seen - resumed - left]
    if lazy:
        # They are undone, and hold up nobody; their files stay for now.
        for write in dead:
            revoke_heartbeat(storage, lock, write.requested)
        dead = []
    if dead:
        # One without data files may be a completed one, whose completed file was lost: a later commit names it.
        check_later_writes(timeline, min(write.requested for write in dead))
        _roll_back_writes(storage, lock, timeline, times, dead)
    reverted = _revert_rewrites(storage, lock, timeline, left)
    undone = [found for found in own_indexings(storage, timeline.pending) if found.requested not in left]
    for indexing in undone:
        _LOG.warning("undoing %s in %s, whose process is dead", indexing.path, storage.uri)
        leave_timeline(storage, lock, indexing)
    if dead or reverted or undone:
        timeline = Timeline.load(storage, previous=timeline)
    _reap_markers(storage, lock, timeline)
    _reap_heartbeats(storage, lock, timeline)
    reap_decisions(storage, lock, frozenset(instant.requested for instant in timeline.pending))
    if sweep:
        finish_update(storage, lock.verify)
    if sweep or is_restored or is_changed or dead or reverted or undone or lock.formers:
        for folder in (".hoodie", TIMELINE_FOLDER, SCHEMA_FOLDER, HEARTBEAT_FOLDER, DECISION_FOLDER):
            storage.sweep(folder)
    return timeline


def _resume_rollbacks(
    storage: Storage, lock: TableLock, timeline: Timeline, times: InstantSource, unrecord: Unrecord
) -> tuple[set[str], bool]:
    """Finish the pending rollbacks.

    Returns:
        The requested times of the writes that they undo, and whether there were any.
    """
    plans = [(rollback, _checked_plan(storage, timeline, rollback)) for rollback in _pending_rollbacks(timeline)]
    undone = set()
    for rollback, plan in plans:
        if plan.completed is not None:
            if resume_completed(storage, lock, timeline, rollback, plan, times, unrecord):
                undone.add(plan.instant)
            continue
        undone.add(plan.instant)
        _LOG.warning("resuming the rollback %s of %s in %s", rollback.requested, plan.instant, storage.uri)
        if _is_decided(storage, plan.instant):
            _withdraw(storage, lock, rollback, plan)
        resume_rollback(storage, lock, rollback, plan, times)
    return undone, bool(plans)


def _roll_back_writes(
    storage: Storage, lock: TableLock, timeline: Timeline, times: InstantSource, dead: Sequence[Instant]
) -> None:
    finished = timeline.finished_rollbacks(since=dead[0].requested)
    # The newest first, as in Hudi: a write is undone only after the writes that build on it.
    for write in reversed(dead):
        if write.requested in finished:
            revoke_heartbeat(storage, lock, write.requested)
            clear_rolled_back(storage, lock, write)
        else:
            _LOG.warning("rolling back %s in %s, whose writer is dead", write.path, storage.uri)
            roll_back(storage, lock, write, times)


def _revert_rewrites(storage: Storage, lock: TableLock, timeline: Timeline, left: Set[str]) -> bool:
    """Revert compactions and clusterings of dead writers, but for those `left`; return whether there were any."""
    found = False
    for pending in pending_rewrites(timeline):
        if pending.requested not in left and _names_owner(storage, heartbeat_path(pending.requested)):
            _LOG.warning("putting %s in %s back to requested, as its writer is dead", pending.path, storage.uri)
            revert_to_requested(storage, lock, pending)
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
    if over:
        # Their writers may have been killed right after the completed files were created. A power loss that took these,
        # and not the markers' deletion, would leave files of a write that looks as if its completed file was lost.
        storage.sweep(TIMELINE_FOLDER)
    for instant in over:
        # Verified after the listing, so that writes of a later holder of the lock are not among these.
        lock.verify()
        _reap(storage, lock, timeline, instant)


def _reap(storage: Storage, lock: TableLock, timeline: Timeline, instant: str) -> None:
    """Delete the markers of a completed or rolled back write, and the marked files that it did not commit."""
    marked = set(list_marked_files(storage, instant))
    written = next((write for write in timeline.completed_writes if write.requested == instant), None)
    if written is None and timeline.completion_time(instant) is not None:
        # A task that was stopped when its write was completed may have made one since.
        written = timeline.history.write(instant)
        if written is None and any(storage.exists(path) for path in marked):
            folder = f"{TEMP_FOLDER}/{instant}"
            _LOG.warning("%s in %s: the history does not have its instant, so it is kept", folder, storage.uri)
            return
    if written is not None:
        marked -= timeline.read_commit(written).paths
    revoke_heartbeat(storage, lock, instant)
    delete_files(storage, lock, marked)
    delete_markers(storage, instant)


def _reap_heartbeats(storage: Storage, lock: TableLock, timeline: Timeline) -> None:
    pending = {instant.requested for instant in timeline.pending}
    names = [name for name in storage.names(HEARTBEAT_FOLDER) if name.partition(".")[0] not in pending]
    for name in names:
        if name.isdigit():
            revoke_heartbeat(storage, lock, name)
        elif name == waiting_path(name.partition(".")[0]).rpartition("/")[2]:
            storage.delete(f"{HEARTBEAT_FOLDER}/{name}")


def _pending_writes(timeline: Timeline) -> tuple[Instant, ...]:
    return tuple(instant for instant in timeline.pending if instant.action in WRITE_ACTIONS)


def _pending_rollbacks(timeline: Timeline) -> tuple[Instant, ...]:
    return tuple(instant for instant in timeline.pending if instant.action == ROLLBACK)


def _checked_plan(storage: Storage, timeline: Timeline, rollback: Instant) -> RollbackPlan:
    plan = read_plan(storage, rollback)
    if plan.completed is None:
        _refuse_completed(timeline, rollback, plan)
    return plan


def _refuse_completed(timeline: Timeline, rollback: Instant, plan: RollbackPlan) -> None:
    if any(write.requested == plan.instant for write in timeline.completed_writes):
        raise UnsupportedTable(
            f"{rollback.path} would undo the completed instant {plan.instant}, which this release cannot: "
            "finish it with Hudi, or delete the file to keep the instant"
        )


def _is_decided(storage: Storage, requested: str) -> bool:
    """Return whether a write was decided to be completed."""
    try:
        return Decision.read(storage, decision_path(requested)).completed is not None
    except FileNotFoundError:
        return False


def _withdraw(storage: Storage, lock: TableLock, rollback: Instant, plan: RollbackPlan) -> None:
    """Delete the pending files of a decided write before its rollback is resumed.

    Its writer may be stopped, not dead, and create the completed file later. It deletes that file, and gets
    `CommitUnknown`, as its instant has left the timeline.

    Raises:
        UnsupportedTable: the writer has completed the write meanwhile; no data file was deleted.
    """
    lock.verify()
    for path in Instant(plan.instant, plan.action, State.REQUESTED).pending_paths():
        storage.delete(path)
    _refuse_completed(Timeline.load(storage), rollback, plan)
