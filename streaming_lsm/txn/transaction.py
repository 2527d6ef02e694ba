"""Run one action on a table as an atomic transaction: begin, reconcile, complete.

To *reconcile* a write is to delete the files of task attempts that are not in its write stats. To *publish* an action
is to decide that it is completed, and to create its completed file (see `streaming_lsm.txn.decision`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType

from streaming_lsm.config import (
    CONCURRENCY_MODE,
    NON_BLOCKING,
    WRITER_ID,
    WRITER_IDLE_DAYS,
    WRITER_MAX,
    Options,
)
from streaming_lsm.errors import (
    CommitConflict,
    ConfigError,
    CorruptFileError,
    Fenced,
    LockTimeout,
    StorageError,
    WriteConflict,
)
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.actions.index_plan import IndexPlan
from streaming_lsm.format.avro.container import check_readable
from streaming_lsm.format.internal_schema import LATEST_SCHEMA_KEY
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.lock.heartbeat import Heartbeat
from streaming_lsm.lock.lock import LockWait
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import COMPACTIONS, INDEXING, planned_kind
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.instant import WRITE_ACTIONS, Instant, State
from streaming_lsm.timeline.properties_file import update_properties
from streaming_lsm.timeline.schema_on_read import save_column_versions
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import LEDGER_KEY, BatchIdentity, WriterLedger
from streaming_lsm.txn.column_ids import columns_after
from streaming_lsm.txn.completed_rollback import Unrecord, objection, roll_back_completed
from streaming_lsm.txn.conflict import Replacing, check_conflicts
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from streaming_lsm.txn.dropped_columns import dropped_columns, dropped_entry
from streaming_lsm.txn.indexing import OWNER_KEY
from streaming_lsm.txn.locked_table import Beside, LockedTable
from streaming_lsm.txn.metadata_hook import OpenMetadata
from streaming_lsm.txn.outcome import Outcome
from streaming_lsm.txn.pending_action import PendingAction, Run
from streaming_lsm.txn.plan_record import cancel_plan, plan_record_path
from streaming_lsm.txn.planned_actions import refuse_reused_time, schedule
from streaming_lsm.txn.restore import refuse_beside_others, restore_to
from streaming_lsm.txn.savepoint import delete_savepoint, make_savepoint

# Errors about files, raised here or in a task: another writer that took the lock may have deleted the files.
_OF_FILES = (OSError, CorruptFileError, StorageError)
_LOG = logging.getLogger(__name__)

Extra = Callable[[Timeline], Mapping[str, str]]
"""Entries of the extra metadata of a commit, by the timeline just before it."""


class Transaction:
    """Change a table: every write, compaction, clean and change of properties is made in a transaction.

    ::

        with Transaction(storage, config, options, identity, metadata=MetadataTable) as transaction:
            if transaction.already_committed:
                return
            instant = transaction.begin()
            stats = ...                     # executors: create_marker, write, check_still_inflight
            outcome = Outcome(stats, "UPSERT", schema)
            transaction.reconcile(outcome)
            transaction.complete(outcome)

    Entering acquires the lock and recovers the table: actions that dead writers decided to complete are completed,
    their other writes are rolled back. `begin` releases the lock: until `complete` acquires it again, for as long as
    it takes to publish the action, other writers may change the table. Meanwhile the instant belongs to this
    transaction by its heartbeat. Leaving without `complete` rolls the write back.

    Compactions and cleans are scheduled in one transaction, and run in the same or a later one::

        planned = transaction.schedule("compaction", transaction.new_time(), plan)
        transaction.start(planned)      # then as above; a clean ends with `complete_clean`

    Leaving without completion keeps the plan: the compaction is reverted to requested, the clean stays inflight.
    """

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        options: Options,
        identity: BatchIdentity | None = None,
        *,
        metadata: OpenMetadata,
        beside: Beside = Beside.SERVICES,
        alone: bool = False,
        action: str | None = None,
        runtime: Runtime | None = None,
        timelines: TimelineCache | None = None,
    ) -> None:
        """Prepare a transaction; the table is neither read nor changed before it is entered.

        Args:
            config: the table's fixed properties.
            options: heartbeat, clock skew, ledger and metadata table options are used.
            identity: identity of the batch; None for a write that cannot be a replay.
            metadata: factory of the hook that keeps the metadata table up to date, such as `MetadataTable`.
            beside: actions of other writers beside which this one may be made.
            alone: for a write: wait until the other writes, and the clusterings, that are pending are completed; writes
                that have not begun wait for this one.
            action: the action of a write that is made alone; by default that of the table's type.
            runtime: clock, sleep, ids and process checks; the system's by default.
            timelines: timeline cache of the open table; a new one by default.
        """
        self._storage = storage
        self._config = config
        self._options = options
        self._identity = identity
        self._beside = beside
        self._alone = alone
        self._write_action = action or ("commit" if config.is_copy_on_write else "deltacommit")
        self._non_blocking = options[CONCURRENCY_MODE] == NON_BLOCKING
        self._runtime = runtime or Runtime()
        writer_id = identity.writer_id if identity else options[WRITER_ID] or "unnamed"
        self._table = LockedTable(
            storage, config, options, writer_id, metadata, self._runtime, timelines or TimelineCache()
        )
        self._lock, self._metadata = self._table.lock, self._table.metadata
        self._heartbeat = Heartbeat(storage, self._lock, self._table.renew_ms, self._runtime.background)
        self._action: PendingAction | None = None
        # The timeline with which a write began, see `check_conflicts`.
        self._before: Timeline | None = None

    def __enter__(self) -> Transaction:
        """Acquire the lock, load the timeline, and recover the table.

        From here on the metadata table is kept up to date, or it is dropped.

        Raises:
            LockTimeout, WriterTimeout: other living writers held the lock, or had an action pending beside which this
                one may not be made, for longer than the options say to wait; the message names one.
            CommitUnknown: the storage failed, and the decision of an earlier writer could not be read.
            Fenced: another writer took the lock in the meantime.
        """
        self._runtime.process_locks.begin(self._lock.owner)
        try:
            self._heartbeat.start()
            self._table.acquire(self._beside)
            if self._alone:
                # The write begins before those that are pending are completed, so that others wait for it.
                self._create(self._write_action)
                self._table.acquire(Beside.COMPACTIONS, self._running().instant)
            self._ledger = WriterLedger.of(self.timeline)
        except BaseException as error:
            fenced = None
            try:
                fenced = self._loss() if isinstance(error, _OF_FILES) else None
                if self._action is not None:
                    self._action.give_up(self._table, self._wait_after(error))
            finally:
                self._let_go()
            if fenced is not None:
                raise fenced from error
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Roll back a begun action that was not completed, if possible, and release the lock.

        Raises:
            Fenced: in place of an error about a file, if another writer took the lock and deleted the file.
        """
        unpublished = self._action is None or not self._action.is_published
        fenced = None
        try:
            fenced = self._loss() if isinstance(error, _OF_FILES) and unpublished else None
            if self._action is not None and unpublished:
                self._action.give_up(self._table, self._wait_after(error))
        finally:
            self._let_go()
        if fenced is not None:
            raise fenced from error
        if isinstance(error, _OF_FILES) and unpublished and self._is_overtaken():
            raise WriteConflict(
                f"a file of {self._storage.uri} is gone ({error}), and other writes were completed since this one "
                "began, which may have replaced it: write the batch again"
            ) from error

    def _wait_after(self, error: BaseException | None) -> LockWait:
        """Return how long to wait for the lock to undo an action: not again, where it was waited for in vain."""
        return LockWait() if isinstance(error, LockTimeout) else LockWait.of(self._options)

    def _is_overtaken(self) -> bool:
        """Return whether other writes were completed since this write of a copy-on-write table began."""
        if self._before is None or self._write_action != "commit":
            return False
        try:
            now = Timeline.load(self._storage, previous=self._before)
        except Exception:
            return False
        return not frozenset(now.completed_writes) <= frozenset(self._before.completed_writes)

    @property
    def timeline(self) -> Timeline:
        """The timeline as it was when the lock was last acquired."""
        return self._table.timeline

    @property
    def waited_ms(self) -> int:
        """Milliseconds spent so far waiting for other writers, and for the table's lock."""
        return round(1000 * (self._lock.waited_s + self._table.waited_s))

    @property
    def held_ms(self) -> int:
        """Milliseconds for which the lock was held so far."""
        return round(1000 * self._lock.held_s)

    @property
    def already_committed(self) -> bool:
        """Whether this batch, or a later one of the same writer, is committed."""
        return self._identity is not None and self._ledger.has(self._identity)

    @property
    def ledger(self) -> WriterLedger:
        """The ledger of the newest commit: the last batch of each writer."""
        return self._ledger

    @property
    def open_deletes(self) -> Mapping[str, str]:
        """Open deletes of the writer's last batch, see `LastBatch`."""
        last = self._ledger.writers.get(self._identity.writer_id) if self._identity else None
        return last.open_deletes if last else {}

    def begin(self, action: str = "deltacommit") -> str:
        """Create the requested and inflight files of a write; tasks may create data files of it from now on.

        Returns:
            The requested time, which names the instant and is part of its files' names.
        """
        if self._before is not None:
            raise RuntimeError("a transaction makes one instant: begin was called before")
        if action not in WRITE_ACTIONS:
            raise ValueError(f"{action!r} is no write: expected one of {', '.join(sorted(WRITE_ACTIONS))}")
        self._before = self.timeline
        if self._action is None:
            self._create(action)
        else:  # it was begun to be made alone
            self._release(self._running().instant.at(State.INFLIGHT))
        return self._running().instant.requested

    def _create(self, action: str) -> None:
        self._verify_lock()
        instant = Instant(self._table.times.next(), action, State.REQUESTED)
        # The heartbeat is created first, so that the instant is never without a living writer.
        self._action = PendingAction(self._storage, self._lock, self._heartbeat, instant, alone=self._alone)
        self._action.begin_write()
        self._release(instant.at(State.INFLIGHT))

    def _release(self, begun: Instant) -> None:
        """Release the lock when an action has begun; raises `Fenced` if another writer may not have seen that."""
        if not self._table.release(begun):
            owner, begun_by = self._lock.owner, f"while {begun.requested} was begun"
            raise self._lock.lost(f"was taken from {owner}, or could not be released, {begun_by}")

    def update_properties(self, changes: Mapping[str, str | None]) -> None:
        """Change keys of hoodie.properties; None removes a key. Raises `Fenced` if another writer took the lock."""
        update_properties(self._storage, changes, self._lock.verify, self._runtime.clock)

    @property
    def ranged_columns(self) -> Sequence[str]:
        """Columns whose ranges write stats should tell, as the metadata table records them."""
        return self._metadata.ranged_columns

    def drop_metadata_table(self, why: str) -> None:
        """Delete the metadata table, if there is one, and log why. Raises `Fenced` if another writer took the lock."""
        self._metadata.drop(why)

    def add_index(self, name: str, options: Options) -> None:
        """Create a partition of the metadata table from all files of completed actions; nothing is done if it exists.

        To be called right after the lock was acquired.

        Args:
            name: the partition; ``files`` for a metadata table.
            options: options of the partition, beside those of the transaction.

        Raises:
            CommitConflict: another writer is completing an action at this moment, or lost the lock while it was.
            CorruptFileError, UnsupportedTable: it cannot be made for this table.
            Fenced: another writer took the lock.
        """
        self._metadata.add_partition(name, options, self.timeline, self._table.times)

    def build_index(self, name: str, options: Options) -> Instant | None:
        """Build a partition of the metadata table while other writers go on, by an indexing action.

        The steps: plan it; read the table and write the base files; list it among the partitions that are being built;
        read what was completed meanwhile; complete it with the rest. The lock is held for the first, the third and the
        last one. To be called right after the lock was acquired.

        Args:
            name: the partition, other than ``files``.
            options: options of the partition, beside those of the transaction.

        Returns:
            The completed action; None if the table has the partition.

        Raises:
            CommitConflict: another process builds the partition; or the columns of the table
                changed, or the index was dropped, meanwhile; or another writer is completing an action.
            CorruptFileError, UnsupportedTable: it cannot be made for this table.
            Fenced: another writer took this one for dead.
        """
        if name in self._metadata.partitions:
            return None
        self._verify_lock()
        indexing, token = Instant(self._table.times.next(), INDEXING, State.REQUESTED), self._lock.owner.token
        plan = IndexPlan(name, _last_write(self.timeline), {OWNER_KEY: token})
        self._action = PendingAction(self._storage, self._lock, self._heartbeat, indexing)
        self._metadata.start_build(name, options, indexing, self._action.claim.verify)
        self._action.begin_write(plan.encode())
        self._release(indexing.at(State.INFLIGHT))
        self._metadata.build(self._table.times.now_ms)
        self._lock_again()
        self._metadata.announce_build()
        self._release(indexing.at(State.INFLIGHT))
        self._metadata.catch_up()
        self._lock_again()
        changes = self._metadata.finish_build(self.timeline, self._table.times)
        completed = indexing.completed_at(self._table.times.next())
        self._verify_lock()
        self._action.publish(completed, plan.encode_completed(_last_write(self.timeline)))
        # Readers ignore its logs until it is completed.
        self._metadata.register_build(changes)
        if not self._table.release(completed):
            self._action.confirm(completed)
        self._action.clean_up(completed)
        return completed

    def drop_indexes(self, names: Collection[str], why: str) -> None:
        """Drop partitions of the metadata table, all of it if ``files`` is among them, and log why.

        Raises:
            Fenced: another writer took the lock.
        """
        self._metadata.drop_partitions(names, why)

    def new_time(self) -> str:
        """Return a requested time for an action to be scheduled, greater than all times before."""
        return self._table.times.next()

    def verify(self) -> None:
        """Check that the lock is held, before a change of files that no action of this transaction owns.

        Raises:
            Fenced: another writer took the lock.
        """
        self._lock.verify()

    def now_ms(self) -> int:
        """Return the clock's time in milliseconds since the epoch; for durations, never for instants."""
        return self._table.times.now_ms()

    def schedule(self, action: str, requested: str, plan: bytes) -> Instant:
        """Schedule a compaction or clean: create its requested file, for this or a later transaction to run.

        Args:
            requested: a time returned by `new_time`, on which the plan may depend.
            plan: content of the requested file.

        Raises:
            Fenced: another writer took the lock, and may have changed the planned files. The plan is deleted, unless
                that writer runs it. It stays, too, if the storage fails before the cancellation is recorded; then it
                is run by a later transaction, whose check of the plan refuses one that does not fit the table.
        """
        instant = Instant(requested, planned_kind(action).action, State.REQUESTED)
        schedule(self._storage, self._lock, instant, plan)
        return instant

    def cancel(self, planned: Instant, plan: bytes) -> None:
        """Cancel a plan that no run has accepted; one that a run has accepted stays.

        Args:
            plan: content of the requested file.
        """
        cancel_plan(self._storage, plan_record_path(DECISION_FOLDER, planned), plan)

    def make_savepoint(self, write: Instant, look: Callable[[], bytes]) -> Instant:
        """Make a savepoint of a completed write; see `streaming_lsm.txn.savepoint.make_savepoint`."""
        return make_savepoint(self._storage, self._lock, write, self._table.times, look)

    def delete_savepoint(self, savepoint: Instant) -> None:
        """Delete a completed savepoint. Raises `Fenced` if another writer took the lock."""
        delete_savepoint(self._storage, self._lock, savepoint)

    def roll_back(self, write: Instant) -> Instant:
        """Roll back the last completed write; to be called right after the lock was acquired, beside nothing.

        Returns:
            The completed rollback.

        Raises:
            ConfigError: the write cannot be rolled back, see `objection`.
            CommitConflict, Fenced: see `roll_back_completed`.
        """
        why = objection(self.timeline, write)
        if why is not None:
            raise ConfigError(f"{write.path} in {self._storage.uri} cannot be rolled back: {why}")
        return roll_back_completed(
            self._storage, self._lock, self.timeline, write, self._table.times, Unrecord.of(self._metadata)
        )

    def restore(self, savepoint: str, undone: Collection[Instant]) -> Instant:
        """Undo the actions after a savepoint; raises as `streaming_lsm.txn.restore.restore_to`.

        To be called right after the lock was acquired, beside nothing.
        """
        times, drop = self._table.times, self._metadata.drop
        return restore_to(self._storage, self._lock, savepoint, undone, times, drop)

    def is_run_elsewhere(self, planned: Instant) -> bool:
        """Return whether another living writer runs a planned action."""
        return planned.requested in self._table.living

    def start(self, planned: Instant) -> None:
        """Start a run of a planned action; tasks may create files of a compaction from now on.

        Raises:
            CommitConflict: another writer runs the action. Or the writer that scheduled the action lost the lock: the
                plan was cancelled by it, or here, as another writer has used the requested time meanwhile.
            Fenced: another writer took the lock.
        """
        if self._action is not None:
            raise RuntimeError("a transaction runs one instant: begin or start was called before")
        planned_kind(planned.action)  # refuses others
        if self.is_run_elsewhere(planned):
            raise CommitConflict(f"{planned.path} in {self._storage.uri} is being run by another writer")
        self._lock.verify()
        refuse_reused_time(self._storage, self.timeline, planned)
        PendingAction.prepare_run(self._storage, self._lock, planned)
        self._action = PendingAction(self._storage, self._lock, self._heartbeat, planned)
        self._action.begin_run()
        self._lock.release()

    def delete_files(self, paths: Iterable[str], run: Run | None = None) -> None:
        """Delete the files of a clean's plan.

        Args:
            run: runs a task for each of several items, such as `Engine.map`; by default one after the other.

        Raises:
            Fenced: another writer took the clean over; it deletes the remaining files.
        """
        self._running().delete_files(paths, run)

    def reconcile(self, outcome: Outcome) -> None:
        """Reconcile the instant's files with `outcome`: fence running tasks, and delete all other marked files.

        These are files of failed, repeated or speculative task attempts.

        Raises:
            Fenced: another writer took this one for dead, and may run the same compaction; none of its files was
                deleted.
        """
        self._running().reconcile(outcome.paths, sole=outcome.sole)

    def complete(self, outcome: Outcome, extra: Extra | None = None) -> Instant:
        """Publish the write: its completed file, created if absent, makes all its data files visible.

        Args:
            outcome: with the files given to `reconcile`.
            extra: makes further entries of the extra metadata, when the lock is held.

        Raises:
            ConfigError, StorageError: readers would refuse the commit's ledger or metadata; nothing was published.
            CorruptFileError: a file of `outcome` is missing; nothing was published.
            LockTimeout: other writers held the lock for all the time to wait for it; nothing was published.
            WriteConflict, ClusteringConflict: see `check_conflicts`; nothing was published.
            Fenced: another writer took this one for dead, and decided that the write is undone; or a writer with the
                same id has committed this batch or a later one; nothing was published.
            CommitUnknown: the storage failed while the write was being decided or published. The next transaction
                completes the write if it is decided, else rolls it back; its `already_committed` tells which.
        """
        running = self._running()
        running.check_files(outcome.paths)
        self._lock_again()
        self._refuse_replay()
        if self._before is not None:
            requested, before = running.instant.requested, self._before
            check_conflicts(
                outcome.stats,
                before,
                self.timeline,
                requested=requested,
                table=self._config,
                non_blocking=self._non_blocking,
                replacing=Replacing(outcome.replaced or {}, outcome.replaces_all),
            )
        dropped = dropped_entry(dropped_columns(self.timeline))
        entries = {
            **dropped,
            **(extra(self.timeline) if extra else {}),
            LEDGER_KEY: self._next_ledger(outcome).encode(),
        }
        schema = entries.get("schema", outcome.schema_json)
        columns = columns_after(self.timeline, running.instant, schema, outcome.renamed, self._config.create_schema)
        if columns is not None:
            save_column_versions(self.timeline, columns, running.instant.requested, self._table.times.next())
            entries[LATEST_SCHEMA_KEY] = columns.latest.encode()
        metadata = outcome.metadata(entries, compacted=running.instant.action in COMPACTIONS)
        data = metadata.encode()
        completed = self._finish(running, data, metadata)
        metadata = metadata.as_decoded()
        # The next transaction reads it.
        self.timeline.facts.keep(data, metadata)
        if not self._table.release(completed, {completed: metadata}):
            running.confirm(completed)
        running.clean_up(completed)
        return completed

    def complete_clean(self, metadata: bytes) -> Instant:
        """Complete a clean, after the files of its plan were deleted; raises as `complete`."""
        running = self._running()
        self._lock_again()
        completed = self._finish(running, metadata)
        if not self._table.release(completed):
            running.confirm(completed)
        running.clean_up(completed)
        return completed

    def _lock_again(self) -> None:
        """Acquire the lock again, with the timeline as it is now; the instant is still this transaction's.

        After an error the lock stays held, so that the action is undone before another writer looks at it.
        """
        running = self._running()
        instant = running.instant
        self._table.acquire_again(instant)
        if not any(pending.requested == instant.requested for pending in self.timeline.pending):
            raise Fenced(f"{instant.path} in {self._storage.uri} was undone by another writer: stop")
        try:
            refuse_beside_others(self.timeline)
        except CorruptFileError as error:  # at its end a restore looks like one that was lost
            raise CommitConflict(str(error)) from error
        if not self._table.is_known:
            running.claim.verify()

    def _verify_lock(self) -> None:
        """Verify that the lock is held, where that spares work: a stop right after it is found otherwise."""
        if not self._table.is_known:
            self._lock.verify()

    def _refuse_replay(self) -> None:
        """Refuse the batch if another transaction of the same writer has committed it since this one began."""
        self._ledger = WriterLedger.of(self.timeline)
        if self._identity is not None and self._ledger.has(self._identity):
            raise Fenced(
                f"batch {self._identity.batch_id} of writer {self._identity.writer_id!r} was committed to "
                f"{self._storage.uri} by another process with the same {WRITER_ID.key}: stop one of the two"
            )

    def _finish(self, running: PendingAction, data: bytes, commit: CommitMetadata | None = None) -> Instant:
        check_readable(data, f"the completed file of {self._storage.uri}/{running.instant.path}")
        self._metadata.record(running.instant, data, self._table.times, commit)
        completed = running.instant.completed_at(self._table.times.next())
        # A writer that takes the lock later undoes pending actions, unless the decision record exists.
        self._verify_lock()
        running.publish(completed, data)
        return completed

    def _next_ledger(self, outcome: Outcome) -> WriterLedger:
        """Build the ledger of this commit, and log the writers that it drops.

        An empty ledger is written, too: without one the next writer would search all commits.
        """
        ledger, dropped = self._ledger.advanced(
            self._identity,
            self._runtime.clock(),
            self._options[WRITER_IDLE_DAYS],
            self._options[WRITER_MAX],
            outcome.open_deletes,
            outcome.topics,
        )
        for writer in dropped:
            last = self._ledger.writers[writer]
            _LOG.warning(
                "forgetting writer %r of %s: last batch %d; a replay of it would be written again",
                *(writer, self._storage.uri, last.batch_id),
            )
        return ledger

    def _running(self) -> PendingAction:
        if self._action is None or self._action.is_published:
            raise RuntimeError("no instant is open: call begin first, and complete once")
        return self._action

    def _let_go(self) -> None:
        """Stop the heartbeat, delete the claim, and release the lock."""
        try:
            self._heartbeat.stop()
            if self._action is not None:
                self._action.delete_claim()
        except Exception:
            _LOG.warning("a heartbeat in %s could not be deleted", self._storage.uri, exc_info=True)
        finally:
            self._runtime.process_locks.end(self._lock.owner)
            if self._lock.is_held:
                self._lock.release()

    def _loss(self) -> Fenced | None:
        """Return the error of the lock or the claim if another writer took it; None if it is held or cannot be read."""
        if self._lock.is_held:
            return self._lock.loss()
        try:
            if self._action is not None:
                self._action.claim.verify()
        except Fenced as fenced:
            return fenced
        except Exception:
            _LOG.warning("the heartbeat of an instant in %s cannot be read", self._storage.uri, exc_info=True)
        return None


def _last_write(timeline: Timeline) -> str:
    """Return the requested time of the last completed write; empty without one."""
    return max((write.requested for write in timeline.completed_writes), default="")
