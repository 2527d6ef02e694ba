"""Do the compactions of a table in a process of their own, while streams go on.

A *worker* looks at the table again and again. Each *look* runs the compactions that anyone has scheduled and nobody
runs, and schedules a new one when it is due; what it does are *events*. Several workers share the plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from streaming_lsm.errors import ConfigError, CorruptFileError
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.services.compaction.planner import CompactionSelection
from streaming_lsm.services.compaction.runner import run_compaction, schedule_plans
from streaming_lsm.services.compaction.strategy import CompactionStrategy
from streaming_lsm.services.compaction.trigger import NextCompaction
from streaming_lsm.services.context import Engine, EngineStopped, ServiceContext
from streaming_lsm.services.plan_backoff import PlanBackoff
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


@dataclass(frozen=True)
class Failed:
    """An action failed.

    Attributes:
        planned: the action, which stays planned; None if none could be planned.
        error: the reason.
        action: what could not be planned.
    """

    planned: Instant | None
    error: Exception
    action: str = COMPACTION


@dataclass(frozen=True)
class PutBack:
    """An action was interrupted: it stays planned, for another run.

    Attributes:
        planned: the action.
    """

    planned: Instant


Event = Scheduled | Compacted | Failed | PutBack


class CompactionWorker:
    """Runs pending compactions, and schedules those that are due."""

    def __init__(
        self, context: ServiceContext, engine: Engine, *, schedules: bool = True, clock: Clock = system_clock
    ) -> None:
        """Create the worker without reading the table.

        Args:
            engine: runs the operations.
            schedules: whether to schedule compactions that are due; those of others are run in any case.
            clock: the current time, for compactions that are due by time.
        """
        self._context = context
        self._engine = engine
        self._schedules = schedules
        self._attempts = PlanBackoff()
        self._next = NextCompaction(context, clock)
        self._left = 0

    @property
    def idle(self) -> str:
        """Say why the last look found nothing to do."""
        if self._left:
            return f"nothing to compact: other processes run what is pending ({self._left})"
        due = f"; none is due by {self._next.trigger}" if self._schedules else ""
        return f"nothing to compact: no compaction is pending{due}"

    def look(self, is_stopping: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """Do what there is to do, and yield an event for each action; an idle look lists the timeline's folder.

        Args:
            is_stopping: no further action is begun when it returns True.

        Raises:
            ConfigError: the table's settings were changed since it was opened: open it again.
            EngineStopped: the engine was told to stop; what it ran was put back.
            TableNotFound: the table was removed.
            LsmError, OSError: the timeline cannot be read.
        """
        timeline = self._context.load_timeline()
        if not timeline.completed_writes:  # a run that was interrupted by the removal may have left its inflight file
            self._context.check_unchanged()
        pending = self._attempts.due(pending_compactions(timeline))
        elsewhere = self._context.run_elsewhere(timeline) if pending else frozenset()
        self._left = len(elsewhere.intersection(plan.requested for plan in pending))
        yield from self._run(pending, is_stopping)
        if not self._schedules or is_stopping():
            return
        try:
            scheduled = self._schedule(self._context.load_timeline() if pending else timeline)
        except (ConfigError, EngineStopped):
            raise
        except Exception as error:
            yield Failed(None, error)
            return
        if scheduled is not None:
            yield scheduled
            yield from self._run(scheduled.plans, is_stopping)

    def _run(self, planned: Iterable[Instant], is_stopping: Callable[[], bool]) -> Iterator[Event]:
        """Run plans, the oldest first, without those that another process has begun or finished meanwhile."""
        for plan in planned:
            if is_stopping():
                return
            try:
                timeline = self._context.load_timeline()
                if plan.requested in self._context.run_elsewhere(timeline):
                    continue
                self._attempts.begin(plan)
                completed = run_compaction(self._context, plan.requested, self._engine)
            except EngineStopped:
                yield PutBack(plan)
                raise
            except ConfigError:
                raise
            except Exception as error:
                yield Failed(plan, error)
                continue
            if completed is not None:
                try:
                    stats = self._context.load_timeline().read_commit(completed).stats
                except CorruptFileError:
                    if self._context.load_timeline().completion_time(completed.requested) is not None:
                        raise
                    continue  # another process has rolled it back since
                yield Compacted(completed, stats)

    def _schedule(self, timeline: Timeline) -> Scheduled | None:
        """Schedule compactions if they are due; None if they are not, or another process was faster."""
        if not self._next.is_due(timeline):
            return None
        strategy = CompactionStrategy.of(self._context.options)
        plans, selection = schedule_plans(self._context, strategy.cut, self._next.is_due)
        if not plans:
            self._next.found_nothing(timeline)
        return None if selection is None else Scheduled(plans, selection)
