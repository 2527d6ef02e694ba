"""Keep the sorted runs of one task on a local disk, as few of them as can be merged at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from streaming_lsm.write.buffer.budget import Budget, Meter
from streaming_lsm.write.buffer.sorting import (
    SORT_BYTES,
    EventRun,
    MemoryRun,
    SortedEvents,
    merged_batches,
    merged_blocks,
)
from streaming_lsm.write.buffer.spilled_run import SpilledRun
from streaming_lsm.write.intake.event_shape import EventShape
from streaming_lsm.write.plan import WritePlan


class RunStore:
    """Stores sorted runs in order of arrival, and merges them.

    Attributes:
        spilled_bytes: bytes written to disk.
    """

    def __init__(self, plan: WritePlan, shape: EventShape, budget: Budget, meter: Meter) -> None:
        """Start without runs; `shape` tells the columns of their events."""
        self._plan, self._shape, self._budget, self._meter = plan, shape, budget, meter
        self._runs: list[SpilledRun] = []
        self.spilled_bytes = 0

    def __len__(self) -> int:
        """Count the runs."""
        return len(self._runs)

    def keep(self, run: MemoryRun) -> None:
        """Write a run to disk, and give its memory back. Too many are merged.

        Raises:
            StorageError: there is no room.
        """
        self._runs.append(self._written((code, batch) for code in run.codes for batch in run.batches(code)))
        del run
        self._meter.count("events", 0)
        self._meter.count("sort", 0)
        if len(self._runs) >= self._budget.fan_in:
            self._merge()
        pa.default_memory_pool().release_unused()

    def blocks(self, *newest: EventRun) -> Iterator[tuple[int, pa.Table, SortedEvents]]:
        """Merge all runs, and further ones that came after them, by file group and ranges of keys.

        Yields:
            File group, events and their order; see `merged_blocks`.
        """
        runs: list[EventRun] = [*self._runs, *newest]
        for code in sorted({code for run in runs for code in run.codes}):
            for events, found in merged_blocks(runs, code, self._shape, self._budget.block):
                self._count_loaded(events)
                yield code, events, found

    def close(self) -> None:
        """Delete the files of all runs."""
        for run in self._runs:
            run.close()
        self._runs.clear()

    def _merge(self) -> None:
        """Compact runs by size tiers: merge the newest runs with older ones no larger than their sum.

        Only adjacent runs are merged, so that the runs stay in order of arrival.
        """
        first = len(self._runs) - self._budget.fan_in // 2
        while first and self._runs[first - 1].bytes <= sum(run.bytes for run in self._runs[first:]):
            first -= 1
        merging = self._runs[first:]
        batches = merged_batches(merging, self._shape, self._plan.reducing_rule, self._budget.batch, self._count_loaded)
        self._runs[first:] = [self._written(batches)]
        for run in merging:
            run.close()
        self._meter.count("runs", 0)

    def _written(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> SpilledRun:
        run = SpilledRun(self._plan.spill_folder, self._shape.schema, batches)
        self.spilled_bytes += run.bytes
        return run

    def _count_loaded(self, events: pa.Table) -> None:
        """Count the memory of merging loaded `events`: the events, their joined copy, sorting and gathering.

        One key that has more than its share of them is loaded whole.
        """
        usual = 4 * max(len(self._runs) * self._budget.batch, self._budget.block)
        self._meter.count("runs", max(usual, 2 * events.nbytes + SORT_BYTES * len(events)))
