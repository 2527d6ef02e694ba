"""Run the services of one table: on request, or inline after a write as the options say."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.errors import LsmError
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.services.cleaning.runner import Cleaner, CleanSelection
from streaming_lsm.services.compaction.planner import CompactionSelection
from streaming_lsm.services.compaction.runner import compact, preview_compaction, run_compaction, schedule_compaction
from streaming_lsm.services.compaction.trigger import CompactionTrigger
from streaming_lsm.services.context import Engine, ServiceContext
from streaming_lsm.timeline.clock import Clock, system_clock
from streaming_lsm.timeline.instant import WRITE_ACTIONS, Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.planned_actions import pending_compactions

_LOG = logging.getLogger(__name__)


class TableServices:
    """Compaction and cleaning of one table."""

    def __init__(self, context: ServiceContext, clock: Clock = system_clock) -> None:
        """Create the services without reading the table.

        Args:
            clock: the current time, for compactions that are due by time.
        """
        self._context = context
        self._clock = clock
        self._cleaner = Cleaner(context)
        self._attempts = PlanBackoff()
        # Time up to which nothing was found to compact, so that partitions are not listed again after each write.
        self._fruitless = ""

    def compact(self, engine: Engine) -> tuple[Instant | None, CompactionSelection | None]:
        """Run pending compactions, or schedule and run one; see `compact`."""
        return compact(self._context, engine)

    def schedule(self) -> tuple[Instant | None, CompactionSelection]:
        """Schedule a compaction without running it; see `schedule_compaction`."""
        return schedule_compaction(self._context)

    def preview_compaction(self) -> CompactionSelection:
        """Select the file slices that a compaction would merge now."""
        return preview_compaction(self._context)

    def clean(self) -> Instant | None:
        """Run pending cleans, then plan and run one; see `Cleaner.clean`."""
        return self._cleaner.clean()

    def preview_clean(self) -> CleanSelection:
        """Select the files that a clean would delete now."""
        return self._cleaner.preview(self._context.load_timeline())

    def run_inline(self, timeline: Timeline, engine: Engine) -> None:
        """Compact and clean after a write, as the options say, if either is due.

        Errors are logged and not raised: the write is committed, and a later write, ``lsm compact`` or ``lsm clean``
        finishes the services.

        Args:
            timeline: the timeline after the write; no file is read while nothing is due.
            engine: runs the operations of a compaction.
        """
        changed = self._guarded("compaction", lambda: self._compact_inline(timeline, engine))
        if self._context.options[config.CLEAN_AUTOMATIC]:
            self._guarded("cleaning", lambda: self._clean_inline(timeline, reload=changed))

    def _guarded(self, what: str, run: Callable[[], bool]) -> bool:
        try:
            return run()
        except (LsmError, OSError, pa.ArrowException) as error:
            _LOG.warning("%s of %s failed, a later write tries again: %s", what, self._context.storage.uri, error)
        except Exception:
            uri = self._context.storage.uri
            _LOG.warning("%s of %s failed, a later write tries again", what, uri, exc_info=True)
        return True

    def _compact_inline(self, timeline: Timeline, engine: Engine) -> bool:
        """Run and schedule compactions; returns whether the timeline was changed."""
        options = self._context.options
        inline = options[config.COMPACT_INLINE]
        planned = self._attempts.due(pending_compactions(timeline)) if inline else []
        for pending in planned:
            self._attempt(pending, engine)
        if planned:
            timeline = self._context.load_timeline()
        if not (inline or options[config.COMPACT_SCHEDULE]) or not self._is_due(timeline):
            return bool(planned)
        scheduled, _ = schedule_compaction(self._context)
        if scheduled is None:
            self._fruitless = timeline.last_time
        elif inline:
            self._attempt(scheduled, engine)
        return True

    def _attempt(self, planned: Instant, engine: Engine) -> None:
        """Run one planned compaction; its failure is logged, so that the other plans run too."""

        def run() -> bool:
            return run_compaction(self._context, planned.requested, engine) is not None

        self._attempts.begin(planned)
        self._guarded(f"compaction {planned.requested}", run)

    def _is_due(self, timeline: Timeline) -> bool:
        trigger = CompactionTrigger.of(self._context.options)
        return trigger.is_due(timeline, self._clock(), self._context.config.timeline_zone, self._fruitless)

    def _clean_inline(self, timeline: Timeline, *, reload: bool) -> bool:
        current = self._context.load_timeline() if reload else timeline
        if not self._cleaner.is_due(current) and not self._has_dead_writes(current):
            return False
        self._cleaner.clean()
        return True

    def _has_dead_writes(self, timeline: Timeline) -> bool:
        """Return whether writes seem to wait for the next clean to be rolled back, by the age of their heartbeats."""
        options = self._context.options
        writes = [pending for pending in timeline.pending if pending.action in WRITE_ACTIONS]
        if not writes or options[config.FAILED_WRITES] != "LAZY":
            return False
        alive_since = self._clock() - options[config.HEARTBEAT_MS] * options[config.HEARTBEAT_MISSES]
        entries = self._context.storage.list(HEARTBEAT_FOLDER)
        living = {entry.name for entry in entries if entry.modified_ms > alive_since}
        return any(write.requested not in living for write in writes)


_LONGEST = 64


class PlanBackoff:
    """Exponential backoff for failed compaction plans.

    A failed plan is tried again after 1, 2, 4, … further writes, at most 64, as it may fail only after merging nearly
    all of its file groups. The backoff is kept in memory: another process tries the plan at once.
    """

    def __init__(self) -> None:
        self._pauses: dict[str, tuple[int, int]] = {}

    def due(self, planned: Iterable[Instant]) -> list[Instant]:
        """Select the plans to try after this write; call it once for each write, with all pending plans."""
        before, due = self._pauses, []
        self._pauses = {}
        for plan in planned:
            left, length = before.get(plan.requested, (0, 0))
            self._pauses[plan.requested] = (max(0, left - 1), length)
            if not left:
                due.append(plan)
        return due

    def begin(self, plan: Instant) -> None:
        """Record an attempt at a plan. If the plan is still pending at the next call of `due`, the attempt failed."""
        _, length = self._pauses.get(plan.requested, (0, 0))
        length = min(2 * length or 1, _LONGEST)
        self._pauses[plan.requested] = (length, length)
