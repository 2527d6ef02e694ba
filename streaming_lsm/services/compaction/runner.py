"""Schedule and execute compactions: requested, inflight, files of each operation, ``commit`` or ``deltacommit``.

See docs/format/06-services.md, "Compaction", "Log compaction", "Hybrid compaction".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import LsmError, UnsupportedTable
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.lost_files import FilesChange
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.actions.compaction_plan import (
    FULL,
    HYBRID_PLAN_VERSION,
    LOG,
    PLAN_VERSION,
    CompactionOperation,
)
from streaming_lsm.format.actions.file_state import FileState
from streaming_lsm.query.slices.log_parts import visible_blocks
from streaming_lsm.schema import to_avro
from streaming_lsm.services.compaction.log_task import LogCompactionTask
from streaming_lsm.services.compaction.operation_choice import (
    HYBRID,
    Chooser,
    HybridRules,
    LogCompactionRules,
    full_always,
)
from streaming_lsm.services.compaction.plan_check import PlannedSlice, planned_file_slices
from streaming_lsm.services.compaction.planner import CompactionSelection, SliceRules, select_slices
from streaming_lsm.services.compaction.strategy import UNBOUNDED, CompactionStrategy
from streaming_lsm.services.compaction.target import CompactionTarget, retention_of
from streaming_lsm.services.compaction.task import CompactionTask
from streaming_lsm.services.compaction.trigger import LOG_COMPACT
from streaming_lsm.services.context import (
    Engine,
    FileGroupId,
    ServiceContext,
    clustered_slices,
    planned_slices,
    read_compaction_plan,
)
from streaming_lsm.services.planned_runs import prepare_run, run_plans
from streaming_lsm.services.survey import Survey
from streaming_lsm.timeline.action_kind import COMPACTION, COMPACTIONS, LOG_COMPACTION
from streaming_lsm.timeline.instant import WRITE_ACTIONS, Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.outcome import Outcome
from streaming_lsm.txn.planned_actions import pending_compactions
from streaming_lsm.write.files.change_log_target import ChangeLogTarget
from streaming_lsm.write.files.change_rows import ChangeRows
from streaming_lsm.write.large_base_files import warn_of_large_base_files

_LOG = logging.getLogger(__name__)
_LATEST = "9" * 17


def preview_compaction(context: ServiceContext, *, log: bool = False) -> CompactionSelection:
    """Select the file slices that a compaction scheduled now would merge; raises as `schedule_compaction`."""
    survey = Survey.of(context)
    rules = _rules(context, survey.timeline, _LATEST, CompactionStrategy.of(context.options), log=log)
    return _select(context, survey.timeline, survey.slices, _LATEST, rules)


def _rules(
    context: ServiceContext, timeline: Timeline, requested: str, strategy: CompactionStrategy, *, log: bool = False
) -> SliceRules:
    """Build the rules of a plan as the options say.

    A log compaction takes logs that are older than every pending write, which may be completed later at a place between
    them (docs/format/06-services.md, "Log compaction").

    Args:
        log: whether it is a log compaction of its own action.
    """
    pending = [found.requested for found in timeline.pending if found.action in WRITE_ACTIONS]
    before = min([requested, *pending])
    if log:
        choose: Chooser = LogCompactionRules(
            context.options[config.LOG_COMPACTION_BLOCKS], before, context.config.has_native_logs
        )
        return SliceRules(strategy, choose, context.log_facts)
    if context.options[config.COMPACTION_GENERATOR] == HYBRID and not _needs_base(context, timeline):
        choose = HybridRules.of(context.options, before, writes_native=context.config.has_native_logs)
        return SliceRules(strategy, choose, context.log_facts, version=HYBRID_PLAN_VERSION)
    return SliceRules(strategy)


def _needs_base(context: ServiceContext, timeline: Timeline) -> str:
    """Return why the logs of a table are not merged without their base files; "" if they may be."""
    if context.rule.partial is not None:
        return f"has partial rows ({context.rule.partial})"
    if context.rule.strategy:
        return f"has a custom merger ({context.rule.strategy})"
    # Several writes have appended to a log.
    return "" if visible_blocks(context.config, timeline) is None else "may have logs of version 6"


def _select(
    context: ServiceContext, timeline: Timeline, slices: Sequence[FileSlice], requested: str, rules: SliceRules
) -> CompactionSelection:
    return select_slices(slices, _busy(context, timeline), timeline.completion_time, requested, rules)


def _busy(context: ServiceContext, timeline: Timeline) -> set[FileGroupId]:
    """Return the file groups in pending compactions and clusterings."""
    return {*planned_slices(context.storage, timeline), *clustered_slices(context.storage, timeline)}


def schedule_compaction(context: ServiceContext, *, log: bool = False) -> tuple[Instant | None, CompactionSelection]:
    """Schedule a compaction: write its plan to the timeline, unless there is nothing to merge.

    Args:
        log: whether to schedule a log compaction of Hudi's own action, which merges logs only.

    Returns:
        The pending compaction (None if nothing was selected), and the selection.

    Raises:
        CommitConflict: others held the lock for longer than the options say to wait.
        CorruptFileError: a committed file is missing.
        UnsupportedTable: a log compaction of a table with partial rows or logs of version 6; or see `clustered_slices`.
    """
    survey, strategy = Survey.of(context), CompactionStrategy.of(context.options)
    reason = _needs_base(context, survey.timeline) if log else ""
    if reason:
        raise UnsupportedTable(f"{context.storage.uri} {reason}, which no log compaction merges: run a compaction")
    _read_ahead(context, survey, strategy, log=log)
    with context.transaction() as tx:
        requested = tx.new_time()
        rules = _rules(context, tx.timeline, requested, strategy, log=log)
        selection = _select(context, tx.timeline, survey.at(context, tx.timeline), requested, rules)
        if not selection.operations:
            return None, selection
        planned = tx.schedule(LOG_COMPACTION if log else COMPACTION, requested, selection.plan.encode())
    _LOG.info("scheduled %s in %s: %s", planned.path, context.storage.uri, selection)
    return planned, selection


def _read_ahead(context: ServiceContext, survey: Survey, strategy: CompactionStrategy, *, log: bool = False) -> None:
    """Read the headers of logs on which the choice depends before the lock is acquired; they are kept."""
    rules = _rules(context, survey.timeline, _LATEST, strategy, log=log)
    if rules.choose is not full_always:
        # What fails here fails again under the lock, unless a clean has deleted a slice since it was listed.
        with suppress(LsmError, OSError):
            _select(context, survey.timeline, survey.slices, _LATEST, rules)


Cut = Callable[[Sequence[CompactionOperation]], Sequence[tuple[CompactionOperation, ...]]]
"""Cuts the operations that a strategy selects, whatever their size, into plans; those that it leaves out wait."""


def schedule_plans(
    context: ServiceContext, cut: Cut, is_due: Callable[[Timeline], bool]
) -> tuple[tuple[Instant, ...], CompactionSelection | None]:
    """Schedule as many compactions as there is to merge, each of a size that `cut` chooses.

    Args:
        cut: cuts the selected operations into plans.
        is_due: looks once more at the timeline when the lock is held: another process may have scheduled meanwhile.

    Returns:
        The pending compactions, the most urgent first, and the selection; None if they are not due any more.

    Raises:
        LsmError: as `schedule_compaction`.
    """
    survey, strategy = Survey.of(context), CompactionStrategy.of(context.options).without_limit
    _read_ahead(context, survey, strategy)
    with context.transaction() as tx:
        if not is_due(tx.timeline):
            return (), None
        requested = tx.new_time()
        rules = _rules(context, tx.timeline, requested, strategy)
        selection = _select(context, tx.timeline, survey.at(context, tx.timeline), requested, rules)
        plans = [selection.plan_of(operations).encode() for operations in cut(selection.operations)]
        # While the lock is held nothing is completed: all plans are of the slices at `requested`.
        times = [requested, *(tx.new_time() for _ in plans[1:])]
        scheduled = tuple(tx.schedule(COMPACTION, time, plan) for time, plan in zip(times, plans, strict=False))
    for planned in scheduled:
        _LOG.info("scheduled %s in %s", planned.path, context.storage.uri)
    return scheduled, selection


def compact_slices(
    context: ServiceContext, groups: Collection[FileGroupId], engine: Engine, *, leaves_native: bool
) -> Instant | None:
    """Rewrite the latest slices of file groups as one base file each, also those without logs; raises as `compact`.

    Args:
        leaves_native: whether the table is changed to a version without native logs: no deletes are kept beside the
            base file then, and change logs are inline ones.

    Returns:
        The completed commit; None if all of them are in pending plans.
    """
    survey = Survey.of(context)
    with context.transaction() as tx:
        requested = tx.new_time()
        slices, busy = survey.at(context, tx.timeline), _busy(context, tx.timeline)
        wanted = [found for found in slices if (found.partition_path, found.file_id) in groups]
        rules = SliceRules(CompactionStrategy(UNBOUNDED), with_logs_only=False)
        selection = select_slices(wanted, busy, tx.timeline.completion_time, requested, rules)
        if not selection.operations:
            return None
        planned = tx.schedule(COMPACTION, requested, selection.plan.encode())
    if leaves_native:
        context = replace(context, options=context.options.merged(Options({config.TOMBSTONE_RETENTION.key: 0})))
    return run_compaction(context, planned.requested, engine, leaves_native=leaves_native)


def _change_logs(context: ServiceContext, target: CompactionTarget, *, native: bool) -> ChangeLogTarget | None:
    """Return the change logs of a compaction; None unless the table captures changes."""
    mode = context.config.cdc_mode
    if mode is None:
        return None
    return ChangeLogTarget(
        storage=target.storage,
        rows=ChangeRows(
            mode, target.instant, target.table_name, target.columns, compares=not context.rule.takes_winner
        ),
        native=native,
        sorted_files=target.sorted_files,
        codec=target.files.codec,
        spill_folder=target.spill_folder,
    )


@dataclass(frozen=True)
class OperationTask:
    """Runs one operation; picklable, so that it can be sent to executors."""

    full: CompactionTask
    log: LogCompactionTask

    def __call__(self, operation: tuple[int, PlannedSlice]) -> tuple[WriteStat, ...]:
        """Write the files of an operation; raises as the tasks."""
        number, planned = operation
        if planned.type == LOG:
            return self.log((number, planned.files), planned.chain)
        return self.full((number, planned.files))


@dataclass(frozen=True)
class _Run:
    """Describe a run of a planned compaction; determined by its plan, whatever is completed after its instant.

    Attributes:
        task: runs one operation.
        slices: what the operations merge.
        survey: the latest slices before the run.
    """

    task: OperationTask
    slices: Sequence[PlannedSlice]
    survey: Survey

    @classmethod
    def of(cls, context: ServiceContext, timeline: Timeline, planned: Instant, *, leaves_native: bool) -> _Run:
        """Check the plan and find its slices; raises as `run_compaction`."""
        plan = read_compaction_plan(context.storage, planned)
        if plan.version not in (PLAN_VERSION, HYBRID_PLAN_VERSION):
            raise UnsupportedTable(
                f"{planned.path}: plan version {plan.version} is not supported: finish it with its own program"
            )
        # First of all, as its errors name the plan.
        slices = planned_file_slices(context.view(timeline), plan, planned, context.log_facts)
        target = CompactionTarget.of_run(context, timeline, planned)
        visible, retention = visible_blocks(context.config, timeline), retention_of(context, planned.requested)
        changes = _change_logs(context, target, native=context.config.has_native_logs and not leaves_native)
        full = CompactionTask(target, visible=visible, retention=retention, changes=changes)
        log = LogCompactionTask(target, context.config.has_native_logs, retention)
        return cls(OperationTask(full, log), slices, Survey.of(context))

    def changed(self, stats: Sequence[WriteStat]) -> FilesChange:
        """Describe how the run changes the files of the latest slices."""
        before = FileState.of(path for found in self.survey.slices for path in found.paths)
        # A log compaction leaves the logs that it replaces in the slice.
        removed = [path for found in self.slices if found.type == FULL for path in found.files.paths]
        return FilesChange(self.survey.timeline, before, removed, [stat.path for stat in stats])


def run_compaction(
    context: ServiceContext, requested: str, engine: Engine, *, leaves_native: bool = False
) -> Instant | None:
    """Execute a pending compaction; one that fails is rolled back to requested.

    Args:
        requested: requested time of the compaction.
        engine: runs the operations independently.
        leaves_native: see `compact_slices`.

    Returns:
        The completed commit; None if the compaction is not pending any more, or another living writer runs it.

    Raises:
        CommitConflict: others held the lock for longer than the options say to wait, or the plan was cancelled.
        ConfigError: version or layout of the table were changed since it was opened.
        CorruptFileError: a file that the plan names is missing or damaged, or the plan does not fit the table.
        UnsupportedTable: the plan has a version that this release cannot execute.
    """
    find = partial(_pending, requested)
    run = prepare_run(context, find, partial(_Run.of, context, leaves_native=leaves_native))
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
        stats = tuple(stat for written in engine.map(run.task, enumerate(run.slices)) for stat in written)
        operation = LOG_COMPACT if planned.action == LOG_COMPACTION else "COMPACT"
        outcome = Outcome(stats, operation, to_avro(run.task.full.target.columns, context.config.name))
        tx.reconcile(outcome)
        completed = tx.complete(outcome, partial(_entries, run, run.changed(stats)))
    warn_of_large_base_files(stats, context.config, context.options, context.storage.uri)
    return completed


def _entries(run: _Run, change: FilesChange, timeline: Timeline) -> Mapping[str, str]:
    """Make the extra metadata of a compaction; raises as `CompactionTarget.newer_schema`."""
    return {**change.recorded(timeline), **run.task.full.target.newer_schema(timeline)}


def _pending(requested: str, timeline: Timeline) -> Instant | None:
    return next((found for found in pending_compactions(timeline) if found.requested == requested), None)


def compact(
    context: ServiceContext, engine: Engine, *, log: bool = False
) -> tuple[Instant | None, CompactionSelection | None]:
    """Run all pending compactions, the oldest first; if none is pending, schedule one and run it.

    A pending log compaction is run whatever the options are: no other plan takes its file groups.

    Args:
        log: whether to run pending log compactions only, and schedule one; see `schedule_compaction`.

    Returns:
        The last completed compaction, None if there was nothing to do; and the selection if none was pending.

    Raises:
        LsmError: as `run_compaction`; the first error, after all pending compactions were tried.
    """
    actions = (LOG_COMPACTION,) if log else COMPACTIONS
    planned = [found for found in pending_compactions(context.load_timeline()) if found.action in actions]
    if planned:
        return run_all(context, planned, engine), None
    scheduled, selection = schedule_compaction(context, log=log)
    return (run_compaction(context, scheduled.requested, engine) if scheduled else None), selection


def run_all(context: ServiceContext, planned: Iterable[Instant], engine: Engine) -> Instant | None:
    """Execute pending compactions; see `run_plans`."""
    return run_plans(context, "compaction", planned, lambda requested: run_compaction(context, requested, engine))
