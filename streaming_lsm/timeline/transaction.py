"""One write on a table, visible whole or not at all: begin, reconcile, complete."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from streaming_lsm.config import (
    CLOCK_SKEW_MS,
    HEARTBEAT_MISSES,
    HEARTBEAT_MS,
    WRITER_ID,
    WRITER_IDLE_DAYS,
    WRITER_MAX,
    Options,
)
from streaming_lsm.errors import CommitUnknown, CorruptFileError, Fenced
from streaming_lsm.format.commit import CommitMetadata, WriteStat
from streaming_lsm.format.table_config import TableConfig
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.clock import InstantSource
from streaming_lsm.timeline.heartbeat import Heartbeat, close_instant, open_instant
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, WRITE_ACTIONS, Instant, State
from streaming_lsm.timeline.lock import TableLock
from streaming_lsm.timeline.markers import delete_markers, marker_folder
from streaming_lsm.timeline.metadata_table import MetadataTable
from streaming_lsm.timeline.recovery import recover, refuse_living
from streaming_lsm.timeline.replay import LEDGER_KEY, ReplayIdentity, WriterLedger
from streaming_lsm.timeline.rollback import roll_back
from streaming_lsm.timeline.runtime import Runtime
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.timeline.waiting import CLEAN, COMPACTION, SERVICES, delete_attempts, put_back

_LOG = logging.getLogger(__name__)


class Transaction:
    """The only way to change a table.

    ::

        with Transaction(storage, config, options, ReplayIdentity(query_id, batch_id)) as transaction:
            if transaction.already_committed:
                return
            instant = transaction.begin()
            stats = ...                     # executors: create_marker, write, check_still_inflight
            transaction.reconcile(stats)
            transaction.complete(stats, "UPSERT", schema)

    Entering takes the lock and undoes what dead writers left. Leaving without `complete` rolls the write back.

    Compactions and cleans are planned in one transaction and carried out in the same or another::

        waiting = transaction.schedule("compaction", transaction.new_time(), plan)
        transaction.start(waiting)      # then as above; a clean ends with `complete_clean`

    Leaving without completion keeps the plan: the compaction goes back to requested, the clean stays as it is.
    """

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        options: Options,
        identity: ReplayIdentity | None = None,
        *,
        runtime: Runtime | None = None,
        timelines: TimelineCache | None = None,
    ) -> None:
        """Prepare a transaction; nothing is touched before it is entered.

        Args:
            config: the table's fixed properties.
            options: heartbeat, skew and ledger options count here.
            identity: the batch; None for a write that cannot be a replay.
            runtime: clock, ids and processes; the real ones when not given.
            timelines: what the open table has loaded before; a cache of its own when not given.
        """
        self._storage = storage
        self._config = config
        self._options = options
        self._identity = identity
        self._runtime = runtime or Runtime()
        writer_id = identity.writer_id if identity else options[WRITER_ID] or "unnamed"
        self._lease_ms = options[HEARTBEAT_MS] * options[HEARTBEAT_MISSES]
        self._lock = TableLock(storage, writer_id, self._lease_ms, self._runtime)
        self._heartbeat = Heartbeat(storage, self._lock, options[HEARTBEAT_MS])
        self._timelines = timelines or TimelineCache()
        self._metadata = MetadataTable(storage, options, self._lock, self._timelines)
        self._begun: Instant | None = None
        self._reconciled: frozenset[str] | None = None
        # From the moment the commit may be visible, nothing may undo it.
        self._published = False

    def __enter__(self) -> Transaction:
        """Take the lock; load the timeline; finish and undo what dead writers left.

        A metadata table is kept up to date from here on, or dropped.

        Raises:
            CommitConflict: a living writer is at work; the message names it.
        """
        self._lock.acquire()
        try:
            self._heartbeat.start()
            first = not self._timelines.has(self._storage)
            found = self._timelines.load(self._storage)
            refuse_living(self._storage, found, self._runtime, self._lease_ms)
            # Before the recovery: a rollback that is completed makes what the metadata table says of its target final.
            self._metadata.open(found)
            self._times = self._instant_source(found)
            self.timeline = recover(self._storage, self._lock, found, self._times, sweep=first)
            self._metadata.serve(self.timeline, self._times)
            self._ledger = WriterLedger.of(self.timeline)
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Roll back what was begun and not completed, as far as that is possible, and release the lock."""
        try:
            if self._begun is not None and not self._published:
                self._give_up(self._begun)
        finally:
            self._let_go()

    @property
    def already_committed(self) -> bool:
        """Whether this batch, or a later one of the same writer, took effect before."""
        return self._identity is not None and self._ledger.has(self._identity)

    @property
    def ledger(self) -> WriterLedger:
        """The last batch of each writer, as the newest commit remembers it."""
        return self._ledger

    @property
    def open_deletes(self) -> Mapping[str, str]:
        """What the writer's last batch left for this one, see `LastBatch`."""
        last = self._ledger.writers.get(self._identity.writer_id) if self._identity else None
        return last.open_deletes if last else {}

    def begin(self, action: str = "deltacommit") -> str:
        """Put the write on the timeline, requested and then inflight; tasks may create files of it from now on.

        Returns:
            The requested time: name of the instant and part of its files' names.
        """
        if self._begun is not None:
            raise RuntimeError("a transaction makes one instant: begin was called before")
        if action not in WRITE_ACTIONS:
            raise ValueError(f"{action!r} is no write: expected one of {', '.join(sorted(WRITE_ACTIONS))}")
        self._lock.verify()
        instant = Instant(self._times.next(), action, State.REQUESTED)
        self._begun = instant
        # The heartbeat comes first: nobody may take the instant for a dead writer's, not for a moment.
        open_instant(self._storage, instant.requested, self._lock.owner)
        self._heartbeat.follow(instant.requested)
        self._storage.put_if_absent(instant.path, b"")
        self._storage.put_if_absent(instant.at(State.INFLIGHT).path, b"")
        self._storage.make_folder(marker_folder(instant.requested))
        return instant.requested

    def verify(self) -> None:
        """See that the lock is held, right before what no instant stands for is changed; `Fenced` if not."""
        self._lock.verify()

    def new_time(self) -> str:
        """The requested time of an action that is to be scheduled, greater than all times before."""
        return self._times.next()

    def now_ms(self) -> int:
        """The clock as it is, milliseconds since the epoch; for durations, never for instants."""
        return self._times.now_ms()

    def schedule(self, action: str, requested: str, plan: bytes) -> Instant:
        """Put a compaction or clean on the timeline, to be carried out at any time by anybody.

        Args:
            requested: as `new_time` gave it, so that the plan can depend on it.
            plan: content of the requested file.
        """
        self._lock.verify()
        instant = Instant(requested, _service(action), State.REQUESTED)
        self._storage.put_if_absent(instant.path, plan)
        return instant

    def start(self, waiting: Instant) -> None:
        """Take up an action that waits; tasks may create files of a compaction from now on."""
        if self._begun is not None:
            raise RuntimeError("a transaction carries out one instant: begin or start was called before")
        self._lock.verify()
        self._begun = waiting
        if _service(waiting.action) == COMPACTION:
            # Whatever an earlier run left, of this program or another one: nobody runs it any more.
            put_back(self._storage, self._lock, waiting)
            open_instant(self._storage, waiting.requested, self._lock.owner)
            self._heartbeat.follow(waiting.requested)
            self._storage.make_folder(marker_folder(waiting.requested))
        # A clean that died is inflight already; deleting its files once more does no harm.
        with suppress(FileExistsError):
            self._storage.put_if_absent(waiting.at(State.INFLIGHT).path, b"")

    def reconcile(self, stats: Sequence[WriteStat]) -> None:
        """Make the instant's files those of `stats` and no others; tasks that still run are shut out.

        Files of failed, repeated or speculative attempts have a marker but no stat, and are deleted.

        Raises:
            Fenced: another writer took the lock, and may run the same compaction; none of its files was deleted.
        """
        instant = self._running()
        listed = frozenset(stat.path for stat in stats)
        self._lock.verify()
        close_instant(self._storage, instant.requested)
        delete_attempts(self._storage, self._lock, instant, listed)
        self._reconciled = listed

    def complete(
        self,
        stats: Sequence[WriteStat],
        operation_type: str,
        schema_json: str,
        extra: Mapping[str, str] | None = None,
        *,
        open_deletes: Mapping[str, str] | None = None,
    ) -> Instant:
        """Publish the write: one file, created if absent, makes all its data files visible.

        Args:
            stats: as given to `reconcile`.
            operation_type: Hudi's name of the operation, such as ``UPSERT``.
            schema_json: Avro JSON of the table's schema without meta columns.
            extra: further keys for the commit's metadata.
            open_deletes: what the writer's next batch has to know, see `LastBatch`.

        Raises:
            CorruptFileError: a file of `stats` is missing; nothing was published.
            Fenced: another writer took the lock; nothing was published, or it was taken back.
            CommitUnknown: the storage failed and does not tell whether the file is there. Do not write again: the
                next transaction finds out, and `already_committed` says it.
        """
        running = self._running()
        if self._reconciled != frozenset(stat.path for stat in stats):
            raise RuntimeError("reconcile the very stats that are to be completed")
        metadata = CommitMetadata(
            tuple(stats),
            operation_type,
            self._extra(schema_json, extra or {}, open_deletes),
            compacted=running.action == COMPACTION,
        )
        completed = self._finish(running, metadata.encode())
        self._clean_up(completed)
        return completed

    def complete_clean(self, metadata: bytes) -> Instant:
        """Record that the files of the clean's plan are gone; raises as `complete`."""
        return self._finish(self._running(), metadata)

    def _finish(self, running: Instant, data: bytes) -> Instant:
        self._check_files()
        self._metadata.record(running, data, self._times)
        completed = running.completed_at(self._times.next())
        # After everything that takes its time: from here to the put nobody looks whether the lock was taken.
        self._lock.verify()
        self._publish(completed, data)
        if running.action in SERVICES:
            self._settle(completed)
        return completed

    def _settle(self, completed: Instant) -> None:
        """Leave one completion of a compaction or clean, whose next run has the same instant.

        A driver that was stopped between its last look at the lock and the put adds one to what another driver does
        or has done. Both look after their put, so that one of them at least sees both. The holder's stands.
        """
        names = (name for name in self._storage.names(TIMELINE_FOLDER) if name.startswith(completed.requested))
        rivals = [
            found.path
            for found in map(Instant.parse, names)
            if found is not None
            and found.action == completed.action
            and found.completed not in (None, completed.completed)
        ]
        try:
            self._lock.verify()
        except Fenced:
            if rivals or self._missing_files():
                self._storage.delete(completed.path)
                raise
            return
        for rival in rivals:
            _LOG.warning("removing %s of %s, whose writer had lost the lock", rival, self._storage.uri)
            self._storage.delete(rival)

    def _check_files(self) -> None:
        """At the last moment, as nothing brings a file back that vanished while the write was still open."""
        missing = self._missing_files()
        if missing:
            self._lock.verify()  # whoever took it deletes them
            raise CorruptFileError(f"{missing[0]} in {self._storage.uri} is gone since it was written: write it again")

    def _missing_files(self) -> list[str]:
        return [path for path in sorted(self._reconciled or ()) if not self._storage.exists(path)]

    def _publish(self, completed: Instant, data: bytes) -> None:
        self._published = True
        try:
            self._storage.put_if_absent(completed.path, data)
        except Exception as error:
            if not self._is_there(completed, data, error):
                self._published = False
                raise

    def _is_there(self, completed: Instant, data: bytes, error: Exception) -> bool:
        """Whether a put that failed has taken effect all the same; settled by reading, never by writing again."""
        try:
            found = self._storage.read(completed.path)
        except FileNotFoundError:
            return False
        except Exception as unreadable:
            raise CommitUnknown(
                f"creating {completed.path} in {self._storage.uri} failed ({error}), and so did looking for it "
                f"({unreadable}): look at the timeline before writing this batch again"
            ) from error
        if found != data:
            raise Fenced(f"{completed.path} in {self._storage.uri} was made by another writer: stop") from error
        return True

    def _clean_up(self, completed: Instant) -> None:
        """Remove the markers. The commit stands whatever happens here; the next transaction does what is left."""
        try:
            # A task that was shut out after the reconciliation may have died before it removed its file.
            delete_attempts(self._storage, self._lock, completed, self._reconciled or frozenset())
            delete_markers(self._storage, completed.requested)
        except Exception:
            _LOG.warning("%s is committed, but its markers remain for now", completed.path, exc_info=True)

    def _extra(
        self, schema_json: str, extra: Mapping[str, str], open_deletes: Mapping[str, str] | None
    ) -> dict[str, str]:
        ledger, dropped = self._ledger.advanced(
            self._identity,
            self._runtime.clock(),
            self._options[WRITER_IDLE_DAYS],
            self._options[WRITER_MAX],
            open_deletes,
        )
        for writer in dropped:
            last = self._ledger.writers[writer]
            _LOG.warning(
                "forgetting writer %r of %s: last batch %d; a replay of it would be written again",
                *(writer, self._storage.uri, last.batch_id),
            )
        # Also an empty one, so that the next writer need not look for it in all commits before.
        own = {LEDGER_KEY: ledger.encode()}
        return {**extra, "schema": schema_json, **own}

    def _running(self) -> Instant:
        if self._begun is None or self._published:
            raise RuntimeError("no instant is open: call begin first, and complete once")
        return self._begun

    def _give_up(self, begun: Instant) -> None:
        """Roll back the own instant, or put it back; where that fails the next transaction does it."""
        if begun.action == CLEAN:
            return
        try:
            self._lock.verify()
            timeline = self._timelines.load(self._storage)
            pending = next((instant for instant in timeline.pending if instant.requested == begun.requested), None)
            if pending is None:
                close_instant(self._storage, begun.requested)
                return
            self._metadata.forget(pending)
            if begun.action == COMPACTION:
                put_back(self._storage, self._lock, pending)
            else:
                roll_back(self._storage, pending, self._instant_source(timeline))
        except Fenced as error:
            _LOG.warning("%s is left to the writer that took over: %s", begun.path, error)
        except Exception:
            uri = self._storage.uri
            _LOG.warning("%s in %s could not be rolled back; the next write does it", begun.path, uri, exc_info=True)

    def _let_go(self) -> None:
        self._heartbeat.stop()
        self._lock.release()

    def _instant_source(self, timeline: Timeline) -> InstantSource:
        zone, skew_ms = self._config.timeline_zone, self._options[CLOCK_SKEW_MS]
        last = max(timeline.last_time, self._metadata.last_time)
        return InstantSource(self._runtime.clock, self._runtime.sleep, zone, skew_ms, last)


def _service(action: str) -> str:
    if action not in SERVICES:
        raise ValueError(f"{action!r} is not planned first: expected one of {', '.join(sorted(SERVICES))}")
    return action
