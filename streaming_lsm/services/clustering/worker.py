"""Do the clusterings of a table in a process of their own; see `streaming_lsm.services.compaction.worker`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from streaming_lsm.errors import ConfigError, CorruptFileError
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.services.clustering.planner import ClusteringSelection
from streaming_lsm.services.clustering.runner import check_clusterable, run_clustering, schedule_clustering
from streaming_lsm.services.clustering.trigger import NextClustering
from streaming_lsm.services.compaction.worker import Failed, PutBack
from streaming_lsm.services.context import Engine, EngineStopped, ServiceContext
from streaming_lsm.services.plan_backoff import PlanBackoff
from streaming_lsm.timeline.action_kind import CLUSTERING
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.planned_actions import pending_clusterings


@dataclass(frozen=True)
class ClusteringScheduled:
    """A clustering was scheduled.

    Attributes:
        planned: the pending clustering; None if there was nothing to cluster.
        selection: the file groups that were selected, and why others were not.
    """

    planned: Instant | None
    selection: ClusteringSelection


@dataclass(frozen=True)
class Clustered:
    """A clustering was completed.

    Attributes:
        completed: its commit.
        commit: the content of the commit.
    """

    completed: Instant
    commit: CommitMetadata


Event = ClusteringScheduled | Clustered | Failed | PutBack


class ClusteringWorker:
    """Runs pending clusterings, and schedules one when it is due."""

    def __init__(self, context: ServiceContext, engine: Engine, *, schedules: bool = True) -> None:
        """Create the worker without reading the table.

        Args:
            engine: runs the input groups.
            schedules: whether to schedule clusterings that are due; those of others are run in any case.
        """
        self._context = context
        self._engine = engine
        self._schedules = schedules
        self._attempts = PlanBackoff()
        self._next = NextClustering(context)
        self._left = 0

    @property
    def idle(self) -> str:
        """Say why the last look found nothing to do."""
        if self._left:
            return f"nothing to cluster: other processes run what is pending ({self._left})"
        due = f"; none is due by {self._next}" if self._schedules else ""
        return f"nothing to cluster: no clustering is pending{due}"

    def look(self, is_stopping: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """Do what there is to do, and yield an event for each action; an idle look lists the timeline's folder.

        Args:
            is_stopping: no further action is begun when it returns True.

        Raises:
            UnsupportedTable: the table has a bucket index.
            ConfigError: the table's settings were changed since it was opened: open it again.
            EngineStopped: the engine was told to stop; what it ran was put back.
            TableNotFound: the table was removed.
            LsmError, OSError: the timeline cannot be read.
        """
        check_clusterable(self._context)
        timeline = self._context.load_timeline()
        if not timeline.completed_writes:  # a run that was interrupted by the removal may have left its inflight file
            self._context.check_unchanged()
        pending = self._attempts.due(pending_clusterings(timeline))
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
            yield Failed(None, error, CLUSTERING)
            return
        if scheduled is not None:
            yield scheduled
            yield from self._run([scheduled.planned] if scheduled.planned else [], is_stopping)

    def _run(self, planned: Iterable[Instant], is_stopping: Callable[[], bool]) -> Iterator[Event]:
        """Run plans, the oldest first, without those that another process has begun or finished meanwhile."""
        for plan in planned:
            if is_stopping():
                return
            try:
                if plan.requested in self._context.run_elsewhere(self._context.load_timeline()):
                    continue
                self._attempts.begin(plan)
                completed = run_clustering(self._context, plan.requested, self._engine)
            except EngineStopped:
                yield PutBack(plan)
                raise
            except ConfigError:
                raise
            except Exception as error:
                yield Failed(plan, error, CLUSTERING)
                continue
            commit = None if completed is None else self._commit_of(completed)
            if completed is not None and commit is not None:
                yield Clustered(completed, commit)

    def _commit_of(self, completed: Instant) -> CommitMetadata | None:
        """Read a commit; None if another process has rolled it back since."""
        try:
            return self._context.load_timeline().read_commit(completed)
        except CorruptFileError:
            if self._context.load_timeline().completion_time(completed.requested) is not None:
                raise
            return None

    def _schedule(self, timeline: Timeline) -> ClusteringScheduled | None:
        """Schedule a clustering if it is due; None if it is not, or another process was faster."""
        if not self._next.is_due(timeline):
            return None
        planned, selection = schedule_clustering(self._context, self._next.is_due)
        if planned is None and selection is not None:
            self._next.found_nothing(timeline)
        return None if selection is None else ClusteringScheduled(planned, selection)
