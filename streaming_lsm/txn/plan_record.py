"""Decide atomically whether a plan is run or cancelled (docs/layout.md, "Plan records").

A writer that loses the lock while it schedules an action *cancels* the plan, which may not fit the table any more. The
next writer may have found the plan and run it, and either one may be stopped between any two calls of the storage. So
the cancellation or the first run creates the *plan record*, if it is absent; the one that creates it decides.

A cancelled plan is deleted before its record. So a run that creates the record, and finds the plan afterwards, has
decided that the plan stays.
"""

from __future__ import annotations

from contextlib import suppress

from streaming_lsm.errors import CommitConflict
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import CLEAN, COMPACTION
from streaming_lsm.timeline.instant import Instant, State

PLAN_RECORD = ".plan.run"

_RUN, _CANCELLED = b"run\n", b"cancelled\n"


def plan_record_path(folder: str, requested: str) -> str:
    """Return the path of the plan record of a planned action, in the folder of decision records."""
    return f"{folder}/{requested}{PLAN_RECORD}"


def accept_plan(storage: Storage, path: str, planned: Instant) -> None:
    """Decide that a plan is run; called before a run changes anything.

    Args:
        path: path of the plan record.

    Raises:
        CommitConflict: the writer that scheduled the plan cancelled it, or it is gone; nothing was changed.
    """
    try:
        storage.put_if_absent(path, _RUN)
        is_kept = True
    except FileExistsError:
        is_kept = _content(storage, path) == _RUN
    if not is_kept or not storage.exists(planned.at(State.REQUESTED).path):
        raise CommitConflict(
            f"{planned.at(State.REQUESTED).path} in {storage.uri} was cancelled, as its writer lost the lock while it "
            "scheduled the action, or finished by another writer: nothing was changed; schedule it again if it is due"
        )


def cancel_plan(storage: Storage, path: str) -> None:
    """Decide that a plan is cancelled, and delete it, unless it was decided that it is run."""
    with suppress(FileExistsError):
        storage.put_if_absent(path, _CANCELLED)
    finish_cancellation(storage, path)


def finish_cancellation(storage: Storage, path: str) -> bool:
    """Delete a plan that is decided to be cancelled, and then its record; return whether it is so decided.

    The deletion is harmless at any later time, as the instant's time is not used again.
    """
    if _content(storage, path) != _CANCELLED:
        return False
    requested = path.rpartition("/")[2].removesuffix(PLAN_RECORD)
    plans = [Instant(requested, action, State.REQUESTED) for action in (COMPACTION, CLEAN)]
    # The record of a run is deleted when the run is completed: a later cancellation finds the inflight file.
    if not any(storage.exists(plan.at(State.INFLIGHT).path) for plan in plans):
        for plan in plans:
            storage.delete(plan.path)
    storage.delete_if_unchanged(path, _CANCELLED)
    return True


def _content(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except FileNotFoundError:
        return None
