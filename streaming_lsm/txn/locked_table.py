"""Acquire a table's lock for a transaction, and settle what dead writers left while it is held.

The lock is acquired when an action begins, and again when it completes. Each time the timeline and the metadata table
are read anew: others may have changed them in between. An object store shows by the lock itself that nobody has held
it since this process released it: then the table is as it was left, and nothing is listed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from streaming_lsm.config import (
    CLOCK_SKEW_MS,
    FAILED_WRITES,
    HEARTBEAT_MISSES,
    HEARTBEAT_MS,
    SINGLE_WRITER_WAIT_MS,
    Options,
)
from streaming_lsm.errors import WriterTimeout
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER, revoke_heartbeat, waiting_path
from streaming_lsm.lock.lock import LockWait, Pauses, TableLock
from streaming_lsm.lock.providers.choice import choose_provider
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import CLUSTERING
from streaming_lsm.timeline.cache import Known, KnownMetadata, TimelineCache
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.instant import WRITE_ACTIONS, Instant
from streaming_lsm.timeline.properties_file import fence_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.completed_rollback import Unrecord
from streaming_lsm.txn.decision import list_decisions
from streaming_lsm.txn.metadata_hook import OpenMetadata
from streaming_lsm.txn.recovery import Living, find_living, recover, settle_pending

_LISTED_EVERY_S = 60
"""Other programs change a table without this lock: so old at most is what is known of it without a look."""

_LOG = logging.getLogger(__name__)


class Beside(Enum):
    """State which actions of other living writers may be pending when a transaction begins."""

    SERVICES = auto()
    """Services, but no write: a write of a table that one writer at a time writes."""
    COMPACTIONS = auto()
    """The same but for clusterings: a write that is made alone, as it may have met one."""
    WRITES = auto()
    """Any but a write that is made alone: a write of a table that several writers write."""
    ALL = auto()
    """Any: a service, which shares no file with a write or another service."""
    NOTHING = auto()
    """None: a change of the table's properties."""

    @property
    def is_of_write(self) -> bool:
        """Whether the transaction is a write."""
        return self in (Beside.SERVICES, Beside.COMPACTIONS, Beside.WRITES)

    def excludes(self, pending: Instant, living: Living, *, others_lock: bool = False) -> bool:
        """Return whether a pending action of another living writer excludes the transaction.

        One without an owner is of another program.

        Args:
            others_lock: whether other programs hold a lock of this transaction, too, when they complete.
        """
        if (living.owner is None and not others_lock) or self is Beside.NOTHING:
            return True
        if pending.action not in WRITE_ACTIONS:
            return self is Beside.COMPACTIONS and pending.action == CLUSTERING
        return self in (Beside.SERVICES, Beside.COMPACTIONS) or (self is Beside.WRITES and living.alone)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Hold what is seen of a table when its lock was acquired.

    Attributes:
        decisions: names of the decision records, listed before the timeline.
        timeline: the timeline.
        living: the pending actions of other living writers.
        metadata: what is known of the metadata table; None if that has to be opened.
    """

    decisions: frozenset[str]
    timeline: Timeline
    living: Mapping[Instant, Living]
    metadata: KnownMetadata | None = None


class LockedTable:
    """The table of one transaction, while that holds the lock.

    Attributes:
        lock: the table's lock.
        metadata: the hook that keeps the metadata table up to date.
        timeline: the timeline as it was when the lock was last acquired, after dead writers' actions were settled.
        times: times for new instants, later than all on the timelines.
        living: requested times of the pending actions of other living writers.
        waited_s: seconds spent waiting for other writers that excluded this one, or that it let go first.
        is_known: whether nobody has held the lock since this process released it, so that the table was not listed.
        renew_ms: milliseconds between renewals of what the transaction holds.
    """

    timeline: Timeline
    times: InstantSource

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        options: Options,
        writer_id: str,
        metadata: OpenMetadata,
        runtime: Runtime,
        timelines: TimelineCache,
    ) -> None:
        """Prepare; the table is neither read nor changed.

        Raises:
            ConfigError: the lock provider of the options cannot be used, see `choose_provider`.
        """
        self._storage = storage
        self._config = config
        self._options = options
        self._runtime = runtime
        self._timelines = timelines
        self._lease_ms = options[HEARTBEAT_MS] * options[HEARTBEAT_MISSES]
        provider = choose_provider(storage, options, runtime)
        self._others_lock = provider is not None
        self.lock = TableLock(storage, writer_id, self._lease_ms, runtime, LockWait.of(options), provider)
        self.renew_ms = min(options[HEARTBEAT_MS], (provider and provider.renew_ms) or options[HEARTBEAT_MS])
        self.metadata = metadata(storage, options, self.lock, timelines)
        self.living: Collection[str] = ()
        self._is_waited_for = self.is_known = False
        self._looked_s = 0.0
        self.waited_s = 0.0

    def acquire(self, beside: Beside, own: Instant | None = None) -> None:
        """Acquire the lock at a moment when no other writer excludes this one, and recover the table.

        Args:
            own: the pending write of this transaction, if it has begun to be made alone.

        Raises:
            LockTimeout, WriterTimeout: others held the lock, or excluded this one, for longer than the options say to
                wait.
            CommitUnknown: the storage failed, and the decision of an earlier writer could not be read.
            Fenced: another writer took the lock in the meantime.
        """
        wait = replace(LockWait.of(self._options), wait_ms=self._options[SINGLE_WRITER_WAIT_MS], retries=0)
        pauses, asked = Pauses(wait, self._runtime), None
        if beside is not Beside.ALL:
            runtime, uri = self._runtime, self._storage.uri
            self.waited_s += runtime.process_locks.let_others_go_first(uri, runtime.elapsed, runtime.sleep)
        while True:
            seen = self._acquire_lock(own)
            excluding = next(
                (
                    found
                    for found, lives in seen.living.items()
                    if beside.excludes(found, lives, others_lock=self._others_lock)
                ),
                None,
            )
            if excluding is None:
                break
            lives = seen.living[excluding]
            # Waiting for a write that is made alone is a courtesy: conflicts are found at the commit.
            locks_too = lives.owner is not None or self._others_lock
            is_courtesy = (beside is Beside.WRITES or own is not None) and locks_too
            is_late = pauses.are_used_up(None if is_courtesy else (excluding, lives.renewed_ms))
            if is_late and is_courtesy:
                break
            self.lock.release()
            if is_late:
                owner = lives.owner or "a writer that does not name itself"
                waited = f"{pauses.waited_s:.1f} s ({SINGLE_WRITER_WAIT_MS.key})"
                raise WriterTimeout(
                    f"{excluding.path} in {self._storage.uri} is being written by {owner}; waited for {waited}, retry "
                    "when it is done"
                )
            if excluding != asked and lives.owner is not None:
                self._ask_for_turn(excluding)
                asked = excluding
            pauses.pause()
        self.waited_s += pauses.waited_s
        found = self._settle(seen, own)
        if self.is_known:
            self.timeline = found
            self.metadata.run_services(found, self.times)
            return
        left = (*seen.living, *self._own(found, own))
        sweep = not self._timelines.is_recovered
        lazy = beside.is_of_write and self._options[FAILED_WRITES] == "LAZY"
        self.timeline = recover(
            self._storage,
            self.lock,
            found,
            self.times,
            left,
            unrecord=Unrecord.of(self.metadata, tuple(seen.living)),
            drop_metadata=self.metadata.drop,
            sweep=sweep,
            lazy=lazy,
        )
        self._timelines.is_recovered = True
        self.metadata.run_services(self.timeline, self.times)

    def _ask_for_turn(self, excluding: Instant) -> None:
        """Ask the writer of a pending action to let others go first when it is completed."""
        try:
            self._storage.put_if_absent(waiting_path(excluding.requested), b"")
        except FileExistsError:
            return  # others wait, too
        except Exception:
            _LOG.debug("%s in %s cannot be asked", excluding.path, self._storage.uri, exc_info=True)

    def acquire_again(self, own: Instant, wait: LockWait | None = None) -> None:
        """Acquire the lock for the pending action of this transaction; dead writers' files are left to the next one.

        Args:
            wait: how long to wait; by default as long as for another write, as the data is written.

        Raises:
            CommitConflict: others held the lock for longer than the options say to wait.
            CommitUnknown, Fenced: as `acquire`.
        """
        usual = LockWait.of(self._options)
        try:
            seen = self._acquire_lock(own, wait or self._longest(usual))
            self.timeline = self._settle(seen, own)
            if self._is_waited_for:
                until_s = self._runtime.elapsed() + 2 * usual.longest_ms / 1000
                self._runtime.process_locks.give_way(self._storage.uri, until_s)
            if self.lock.formers:
                self._revoke_dead(own)
        except BaseException:
            if self.lock.is_held:
                self.lock.release()
            raise

    def _longest(self, wait: LockWait) -> LockWait:
        """Return the wait for the lock of a write whose data is written."""
        longest_ms = self._options[SINGLE_WRITER_WAIT_MS]
        if not wait.wait_ms or longest_ms <= wait.wait_ms:
            return replace(wait, retries=0)
        return replace(wait, wait_ms=longest_ms, retries=0, option=SINGLE_WRITER_WAIT_MS.key)

    def _revoke_dead(self, own: Instant) -> None:
        """Delete the heartbeats of dead writers, for which the next one, which rolls their writes back, need not wait.

        Their leases were waited for when the lock was taken over.
        """
        left = {own.requested, *self.living}
        for write in self.timeline.pending:
            if write.action in WRITE_ACTIONS and write.requested not in left:
                revoke_heartbeat(self._storage, self.lock, write.requested)

    def release(self, latest: Instant, commits: Mapping[Instant, CommitMetadata] | None = None) -> bool:
        """Release the lock, and remember the table for the case that nobody else acquires it.

        A table that writers of other programs change, too, is not remembered: they leave no trace in the lock.

        Args:
            latest: what this transaction has changed on the timeline.
            commits: commits that the next transaction reads.

        Returns:
            Whether the lock was still this transaction's; False if that is not known.
        """
        released = self.lock.release()
        self._timelines.known = None
        metadata = self.metadata.known
        if released and self.lock.trace and metadata is not None and not self._others_lock:
            timeline = self.timeline.with_latest(latest, commits or self.timeline.newest_known)
            self._timelines.known = Known(self.lock.trace, timeline, metadata, self._looked_s)
        return released

    def _acquire_lock(self, own: Instant | None, wait: LockWait | None = None) -> _Seen:
        """Acquire the lock, and look at the table; if nobody has held the lock since, it is known."""
        known, now_s = self._timelines.known, self._runtime.elapsed()
        if known is not None and (now_s - known.looked_s > _LISTED_EVERY_S or self._others(known.timeline, own)):
            known = None
        self.lock.acquire(wait, b"" if known is None else known.trace)
        self.is_known = known is not None and self.lock.is_unchanged
        if known is None or not self.is_known:
            self._looked_s, self._timelines.is_config_checked = now_s, False
            return self._look(own)
        self._looked_s, self._is_waited_for = known.looked_s, False
        return _Seen(frozenset(), known.timeline, {}, known.metadata)

    def _look(self, own: Instant | None) -> _Seen:
        """Load the timeline; nothing is changed but what former owners of the lock may still change.

        They may have been stopped while they held the lock, just before they decided an action. The next lock does not
        name them any more, so their actions are settled before this one is released.
        """
        if not self.lock.formers:
            return self._see(own)
        try:
            fence_properties(self._storage, self.lock.owner.token, self._runtime.clock)
            seen = self._see(own)
            return replace(seen, timeline=self._decide(seen, own))
        except BaseException:
            # The next writer takes the lock over from the former owners in its turn.
            self.lock.give_back()
            raise

    def _see(self, own: Instant | None) -> _Seen:
        decisions = list_decisions(self._storage)  # before the timeline, see `settle`
        found = self._timelines.load(self._storage)
        beats = self._storage.list(HEARTBEAT_FOLDER)
        living = find_living(
            self._storage, found, beats, self._runtime, self._lease_ms, self.lock.owner, self.lock.formers
        )
        waited_for = waiting_path(own.requested) if own else ""
        self._is_waited_for = any(entry.path == waited_for for entry in beats)
        return _Seen(decisions, found, living)

    def _decide(self, seen: _Seen, own: Instant | None) -> Timeline:
        """Decide what dead writers left pending, and return the timeline."""
        mine = self._own(seen.timeline, own)
        return settle_pending(self._storage, seen.timeline, seen.decisions, tuple(seen.living), mine)

    @staticmethod
    def _own(timeline: Timeline, own: Instant | None) -> list[Instant]:
        return [pending for pending in timeline.pending if own and pending.requested == own.requested]

    @classmethod
    def _others(cls, timeline: Timeline, own: Instant | None) -> bool:
        return len(cls._own(timeline, own)) < len(timeline.pending)

    def _settle(self, seen: _Seen, own: Instant | None) -> Timeline:
        """Settle what dead writers left, and return the timeline."""
        found = seen.timeline
        if seen.metadata is not None:
            self.metadata.resume(seen.metadata, found)
        else:
            found = self._decide(seen, own)
            # Before the recovery, which makes it final: delta commits of writes to be rolled back are undone first.
            self.metadata.open(found, tuple(seen.living))
        last = max(found.last_time, self.metadata.last_time)
        zone, skew_ms = self._config.timeline_zone, self._options[CLOCK_SKEW_MS]
        self.times = InstantSource(self._runtime.clock, self._runtime.sleep, zone, skew_ms, last)
        self.living = frozenset(pending.requested for pending in seen.living)
        return found
