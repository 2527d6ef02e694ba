"""Select the file slices that a compaction merges (docs/format/06-services.md, "Compaction"); without file access.

A compaction plan is a list of operations; an operation names the base file and the logs of one file slice.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.file_group.file_system_view import FileSlice, LogFile
from streaming_lsm.format.actions.compaction_plan import CompactionOperation, CompactionPlan
from streaming_lsm.services.context import FileGroupId

BY_LOG_SIZE = "LogFileSizeBasedCompactionStrategy"
BY_LOG_NUMBER = "LogFileNumBasedCompactionStrategy"
BOUNDED = "BoundedIOCompactionStrategy"
UNBOUNDED = "UnBoundedCompactionStrategy"
_NO_LIMIT = 1 << 62

LOG_BYTES, READ_MB = "TOTAL_LOG_FILES_SIZE", "TOTAL_IO_READ_MB"
_LOG_FILES, _IO_MB = "TOTAL_LOG_FILES", "TOTAL_IO_MB"


@dataclass(frozen=True)
class CompactionStrategy:
    """Orders the candidates of a compaction and limits their number.

    Attributes:
        name: Hudi's name of the strategy.
        min_log_bytes: minimum log bytes of a slice for `BY_LOG_SIZE`.
        min_log_files: minimum number of logs of a slice for `BY_LOG_NUMBER`.
        io_mb: target sum of bytes read and written, in MiB, for all strategies but `UNBOUNDED`; the operation that
            reaches it is the last.
    """

    name: str = BY_LOG_SIZE
    min_log_bytes: int = 0
    min_log_files: int = 0
    io_mb: int = 512_000

    @staticmethod
    def of(options: Options) -> CompactionStrategy:
        """Read the strategy from the options."""
        return CompactionStrategy(
            options[config.COMPACTION_STRATEGY] or BY_LOG_SIZE,
            options[config.COMPACTION_LOG_BYTES],
            options[config.COMPACTION_LOG_FILES],
            options[config.COMPACTION_IO_MB],
        )

    def choose(self, candidates: Iterable[CompactionOperation]) -> tuple[CompactionOperation, ...]:
        """Choose the operations of a plan, the most urgent first."""
        if self.name == UNBOUNDED:
            return tuple(candidates)
        return self._within_io(self._ranked(candidates))

    def cut(self, chosen: Sequence[CompactionOperation]) -> list[tuple[CompactionOperation, ...]]:
        """Cut the operations that a strategy without a limit chose into plans, each within the limit of this one."""
        plans, left = [], tuple(chosen)
        while left:
            plan = left if self.name == UNBOUNDED else self._within_io(left)
            plans.append(plan)
            left = left[len(plan) :]
        return plans

    @property
    def without_limit(self) -> CompactionStrategy:
        """This strategy without the limit of bytes read and written."""
        return replace(self, io_mb=_NO_LIMIT)

    def _ranked(self, candidates: Iterable[CompactionOperation]) -> list[CompactionOperation]:
        least = {BY_LOG_SIZE: (LOG_BYTES, self.min_log_bytes), BY_LOG_NUMBER: (_LOG_FILES, self.min_log_files)}
        if self.name not in least:
            return list(candidates)
        metric, minimum = least[self.name]
        large = [operation for operation in candidates if operation.metrics[metric] >= minimum]
        return sorted(large, key=lambda operation: -operation.metrics[metric])

    def _within_io(self, ranked: Sequence[CompactionOperation]) -> tuple[CompactionOperation, ...]:
        chosen, left = [], float(self.io_mb)
        for operation in ranked:
            chosen.append(operation)
            left -= operation.metrics[_IO_MB]
            if left <= 0:
                break
        return tuple(chosen)


@dataclass(frozen=True)
class CompactionSelection:
    """The operations of a compaction, and the numbers of file groups left out by reason.

    Attributes:
        operations: one per file group to compact.
        groups: number of live file groups.
        busy: number of those in a pending plan.
        without_logs: number of those without logs.
        unchosen: number of those that the strategy left out.
    """

    operations: tuple[CompactionOperation, ...]
    groups: int
    busy: int
    without_logs: int
    unchosen: int

    @property
    def plan(self) -> CompactionPlan:
        """The compaction plan, for the requested instant."""
        return CompactionPlan(self.operations)

    @property
    def reasons(self) -> str:
        """The numbers of file groups left out by reason, as text."""
        counts = {
            "no log files": self.without_logs,
            "a pending plan already": self.busy,
            "fewer logs than the strategy's minimum, or exceed its I/O limit": self.unchosen,
        }
        return f"of {self.groups} file groups " + ", ".join(
            f"{count} have {reason}" for reason, count in counts.items() if count or reason == "no log files"
        )

    def __str__(self) -> str:
        return f"{len(self.operations)} file groups to compact; {self.reasons}"


def select_slices(
    slices: Sequence[FileSlice],
    busy: Container[FileGroupId],
    completion_time: Callable[[str], str | None],
    instant: str,
    strategy: CompactionStrategy,
    *,
    with_logs_only: bool = True,
) -> CompactionSelection:
    """Choose from the latest slices what a compaction at `instant` merges.

    Args:
        slices: the latest slice of every file group.
        busy: file groups in a pending plan.
        completion_time: returns the completion time of the write at a requested time.
        instant: requested time of the compaction; logs completed later belong to the next slice.
        strategy: orders and limits the candidates.
        with_logs_only: whether to leave out slices without logs.
    """
    free = [found for found in slices if (found.partition_path, found.file_id) not in busy]
    logs = [_logs_before(found.logs, completion_time, instant) for found in free]
    candidates = [
        _operation(found, merged) for found, merged in zip(free, logs, strict=True) if merged or not with_logs_only
    ]
    chosen = strategy.choose(candidates)
    return CompactionSelection(
        chosen,
        groups=len(slices),
        busy=len(slices) - len(free),
        without_logs=len(free) - len(candidates),
        unchosen=len(candidates) - len(chosen),
    )


def _logs_before(
    logs: Iterable[LogFile], completion_time: Callable[[str], str | None], instant: str
) -> tuple[LogFile, ...]:
    return tuple(log for log in logs if "" < (completion_time(log.name.instant) or "") < instant)


def _operation(found: FileSlice, logs: Sequence[LogFile]) -> CompactionOperation:
    """Build the operation of a slice, with all its logs, those that a log compaction replaced included.

    See docs/format/10-rules.md, "Rule 22", "Rule 23", "Rule 24".
    """
    ordered = sorted(logs, key=lambda log: log.name.sort_key)
    return CompactionOperation(
        partition_path=found.partition_path,
        file_id=found.file_id,
        base_instant=found.base.name.instant if found.base else ordered[0].name.instant,
        logs=tuple(str(log.name) for log in ordered),
        base_file=str(found.base.name) if found.base else None,
        metrics=_metrics(found.base.size if found.base else 0, [log.size for log in ordered]),
    )


def _metrics(base_bytes: int, log_bytes: Sequence[int]) -> dict[str, float]:
    read_mb = (base_bytes + sum(log_bytes)) >> 20
    # Hudi estimates the new base file by the size of the old one; a first one is estimated by the size of its logs.
    write_mb = (base_bytes or sum(log_bytes)) >> 20
    return {
        _LOG_FILES: float(len(log_bytes)),
        LOG_BYTES: float(sum(log_bytes)),
        READ_MB: float(read_mb),
        "TOTAL_IO_WRITE_MB": float(write_mb),
        _IO_MB: float(read_mb + write_mb),
    }
