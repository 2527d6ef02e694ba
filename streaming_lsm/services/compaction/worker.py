"""Do the compactions of a table in a process of their own; see `streaming_lsm.services.plan_worker`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streaming_lsm.format.actions.commit import CommitMetadata, WriteStat
from streaming_lsm.services.compaction.planner import CompactionSelection
from streaming_lsm.services.compaction.runner import run_compaction, schedule_plans
from streaming_lsm.services.compaction.strategy import CompactionStrategy
from streaming_lsm.services.compaction.trigger import NextCompaction
from streaming_lsm.services.context import Engine, ServiceContext
from streaming_lsm.services.plan_worker import Failed, PlanWorker, PutBack
from streaming_lsm.timeline.action_kind import COMPACTION
from streaming_lsm.timeline.clock import Clock, system_clock
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.planned_actions import pending_compactions


@dataclass(frozen=True)
class Scheduled:
    """Compactions were scheduled.

    Attributes:
        plans: the pending compactions; none if there was nothing to merge.
        selection: the file groups that were selected, and why others were not.
    """

    plans: tuple[Instant, ...]
    selection: CompactionSelection


@dataclass(frozen=True)
class Compacted:
    """A compaction was completed.

    Attributes:
        completed: its commit.
        stats: its new base files.
    """

    completed: Instant
    stats: Sequence[WriteStat]


Event = Scheduled | Compacted | Failed | PutBack


class CompactionWorker(PlanWorker[Scheduled | Compacted]):
    """Runs pending compactions, and schedules those that are due."""

    action = COMPACTION

    def __init__(
        self, context: ServiceContext, engine: Engine, *, schedules: bool = True, clock: Clock = system_clock
    ) -> None:
        """Create the worker without reading the table.

        Args:
            engine: runs the operations.
            schedules: whether to schedule compactions that are due; those of others are run in any case.
            clock: the current time, for compactions that are due by time.
        """
        super().__init__(context, schedules=schedules)
        self._engine = engine
        self._next = NextCompaction(context, clock)

    @property
    def idle(self) -> str:
        """Say why the last look found nothing to do."""
        if self._left:
            return f"nothing to compact: other processes run what is pending ({self._left})"
        due = f"; none is due by {self._next.trigger}" if self._schedules else ""
        return f"nothing to compact: no compaction is pending{due}"

    def _pending(self, timeline: Timeline) -> Sequence[Instant]:
        return pending_compactions(timeline)

    def _execute(self, requested: str) -> Instant | None:
        return run_compaction(self._context, requested, self._engine)

    def _event(self, completed: Instant, commit: CommitMetadata) -> Compacted:
        return Compacted(completed, commit.stats)

    def _schedule(self, timeline: Timeline) -> tuple[Scheduled, Sequence[Instant]] | None:
        if not self._next.is_due(timeline):
            return None
        strategy = CompactionStrategy.of(self._context.options)
        plans, selection = schedule_plans(self._context, strategy.cut, self._next.is_due)
        if not plans:
            self._next.found_nothing(timeline)
        return None if selection is None else (Scheduled(plans, selection), plans)
