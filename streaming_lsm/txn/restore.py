"""Restore a table to a savepoint (docs/format/02-timeline.md, "Restore").

A restore undoes every action that was completed after the write of the savepoint, and every pending one but cleans that
are inflight: one may have deleted files, which nothing but its metadata tells, and none deletes a file of the
savepoint. A plan with the requested time of a write that stays is left, too: its next run cancels it. It is planned,
accepted, cancelled and finished as the rollback of a completed write (`streaming_lsm.txn.completed_rollback`). The
files to delete are not in the plan: they are found by the times in their names. Its first run is recorded before the
plan is created, so that the plan is not taken for that of another program, which is left alone.

The completed files are deleted first, the last one first, so that each query sees the table as it was at some time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress

from streaming_lsm.errors import CommitConflict, CorruptFileError
from streaming_lsm.format.actions.restore import RestoreMetadata, RestorePlan
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER, revoke_heartbeat
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.lock.markers import delete_files, delete_markers
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import CLEAN, RESTORE, ROLLBACK, SAVEPOINT
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.partition_folders import partition_listings
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision import delete_decisions, open_run, publish
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from streaming_lsm.txn.plan_record import accept_plan, cancel_plan, is_accepted, plan_record_path
from streaming_lsm.txn.planned_actions import schedule
from streaming_lsm.txn.rollback import rollback_metadata

DropMetadata = Callable[[str], object]
"""Drops the metadata table, and logs why."""

_LOG = logging.getLogger(__name__)


def undone_by_restore(timeline: Timeline, savepoint: str) -> tuple[Instant, ...]:
    """Return the actions that a restore to a savepoint undoes, the last one first: pending ones before completed ones.

    Raises:
        CorruptFileError: the write of the savepoint is neither on the timeline nor archived.
    """
    saved = timeline.completion_time(savepoint)
    if saved is None:
        raise CorruptFileError(f"the write {savepoint} of a savepoint of {timeline.storage.uri} is gone: restore it")
    pending = [
        found
        for found in timeline.pending
        if found.action not in (ROLLBACK, RESTORE, SAVEPOINT)
        # A plan may have the requested time of a write that stays, whose files are told by that time alone.
        and (timeline.completion_time(found.requested) or "~") > saved
        and (found.action != CLEAN or found.state is State.REQUESTED)
    ]
    later = [write for write in timeline.completed_writes if (write.completed or "") > saved]
    newest_first = sorted(later, key=lambda write: write.completed or "", reverse=True)
    return (*sorted(pending, key=lambda found: found.requested, reverse=True), *newest_first)


def objection(timeline: Timeline, undone: Collection[Instant]) -> str | None:
    """Return why actions cannot be undone by a restore, by the timeline alone; None if they can."""
    times = {action.requested for action in undone}
    for found in timeline.instants:
        # One that is not completed lost its completed file, or is being made by another program.
        if found.action == SAVEPOINT and found.requested in times:
            return f"{found.file_name} keeps a later state: delete that savepoint first"
    return None


def restore_to(
    storage: Storage,
    lock: TableLock,
    savepoint: str,
    undone: Collection[Instant],
    times: InstantSource,
    drop_metadata: DropMetadata,
) -> Instant:
    """Undo the actions after a savepoint, to which there is no `objection`.

    Args:
        lock: the table's, held by the caller.
        savepoint: requested time of the savepoint.
        undone: see `undone_by_restore`.
        drop_metadata: drops the metadata table.

    Returns:
        The completed restore.

    Raises:
        CommitConflict, Fenced: another writer took the lock. The table is untouched if the plan was cancelled, else
            that writer finishes the restore.
    """
    plan = RestorePlan(tuple((action.requested, action.action) for action in undone), savepoint)
    planned = Instant(times.next(), RESTORE, State.REQUESTED)
    lock.verify()
    decision = open_run(storage, planned)
    schedule(storage, lock, planned, plan.encode())
    return _carry_out(storage, lock, planned, plan, times, drop_metadata, decision)


def resume_restores(
    storage: Storage, lock: TableLock, timeline: Timeline, times: InstantSource, drop_metadata: DropMetadata
) -> bool:
    """Finish the pending restores of this package, or cancel those that no run has accepted and that are out of date.

    Returns:
        Whether there were any.

    Raises:
        CommitConflict: another program's is pending.
        CorruptFileError: the completed instant file of a restore is gone, see `Timeline.check_restores`; or nothing is
            left of what another program's undoes, or of its plan.
    """
    own = refuse_beside_others(timeline)
    for found in own:
        with suppress(CommitConflict):  # cancelled since
            _resume(storage, lock, timeline, found, times, drop_metadata)
    return bool(own)


def refuse_beside_others(timeline: Timeline) -> list[Instant]:
    """Refuse to write beside a restore that another program has begun: it might undo that, and nobody would read it.

    Returns:
        The pending restores of this package.

    Raises:
        CommitConflict, CorruptFileError: see `resume_restores`.
    """
    pending = [found for found in timeline.pending if found.action == RESTORE]
    if not pending:
        return []
    timeline.check_restores()
    storage = timeline.storage
    records = {name.partition(".")[0] for name in storage.names(DECISION_FOLDER)}
    own = [found for found in pending if found.requested in records]
    begun = [found for found in pending if found not in own and found.state is State.INFLIGHT]
    # Loaded again: it may have been completed since, and its records deleted.
    now = Timeline.load(storage, timeline.layout) if begun else timeline
    for found in begun:
        if found in now.pending:
            _refuse_beside(now, found)
    return own


def _refuse_beside(timeline: Timeline, pending: Instant) -> None:
    uri, plan = timeline.storage.uri, timeline.restore_plan(pending)
    if plan is None:
        path = pending.at(State.REQUESTED).path
        raise CorruptFileError(f"{pending.path} in {uri} has no plan {path}: restore the plan")
    if plan.undone and timeline.has_undone_all(plan):
        raise CorruptFileError(
            f"{pending.path} in {uri} has no completed instant file, and nothing is left of what it undoes: if another "
            "program is about to complete it, try again; else that file was lost: restore it"
        )
    raise CommitConflict(f"{pending.path} in {uri} is pending, of another program: let it end first")


def _resume(
    storage: Storage,
    lock: TableLock,
    timeline: Timeline,
    planned: Instant,
    times: InstantSource,
    drop_metadata: DropMetadata,
) -> None:
    path, record = planned.at(State.REQUESTED).path, plan_record_path(DECISION_FOLDER, planned)
    try:
        data = storage.read(path)
    except FileNotFoundError:
        raise CorruptFileError(f"{planned.path} has no plan {path}: restore the plan") from None
    plan = RestorePlan.decode(data, path)
    if not is_accepted(storage, record) and _is_out_of_date(timeline, plan):
        _LOG.warning("cancelling %s in %s: the table was changed since it was planned", path, storage.uri)
        lock.verify()
        cancel_plan(storage, record, data)
        return
    _LOG.warning("resuming the restore %s of %s to %s", planned.requested, storage.uri, plan.savepoint)
    decision = open_run(storage, planned)
    _carry_out(storage, lock, planned, plan, times, drop_metadata, decision)


def _is_out_of_date(timeline: Timeline, plan: RestorePlan) -> bool:
    saved = any(found.action == SAVEPOINT and found.requested == plan.savepoint for found in timeline.instants)
    if not saved:
        return True
    undone = undone_by_restore(timeline, plan.savepoint)
    return objection(timeline, undone) is not None or plan.undone != tuple((u.requested, u.action) for u in undone)


def _carry_out(
    storage: Storage,
    lock: TableLock,
    planned: Instant,
    plan: RestorePlan,
    times: InstantSource,
    drop_metadata: DropMetadata,
    decision: str,
) -> Instant:
    accept_plan(storage, plan_record_path(DECISION_FOLDER, planned), planned)
    started_ms = times.now_ms()
    with suppress(FileExistsError):
        storage.put_if_absent(planned.at(State.INFLIGHT).path, b"")
    undone = dict.fromkeys(requested for requested, _ in plan.undone)
    for name in storage.names(HEARTBEAT_FOLDER):
        if name in undone:
            revoke_heartbeat(storage, lock, name)
    lock.verify()
    drop_metadata(f"the table is restored to {plan.savepoint}")
    timeline = Timeline.load(storage)
    _delete_instants(storage, lock, timeline, plan, completed=True)
    files = _files_of(storage, undone)
    delete_files(storage, lock, [path for paths in files.values() for path in paths])
    _delete_instants(storage, lock, timeline, plan, completed=False)
    # A writer that was stopped after it decided its write may have created the file again.
    _delete_instants(storage, lock, Timeline.load(storage, previous=timeline), plan, completed=True)
    rollbacks = tuple(rollback_metadata(planned, action, files.get(action[0], []), 0) for action in plan.undone)
    duration_ms = max(0, times.now_ms() - started_ms)
    metadata = RestoreMetadata(planned.requested, duration_ms, plan.undone, rollbacks)
    lock.verify()
    completed = planned.completed_at(times.next())
    publish(storage, decision, planned, completed, metadata.encode())
    for requested in undone:
        delete_markers(storage, requested)
    left = {name.partition(".")[0] for name in storage.names(DECISION_FOLDER)}
    for requested in (*undone, planned.requested):
        if requested in left:
            delete_decisions(storage, requested)
    return completed


def _delete_instants(
    storage: Storage, lock: TableLock, timeline: Timeline, plan: RestorePlan, *, completed: bool
) -> None:
    """Delete the completed files of the undone actions, or the pending ones, the last action first."""
    for requested, action in plan.undone:
        of_action = (requested, Instant.completed_action(action))
        for found in timeline.names.states.get(of_action, ()):
            if found.is_completed == completed:
                lock.verify()
                storage.delete(found.path)


def _files_of(storage: Storage, undone: Collection[str]) -> dict[str, list[str]]:
    """List the data files of the undone actions, by requested time."""
    files: dict[str, list[str]] = {}
    for entries in partition_listings(storage).values():
        for entry in entries:
            name = None if entry.is_dir else parse_file_name(entry.name, rfc103_names=True)
            if name is not None and name.instant in undone:
                files.setdefault(name.instant, []).append(entry.path)
    return files
