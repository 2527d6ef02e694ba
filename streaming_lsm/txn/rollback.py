"""Roll back a pending write (docs/format/02-timeline.md, "Rollback").

A rollback can be interrupted after any step. The next transaction finds a pending rollback, whose plan it carries out
again, or a completed rollback of a write that is still pending, which it removes from the timeline; it never schedules
a second rollback of the same write.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from urllib.parse import unquote

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.actions.rollback import RollbackMetadata, RollbackPlan, RollbackRequest, RolledBackPartition
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.lock.heartbeat import revoke_heartbeat
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.lock.markers import delete_files, delete_markers, is_file_of, list_marked_files
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import ROLLBACK
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import WRITE_ACTIONS, Instant, State
from streaming_lsm.txn.decision import delete_decisions, open_run, publish
from streaming_lsm.txn.planned_actions import create_pending


def roll_back(storage: Storage, lock: TableLock, target: Instant, times: InstantSource) -> Instant:
    """Roll back a pending write that failed, or whose writer is dead.

    The steps: fence its tasks; plan the deletion of every marked file; delete the files; complete the rollback; delete
    the write's instant files, its markers, and last its decision record.

    Args:
        lock: the table's, held by the caller.
        target: a pending commit, deltacommit or replacecommit that is decided to be undone.
        times: source of the rollback's times.

    Returns:
        The completed rollback.

    Raises:
        Fenced: another writer took the lock; it finishes the rollback.
        CommitConflict: the same, and both drew the same time for the rollback.
    """
    revoke_heartbeat(storage, lock, target.requested)
    plan = _plan(storage, target)
    rollback = Instant(times.next(), ROLLBACK, State.REQUESTED)
    lock.verify()
    create_pending(storage, rollback, plan.encode())
    return _carry_out(storage, lock, rollback, plan, times)


def resume_rollback(
    storage: Storage, lock: TableLock, rollback: Instant, plan: RollbackPlan, times: InstantSource
) -> Instant:
    """Finish a pending rollback that another process began; see `roll_back`."""
    revoke_heartbeat(storage, lock, plan.instant)
    return _carry_out(storage, lock, rollback, plan, times)


def read_plan(storage: Storage, rollback: Instant) -> RollbackPlan:
    """Read the plan of a pending rollback.

    Raises:
        CorruptFileError: the plan is missing, or names files that the rolled back instant did not write.
        UnsupportedTable: the plan undoes an action other than a write.
    """
    path = rollback.at(State.REQUESTED).path
    try:
        plan = RollbackPlan.decode(storage.read(path), path)
    except FileNotFoundError:
        raise CorruptFileError(f"{rollback.path} has no plan {path}: restore the plan or delete the file") from None
    if plan.action not in WRITE_ACTIONS:
        raise UnsupportedTable(f"{path} rolls back a {plan.action}, which this release cannot: finish it with Hudi")
    for file in planned_files(plan):
        if not is_file_of(file, plan.instant) or any(part in ("", ".", "..") for part in file.split("/")):
            raise CorruptFileError(
                f"{path} would delete {file!r}, which instant {plan.instant} did not write: delete or restore the plan"
            )
    return plan


def planned_files(plan: RollbackPlan) -> tuple[str, ...]:
    """Return the paths of the plan's files, relative to the table.

    Plans contain absolute paths (docs/format/09-hudi-1.2.md, "1. Table folder"). Only the file name is taken from them,
    so that the rollback also works after the table was moved.
    """
    return tuple(
        "/".join(part for part in (request.partition_path, file.rpartition("/")[2]) if part)
        for request in plan.requests
        for file in request.files
    )


def clear_rolled_back(storage: Storage, lock: TableLock, target: Instant) -> None:
    """Delete the instant files of a rolled back write, files that late tasks created, markers and decision record.

    The decision record is deleted last: a writer that resumes finds either the record, or its instant gone. The lock is
    verified before at most a hundred data files. The other deletions are harmless after the lock was lost, too: the
    write is decided to be undone. They name its requested time, which another action has only if two writers drew it
    while their clocks were behind the timeline; see `streaming_lsm.txn.planned_actions.refuse_reused_time`.

    Raises:
        Fenced: another writer took the lock; it finishes the deletion.
    """
    for path in target.pending_paths():
        storage.delete(path)
    delete_files(storage, lock, list_marked_files(storage, target.requested))
    delete_markers(storage, target.requested)
    delete_decisions(storage, target.requested)


def rollback_requests(storage: Storage, target: Instant, files: Iterable[str]) -> tuple[RollbackRequest, ...]:
    """Return the requests to delete some files of an instant."""
    # Hadoop writes paths as URIs without escapes.
    root = unquote(storage.uri)
    return tuple(
        RollbackRequest(partition, _file_id(path), target.requested, (f"{root}/{path}",))
        for partition, paths in by_partition(files)
        for path in paths
    )


def _plan(storage: Storage, target: Instant) -> RollbackPlan:
    requests = rollback_requests(storage, target, list_marked_files(storage, target.requested))
    return RollbackPlan(target.requested, target.action, requests)


def _carry_out(
    storage: Storage, lock: TableLock, rollback: Instant, plan: RollbackPlan, times: InstantSource
) -> Instant:
    started_ms, decision = times.now_ms(), open_run(storage, rollback)
    with suppress(FileExistsError):
        storage.put_if_absent(rollback.at(State.INFLIGHT).path, b"")
    target = Instant(plan.instant, plan.action, State.REQUESTED)
    files = sorted({*planned_files(plan), *list_marked_files(storage, target.requested)})
    delete_files(storage, lock, files)
    metadata = rollback_metadata(rollback, (target.requested, target.action), files, times.now_ms() - started_ms)
    lock.verify()
    completed = rollback.completed_at(times.next())
    publish(storage, decision, rollback, completed, metadata.encode())
    clear_rolled_back(storage, lock, target)
    delete_decisions(storage, rollback.requested)
    return completed


def rollback_metadata(
    rollback: Instant, undone: tuple[str, str], files: Iterable[str], duration_ms: int
) -> RollbackMetadata:
    """Describe a rollback that deleted `files` of an undone action, which is named by requested time and action."""
    partitions = tuple(RolledBackPartition(name, tuple(paths)) for name, paths in by_partition(files))
    return RollbackMetadata(rollback.requested, max(0, duration_ms), *undone, partitions)


def by_partition(paths: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Group paths by their partition path, both ascending."""
    ordered = sorted(paths, key=_partition)
    return [(partition, sorted(group)) for partition, group in groupby(ordered, key=_partition)]


def _partition(path: str) -> str:
    return path.rpartition("/")[0]


def _file_id(path: str) -> str:
    name = parse_file_name(path.rpartition("/")[2], rfc103_names=True)
    return "" if name is None else name.file_id
