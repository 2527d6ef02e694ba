"""Schedule and execute clusterings: requested, inflight, new file groups, ``replacecommit``.

See docs/format/06-services.md, "Clustering".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from streaming_lsm import config
from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.lost_files import FilesChange
from streaming_lsm.format.actions.clustering_plan import CLUSTER, LAYOUT_PARAM, TARGET_BYTES_PARAM, ClusteringPlan
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.actions.file_state import FileState
from streaming_lsm.query.slices.log_parts import visible_blocks
from streaming_lsm.schema import to_avro
from streaming_lsm.services.clustering.plan_check import planned_groups
from streaming_lsm.services.clustering.planner import ClusteringSelection, OrderOf, select_groups
from streaming_lsm.services.clustering.row_order import RowOrder
from streaming_lsm.services.clustering.rules import LINEAR, ClusteringRules, order_text
from streaming_lsm.services.clustering.task import ClusteringTask
from streaming_lsm.services.compaction.target import CompactionTarget, retention_of
from streaming_lsm.services.context import (
    Engine,
    ServiceContext,
    clustered_slices,
    planned_slices,
    read_clustering_plan,
)
from streaming_lsm.services.planned_runs import prepare_run, run_plans
from streaming_lsm.services.survey import Survey
from streaming_lsm.timeline.action_kind import CLUSTERING
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.conflict import check_clustered
from streaming_lsm.txn.outcome import Outcome
from streaming_lsm.txn.planned_actions import pending_clusterings

ORDER_KEY = "lsm.clustering"
"""Key of the extra metadata of a clustering's commit, with the order of its rows."""

_NEXT = "9" * 17
"""A requested time after all others."""
_LOG = logging.getLogger(__name__)
IsDue = Callable[[Timeline], bool]


def check_clusterable(context: ServiceContext) -> None:
    """Check that the file groups of the table may be replaced by others.

    Raises:
        UnsupportedTable: its file groups are the buckets of a bucket index.
    """
    if context.config.has_buckets:
        raise UnsupportedTable(
            f"{context.storage.uri} has a bucket index, by which the key of a row says its file group: such a table "
            "cannot be clustered. Tables of another hoodie.index.type can be (docs/indexes.md)"
        )


def preview_clustering(context: ServiceContext) -> ClusteringSelection:
    """Select the file slices that a clustering scheduled now would sort; raises as `schedule_clustering`."""
    check_clusterable(context)
    survey = Survey.of(context)
    selection = _select(context, survey.timeline, survey.slices)
    if selection.plan.groups:
        planned = Instant(_NEXT, CLUSTERING, State.REQUESTED)
        _order(selection.plan, CompactionTarget.of_run(context, survey.timeline, planned))
    return selection


def _select(context: ServiceContext, timeline: Timeline, slices: Sequence[FileSlice]) -> ClusteringSelection:
    busy = {*planned_slices(context.storage, timeline), *clustered_slices(context.storage, timeline)}
    return select_groups(slices, busy, ClusteringRules.of(context.options), _order_of(timeline))


def _order_of(timeline: Timeline) -> OrderOf:
    """Return how to find the order of a clustering that is on the active timeline."""
    replacing = {write.requested: write for write in timeline.completed_writes if write.action == "replacecommit"}

    def order_of(requested: str) -> str | None:
        write = replacing.get(requested)
        return None if write is None else timeline.read_commit(write).extra.get(ORDER_KEY)

    return order_of


def schedule_clustering(
    context: ServiceContext, is_due: IsDue = lambda _: True
) -> tuple[Instant | None, ClusteringSelection | None]:
    """Schedule a clustering: write its plan to the timeline, unless there is nothing to cluster.

    From then on writes of its file groups are refused until it is completed.

    Args:
        is_due: looks once more at the timeline when the lock is held: another process may have scheduled meanwhile.

    Returns:
        The pending clustering (None if nothing was selected), and the selection; None if it is not due any more.

    Raises:
        UnsupportedTable: the table has a bucket index; or see `clustered_slices`.
        SchemaError: a sort column is not there, or has no order.
        CommitConflict: others held the lock for longer than the options say to wait.
        CorruptFileError: a committed file is missing.
    """
    check_clusterable(context)
    survey = Survey.of(context)
    with context.transaction() as tx:
        if not is_due(tx.timeline):
            return None, None
        requested = tx.new_time()
        selection = _select(context, tx.timeline, survey.at(context, tx.timeline))
        if not selection.plan.groups:
            return None, selection
        plan = selection.plan
        planned = Instant(requested, CLUSTERING, State.REQUESTED)
        _order(plan, CompactionTarget.of_run(context, tx.timeline, planned))
        planned = tx.schedule(CLUSTERING, requested, plan.encode(unquote(context.storage.uri)))
    _LOG.info("scheduled %s in %s: %s", planned.path, context.storage.uri, selection)
    return planned, selection


def _order(plan: ClusteringPlan, target: CompactionTarget) -> RowOrder:
    return RowOrder.of(plan.sort_columns, plan.params.get(LAYOUT_PARAM, LINEAR), target.schema)


@dataclass(frozen=True)
class _Run:
    """Describe a run of a planned clustering.

    Attributes:
        task: clusters one input group.
        plan: the plan.
        groups: the slices of its input groups.
        survey: the latest slices before the run.
    """

    task: ClusteringTask
    plan: ClusteringPlan
    groups: Sequence[Sequence[FileSlice]]
    survey: Survey

    @classmethod
    def of(cls, context: ServiceContext, timeline: Timeline, planned: Instant) -> _Run:
        """Check the plan and find its slices; raises as `run_clustering`."""
        plan = read_clustering_plan(context.storage, planned)
        if plan.version != 1:
            raise UnsupportedTable(
                f"{planned.path}: plan version {plan.version} is not supported: finish it with its own program"
            )
        # First of all, as its errors name the plan.
        groups = planned_groups(context.view(timeline), plan, planned)
        target = CompactionTarget.of_run(context, timeline, planned)
        task = ClusteringTask(
            target,
            _order(plan, target),
            target_bytes=_target_bytes(plan, context),
            held_bytes=max(1, context.options[config.BUFFER_BYTES] // 2),
            visible=visible_blocks(context.config, timeline),
            retention=retention_of(context, planned.requested),
        )
        return cls(task, plan, groups, Survey.of(context))

    @property
    def items(self) -> Iterable[tuple[int, int, Sequence[FileSlice]]]:
        """The input groups, as the task takes them."""
        for number, (group, slices) in enumerate(zip(self.plan.groups, self.groups, strict=True)):
            yield number, group.outputs, slices

    def outcome(self, stats: tuple[WriteStat, ...]) -> Outcome:
        """Describe what the run did."""
        replaced: dict[str, tuple[str, ...]] = {}
        for partition, file_id in sorted(self.plan.file_groups):
            replaced[partition] = (*replaced.get(partition, ()), file_id)
        target = self.task.target
        order = {ORDER_KEY: order_text(self.plan.params.get(LAYOUT_PARAM, LINEAR), self.plan.sort_columns)}
        return Outcome(stats, CLUSTER, to_avro(target.columns, target.table_name), replaced, extra=order)

    def entries(self, stats: Sequence[WriteStat], timeline: Timeline) -> Mapping[str, str]:
        """Check just before the commit that the rows are still those, and make its extra metadata.

        Raises:
            ClusteringConflict: see `check_clustered`.
            WriteConflict: see `CompactionTarget.newer_schema`.
        """
        check_clustered(self.plan.file_groups, timeline, self.task.target.instant)
        before = FileState.of(path for found in self.survey.slices for path in found.paths)
        removed = [path for group in self.groups for found in group for path in found.paths]
        change = FilesChange(self.survey.timeline, before, removed, [stat.path for stat in stats])
        return {**change.recorded(timeline), **self.task.target.newer_schema(timeline)}


def _target_bytes(plan: ClusteringPlan, context: ServiceContext) -> int:
    """Return the size of the new files: that of the options if another program made the plan."""
    text = plan.params.get(TARGET_BYTES_PARAM, "")
    return max(1, int(text)) if text.isdecimal() else context.options[config.CLUSTER_TARGET_BYTES]


def run_clustering(context: ServiceContext, requested: str, engine: Engine) -> Instant | None:
    """Execute a pending clustering; one that fails is rolled back to requested.

    Args:
        requested: requested time of the clustering.
        engine: runs the input groups independently.

    Returns:
        The completed commit; None if the clustering is not pending any more, or another living writer runs it.

    Raises:
        CommitConflict: others held the lock for longer than the options say to wait, or the plan was cancelled.
        ClusteringConflict: another program has written to the file groups since the plan was made.
        ConfigError: version or layout of the table were changed since it was opened.
        CorruptFileError: a file that the plan names is missing or damaged, or the plan does not fit the table.
        UnsupportedTable: the table has a bucket index, or the plan has a version that this release cannot execute.
    """
    check_clusterable(context)
    find = partial(_pending, requested)
    run = prepare_run(context, find, partial(_Run.of, context))
    if run is None:
        return None
    with context.transaction() as tx:
        context.check_unchanged()
        planned = find(tx.timeline)
        if planned is None:
            return None
        if tx.is_run_elsewhere(planned):
            _LOG.info("%s in %s is being run by another writer", planned.path, context.storage.uri)
            return None
        tx.start(planned)
        stats = tuple(stat for written in engine.map(run.task, run.items) for stat in written)
        outcome = run.outcome(stats)
        tx.reconcile(outcome)
        return tx.complete(outcome, partial(run.entries, stats))


def _pending(requested: str, timeline: Timeline) -> Instant | None:
    return next((found for found in pending_clusterings(timeline) if found.requested == requested), None)


def cluster(context: ServiceContext, engine: Engine) -> tuple[Instant | None, ClusteringSelection | None]:
    """Run all pending clusterings, the oldest first; if none is pending, schedule one and run it.

    Returns:
        The last completed clustering, None if there was nothing to do; and the selection if none was pending.

    Raises:
        LsmError: as `run_clustering`; the first error, after all pending clusterings were tried.
    """
    check_clusterable(context)
    planned = pending_clusterings(context.load_timeline())
    if planned:
        return run_all(context, planned, engine), None
    scheduled, selection = schedule_clustering(context)
    return (run_clustering(context, scheduled.requested, engine) if scheduled else None), selection


def run_all(context: ServiceContext, planned: Iterable[Instant], engine: Engine) -> Instant | None:
    """Execute pending clusterings; see `run_plans`."""
    return run_plans(context, "clustering", planned, lambda requested: run_clustering(context, requested, engine))
