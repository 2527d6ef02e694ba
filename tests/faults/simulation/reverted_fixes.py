"""Bugs that were mended, brought back one at a time: each is the code as it was, put in the place of what mended it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

from streaming_lsm.file_group.file_system_view import FileSystemView
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.table.file_names import BucketId, InlineLogName, LogFileName
from streaming_lsm.lock import lock as lock_module
from streaming_lsm.lock import markers
from streaming_lsm.lock.heartbeat import Claim
from streaming_lsm.lock.lease import Renewal
from streaming_lsm.lock.lock import LockWait, TableLock
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import WRITE_ACTIONS, Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn import conflict, decision, locked_table, recovery, transaction
from streaming_lsm.txn.conflict import Changed, Unit, check_conflicts
from streaming_lsm.txn.decision_record import Decision
from streaming_lsm.txn.locked_table import LockedTable
from streaming_lsm.txn.transaction import Transaction
from streaming_lsm.write.plan import WritePlan

BY_INDEXED = ("a log that is older than a clustering is a conflict",)
"""Found by the schedules of tables with all indexes."""
Revert = Callable[[], AbstractContextManager[object]]


def _nothing(*given: object, **named: object) -> None:
    return None


def _none(*given: object, **named: object) -> Iterator[BucketId]:
    return iter(())


def _never(*given: object, **named: object) -> bool:
    return False


_as_of = Timeline.as_of


def _as_of_request(timeline: Timeline, value: str, zone: str = "UTC") -> Timeline:
    """A savepoint is read as any other write, with what was requested before it."""
    found = _as_of(timeline, value, zone)
    is_saved = any(each.action == "savepoint" and each.requested == value for each in timeline.instants)
    return timeline._until(value, by_request=True) if is_saved else found


def _replace(where: object, name: str, by: object) -> Revert:
    return lambda: mock.patch.object(where, name, by)


def _undecided(storage: Storage, made: Decision) -> Decision:
    """An action is undone or published without a record of it."""
    return made


_acquire_again = LockedTable.acquire_again


def _kept_timeline(table: LockedTable, own: Instant, wait: LockWait | None = None) -> None:
    """A write is completed on the timeline as it was at the beginning."""
    before = table.timeline
    _acquire_again(table, own, wait)
    if any(pending.requested == own.requested for pending in table.timeline.pending):
        table.timeline = replace(before, instants=(*before.instants, own))


def _fresh_by_clock(runtime: Runtime, file: str, seen: Renewal, lease_ms: int) -> bool:
    """A lease is compared with this machine's clock."""
    return runtime.clock() - seen.modified_ms <= lease_ms


def _nobody(*given: object, **named: object) -> Mapping[Instant, None]:
    """A pending action is nobody's once its lock is free."""
    return {}


def _check_later_writes(stats: Iterable[WriteStat], before: Timeline, now: Timeline, **how: Any) -> None:
    """A write is not checked against those that were pending when it began."""
    pending = {write.requested for write in before.pending}
    others = replace(now, instants=tuple(found for found in now.instants if found.requested not in pending))
    check_conflicts(stats, before, others, **how)


_both_changed = conflict._both_changed


def _changed_beside_bases(own: Changed, other: Changed, **how: Any) -> Iterator[Unit]:
    """An own base file may be beside logs of others."""
    return _both_changed(own, other, **{**how, "older": frozenset()})


def _changed_beside_clusterings(own: Changed, other: Changed, *, logs_only: bool, **how: Any) -> Iterator[Unit]:
    """An own log may be beside a base file of a clustering that was requested later."""
    return _both_changed(own, other, logs_only=logs_only, older=own.bases)


_file_id = WritePlan.file_id


def _always_fixed(plan: WritePlan, group: BucketId) -> str:
    """The fixed id of a bucket is used again when its file group was replaced."""
    return _file_id(replace(plan, replaced={}), group)


def _requested_time(view: FileSystemView, name: LogFileName | InlineLogName) -> str:
    """A log belongs to a slice by the time at which its write was requested."""
    return name.instant


def _pending_by_files(storage: Storage, instant: str) -> bool:
    """A write whose files are on the timeline is in the way, though its writer is dead."""
    return any(storage.exists(Instant(instant, action, State.INFLIGHT).path) for action in WRITE_ACTIONS)


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
    # Of several writers at once:
    "writes that were pending are checked": _replace(transaction, "check_conflicts", _check_later_writes),
    "a replaced file group is a conflict": _replace(conflict, "_replaced", _none),
    "a base file beside logs is a conflict": _replace(conflict, "_both_changed", _changed_beside_bases),
    "fixed ids of replaced groups are not used again": _replace(WritePlan, "file_id", _always_fixed),
    "logs belong to slices by completion times": _replace(FileSystemView, "log_time", _requested_time),
    "dead writes are no early conflicts": _replace(markers, "_is_pending", _pending_by_files),
    # Of clusterings, in tables with all indexes:
    "a log that is older than a clustering is a conflict": _replace(
        conflict, "_both_changed", _changed_beside_clusterings
    ),
    # Of savepoints and restores:
    "an inflight file that comes after a restore is deleted": _replace(recovery, "_is_undone", _never),
    "a savepoint is read as of its completion": _replace(Timeline, "as_of", _as_of_request),
}
