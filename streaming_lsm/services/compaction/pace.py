"""Estimate how long a compaction takes, by the last ones, and cut operations into plans of a given time.

*Pace*: bytes of file slices that one thread or executor core merges in a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from streaming_lsm.format.actions.compaction_plan import CompactionOperation
from streaming_lsm.services.compaction.planner import LOG_BYTES, READ_MB

_FIRST = 4 << 20
"""Bytes a second before anything was measured: less than a slow machine merges, so that the first plans are small."""
_EACH = 1 << 20
"""Bytes that opening the files of an operation, and creating the new one, counts as."""
_LAST = 4


class CompactionPace:
    """Measures the last compactions of a process."""

    def __init__(self) -> None:
        self._measured: deque[float] = deque(maxlen=_LAST)

    def record(self, operations: Sequence[CompactionOperation], width: int, seconds: float) -> None:
        """Record that a compaction of these operations took so many seconds, with `width` of them at a time."""
        work = _Work()
        for operation in operations:
            work.add(operation)
        if work.count and work.total < float("inf") and seconds > 0:
            self._measured.append(work.longest_thread(width) / seconds)

    def seconds(self, operations: Sequence[CompactionOperation], width: int) -> float:
        """Estimate the seconds of a compaction, by the slowest of the last ones; infinite if the plan has no sizes."""
        work = _Work()
        for operation in operations:
            work.add(operation)
        return work.longest_thread(width) / self._pace

    def cut(
        self, operations: Sequence[CompactionOperation], width: int, seconds: float
    ) -> list[tuple[CompactionOperation, ...]]:
        """Cut operations into plans, in their order; a plan of several takes no longer than `seconds`."""
        plans: list[tuple[CompactionOperation, ...]] = []
        work, first = _Work(), 0
        for place, operation in enumerate(operations):
            work.add(operation)
            if place > first and work.longest_thread(width) > seconds * self._pace:
                plans.append(tuple(operations[first:place]))
                work, first = _Work(), place
                work.add(operation)
        return [*plans, tuple(operations[first:])] if operations else []

    @property
    def _pace(self) -> float:
        return min(self._measured, default=_FIRST)


class _Work:
    """Sums of the bytes of operations."""

    def __init__(self) -> None:
        self.total = self.largest = 0.0
        self.count = 0

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
