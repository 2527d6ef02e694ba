"""Find and undo pending indexing actions (docs/format/02-timeline.md, "Indexing").

An indexing action of this package is made by one process, and is not resumed: the next one begins anew. Those of other
programs, whose plans lack `OWNER_KEY`, are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.actions.index_plan import IndexPlan
from streaming_lsm.lock.heartbeat import revoke_heartbeat
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import INDEXING
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.txn.rollback import clear_rolled_back

OWNER_KEY = "lsm.owner"
"""Entry of a plan of this package: the writer that builds the partition."""


def read_plans(storage: Storage, pending: Instant) -> tuple[IndexPlan, ...]:
    """Read the plans of a pending indexing action; none if it is over, or they cannot be read."""
    path = pending.at(State.REQUESTED).path
    with suppress(FileNotFoundError, CorruptFileError):
        return IndexPlan.decode_all(storage.read(path), path)
    return ()


def own_indexings(storage: Storage, pending: Iterable[Instant]) -> list[Instant]:
    """Return the pending indexing actions of this package, of any writer."""
    return [
        found
        for found in pending
        if found.action == INDEXING and any(OWNER_KEY in plan.extra for plan in read_plans(storage, found))
    ]


def partitions_in_work(storage: Storage, pending: Iterable[Instant]) -> frozenset[str]:
    """Return the partitions of the metadata table that pending indexing actions build."""
    found = (one for one in pending if one.action == INDEXING)
    return frozenset(plan.partition for one in found for plan in read_plans(storage, one))


def leave_timeline(storage: Storage, lock: TableLock, indexing: Instant) -> None:
    """Delete the instant files of an indexing action that is decided to be undone; its delta commit was erased.

    Raises:
        Fenced: another writer took the lock; it finishes the deletion.
    """
    revoke_heartbeat(storage, lock, indexing.requested)
    clear_rolled_back(storage, lock, indexing)
