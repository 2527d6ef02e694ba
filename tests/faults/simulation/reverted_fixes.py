"""Bugs that were mended, brought back one at a time: each is the code as it was, put in the place of what mended it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from streaming_lsm.errors import Fenced
from streaming_lsm.lock import lock as lock_module
from streaming_lsm.lock.heartbeat import Claim
from streaming_lsm.lock.lease import Renewal
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.txn import decision, locked_table, recovery
from streaming_lsm.txn.decision import list_decisions
from streaming_lsm.txn.decision_record import Decision
from streaming_lsm.txn.locked_table import LockedTable
from streaming_lsm.txn.transaction import Transaction

Revert = Callable[[], AbstractContextManager[object]]


def _nothing(*given: object, **named: object) -> None:
    return None


def _replace(where: object, name: str, by: object) -> Revert:
    return lambda: mock.patch.object(where, name, by)


def _undecided(storage: Storage, made: Decision) -> Decision:
    """An action is undone or published without a record of it."""
    return made


def _kept_timeline(table: LockedTable, own: Instant) -> None:
    """The lock is acquired for the completion, and the timeline is as it was at the beginning."""
    table.lock.acquire()


def _fresh_by_clock(runtime: Runtime, file: str, seen: Renewal, lease_ms: int) -> bool:
    """A lease is compared with this machine's clock."""
    return runtime.clock() - seen.modified_ms <= lease_ms


def _seen_late(table: LockedTable) -> object:
    """The timeline is loaded before the decisions are listed."""
    found = table._timelines.load(table._storage)
    decisions = list_decisions(table._storage)
    living = recovery.find_living(
        table._storage, found, table._runtime, table._lease_ms, table.lock.owner, table.lock.formers
    )
    return locked_table._Seen(decisions, found, living)


def _undone_at_once(storage: Storage, running: Instant, made: Decision) -> None:
    """A void record is the end of the action, even if it was completed before."""
    raise Fenced(f"{running.path} was undone by another writer")


def _nobody(*given: object, **named: object) -> Mapping[Instant, None]:
    """A pending action is nobody's once its lock is free."""
    return {}


def _decided_by_time(storage: Storage, pending: Instant, decisions: frozenset[str], *rest: Any, **how: Any) -> bool:
    """A run is over when any run of its action is decided."""
    is_decided = any(name.partition(".")[0] == pending.requested for name in decisions if not name.endswith(".run"))
    if how.pop("is_living", False) and not is_decided:
        return False
    return decision.settle(storage, pending, decisions, *rest, **how)


@contextmanager
def _late_tasks() -> Iterator[None]:
    """Tasks do not look whether their instant is still open."""
    with (
        mock.patch("streaming_lsm.lock.markers.check_still_inflight", _nothing),
        mock.patch("streaming_lsm.lock.markers._check_open", _nothing),
        mock.patch("streaming_lsm.write.partition_writer.check_still_inflight", _nothing),
        mock.patch("streaming_lsm.services.compaction.task.check_still_inflight", _nothing),
    ):
        yield


FIXES: dict[str, Revert] = {
    "the lock is verified before each change": _replace(TableLock, "verify", _nothing),
    "what is decided is recorded": _replace(decision, "_decide", _undecided),
    "the lock names the former owners": _replace(lock_module, "_formers", lambda content: frozenset()),
    "the ledger is read again when the lock is held": _replace(Transaction, "_refuse_replay", _nothing),
    "the timeline is read again when the lock is held": _replace(LockedTable, "acquire_again", _kept_timeline),
    "a claim is sealed before files are reconciled": _replace(Claim, "seal", _nothing),
    "a take-over that fails is given back": _replace(TableLock, "give_back", _nothing),
    "leases do not compare clocks": _replace(Runtime, "is_fresh", _fresh_by_clock),
    "pending actions belong to living writers": _replace(locked_table, "find_living", _nobody),
    "decisions are listed before the timeline": _replace(LockedTable, "_see", _seen_late),
    "a void record is no end of a completed action": _replace(decision, "_check_completed", _undone_at_once),
    "a record of one run says nothing of another": _replace(recovery, "settle", _decided_by_time),
    "late tasks are fenced": _late_tasks,
    "a claim is verified": _replace(Claim, "verify", _nothing),
    "a lost answer is unknown": _replace(decision, "_decide_running", lambda storage, made, running: decision._decide(storage, made)),
}
