"""Decide once whether an action is completed or undone, however many writers believe that they hold the lock.

A *decision* is a file in ``.hoodie/.decisions`` that is created if absent: either by the writer that completes the
action, with all that the completed file holds, or by the writer that undoes it. The first to create it decides, and the
other follows: it finishes what was decided. So no pause of a writer, however long and wherever, loses a commit that
was acknowledged.

A *run* is one attempt at a compaction, clean or rollback, whose instant outlives attempts. Each run is recorded when it
starts, and has a decision of its own.

A decision counts while the action is pending. Those of actions that are over are deleted; a writer that decides later
sees by the timeline that the action is over, and withdraws its decision.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from streaming_lsm.errors import CommitUnknown, CorruptFileError, Fenced
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import kind_of
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Instant, State

DECISION_FOLDER = ".hoodie/.decisions"

_RUN = ".run"
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of an action, or of one run of it.

    Attributes:
        path: of the decision's file.
        completed: the action once it is completed; None when it is undone.
        data: content of the completed file.
    """

    path: str
    completed: Instant | None = None
    data: bytes = b""

    def encode(self) -> bytes:
        """A line of JSON with the name of the completed file, or null, and the content of that file."""
        name = self.completed.file_name if self.completed else None
        return json.dumps({"completed": name}).encode() + b"\n" + self.data

    @classmethod
    def read(cls, storage: Storage, path: str) -> Decision:
        """Read a decision.

        Raises:
            CorruptFileError: it is damaged.
            FileNotFoundError: there is none.
        """
        head, _, data = storage.read(path).partition(b"\n")
        try:
            name = json.loads(head)["completed"]
            completed = None if name is None else Instant.parse(name)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise CorruptFileError(_damaged(storage, path)) from None
        requested = path.rpartition("/")[2].partition(".")[0]
        if name is not None and (completed is None or not completed.is_completed or completed.requested != requested):
            raise CorruptFileError(_damaged(storage, path))
        return cls(path, completed, data)


def _damaged(storage: Storage, path: str) -> str:
    return (
        f"{path} in {storage.uri} is no decision on its action: restore it; or delete it to have the action undone, "
        "if none of its rows were acknowledged"
    )


def decision_path(requested: str) -> str:
    """Where the decision on an action lies that is run once."""
    return f"{DECISION_FOLDER}/{requested}"


def open_run(storage: Storage, action: Instant) -> str:
    """Record a new run of an action whose instant may be run several times.

    Returns:
        The path of the run's decision.

    Raises:
        Fenced: another writer starts a run at this moment.
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


def publish(storage: Storage, path: str, running: Instant, completed: Instant, data: bytes) -> None:
    """Decide that an action is completed, and create its completed file.

    Args:
        path: of the decision.
        running: the action as it is begun.
        completed: the action as it is to be, with `data` as its content.

    Raises:
        Fenced: another writer undid the action or the run, or finished it; this writer published nothing.
        CommitUnknown: the storage failed, and the action may be completed, or will be by the next transaction.
    """
    decision = Decision(path, completed, data)
    if _decide(storage, decision) != decision:
        raise Fenced(f"{running.path} in {storage.uri} was undone by another writer: stop")
    if _is_over(storage, running):
        storage.delete(path)
        raise Fenced(f"{running.path} in {storage.uri} was finished or undone by another writer: stop")
    _put_completed(storage, running, completed, data)


def undo(storage: Storage, pending: Instant, path: str) -> bool:
    """Decide that a pending action, or a run of it, is undone; where it was decided to complete, complete it.

    Returns:
        Whether the action is to be undone by the caller; False when it is completed.

    Raises:
        CommitUnknown: the storage failed and does not tell what was decided.
    """
    decided = _decide(storage, Decision(path))
    if decided.completed is not None:
        _put_completed(storage, pending, decided.completed, decided.data)
        return False
    if _completion(storage, pending) is not None:
        storage.delete(path)
        return False
    return True


def settle(storage: Storage, pending: Instant, decisions: frozenset[str]) -> bool:
    """Find out, under a new lock, what becomes of an action that another writer has left pending.

    A write is undone unless its writer decided otherwise. So is an open run of a compaction, clean or rollback, which
    then goes on waiting.

    Args:
        decisions: names in `DECISION_FOLDER`.

    Returns:
        Whether the action is now completed.
    """
    if kind_of(pending.action).has_runs:
        runs = [name for name in sorted(decisions) if name.endswith(_RUN) and _run_number(name, pending) is not None]
        undone = [undo_run(storage, pending, f"{DECISION_FOLDER}/{name.removesuffix(_RUN)}") for name in runs]
        return not all(undone)
    return not undo(storage, pending, decision_path(pending.requested))


def undo_run(storage: Storage, pending: Instant, path: str) -> bool:
    """Decide that a run is undone, and close its record; see `undo`. The decision stays, for a writer that wakes up."""
    undone = undo(storage, pending, path)
    storage.delete(path + _RUN)
    return undone


def delete_decisions(storage: Storage, requested: str) -> None:
    """Delete the decisions on an action that is over, and the records of its runs."""
    for name in storage.names(DECISION_FOLDER):
        if name.partition(".")[0] == requested:
            storage.delete(f"{DECISION_FOLDER}/{name}")


def reap_decisions(storage: Storage, lock: TableLock, pending: frozenset[str]) -> None:
    """Delete the decisions on all actions that are over.

    Args:
        pending: requested times of the actions that are pending, as a timeline loaded under `lock` shows them.

    Raises:
        Fenced: another writer took the lock.
    """
    names = [name for name in storage.names(DECISION_FOLDER) if name.partition(".")[0] not in pending]
    for name in names:
        # After the listing: what a later holder of the lock decides is not among these.
        lock.verify()
        storage.delete(f"{DECISION_FOLDER}/{name}")


def _decide(storage: Storage, decision: Decision) -> Decision:
    """Create the decision if there is none, and return the one there is; settled by reading, not by writing again."""
    for _ in range(_ATTEMPTS):
        try:
            storage.put_if_absent(decision.path, decision.encode())
            return decision
        except Exception as error:
            try:
                return Decision.read(storage, decision.path)
            except FileNotFoundError:
                # With FileExistsError it was there a moment ago: the action is over, and so says `_is_over` then.
                if not isinstance(error, FileExistsError):
                    raise error from None
            except CorruptFileError:
                raise
            except Exception as unreadable:
                raise CommitUnknown(
                    f"creating {decision.path} in {storage.uri} failed ({error}), and so did looking for it "
                    f"({unreadable}): look at the timeline before writing this batch again"
                ) from error
    raise Fenced(f"{decision.path} in {storage.uri} comes and goes: other writers finish the action, stop")


def _is_over(storage: Storage, running: Instant) -> bool:
    """Whether an action that was decided just now had been finished before; then its decision does not count."""
    if _has_left(storage, running):
        return True
    # A write is run by one writer, which has not completed it.
    return kind_of(running.action).has_runs and _completion(storage, running) is not None


def _has_left(storage: Storage, running: Instant) -> bool:
    """Whether an action that was begun is not on the timeline any more: rolled back, or archived."""
    return not any(storage.exists(running.at(state).path) for state in (State.REQUESTED, State.INFLIGHT))


def _completion(storage: Storage, pending: Instant) -> Instant | None:
    for name in storage.names(TIMELINE_FOLDER):
        if name.startswith(pending.requested + "_"):
            found = Instant.parse(name)
            if found is not None and found.requested == pending.requested and found.action == pending.completes_as:
                return found
    return None


def _put_completed(storage: Storage, running: Instant, completed: Instant, data: bytes) -> None:
    """Create the completed file of an action that is decided, unless it is there already.

    Raises:
        CommitUnknown: the storage failed, and the next transaction completes the action; or the action has left the
            timeline.
        Fenced: there is a file of other content.
    """
    try:
        storage.put_if_absent(completed.path, data)
    except Exception as error:
        if _read_back(storage, completed.path, error) != data:
            raise Fenced(f"{completed.path} in {storage.uri} was made by another writer: stop") from error
        return
    if _has_left(storage, running):
        # A writer that took over had completed it, and it was archived since.
        storage.delete(completed.path)
        raise CommitUnknown(
            f"{completed.path} in {storage.uri} was decided, and its action has left the timeline since: look for "
            f"{completed.requested} in the archived timeline before writing this batch again"
        )


def _read_back(storage: Storage, path: str, error: Exception) -> bytes:
    try:
        return storage.read(path)
    except Exception as unreadable:
        raise CommitUnknown(
            f"creating {path} in {storage.uri} failed ({error}), and so did looking for it ({unreadable}): the action "
            "is decided, and the next transaction completes it; do not write this batch again"
        ) from error
