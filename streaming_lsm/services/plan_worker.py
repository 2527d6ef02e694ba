"""Do planned actions of a table in a process of their own, while streams go on.

A *worker* looks at the table again and again. Each *look* runs the plans that anyone has scheduled and nobody runs, and
schedules a new one when it is due; what it does are *events*. Several workers share the plans.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from streaming_lsm.errors import ConfigError, CorruptFileError
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.services.context import EngineStopped, ServiceContext
from streaming_lsm.services.plan_backoff import PlanBackoff
from streaming_lsm.timeline.action_kind import COMPACTION
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

E = TypeVar("E")


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


class PlanWorker(ABC, Generic[E]):
    """Runs pending plans of one kind, and schedules those that are due.

    Attributes:
        action: their action on the timeline.
    """

    action: str

    def __init__(self, context: ServiceContext, *, schedules: bool) -> None:
        """Create the worker without reading the table.

        Args:
            context: the table.
            schedules: whether to schedule plans that are due; those of others are run in any case.
        """
        self._context = context
        self._schedules = schedules
        self._attempts = PlanBackoff()
        self._left = 0

    @abstractmethod
    def _pending(self, timeline: Timeline) -> Sequence[Instant]:
        """Return the pending plans, the oldest first."""

    @abstractmethod
    def _execute(self, requested: str) -> Instant | None:
        """Execute a plan; None if it is not pending any more."""

    @abstractmethod
    def _event(self, completed: Instant, commit: CommitMetadata) -> E:
        """Make the event of a completed plan."""

    @abstractmethod
    def _schedule(self, timeline: Timeline) -> tuple[E, Sequence[Instant]] | None:
        """Schedule plans if they are due; None if they are not, or another process was faster.

        Returns:
            The event, and the plans.
        """

    def look(self, is_stopping: Callable[[], bool] = lambda: False) -> Iterator[E | Failed | PutBack]:
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
        pending = self._attempts.due(self._pending(timeline))
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
            yield Failed(None, error, self.action)
            return
        if scheduled is not None:
            event, plans = scheduled
            yield event
            yield from self._run(plans, is_stopping)

    def _run(self, planned: Iterable[Instant], is_stopping: Callable[[], bool]) -> Iterator[E | Failed | PutBack]:
        """Run plans, the oldest first, without those that another process has begun or finished meanwhile."""
        for plan in planned:
            if is_stopping():
                return
            try:
                if plan.requested in self._context.run_elsewhere(self._context.load_timeline()):
                    continue
                self._attempts.begin(plan)
                completed = self._execute(plan.requested)
            except EngineStopped:
                yield PutBack(plan)
                raise
            except ConfigError:
                raise
            except Exception as error:
                yield Failed(plan, error, self.action)
                continue
            commit = None if completed is None else self._commit_of(completed)
            if completed is not None and commit is not None:
                yield self._event(completed, commit)

    def _commit_of(self, completed: Instant) -> CommitMetadata | None:
        """Read a commit; None if another process has rolled it back since."""
        try:
            return self._context.load_timeline().read_commit(completed)
        except CorruptFileError:
            if self._context.load_timeline().completion_time(completed.requested) is not None:
                raise
            return None
