"""Estimate how long a compaction takes, by the last ones, and cut operations into plans of a given time.

*Pace*: bytes of file slices that one thread or executor core merges in a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streaming_lsm.format.actions.compaction_plan import CompactionOperation
from streaming_lsm.services.compaction.strategy import LOG_BYTES, READ_MB

_SLOW, _FAST = 4 << 20, 64 << 20
"""Bytes a second before anything was measured: a machine merges more than the first, and less than the second."""
_EACH = 1 << 20
"""Bytes that opening the files of an operation, and creating the new one, counts as."""
_LAST = 4


@dataclass(frozen=True)
class _Measure:
    """Hold what was measured of one compaction.

    Attributes:
        around_s: seconds besides merging: to list the table, to begin and to complete the action.
        pace: bytes a second.
    """

    around_s: float
    pace: float


class CompactionPace:
    """Measures the last compactions of a process."""

    def __init__(self) -> None:
        self._measured: deque[_Measure] = deque(maxlen=_LAST)

    def record(
        self, operations: Sequence[CompactionOperation], width: int, merging_s: float, around_s: float = 0.0
    ) -> None:
        """Record what a compaction of these operations took.

        Args:
            width: number of operations that ran at a time.
            merging_s: seconds to merge the file slices.
            around_s: seconds besides.
        """
        work = _Work.of(operations)
        if work.count and work.total < float("inf") and merging_s > 0:
            self._measured.append(_Measure(around_s, work.longest_thread(width) / merging_s))

    def seconds(self, operations: Sequence[CompactionOperation], width: int) -> float:
        """Estimate the seconds of a compaction, by the slowest of the last ones; infinite if the plan has no sizes."""
        return self._around_s + _Work.of(operations).longest_thread(width) / self._slowest

    def fewest_seconds(self, operations: Sequence[CompactionOperation], width: int) -> float:
        """Estimate the seconds of a compaction by the fastest of the last ones."""
        around_s = min((measure.around_s for measure in self._measured), default=0.0)
        pace = max((measure.pace for measure in self._measured), default=_FAST)
        return around_s + _Work.of(operations).longest_thread(width) / pace

    def cut(
        self, operations: Sequence[CompactionOperation], width: int, seconds: float
    ) -> list[tuple[CompactionOperation, ...]]:
        """Cut operations into plans, in their order; a plan of several takes no longer than `seconds`."""
        plans: list[tuple[CompactionOperation, ...]] = []
        most, work, first = (seconds - self._around_s) * self._slowest, _Work(), 0
        for place, operation in enumerate(operations):
            work.add(operation)
            if place > first and work.longest_thread(width) > most:
                plans.append(tuple(operations[first:place]))
                work, first = _Work.of([operation]), place
        return [*plans, tuple(operations[first:])] if operations else []

    @property
    def _slowest(self) -> float:
        return min((measure.pace for measure in self._measured), default=_SLOW)

    @property
    def _around_s(self) -> float:
        return max((measure.around_s for measure in self._measured), default=0.0)


class _Work:
    """Sums of the bytes of operations."""

    def __init__(self) -> None:
        self.total = self.largest = 0.0
        self.count = 0

    @classmethod
    def of(cls, operations: Iterable[CompactionOperation]) -> _Work:
        work = cls()
        for operation in operations:
            work.add(operation)
        return work

    def add(self, operation: CompactionOperation) -> None:
        size = _bytes(operation)
        self.total += size
        self.largest = max(self.largest, size)
        self.count += 1

    def longest_thread(self, width: int) -> float:
        """Bytes of the thread that has most to do, if the operations are spread evenly."""
        return max(self.largest, self.total / max(1, min(width, self.count)))


def _bytes(operation: CompactionOperation) -> float:
    """Bytes that an operation reads. Hudi writes them to each plan, those of the base file as whole MiB."""
    metrics = operation.metrics
    if LOG_BYTES not in metrics and READ_MB not in metrics:
        return float("inf")
    return max(metrics.get(LOG_BYTES, 0.0), metrics.get(READ_MB, 0.0) * (1 << 20)) + _EACH
