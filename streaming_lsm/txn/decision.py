"""Decide atomically whether a pending action is completed or undone (docs/layout.md, "Decision records").

A *decision record* (`streaming_lsm.txn.decision_record`) is created if absent: by the writer that completes the
action, with the content of the completed file, or by a writer that undoes it. The first writer to create the record
decides; the other one reads the record and carries it out. So an acknowledged commit is never rolled back, even if
several writers believe that they hold the lock.

A *run* is one attempt at a compaction, clean or rollback, whose instant is kept when an attempt fails. Each run is
recorded when it starts, and has a decision record of its own.

A decision record is valid while its action is pending, and is deleted afterwards. A writer that creates a record later
finds on the timeline that the action is not pending any more, and deletes its record.
"""

from __future__ import annotations

from collections.abc import Callable

from streaming_lsm.errors import CommitUnknown, CorruptFileError, Fenced
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import kind_of
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision_record import DECISION_FOLDER, SAVEPOINT_RECORD, Decision, decision_path
from streaming_lsm.txn.plan_record import PLAN_RECORD, finish_cancellation

_RUN = ".run"
_ATTEMPTS = 3

IsReverted = Callable[[Instant, Decision], bool]
"""Check whether another program undoes an action that was decided to be completed."""


def open_run(storage: Storage, action: Instant) -> str:
    """Record a new run of a compaction, clean or rollback.

    Returns:
        The path of the run's decision record.

    Raises:
        Fenced: another writer recorded a run at the same time.
    """
    runs = [number for name in storage.names(DECISION_FOLDER) if (number := _run_number(name, action)) is not None]
    path = f"{decision_path(action.requested)}.{max(runs, default=-1) + 1}"
    try:
        storage.put_if_absent(path + _RUN, b"")
    except FileExistsError:
        raise Fenced(f"{path}{_RUN} in {storage.uri} was made by another writer: stop") from None
    return path


def _run_number(name: str, action: Instant) -> int | None:
    owner, _, number = name.removesuffix(_RUN).partition(".")
    return int(number) if owner == action.requested and number.isdigit() else None


def publish(
    storage: Storage, path: str, running: Instant, completed: Instant, data: bytes, *, confirm: bool = True
) -> None:
    """Decide that an action is completed, and create its completed file.

    Args:
        path: path of the decision record.
        running: the pending action.
        completed: the completed instant.
        data: content of the completed file.
        confirm: whether to check as `confirm_published`. The caller need not, if it finds later that nobody else has
            held the lock.

    Raises:
        Fenced: another writer undid the action or the run, or completed another run; this writer published nothing.
        CommitUnknown: the storage failed. The action is or will be completed if the decision record was created: then
            the next transaction completes it. Or the action has left the timeline, and no rollback of it is there:
            another writer may have completed it by the decision record.
    """
    decision = Decision(path, completed, data)
    if _decide_running(storage, decision, running) != decision:
        _check_completed(storage, running, decision)
        return
    try:
        has_left = _has_left(storage, running)
        undone = _is_rolled_back(storage, running) if has_left else _is_of_other_run(storage, running, completed)
        if has_left or undone:
            storage.delete(path)
    except Exception as error:
        raise CommitUnknown(_decided(storage, path, error)) from error
    if undone:
        raise Fenced(f"{running.path} in {storage.uri} was finished or undone by another writer: stop")
    if has_left:
        raise CommitUnknown(_left(storage, path, completed))
    _put_completed(storage, running, completed, data, confirm=confirm)


def undo(storage: Storage, pending: Instant, path: str, is_reverted: IsReverted | None = None) -> bool:
    """Decide that a pending action, or a run of it, is undone; complete it if it was decided to be completed.

    Args:
        is_reverted: check of a decision to complete the action; if true, the action is undone all the same.

    Returns:
        True if the caller is to undo the action; False if it is completed.

    Raises:
        CommitUnknown: the storage failed, and the decision record could not be read.
    """
    decided = _decide(storage, Decision(path))
    if decided.completed is not None and not (is_reverted and is_reverted(pending, decided)):
        # The writer of a run may be stopped until another run is completed, and then create its record: it is void.
        if not _is_of_other_run(storage, pending, decided.completed):
            _put_completed(storage, pending, decided.completed, decided.data)
        return False
    if _completion(storage, pending) is not None:
        storage.delete(path)
        return False
    return True


def list_decisions(storage: Storage) -> frozenset[str]:
    """List the names in `DECISION_FOLDER`: decision records, and records of open runs."""
    return frozenset(storage.names(DECISION_FOLDER))


def settle(
    storage: Storage,
    pending: Instant,
    decisions: frozenset[str],
    is_reverted: IsReverted | None = None,
    *,
    is_living: bool = False,
) -> bool:
    """Decide an action that another writer left pending: complete it if so decided, else decide that it is undone.

    For a compaction, clean or rollback the open runs are decided; if they are undone, the action stays pending.

    Args:
        decisions: as listed before the timeline was loaded on which the action is pending. A run that was completed
            between the two would have no record any more.
        is_reverted: see `undo`.
        is_living: whether its writer lives. Then only what is decided is carried out: the writer has failed to.

    Returns:
        Whether the action is completed.
    """
    if kind_of(pending.action).has_runs:
        runs = [name for name in sorted(decisions) if name.endswith(_RUN) and _run_number(name, pending) is not None]
        # The record of a run that was undone stays, and says nothing about the run of the living writer.
        records = [name for run in runs if (name := run.removesuffix(_RUN)) in decisions or not is_living]
        return not all([undo_run(storage, pending, f"{DECISION_FOLDER}/{name}", is_reverted) for name in records])
    if is_living and pending.requested not in decisions:
        return False
    return not undo(storage, pending, decision_path(pending.requested), is_reverted)


def undo_run(storage: Storage, pending: Instant, path: str, is_reverted: IsReverted | None = None) -> bool:
    """Decide that a run is undone, and delete its run record; see `undo`.

    The decision record stays, so that a stopped writer of the run finds it when it resumes.
    """
    undone = undo(storage, pending, path, is_reverted)
    storage.delete(path + _RUN)
    return undone


def delete_decisions(storage: Storage, requested: str) -> None:
    """Delete the decision records and run records of an action that is completed or rolled back."""
    for name in storage.names(DECISION_FOLDER):
        if name.partition(".")[0] == requested and SAVEPOINT_RECORD not in name:
            storage.delete(f"{DECISION_FOLDER}/{name}")


def reap_decisions(storage: Storage, lock: TableLock, pending: frozenset[str]) -> None:
    """Delete the decision records of all actions that are not pending.

    Args:
        pending: requested times of the pending actions, of a timeline loaded under `lock`.

    Raises:
        Fenced: another writer took the lock.
    """
    names = [name for name in storage.names(DECISION_FOLDER) if name.partition(".")[0] not in pending]
    if names:
        # Their writers may have been killed right after the completed files were created: these are made durable.
        storage.sweep(TIMELINE_FOLDER)
    for name in names:
        # Verified after the listing, so that decisions of a later holder of the lock are not among these.
        lock.verify()
        path = f"{DECISION_FOLDER}/{name}"
        # A plan that was cancelled after the timeline was loaded is deleted before its record.
        if not (name.endswith(PLAN_RECORD) and finish_cancellation(storage, path)):
            storage.delete(path)


def _decide_running(storage: Storage, decision: Decision, running: Instant) -> Decision:
    """Decide as `_decide`, for an action that another writer may carry out and archive at the same time.

    Raises:
        CommitUnknown: the create failed and the action is over: it may have taken effect, and the record been carried
            out and deleted since.
    """
    try:
        return _decide(storage, decision)
    except (CommitUnknown, CorruptFileError, Fenced):
        raise
    except Exception as error:
        try:
            is_over = _is_over(storage, running)
        except Exception as unreadable:
            raise CommitUnknown(_undecided(storage, decision.path, error, unreadable)) from error
        if is_over:
            raise CommitUnknown(_undecided(storage, decision.path, error, "its action is over")) from error
        raise


def _check_completed(storage: Storage, running: Instant, decision: Decision) -> None:
    """Check that an action is completed as this writer decided, although the record is another one.

    The answer to the create may have been lost, and the record been carried out and deleted. A writer that undoes the
    action and was stopped before its own create then makes a void record, until it finds the action completed.

    Raises:
        Fenced: the action is undone, or completed otherwise.
        CommitUnknown: the action was completed or undone, and archived; or the storage failed.
    """
    try:
        found = _completion(storage, running)
        if found is not None and found == decision.completed and storage.read(found.path) == decision.data:
            return
        # Hudi archives the completed file after the pending ones, see `_is_over`.
        is_archived = found is None and _has_left(storage, running) and not _is_rolled_back(storage, running)
    except Exception as error:
        raise CommitUnknown(_undecided(storage, decision.path, "another record is there", error)) from error
    if is_archived:
        raise CommitUnknown(_left(storage, decision.path, running))
    raise Fenced(f"{running.path} in {storage.uri} was undone by another writer: stop")


def _decide(storage: Storage, decision: Decision) -> Decision:
    """Create the decision record if it is absent, and return the existing one.

    After a failed create the record is read, as the create may have taken effect; it is not written again.
    """
    for _ in range(_ATTEMPTS):
        try:
            storage.put_if_absent(decision.path, decision.encode())
            return decision
        except Exception as error:
            try:
                return Decision.read(storage, decision.path)
            except FileNotFoundError:
                # After FileExistsError the record was deleted meanwhile, as its action is over: `publish` finds that.
                if not isinstance(error, FileExistsError):
                    raise error from None
            except CorruptFileError:
                raise
            except Exception as unreadable:
                raise CommitUnknown(_undecided(storage, decision.path, error, unreadable)) from error
    raise Fenced(
        f"{decision.path} in {storage.uri} was created and deleted at each attempt: other writers finished the action"
    )


def _is_rolled_back(storage: Storage, running: Instant) -> bool:
    """Return whether a completed rollback undid an action that has left the timeline.

    A rollback is completed before the decision record is deleted that undid the action.
    """
    return Timeline.load(storage).is_undone(running.requested)


def _is_of_other_run(storage: Storage, running: Instant, completed: Instant) -> bool:
    """Return whether another run completed the action before the decision record of this run was created."""
    # A write has a single run, whose writer is the caller.
    return kind_of(running.action).has_runs and _completion(storage, running) not in (None, completed)


def _has_left(storage: Storage, running: Instant) -> bool:
    """Return whether the pending files of an action are gone: it was rolled back, or archived."""
    return not any(storage.exists(running.at(state).path) for state in (State.REQUESTED, State.INFLIGHT))


def _is_over(storage: Storage, running: Instant) -> bool:
    """Return whether an action is completed or has left the timeline.

    The completed file is looked for first: Hudi archives it after the pending files, so that an action which is
    archived between the two looks is found by the second one.
    """
    return _completion(storage, running) is not None or _has_left(storage, running)


def _completion(storage: Storage, pending: Instant) -> Instant | None:
    for name in storage.names(TIMELINE_FOLDER):
        if name.startswith(pending.requested + "_"):
            found = Instant.parse(name)
            if found is not None and found.requested == pending.requested and found.action == pending.completes_as:
                return found
    return None


def _put_completed(
    storage: Storage, running: Instant, completed: Instant, data: bytes, *, confirm: bool = True
) -> None:
    """Create the completed file of a decided action, unless it exists with this content.

    Raises:
        CommitUnknown: the storage failed, and the next transaction completes the action; or the action has left the
            timeline.
        Fenced: the file exists with other content.
    """
    try:
        storage.put_if_absent(completed.path, data)
    except Exception as error:
        if _read_back(storage, completed.path, error) != data:
            raise Fenced(f"{completed.path} in {storage.uri} was made by another writer: stop") from error
        return
    if confirm:
        confirm_published(storage, running, completed)


def confirm_published(storage: Storage, running: Instant, completed: Instant) -> None:
    """Check that an action was pending when its completed file was created; else delete that file.

    The creator may have been stopped in between.

    Raises:
        CommitUnknown: the action had left the timeline, or the storage failed.
    """
    try:
        has_left = _has_left(storage, running)
        if has_left:
            # A writer that took over completed the action, and archived it since.
            storage.delete(completed.path)
    except Exception as error:
        raise CommitUnknown(_decided(storage, completed.path, error)) from error
    if has_left:
        raise CommitUnknown(_left(storage, completed.path, completed))


def _read_back(storage: Storage, path: str, error: Exception) -> bytes:
    try:
        return storage.read(path)
    except Exception as unreadable:
        raise CommitUnknown(_decided(storage, path, f"{error}; then {unreadable}")) from error


def _undecided(storage: Storage, path: str, error: object, why: object) -> str:
    return (
        f"creating {path} in {storage.uri} failed ({error}), and whether it took effect cannot be read ({why}): "
        "start again with the same writer and batch id; a write without them only if the timeline, archived instants "
        "included, does not have it after the next transaction"
    )


def _left(storage: Storage, path: str, completed: Instant) -> str:
    return (
        f"{path} in {storage.uri} was decided, and its action has left the timeline since: start again with the same "
        "writer and batch id; a write without them only if the archived timeline does not have "
        f"{completed.requested}"
    )


def _decided(storage: Storage, path: str, error: object) -> str:
    return (
        f"{path} in {storage.uri}: the storage failed ({error}) after the action was decided to be completed: the next "
        "transaction completes it; start again with the same writer and batch id, and do not repeat a write without "
        "them"
    )
