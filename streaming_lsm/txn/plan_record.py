"""Decide atomically whether a plan is run or cancelled (docs/layout.md, "Plan records").

A writer that loses the lock while it schedules an action *cancels* the plan, which may not fit the table any more. The
next writer may have found the plan and run it, and either one may be stopped between any two calls of the storage. So
the cancellation or the first run creates the *plan record*, if it is absent; the one that creates it decides.

A cancelled plan is deleted before its record. So a run that creates the record, and finds the plan afterwards, has
decided that the plan stays. Then the requested time is free again, and a writer whose clock is behind may schedule
another plan with it: the record of a cancellation has the digest of the plan, and no other plan is deleted.
"""

from __future__ import annotations

import re
from hashlib import sha256

from streaming_lsm.errors import CommitConflict, CorruptFileError, Fenced
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant, State

PLAN_RECORD = ".plan.run"

_RUN, _CANCELLED = b"run\n", b"cancelled "
_CANCELLATION = re.compile(re.escape(_CANCELLED) + rb"[0-9a-f]{64}\n")
_ATTEMPTS = 8


def plan_record_path(folder: str, planned: Instant) -> str:
    """Return the path of the plan record of a planned action, in the folder of decision records."""
    return f"{folder}/{planned.requested}.{planned.action}{PLAN_RECORD}"


def accept_plan(storage: Storage, path: str, planned: Instant) -> None:
    """Decide that a plan is run; called before a run changes anything.

    Args:
        path: path of the plan record.

    Raises:
        CommitConflict: the writer that scheduled the plan cancelled it, or it is gone; nothing was changed.
        CorruptFileError: the record is damaged; nothing was changed.
    """
    plan = planned.at(State.REQUESTED).path
    decided, found = _decide(storage, path, _RUN), _content(storage, plan)
    if found is not None and decided not in (_RUN, _cancellation(found)):
        # Of a plan before this one with the same requested time.
        storage.delete_if_unchanged(path, decided, reused=True)
        decided = _decide(storage, path, _RUN)
    if decided != _RUN or not storage.exists(plan):
        raise CommitConflict(
            f"{plan} in {storage.uri} was cancelled, as its writer lost the lock while it "
            "scheduled the action, or finished by another writer: nothing was changed; schedule it again if it is due"
        )


def is_accepted(storage: Storage, path: str) -> bool:
    """Return whether it is decided that a plan is run."""
    return _content(storage, path) == _RUN


def cancel_plan(storage: Storage, path: str, plan: bytes) -> None:
    """Decide that a plan is cancelled, and delete it, unless it was decided that it is run.

    Args:
        path: path of the plan record.
        plan: content of the requested file.

    Raises:
        CorruptFileError: the record is damaged; nothing was changed.
    """
    record = _cancellation(plan)
    if _decide(storage, path, record) not in (_RUN, record):
        # Of a plan before this one with the same requested time.
        finish_cancellation(storage, path)
        _decide(storage, path, record)
    finish_cancellation(storage, path)


def finish_cancellation(storage: Storage, path: str) -> bool:
    """Delete a plan that is decided to be cancelled, and then its record; return whether the record is of such a plan.

    The deletion is harmless at any later time, as no other plan has the digest in the record.
    """
    record = _content(storage, path)
    # A damaged record is refused by the runs of its plan, and no other transaction.
    if record is None or _CANCELLATION.fullmatch(record) is None:
        return False
    plan = _planned(path)
    found = _content(storage, plan.path)
    # The record of a run is deleted when the run is completed: a later cancellation finds the inflight file.
    if found is not None and record == _cancellation(found) and not storage.exists(plan.at(State.INFLIGHT).path):
        storage.delete_if_unchanged(plan.path, found)
    storage.delete_if_unchanged(path, record, reused=True)
    return True


def _decide(storage: Storage, path: str, record: bytes) -> bytes:
    """Create the plan record if it is absent, and return the existing one."""
    for _ in range(_ATTEMPTS):
        try:
            storage.put_if_absent(path, record)
            return record
        except FileExistsError:
            found = _content(storage, path)
            if found is not None:
                return _checked(storage, path, found)
    raise Fenced(f"{path} in {storage.uri} was created and deleted at each attempt: other writers decided the plan")


def _checked(storage: Storage, path: str, record: bytes) -> bytes:
    if record != _RUN and _CANCELLATION.fullmatch(record) is None:
        raise CorruptFileError(
            f"{path} in {storage.uri} is damaged, it contains {record[:80]!r}: delete it to have "
            f"{_planned(path).path} run; if no inflight file is beside that plan, it may be deleted instead"
        )
    return record


def _cancellation(plan: bytes) -> bytes:
    return _CANCELLED + sha256(plan).hexdigest().encode() + b"\n"


def _planned(path: str) -> Instant:
    requested, _, action = path.rpartition("/")[2].removesuffix(PLAN_RECORD).partition(".")
    return Instant(requested, action, State.REQUESTED)


def _content(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except FileNotFoundError:
        return None
