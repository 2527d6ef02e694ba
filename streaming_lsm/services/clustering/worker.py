"""Do the clusterings of a table in a process of their own; see `streaming_lsm.services.plan_worker`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.services.clustering.planner import ClusteringSelection
from streaming_lsm.services.clustering.runner import check_clusterable, run_clustering, schedule_clustering
from streaming_lsm.services.clustering.trigger import NextClustering
from streaming_lsm.services.context import Engine, ServiceContext
from streaming_lsm.services.plan_worker import Failed, PlanWorker, PutBack
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


class ClusteringWorker(PlanWorker[ClusteringScheduled | Clustered]):
    """Runs pending clusterings, and schedules one when it is due."""

    action = CLUSTERING

    def __init__(self, context: ServiceContext, engine: Engine, *, schedules: bool = True) -> None:
        """Create the worker without reading the table.

        Args:
            engine: runs the input groups.
            schedules: whether to schedule clusterings that are due; those of others are run in any case.
        """
        super().__init__(context, schedules=schedules)
        self._engine = engine
        self._next = NextClustering(context)

    @property
    def idle(self) -> str:
        """Say why the last look found nothing to do."""
        if self._left:
            return f"nothing to cluster: other processes run what is pending ({self._left})"
        due = f"; none is due by {self._next}" if self._schedules else ""
        return f"nothing to cluster: no clustering is pending{due}"

    def look(self, is_stopping: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """Do what there is to do; see `PlanWorker.look`.

        Raises:
            UnsupportedTable: the table has a bucket index.
        """
        check_clusterable(self._context)
        yield from super().look(is_stopping)

    def _pending(self, timeline: Timeline) -> Sequence[Instant]:
        return pending_clusterings(timeline)

    def _execute(self, requested: str) -> Instant | None:
        return run_clustering(self._context, requested, self._engine)

    def _event(self, completed: Instant, commit: CommitMetadata) -> Clustered:
        return Clustered(completed, commit)

    def _schedule(self, timeline: Timeline) -> tuple[ClusteringScheduled, Sequence[Instant]] | None:
        if not self._next.is_due(timeline):
            return None
        planned, selection = schedule_clustering(self._context, self._next.is_due)
        if planned is None and selection is not None:
            self._next.found_nothing(timeline)
        if selection is None:
            return None
        return ClusteringScheduled(planned, selection), [planned] if planned else []
