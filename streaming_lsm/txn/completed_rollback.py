"""Roll back the last completed write (docs/format/02-timeline.md, "Rollback").

The rollback is planned as a compaction is: its writer cancels the plan if it lost the lock meanwhile, and the first run
accepts it (`streaming_lsm.txn.plan_record`). Until then the write is untouched. From then on the rollback is finished,
by the next transaction if its process dies. A plan names the completion time of the write, so that it is not taken for
that of a write that another program believed to be pending.

The completed file is deleted first, so that no query sees a part of the rows; then the delta commit of the metadata
table, the data files, and the pending files of the write, which hide its data files from readers until these are gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from streaming_lsm.errors import CommitConflict
from streaming_lsm.format.actions.rollback import RollbackPlan
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.lock.markers import delete_files, delete_markers, list_marked_files
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import CLEAN, ROLLBACK, SAVEPOINT
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision import delete_decisions, open_run, publish
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from streaming_lsm.txn.metadata_hook import MetadataHook
from streaming_lsm.txn.plan_record import accept_plan, cancel_plan, is_accepted, plan_record_path
from streaming_lsm.txn.planned_actions import schedule
from streaming_lsm.txn.rollback import planned_files, rollback_metadata, rollback_requests


@dataclass(frozen=True)
class Unrecord:
    """Takes a completed write out of the metadata table.

    Attributes:
        forget: drops the partitions of which base files may have its records, while it is completed still.
        undo: undoes the delta commits whose action is not completed on a timeline, those of some files.
    """

    forget: Callable[[Timeline, Instant], object] = lambda *_: None
    undo: Callable[[Timeline, Sequence[str]], object] = lambda *_: None

    @staticmethod
    def of(metadata: MetadataHook, living: Collection[Instant] = ()) -> Unrecord:
        """Take it out by a hook; `living`: see `MetadataHook.open`."""
        return Unrecord(
            lambda timeline, write: metadata.forget(timeline, write, living),
            lambda timeline, files: metadata.undo(timeline, files, living),
        )


UNRECORD_NOTHING = Unrecord()
_LOG = logging.getLogger(__name__)


def objection(timeline: Timeline, write: Instant, ended: Collection[str] = ()) -> str | None:
    """Return why a completed write cannot be rolled back, by the timeline and its history; None if it can.

    Args:
        ended: kinds of pending actions that will have ended before.
    """
    newest = max(timeline.completed_writes, key=lambda found: found.completed or "", default=None)
    if newest != write:
        return f"{newest.file_name if newest else 'nothing'} was completed after it: roll that back first"
    for saved in timeline.instants:
        # One that is not completed lost its completed file, or is being made by another program.
        if saved.action == SAVEPOINT and saved.requested >= write.requested:
            return f"{saved.file_name} keeps its files: delete the savepoint first"
    for pending in timeline.pending:
        is_later = pending.requested > (write.completed or "")
        if is_later and pending.action not in (CLEAN, ROLLBACK, SAVEPOINT, *ended):
            return f"{pending.file_name} was planned after it: finish that first"
        if pending.action == CLEAN and pending.requested > write.requested and write.action != "deltacommit":
            return f"{pending.file_name} may delete what it superseded: finish that first"
    return _out_of_order(timeline, write)


def _out_of_order(timeline: Timeline, write: Instant) -> str | None:
    """Return why the state before a write is not known; None if it is.

    The commit before it has the ledger and the number of files of that state. So that commit must be on the timeline,
    and no write may be archived that was completed later. Files of archived writes may still be on the timeline.
    """
    archived = timeline.history.writes()
    if write.requested in archived:
        return "it is archived"
    left = [found for found in timeline.completed_writes if found != write and found.requested not in archived]
    before = max((found.completed or "" for found in left), default="")
    last = max(archived.values(), key=lambda found: found.completed or "", default=None)
    if last is None or (last.completed or "") < before:
        return None
    return f"{last.file_name}, the last write before it, is archived"


def roll_back_completed(
    storage: Storage, lock: TableLock, timeline: Timeline, write: Instant, times: InstantSource, unrecord: Unrecord
) -> Instant:
    """Roll back a completed write, to which there is no `objection`.

    Args:
        lock: the table's, held by the caller.
        timeline: the timeline, loaded when the lock was acquired.
        unrecord: takes the write out of the metadata table.

    Returns:
        The completed rollback.

    Raises:
        CommitConflict, Fenced: another writer took the lock. The write is untouched if the plan was cancelled, else
            that writer finishes the rollback.
    """
    requests = rollback_requests(storage, write, timeline.read_commit(write).paths)
    plan = RollbackPlan(write.requested, write.action, requests, write.completed)
    rollback = Instant(times.next(), ROLLBACK, State.REQUESTED)
    schedule(storage, lock, rollback, plan.encode())
    return _carry_out(storage, lock, rollback, plan, times, unrecord)


def resume_completed(
    storage: Storage,
    lock: TableLock,
    timeline: Timeline,
    rollback: Instant,
    plan: RollbackPlan,
    times: InstantSource,
    unrecord: Unrecord,
) -> bool:
    """Finish the rollback of a completed write, or cancel it if no run has accepted it and there is an `objection`.

    Args:
        timeline: the timeline, loaded when the lock was acquired.

    Returns:
        Whether the write was rolled back.
    """
    record = plan_record_path(DECISION_FOLDER, rollback)
    if not is_accepted(storage, record):
        write = Instant(plan.instant, plan.action, State.COMPLETED, plan.completed)
        why = objection(timeline, write) if rollback.state is State.REQUESTED else None
        if why is not None:
            _LOG.warning("cancelling %s in %s: of %s, %s", rollback.path, storage.uri, write.path, why)
            lock.verify()
            cancel_plan(storage, record, storage.read(rollback.path))
            return False
    _LOG.warning("resuming the rollback %s of %s in %s", rollback.requested, plan.instant, storage.uri)
    with suppress(CommitConflict):  # cancelled since
        _carry_out(storage, lock, rollback, plan, times, unrecord)
        return True
    return False


def _carry_out(
    storage: Storage,
    lock: TableLock,
    rollback: Instant,
    plan: RollbackPlan,
    times: InstantSource,
    unrecord: Unrecord,
) -> Instant:
    accept_plan(storage, plan_record_path(DECISION_FOLDER, rollback), rollback)
    started_ms, decision = times.now_ms(), open_run(storage, rollback)
    with suppress(FileExistsError):
        storage.put_if_absent(rollback.at(State.INFLIGHT).path, b"")
    write = Instant(plan.instant, plan.action, State.COMPLETED, plan.completed)
    # Verified when the plan is accepted: no other write was completed since, and none is before the rollback is.
    lock.verify()
    unrecord.forget(Timeline.load(storage), write)
    lock.verify()
    storage.delete(write.path)
    files = sorted({*planned_files(plan), *list_marked_files(storage, write.requested)})
    unrecord.undo(Timeline.load(storage), files)
    delete_files(storage, lock, files)
    clear_completed(storage, write)
    metadata = rollback_metadata(rollback, (write.requested, write.action), files, times.now_ms() - started_ms)
    lock.verify()
    completed = rollback.completed_at(times.next())
    publish(storage, decision, rollback, completed, metadata.encode())
    delete_markers(storage, write.requested)
    delete_decisions(storage, write.requested)
    delete_decisions(storage, rollback.requested)
    return completed


def clear_completed(storage: Storage, write: Instant) -> None:
    """Delete the instant files of a rolled back write, those of a compaction's or clustering's plan included.

    The completed file is deleted again at the end: its writer, if it was stopped after it decided the write, may have
    created the file again. Without pending files it finds that its action has left the timeline, and deletes the file.
    """
    for state in Timeline.load(storage).names.states.get(write.of_action, ()):
        if not state.is_completed:
            storage.delete(state.path)
    storage.delete(write.path)


def delete_revived(storage: Storage, timeline: Timeline) -> bool:
    """Delete completed files of rolled back writes, whose writers were killed before they could; return if there were.

    Such a file has no pending files beside it, as the file of an action that is being archived.
    """
    lone = [write for write in timeline.completed_writes if timeline.names.states.get(write.of_action) == (write,)]
    if not lone:
        return False
    undone = (write for write in lone if timeline.is_undone(write.requested))
    revived = [write for write in undone if not timeline.is_archived(write.requested)]
    for write in revived:
        _LOG.warning("deleting %s in %s, which was rolled back", write.path, storage.uri)
        storage.delete(write.path)
    return bool(revived)
