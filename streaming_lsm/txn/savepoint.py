"""Make and delete savepoints (docs/format/02-timeline.md, "Savepoint"; docs/layout.md, "Decision records").

A clean deletes files without the lock, and a writer that was stopped, and resumes after another one took the lock,
believes that it holds it. So a savepoint looks for the plans of cleans when its inflight file is there, and is decided
by a record: a clean that is planned later takes the lock over before, and decides that the savepoint is undone. A clean
that lost the lock cancels its plan.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from streaming_lsm.errors import CorruptFileError, Fenced
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import SAVEPOINT
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision import list_decisions, publish, undo_run
from streaming_lsm.txn.decision_record import DECISION_FOLDER, SAVEPOINT_RECORD, decision_path

_RUN = ".run"


def make_savepoint(
    storage: Storage, lock: TableLock, write: Instant, times: InstantSource, look: Callable[[], bytes]
) -> Instant:
    """Make a savepoint of a completed write.

    Args:
        lock: the table's, held by the caller.
        look: lists the files of the savepoint, when its inflight file is there, and returns the content of its
            completed file; raises an error if they are being cleaned.

    Returns:
        The completed savepoint.

    Raises:
        Fenced: another writer took the lock; there is no savepoint.
        CommitUnknown: the storage failed while the savepoint was decided; the next transaction completes or deletes it.
    """
    running = Instant(write.requested, SAVEPOINT, State.INFLIGHT)
    path = f"{decision_path(write.requested)}{SAVEPOINT_RECORD}{lock.owner.token}"
    lock.verify()
    storage.put_if_absent(path + _RUN, b"")
    with suppress(FileExistsError):  # one that died, of another program
        storage.put_if_absent(running.path, b"")
    try:
        data = look()
        lock.verify()
    except Exception:
        finish_savepoint(storage, path + _RUN)
        raise
    completed = running.completed_at(times.next())
    publish(storage, path, running, completed, data)
    try:
        lock.verify()
    except Fenced:
        if not _stands(storage, path + _RUN, completed):
            storage.delete(completed.path)
            raise
    storage.delete(path + _RUN)
    storage.delete(path)
    return completed


def _stands(storage: Storage, run: str, completed: Instant) -> bool:
    """Return whether a savepoint was decided before another writer took the lock, which has completed it or will.

    Else that writer has undone its run, and deleted both of its records, before it was decided. Then its inflight file
    is gone, or is that of another savepoint of the same write, which is completed or has a run record.

    Args:
        run: path of its run record.
        completed: the savepoint, whose completed file the caller has created.
    """
    if storage.exists(run):  # deleted last
        return True
    # A savepoint is made from its run record to its inflight file to its completed file: looked for in that order.
    if not storage.exists(completed.at(State.INFLIGHT).path):
        return False
    if any(
        other.rpartition("/")[2].startswith(completed.requested + SAVEPOINT_RECORD)
        for other in unfinished_savepoints(list_decisions(storage))
    ):
        return False
    found = (Instant.parse(name) for name in storage.names(TIMELINE_FOLDER) if name.startswith(completed.requested))
    return [each for each in found if each and each.is_completed and each.action == SAVEPOINT] == [completed]


def finish_savepoint(storage: Storage, record: str) -> None:
    """Complete a savepoint that its dead writer has decided, else delete its inflight file.

    Args:
        record: path of its run record.
    """
    requested = record.rpartition("/")[2].partition(".")[0]
    pending = Instant(requested, SAVEPOINT, State.INFLIGHT)
    path = record.removesuffix(_RUN)
    if storage.exists(pending.path) and undo_run(storage, pending, path):
        storage.delete(pending.path)
    storage.delete(record)


def unfinished_savepoints(decisions: frozenset[str]) -> list[str]:
    """Return the paths of the run records of savepoints among the names of the decision records."""
    return [
        f"{DECISION_FOLDER}/{name}" for name in sorted(decisions) if SAVEPOINT_RECORD in name and name.endswith(_RUN)
    ]


def lost_savepoints(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the inflight savepoints that no run record names: they were completed, and do not come back."""
    pending = [left for left in timeline.pending if left.action == SAVEPOINT]
    if not pending:
        return ()
    records = unfinished_savepoints(list_decisions(timeline.storage))
    made = {record.rpartition("/")[2].partition(".")[0] for record in records}
    return tuple(left for left in pending if left.requested not in made)


def check_savepoints(timeline: Timeline, requested: str | None = None) -> None:
    """Refuse a savepoint whose completed instant file was lost: it is not known which files it keeps.

    The timeline is loaded again if there is one, as it may have been made while that was loaded.

    Args:
        requested: of which write; None for any.

    Raises:
        CorruptFileError: there is such a savepoint.
    """
    if not lost_savepoints(timeline):
        return
    for lost in lost_savepoints(Timeline.load(timeline.storage, timeline.layout)):
        if requested in (None, lost.requested):
            raise CorruptFileError(
                f"{lost.path} in {timeline.storage.uri} has no completed instant file, which says what the savepoint "
                "keeps: if another program is making it, try again; else restore that file, or give the savepoint up: "
                f"lsm savepoint {timeline.storage.uri} {lost.requested} --delete"
            )


def delete_savepoint(storage: Storage, lock: TableLock, savepoint: Instant) -> None:
    """Delete a savepoint, completed or lost; raises `Fenced` if another writer took the lock.

    Its inflight file is deleted first: without the completed file it would look like one that is being made.
    """
    for path in dict.fromkeys((savepoint.at(State.INFLIGHT).path, savepoint.path)):
        lock.verify()
        storage.delete(path)
