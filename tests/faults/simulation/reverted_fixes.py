"""Bugs that were mended, brought back one at a time: each is the code as it was, put in the place of what mended it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest import mock

from streaming_lsm.lock import lock as lock_module
from streaming_lsm.lock.heartbeat import Claim
from streaming_lsm.lock.lease import Renewal
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.txn import decision, locked_table
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


_acquire_again = LockedTable.acquire_again


def _kept_timeline(table: LockedTable, own: Instant) -> None:
    """A write is completed on the timeline as it was at the beginning."""
    before = table.timeline
    _acquire_again(table, own)
    if any(pending.requested == own.requested for pending in table.timeline.pending):
        table.timeline = replace(before, instants=(*before.instants, own))


def _fresh_by_clock(runtime: Runtime, file: str, seen: Renewal, lease_ms: int) -> bool:
    """A lease is compared with this machine's clock."""
    return runtime.clock() - seen.modified_ms <= lease_ms


def _nobody(*given: object, **named: object) -> Mapping[Instant, None]:
    """A pending action is nobody's once its lock is free."""
    return {}


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
    "a claim is verified": _replace(Claim, "verify", _nothing),
}
