"""Run the services of one table: on request, or inline after a write as the options say."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.errors import LsmError
from streaming_lsm.format.actions.compaction_plan import CompactionOperation
from streaming_lsm.services.archiving.planner import ArchiveSelection
from streaming_lsm.services.archiving.runner import Archiver
from streaming_lsm.services.cleaning.runner import Cleaner, CleanSelection
from streaming_lsm.services.cleaning.worker import CleaningWorker
from streaming_lsm.services.clustering.planner import ClusteringSelection
from streaming_lsm.services.clustering.runner import cluster, preview_clustering, run_clustering, schedule_clustering
from streaming_lsm.services.clustering.trigger import NextClustering
from streaming_lsm.services.clustering.worker import ClusteringWorker
from streaming_lsm.services.compaction.planner import CompactionSelection
from streaming_lsm.services.compaction.runner import (
    compact,
    preview_compaction,
    run_compaction,
    schedule_compaction,
    schedule_plans,
)
from streaming_lsm.services.compaction.time_limit import MOST_PENDING, Room, TimeLimit, TimeLimits
from streaming_lsm.services.compaction.trigger import NextCompaction, log_compaction_is_due
from streaming_lsm.services.compaction.worker import CompactionWorker
from streaming_lsm.services.context import Engine, ServiceContext, read_compaction_plan
from streaming_lsm.services.due import Due, services_due
from streaming_lsm.services.plan_backoff import PlanBackoff
from streaming_lsm.services.survey import looked
from streaming_lsm.services.ttl.expiry import PartitionExpiry
from streaming_lsm.timeline.action_kind import COMPACTION, LOG_COMPACTION
from streaming_lsm.timeline.clock import Clock, system_clock
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.planned_actions import pending_clusterings, pending_compactions

_LOG = logging.getLogger(__name__)


class TableServices:
    """Compaction, clustering, cleaning and archiving of one table.

    Attributes:
        expiry: finds expired partitions, which `LsmTable` deletes.
    """

    def __init__(self, context: ServiceContext, clock: Clock = system_clock) -> None:
        """Create the services without reading the table.

        Args:
            clock: the current time, for compactions that are due by time, and hours that cleans retain.
        """
        self._context = context
        self._clock = clock
        self._cleaner = Cleaner(context, clock=clock)
        self._archiver = Archiver(context)
        self.expiry = PartitionExpiry(context, clock)
        self._attempts = PlanBackoff()
        self._limits = TimeLimits(context)
        self._next = NextCompaction(context, clock)
        self._clustering_attempts = PlanBackoff()
        self._next_clustering = NextClustering(context)
        self._without_runs = ""

    def compact(self, engine: Engine, *, log: bool = False) -> tuple[Instant | None, CompactionSelection | None]:
        """Run pending compactions, or schedule and run one; see `compact`."""
        return compact(self._context, engine, log=log)

    def schedule(self, *, log: bool = False) -> tuple[Instant | None, CompactionSelection]:
        """Schedule a compaction without running it; see `schedule_compaction`."""
        return schedule_compaction(self._context, log=log)

    def preview_compaction(self, *, log: bool = False) -> CompactionSelection:
        """Select the file slices that a compaction would merge now."""
        return preview_compaction(self._context, log=log)

    def cluster(self, engine: Engine) -> tuple[Instant | None, ClusteringSelection | None]:
        """Run pending clusterings, or schedule and run one; see `cluster`."""
        return cluster(self._context, engine)

    def schedule_clustering(self) -> tuple[Instant | None, ClusteringSelection | None]:
        """Schedule a clustering without running it; see `schedule_clustering`."""
        return schedule_clustering(self._context)

    def preview_clustering(self) -> ClusteringSelection:
        """Select the file slices that a clustering would sort now."""
        return looked(self._context, lambda _: preview_clustering(self._context))

    def clean(self, engine: Engine | None = None) -> Instant | None:
        """Run pending cleans, then plan and run one; see `Cleaner.clean`."""
        return self._cleaner.clean(engine)

    def preview_clean(self) -> CleanSelection:
        """Select the files that a clean would delete now."""
        return looked(self._context, self._cleaner.preview)

    def archive(self) -> tuple[Instant, ...]:
        """Archive what is due; see `Archiver.archive`."""
        return self._archiver.archive()

    def preview_archive(self) -> ArchiveSelection:
        """Select the actions that would be archived now."""
        return self._archiver.preview()

    def due(self) -> list[Due]:
        """State for each service whether it is due; see `services_due`."""
        return list(services_due(self._context, self._clock))

    def compaction_worker(self, engine: Engine, *, schedules: bool = True) -> CompactionWorker:
        """Create a worker that compacts in a process of its own."""
        return CompactionWorker(self._context, engine, schedules=schedules, clock=self._clock)

    def clustering_worker(self, engine: Engine, *, schedules: bool = True) -> ClusteringWorker:
        """Create a worker that clusters in a process of its own."""
        return ClusteringWorker(self._context, engine, schedules=schedules)

    def cleaning_worker(self, engine: Engine) -> CleaningWorker:
        """Create a worker that cleans in a process of its own."""
        return CleaningWorker(self._context, engine, clock=self._clock)

    def run_inline(self, timeline: Timeline, engine: Engine) -> None:
        """Compact, cluster, clean and archive after a write, as the options say, if any is due.

        Errors are logged and not raised: the write is committed, and a later write, ``lsm compact`` or ``lsm clean``
        finishes the services.

        Args:
            timeline: the timeline after the write; no file is read while nothing is due.
            engine: runs the operations of a compaction.
        """
        changed = self._guarded("compaction", lambda: self._compact_inline(timeline, engine))
        options = self._context.options
        if options[config.CLUSTER_INLINE] or options[config.CLUSTER_SCHEDULE]:
            clustered = self._guarded("clustering", lambda: self._cluster_inline(timeline, engine, reload=changed))
            changed = changed or clustered
        if options[config.CLEAN_AUTOMATIC]:
            cleaned = self._guarded("cleaning", lambda: self._clean_inline(timeline, reload=changed))
            changed = changed or cleaned
        self.archive_inline(timeline, reload=changed)

    def expire_inline(self, expire: Callable[[], object]) -> None:
        """Delete the expired partitions after a write, if the options say so; errors are logged and not raised.

        Args:
            expire: deletes them.
        """
        if self._context.options[config.TTL_INLINE] and self.expiry.may_be_due():
            self._guarded("deleting expired partitions", lambda: expire() is not None)

    def finish_clusterings(self, timeline: Timeline, engine: Engine) -> None:
        """Run the clusterings that dead processes have left, before a write that they would refuse.

        Nothing is done without inline clustering; errors are logged and not raised.
        """
        if self._context.options[config.CLUSTER_INLINE]:
            self._guarded("clustering", lambda: self._run_planned_clusterings(timeline, engine))

    def archive_inline(self, timeline: Timeline, *, reload: bool = False) -> None:
        """Archive if it is due, as the options say; errors are logged and not raised.

        Args:
            reload: whether the timeline was changed since it was loaded.
        """
        if self._context.options[config.ARCHIVE_AUTOMATIC]:
            self._guarded("archiving", lambda: self._archive_inline(timeline, reload=reload))

    def _guarded(self, what: str, run: Callable[[], bool]) -> bool:
        try:
            return run()
        except (LsmError, OSError, pa.ArrowException) as error:
            _LOG.warning("%s of %s failed, a later write tries again: %s", what, self._context.storage.uri, error)
        except Exception as error:
            # Its stack, and Java's in its text, would be printed at each Ctrl-C that meets a service.
            uri, reason = self._context.storage.uri, f"{type(error).__name__}: {error}".partition("\n")[0]
            _LOG.warning("%s of %s failed, a later write tries again: %s", what, uri, reason)
            _LOG.debug("%s of %s failed", what, uri, exc_info=True)
        return True

    def _compact_inline(self, timeline: Timeline, engine: Engine) -> bool:
        """Run and schedule compactions; returns whether the timeline was changed."""
        options = self._context.options
        limit = self._limits.begin(engine)
        changed = self._full_inline(timeline, engine, limit)
        if not options[config.LOG_COMPACT_INLINE]:
            return changed
        timeline = self._context.load_timeline() if changed else timeline
        return self._log_inline(timeline, engine) or changed

    def _log_inline(self, timeline: Timeline, engine: Engine) -> bool:
        """Schedule and run a log compaction if it is due; returns whether the timeline was changed."""
        commits = self._context.options[config.LOG_COMPACTION_BLOCKS]
        if not log_compaction_is_due(timeline, commits, self._without_runs):
            return False
        planned, _ = schedule_compaction(self._context, log=True)
        if planned is None:
            self._without_runs = timeline.last_time
        else:
            self._attempt(planned, engine)
        return True

    def _full_inline(self, timeline: Timeline, engine: Engine, limit: TimeLimit | None) -> bool:
        options = self._context.options
        inline = options[config.COMPACT_INLINE]
        planned = self._attempts.due(self._planned(timeline))
        if planned:
            elsewhere = self._context.run_elsewhere(timeline)
            self._run([plan for plan in planned if plan.requested not in elsewhere], limit, engine)
            timeline = self._context.load_timeline()
        if not (inline or options[config.COMPACT_SCHEDULE]) or not self._next.is_due(timeline):
            return bool(planned)
        scheduled = self._schedule(timeline, limit if inline else None)
        if not scheduled:
            self._next.found_nothing(timeline)
        elif inline:
            self._run(scheduled, limit, engine)
        return True

    def _planned(self, timeline: Timeline) -> Sequence[Instant]:
        """Return the pending compactions that the options ask to run.

        Without log compactions of its own a table may have one of another process, or of before the option was changed.
        """
        options = self._context.options
        inline = options[config.COMPACT_INLINE]
        wanted = {COMPACTION: inline, LOG_COMPACTION: inline or options[config.LOG_COMPACT_INLINE]}
        return [planned for planned in pending_compactions(timeline) if wanted[planned.action]]

    def _schedule(self, timeline: Timeline, limit: TimeLimit | None) -> Sequence[Instant]:
        if limit is None:
            scheduled, _ = schedule_compaction(self._context)
            return [scheduled] if scheduled else []
        room = MOST_PENDING - len(pending_compactions(timeline))
        if room <= 0:
            return ()
        plans, _ = schedule_plans(self._context, lambda chosen: limit.cut(chosen)[:room], lambda _: True)
        self._limits.add_cut(plans)
        return plans

    def _run(self, planned: Iterable[Instant], limit: TimeLimit | None, engine: Engine) -> None:
        """Run planned compactions, the oldest first, as long as the time limit has room for the next one."""
        for plan in planned:
            if limit is None:
                self._attempt(plan, engine)
                continue
            operations = self._operations(plan)
            room = limit.room_for(operations, is_cut=self._limits.is_cut(plan))
            if room is Room.NEVER:
                self._limits.report_too_long(plan, limit, operations)
            elif room is Room.LATER:
                return
            elif self._attempt(plan, limit.engine):
                limit.record(operations)

    def _operations(self, plan: Instant) -> tuple[CompactionOperation, ...]:
        """Read the operations of a plan; none of one that cannot be read, whose run tells why."""
        try:
            return read_compaction_plan(self._context.storage, plan).operations
        except (LsmError, OSError):
            return ()

    def _attempt(self, planned: Instant, engine: Engine) -> bool:
        """Run one planned compaction; its failure is logged, so that the other plans run too."""
        completed = None

        def run() -> bool:
            nonlocal completed
            completed = run_compaction(self._context, planned.requested, engine)
            return completed is not None

        self._attempts.begin(planned)
        self._guarded(f"compaction {planned.requested}", run)
        return completed is not None

    def _cluster_inline(self, timeline: Timeline, engine: Engine, *, reload: bool) -> bool:
        """Run and schedule clusterings; returns whether the timeline was changed."""
        current = self._context.load_timeline() if reload else timeline
        inline = self._context.options[config.CLUSTER_INLINE]
        tried = inline and self._run_planned_clusterings(current, engine)
        current = self._context.load_timeline() if tried else current
        if not self._next_clustering.is_due(current):
            return tried
        scheduled, _ = schedule_clustering(self._context, self._next_clustering.is_due)
        if scheduled is None:
            self._next_clustering.found_nothing(current)
        elif inline:
            self._attempt_clustering(scheduled, engine)
        return True

    def _run_planned_clusterings(self, timeline: Timeline, engine: Engine) -> bool:
        """Run the clusterings that are planned, and not run by another process; returns whether there were some."""
        planned = self._clustering_attempts.due(pending_clusterings(timeline))
        elsewhere = self._context.run_elsewhere(timeline) if planned else frozenset[str]()
        for plan in planned:
            if plan.requested not in elsewhere:
                self._attempt_clustering(plan, engine)
        return bool(planned)

    def _attempt_clustering(self, planned: Instant, engine: Engine) -> None:
        """Run one planned clustering; its failure is logged, so that the other plans run too."""
        self._clustering_attempts.begin(planned)
        what = f"clustering {planned.requested}"
        self._guarded(what, lambda: run_clustering(self._context, planned.requested, engine) is not None)

    def _clean_inline(self, timeline: Timeline, *, reload: bool) -> bool:
        current = self._context.load_timeline() if reload else timeline
        if not self._cleaner.is_due(current, self._clock()):
            return False
        self._cleaner.clean()
        return True

    def _archive_inline(self, timeline: Timeline, *, reload: bool) -> bool:
        current = self._context.load_timeline() if reload else timeline
        return self._archiver.is_due(current) and bool(self._archiver.archive())
