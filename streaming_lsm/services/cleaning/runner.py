"""Plan and execute cleans: requested, inflight, files deleted, ``clean`` (docs/format/06-services.md, "Cleaning").

The plan of an interrupted clean stays on the timeline, and the next clean executes it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from streaming_lsm import config
from streaming_lsm.errors import CommitConflict, CorruptFileError, LsmError
from streaming_lsm.file_group.file_group import file_groups_in
from streaming_lsm.format.actions.clean import CleanMetadata, CleanPlan, Examined, RetainedInstant
from streaming_lsm.format.actions.commit import file_path
from streaming_lsm.format.actions.savepoint import decode_savepoint
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.services.cleaning.plan_check import checked_files
from streaming_lsm.services.cleaning.planner import RetainedFiles, Retention, select_clean_targets
from streaming_lsm.services.cleaning.scope import PartitionScope
from streaming_lsm.services.context import (
    Engine,
    ServiceContext,
    decoded_plan,
    planned_slices,
    read_clean_plan,
    read_plan_file,
)
from streaming_lsm.services.survey import is_continued, looked, savepoints
from streaming_lsm.timeline.action_kind import CLEAN
from streaming_lsm.timeline.clock import Clock, system_clock
from streaming_lsm.timeline.instant import BASE_ACTIONS, WRITE_ACTIONS, Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.planned_actions import pending_cleans
from streaming_lsm.txn.savepoint import check_savepoints
from streaming_lsm.txn.transaction import Transaction

_LOG = logging.getLogger(__name__)

_EVER = "~"

Files = Mapping[str, tuple[str, ...]]
"""Names by partition path."""


@dataclass(frozen=True)
class CleanSelection:
    """The files that a clean deletes.

    Attributes:
        files: names by partition path.
        earliest: the earliest write whose state stays readable; None if all states do.
        retention: the cleaning policy.
        examined: what is examined after this clean, by commits or hours; see `PartitionScope`.
    """

    files: Files
    earliest: RetainedInstant | None
    retention: Retention
    examined: Examined | None = None

    @property
    def count(self) -> int:
        """Number of files to delete."""
        return sum(len(names) for names in self.files.values())

    def __str__(self) -> str:
        if self.count:
            return f"{self.count} files to delete in {len(self.files)} partitions"
        if self.retention.by_versions:
            return f"nothing to clean: no file group has more than the {self.retention.versions} slices to retain"
        if self.earliest is None and self.retention.by_commits:
            return f"nothing to clean: the timeline has no more than the {self.retention.commits} commits to retain"
        if self.earliest is None:
            return f"nothing to clean: no write was completed in the last {self.retention.hours} hours"
        return f"nothing to clean: no file slice is older than those needed to read as of {self.earliest.requested}"


@dataclass(frozen=True)
class _CleanScope:
    """The writes whose superseded slices an earlier clean has examined.

    Attributes:
        limit: writes completed before it were examined.
        time: last time of the timeline that was examined.
        savepoints: requested times of the savepoints whose files were retained.
    """

    limit: str = ""
    time: str = ""
    savepoints: frozenset[str] = frozenset()

    @staticmethod
    def of_last_clean(timeline: Timeline) -> _CleanScope:
        """Return the scope of the last completed clean on a timeline, by any process."""
        cleans = timeline.completed_cleans
        if not cleans:
            return _CleanScope()
        saved = frozenset(timeline.read_clean(cleans[-1]).savepoints)
        return _CleanScope(timeline.earliest_retained, cleans[-1].requested, saved)

    def covers(self, write: Instant, saved: Set[str]) -> bool:
        """Return whether a write was examined; one completed since, such as a long compaction, was not.

        Args:
            saved: requested times of the savepoints: if one was deleted since, no write counts as examined.
        """
        completed = write.completed or ""
        return completed < self.limit and completed <= self.time and self.savepoints <= saved


class Cleaner:
    """Cleans one table, and remembers which writes it has examined."""

    def __init__(self, context: ServiceContext, *, clock: Clock = system_clock, with_history: bool = False) -> None:
        """Create a cleaner without reading the table.

        Args:
            clock: the current time, for hours that are retained.
            with_history: whether `is_due` looks at archived writes, too: others archive them before this one cleans.
        """
        self._context = context
        self._clock = clock
        self._with_history = with_history
        self._retention = Retention.of(context.options)
        self._own = self._others = _CleanScope()
        self._archived: tuple[str, tuple[Instant, ...]] = "", ()

    def is_due(self, timeline: Timeline, now_ms: int) -> bool:
        """Return whether a clean may find files to delete, or writes of dead writers to be rolled back.

        Args:
            now_ms: milliseconds since the epoch.
        """
        return self._may_find_files(timeline) or self._has_dead_writes(timeline, now_ms)

    def _may_find_files(self, timeline: Timeline) -> bool:
        """Return whether a clean may find files to delete, from the timeline and, if it counts, the history.

        A slice is superseded by a write that creates the next base file (a compaction, a write of a copy-on-write
        table) or replaces the file group. If the retention has no such write behind it, no partition is listed.
        """
        if pending_cleans(timeline):
            return True
        limit = self._limit(timeline)
        writes = timeline.completed_writes
        if self._with_history and len(writes) <= self._retention.commits:
            writes = timeline.every_write
        bases = [write for write in (*self._archived_base(timeline), *writes) if write.action in BASE_ACTIONS]
        old = [write for write in bases if (write.completed or "") < limit]
        saved = _times(savepoints(timeline))
        new = [w for w in old if not self._own.covers(w, saved) and not self._others.covers(w, saved)]
        if not new:
            return False
        # Another process may have cleaned and examined these writes.
        self._others = _CleanScope.of_last_clean(timeline)
        return not all(self._others.covers(write, saved) for write in new)

    def _archived_base(self, timeline: Timeline) -> tuple[Instant, ...]:
        """Return the archived write that may have superseded slices last: if it was examined, all archived ones were.

        The history is read again when the timeline begins later.
        """
        if self._with_history and self._archived[0] != timeline.first:
            newest = timeline.history.newest_base_write()
            self._archived = timeline.first, (newest,) if newest else ()
        return self._archived[1]

    def _has_dead_writes(self, timeline: Timeline, now_ms: int) -> bool:
        """Return whether writes seem to wait for the next clean to be rolled back, by the age of their heartbeats."""
        options = self._context.options
        writes = [pending for pending in timeline.pending if pending.action in WRITE_ACTIONS]
        if not writes or options[config.FAILED_WRITES] != "LAZY":
            return False
        alive_since = now_ms - options[config.HEARTBEAT_MS] * options[config.HEARTBEAT_MISSES]
        entries = self._context.storage.list(HEARTBEAT_FOLDER)
        living = {entry.name for entry in entries if entry.modified_ms > alive_since}
        return any(write.requested not in living for write in writes)

    def preview(self, timeline: Timeline) -> CleanSelection:
        """Select the files that a clean would delete; lists the partitions in which there may be some.

        Raises:
            CorruptFileError: a committed file is missing.
        """
        context, earliest = self._context, self._earliest(timeline, with_history=True)
        view, kept = context.view(timeline), retained_files(context, timeline)
        until = earliest.requested if earliest else ""
        is_incremental = context.options[config.CLEAN_INCREMENTAL] and until
        scope = PartitionScope.of(timeline, until) if is_incremental else PartitionScope(timeline)
        listings = scope.listings(view).items()
        scope.check(view, (found for partition, entries in listings for found in view.slices_in(partition, entries)))
        groups = (group for partition, entries in listings for group in file_groups_in(view, partition, entries))
        targets = select_clean_targets(groups, self._retention, until, kept, timeline.completion_time)
        if self._retention.by_versions and targets.files:
            earliest = _retained(timeline, targets.superseded_by)
        examined = scope.examined(until, targets.held) if targets.files and until else None
        return CleanSelection(targets.files, earliest, self._retention, examined)

    def clean(self, engine: Engine | None = None) -> Instant | None:
        """Execute pending cleans, then plan and execute one; one that another living writer executes is left to it.

        Args:
            engine: deletes files, several at a time; None deletes one after the other.

        Returns:
            The last completed clean; None if there was nothing to delete, or another writer is cleaning.

        Raises:
            CommitConflict: others held the lock for longer than the options say to wait, or the plan was cancelled.
            CorruptFileError: a pending plan names files that must not be deleted; nothing was deleted.
        """
        resumed = self._resume(engine)
        timeline = self._context.load_timeline()
        if pending_cleans(timeline):
            return resumed
        cleaning = self._look(timeline)
        with self._context.transaction() as tx:
            if pending_cleans(tx.timeline):
                return resumed
            requested = tx.new_time()
            if cleaning is None or not is_continued(timeline, tx.timeline):
                timeline = tx.timeline
                cleaning = self.preview(timeline)
            scope = _CleanScope(self._limit(timeline), timeline.last_time, _times(savepoints(timeline)))
            if not cleaning.count:
                self._own = scope
                return resumed
            plan = self._plan(timeline, cleaning)
            planned = tx.schedule(CLEAN, requested, plan.encode())
            completed = self._carry_out(tx, planned, plan, cleaning.files, engine)
        self._own = scope
        _LOG.info("%s in %s: %s", completed.path, self._context.storage.uri, cleaning)
        return completed

    def _look(self, timeline: Timeline) -> CleanSelection | None:
        """Select the files before the lock is acquired; None if others change the table meanwhile, or it is damaged."""
        try:
            return self.preview(timeline)
        except (LsmError, OSError) as error:
            _LOG.debug("%s is listed again with its lock: %s", self._context.storage.uri, error)
            return None

    def _resume(self, engine: Engine | None) -> Instant | None:
        completed = None
        for pending in pending_cleans(self._context.load_timeline()):
            looked_at = looked(self._context, partial(self._look_at, pending.requested))
            if looked_at is None:
                continue
            before, checked = looked_at
            with self._context.transaction() as tx:
                planned = next((i for i in pending_cleans(tx.timeline) if i.requested == pending.requested), None)
                if planned is None or tx.is_run_elsewhere(planned):
                    continue
                if not is_continued(before, tx.timeline):
                    checked = self._checked(tx.timeline, planned)
                if checked is not None:
                    completed = self._carry_out(tx, planned, *checked, engine)
        return completed

    def _look_at(self, requested: str, timeline: Timeline) -> tuple[Timeline, tuple[CleanPlan, Files] | None] | None:
        """Read and check a pending plan before the lock is acquired; None if it is not pending, or is cancelled."""
        planned = next((found for found in pending_cleans(timeline) if found.requested == requested), None)
        if planned is None or self._cancels_overtaken(timeline, planned):
            return None
        return timeline, self._checked(timeline, planned)

    def _cancels_overtaken(self, timeline: Timeline, planned: Instant) -> bool:
        """Cancel a plan that no run has accepted if a later savepoint keeps a file of it; return whether it did.

        Its writer was stopped while it scheduled the clean, and died before it could cancel the plan.
        """
        if planned.state is not State.REQUESTED or not savepoints(timeline):
            return False
        try:
            data = read_plan_file(self._context.storage, planned)
        except CommitConflict:
            return False
        plan = decoded_plan(self._context.storage, planned, data, CleanPlan.decode)
        kept = retained_files(self._context, timeline).savepoints
        unknown = any(savepoint.requested not in plan.savepoints for savepoint in savepoints(timeline))
        named = ((partition, file.rpartition("/")[2]) for partition, file in plan.spelt_files())
        if not unknown or not any(name in kept.get(partition, ()) for partition, name in named):
            return False
        _LOG.warning("cancelling %s in %s: a savepoint keeps its files", planned.path, self._context.storage.uri)
        with self._context.transaction() as tx:
            tx.cancel(planned, data)
        return True

    def _checked(self, timeline: Timeline, planned: Instant) -> tuple[CleanPlan, Files] | None:
        """Read and check a plan; None if the clean was completed meanwhile, by another process."""
        context, source = self._context, planned.at(State.REQUESTED).path
        try:
            plan = read_clean_plan(context.storage, planned)
        except (CommitConflict, CorruptFileError):
            if self._is_left(planned):
                raise
            return None
        return plan, checked_files(context.view(timeline), plan, retained_files(context, timeline), source)

    def _is_left(self, planned: Instant) -> bool:
        """Return whether a plan is still pending; the inflight file of one that a restore has undone is deleted."""
        now = self._context.load_timeline()
        if any(found.requested == planned.requested and not now.has_plan(found) for found in pending_cleans(now)):
            with self._context.transaction() as tx:
                now = tx.timeline
        return any(found.requested == planned.requested for found in pending_cleans(now))

    def _carry_out(
        self, tx: Transaction, planned: Instant, plan: CleanPlan, files: Files, engine: Engine | None
    ) -> Instant:
        started_ms = tx.now_ms()
        tx.start(planned)
        paths = [file_path(partition, name) for partition, names in files.items() for name in names]
        tx.delete_files(paths, engine.map if engine else None)
        metadata = CleanMetadata(
            start=planned.requested,
            duration_ms=max(0, tx.now_ms() - started_ms),
            # Files of an earlier clean stay deleted even if this plan retains more; that clean may be archived.
            earliest=max(plan.earliest.requested if plan.earliest else "", tx.timeline.earliest_retained),
            last_completed=plan.last_completed,
            policy=plan.policy,
            files=files,
            savepoints=plan.savepoints,
            examined=plan.examined,
        )
        return tx.complete_clean(metadata.encode())

    def _plan(self, timeline: Timeline, cleaning: CleanSelection) -> CleanPlan:
        # Hadoop paths are URIs without percent-encoding.
        root = unquote(self._context.storage.uri)
        return CleanPlan(
            earliest=cleaning.earliest,
            last_completed=timeline.completed_writes[-1].requested,
            policy=self._retention.policy,
            files={
                partition: tuple(f"{root}/{file_path(partition, name)}" for name in names)
                for partition, names in cleaning.files.items()
            },
            savepoints=tuple(savepoint.requested for savepoint in savepoints(timeline)),
            examined=cleaning.examined,
        )

    def _limit(self, timeline: Timeline) -> str:
        """Return the time before which a completed write may have superseded slices that can be deleted."""
        if self._retention.by_versions:
            return _EVER
        earliest = self._earliest(timeline, with_history=self._with_history)
        return earliest.requested if earliest else ""

    def _earliest(self, timeline: Timeline, *, with_history: bool) -> RetainedInstant | None:
        since = self._retention.since(self._clock(), self._context.config.timeline_zone)
        return self._retention.earliest(timeline, since, with_history=with_history)


def retained_files(context: ServiceContext, timeline: Timeline) -> RetainedFiles:
    """Read the files that pending compactions and savepoints retain.

    Raises:
        CorruptFileError: a plan or savepoint cannot be read, so that nothing may be deleted.
    """
    check_savepoints(timeline)
    saved: dict[str, set[str]] = {}
    for savepoint in savepoints(timeline):
        for partition, names in decode_savepoint(context.storage.read(savepoint.path), savepoint.path).items():
            saved.setdefault(partition, set()).update(names)
    return RetainedFiles(planned_slices(context.storage, timeline), saved)


def _times(instants: Iterable[Instant]) -> frozenset[str]:
    return frozenset(instant.requested for instant in instants)


def _retained(timeline: Timeline, time: str) -> RetainedInstant:
    write = next((write for write in timeline.completed_writes if write.requested == time), None)
    return RetainedInstant(time, write.action if write else "commit", "COMPLETED")
