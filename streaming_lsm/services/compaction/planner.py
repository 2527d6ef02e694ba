"""Select the file slices that a compaction merges (docs/format/06-services.md, "Compaction"); without file access.

A compaction plan is a list of operations; an operation names the base file and the logs of one file slice.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from streaming_lsm.file_group.file_system_view import FileSlice, LogFile
from streaming_lsm.file_group.log_facts import LogFacts
from streaming_lsm.file_group.log_order import merge_order
from streaming_lsm.format.actions.compaction_plan import (
    FULL,
    HYBRID_PLAN_VERSION,
    LOG,
    PLAN_VERSION,
    CompactionOperation,
    CompactionPlan,
)
from streaming_lsm.services.compaction.operation_choice import (
    Choice,
    Chooser,
    LiveRuns,
    LogRun,
    SliceSizes,
    full_always,
)
from streaming_lsm.services.compaction.strategy import CompactionStrategy, io_metrics
from streaming_lsm.services.context import FileGroupId

ReadLogFacts = Callable[[Sequence[LogFile]], Sequence[LogFacts]]
"""Reads what the facts of the logs of a slice say."""


def unread_facts(logs: Sequence[LogFile]) -> Sequence[LogFacts]:
    """Return those of plain logs, where no choice depends on them."""
    return [LogFacts()] * len(logs)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a plan does with one file group, and why.

    Attributes:
        type: `FULL`, `LOG`, or None if it is left out.
    """

    partition_path: str
    file_id: str
    type: str | None
    reason: str


@dataclass(frozen=True)
class CompactionSelection:
    """The operations of a compaction, and the numbers of file groups left out by reason.

    Attributes:
        operations: one per file group to compact.
        groups: number of live file groups.
        busy: number of those in a pending plan.
        without_logs: number of those without logs.
        undue: number of those for which no rule asks for an operation.
        unchosen: number of those that the strategy left out.
        decisions: one per file group.
        version: version of the plan.
    """

    operations: tuple[CompactionOperation, ...]
    groups: int
    busy: int
    without_logs: int
    unchosen: int
    undue: int = 0
    decisions: tuple[Decision, ...] = ()
    version: int = PLAN_VERSION

    @property
    def plan(self) -> CompactionPlan:
        """The compaction plan, for the requested instant."""
        return self.plan_of(self.operations)

    def plan_of(self, operations: Iterable[CompactionOperation]) -> CompactionPlan:
        """Build the plan of some of the operations."""
        return CompactionPlan(tuple(operations), self.version)

    @property
    def reasons(self) -> str:
        """The numbers of file groups left out by reason, as text."""
        counts = {
            "no log files": self.without_logs,
            "a pending plan already": self.busy,
            "few or small logs": self.undue,
            "fewer logs than the strategy's minimum, or exceed its I/O limit": self.unchosen,
        }
        return f"of {self.groups} file groups " + ", ".join(
            f"{count} have {reason}" for reason, count in counts.items() if count or reason == "no log files"
        )

    def __str__(self) -> str:
        logs = sum(operation.type == LOG for operation in self.operations)
        kinds = f" ({len(self.operations) - logs} {FULL}, {logs} {LOG})" if logs else ""
        return f"{len(self.operations)} file groups to compact{kinds}; {self.reasons}"


@dataclass(frozen=True)
class SliceRules:
    """How a compaction chooses.

    Attributes:
        strategy: orders and limits the candidates.
        choose: decides for one slice with logs.
        read_facts: reads what the headers of logs say, where `choose` depends on them.
        version: version of the plan.
        with_logs_only: whether to leave out slices without logs.
    """

    strategy: CompactionStrategy
    choose: Chooser = full_always
    read_facts: ReadLogFacts = unread_facts
    version: int = PLAN_VERSION
    with_logs_only: bool = True


def select_slices(
    slices: Sequence[FileSlice],
    busy: Container[FileGroupId],
    completion_time: Callable[[str], str | None],
    instant: str,
    rules: SliceRules,
) -> CompactionSelection:
    """Choose from the latest slices what a compaction at `instant` merges.

    Args:
        slices: the latest slice of every file group.
        busy: file groups in a pending plan.
        completion_time: returns the completion time of the write at a requested time.
        instant: requested time of the compaction; logs completed later belong to the next slice.
    """
    free = [found for found in slices if (found.partition_path, found.file_id) not in busy]
    candidates: list[CompactionOperation] = []
    decisions = {_group(found): Decision(*_group(found), None, "a pending plan already") for found in slices}
    without_logs = 0
    for found in free:
        logs = _logs_before(found.logs, completion_time, instant)
        newer = [log for log in logs if not found.is_kept(log)]
        if not newer and rules.with_logs_only:
            without_logs += 1
            decisions[_group(found)] = Decision(*_group(found), None, "no log files")
            continue
        choice = _choice(found, newer, rules)
        decisions[_group(found)] = Decision(*_group(found), choice.type, choice.reason)
        if choice.type is not None:
            candidates.append(_operation(found, logs, choice))
    chosen = rules.strategy.choose(candidates)
    taken = {(operation.partition_path, operation.file_id) for operation in chosen}
    for left in candidates:
        group = (left.partition_path, left.file_id)
        if group not in taken:
            decisions[group] = Decision(*group, None, f"left out by {rules.strategy.name}: {decisions[group].reason}")
    return CompactionSelection(
        chosen,
        groups=len(slices),
        busy=len(slices) - len(free),
        without_logs=without_logs,
        unchosen=len(candidates) - len(chosen),
        undue=len(free) - without_logs - len(candidates),
        decisions=tuple(decisions.values()),
        version=rules.version,
    )


def _group(found: FileSlice) -> FileGroupId:
    return found.partition_path, found.file_id


def _choice(found: FileSlice, logs: Sequence[LogFile], rules: SliceRules) -> Choice:
    if not logs:
        return Choice(FULL, "no logs, to be rewritten")
    sizes = SliceSizes(
        found.base.size if found.base else None,
        sum(log.size for log in logs),
        len({log.name.instant for log in logs}),
        len(logs),
    )
    return rules.choose(sizes, lambda: live_runs(logs, rules.read_facts(logs)))


def live_runs(logs: Sequence[LogFile], facts: Sequence[LogFacts]) -> LiveRuns:
    """List the runs of a slice in merge order, without those that a log compaction replaced.

    Args:
        logs: of the slice, in the order of their names, without the deletes that its base file's compaction kept.
        facts: of these logs.
    """
    ordered = live_logs(logs, facts)
    runs = ((instant, list(files)) for instant, files in groupby(ordered, key=lambda log: log.name.instant))
    return LiveRuns(
        tuple(
            LogRun(
                instant,
                tuple(str(log.name) for log in files),
                sum(log.size for log in files),
                is_inline=not all(log.is_native for log in files),
            )
            for instant, files in runs
        ),
        partial=any(one.is_partial for one in facts),
    )


def live_logs(logs: Sequence[LogFile], facts: Sequence[LogFacts], base_instant: str = "") -> list[LogFile]:
    """Sort the logs of a slice into merge order, without those that a log compaction replaced.

    Args:
        logs, facts: see `live_runs`.
        base_instant: see `merge_order`.
    """
    said = {log.path: (log.name.instant, one.compacted) for log, one in zip(logs, facts, strict=True)}
    return merge_order(logs, lambda log: said[log.path], base_instant)


def _logs_before(
    logs: Iterable[LogFile], completion_time: Callable[[str], str | None], instant: str
) -> tuple[LogFile, ...]:
    return tuple(log for log in logs if "" < (completion_time(log.name.instant) or "") < instant)


def _operation(found: FileSlice, logs: Sequence[LogFile], choice: Choice) -> CompactionOperation:
    """Build the operation of a slice, with all its logs, or with those that a LOG operation merges.

    See docs/format/10-rules.md, "Rule 22", "Rule 23", "Rule 24".
    """
    ordered = sorted(logs, key=lambda log: log.name.sort_key)
    is_log = choice.type == LOG
    if is_log:
        merged = {name for run in choice.runs for name in run.names}
        ordered = [log for log in ordered if str(log.name) in merged]
    return CompactionOperation(
        partition_path=found.partition_path,
        file_id=found.file_id,
        base_instant=found.base.name.instant if found.base else min(log.name.instant for log in logs),
        logs=tuple(str(log.name) for log in ordered),
        base_file=str(found.base.name) if found.base else None,
        metrics=io_metrics(found.base.size if found.base else 0, [log.size for log in ordered], is_log=is_log),
        type=choice.type or FULL,
    )


def hybrid_version(choose: Chooser) -> int:
    """Return the version of the plans of a chooser."""
    return PLAN_VERSION if choose is full_always else HYBRID_PLAN_VERSION
