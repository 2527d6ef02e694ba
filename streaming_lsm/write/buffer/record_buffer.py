"""Buffer the events of one task within a memory budget, and return them sorted by file group and key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from operator import attrgetter

import pyarrow as pa

from streaming_lsm.format.table.file_names import BucketId
from streaming_lsm.write.buffer.budget import Budget, Meter
from streaming_lsm.write.buffer.dedup import Deduplicator, FileGroupChanges
from streaming_lsm.write.buffer.pending_batches import PendingBatches
from streaming_lsm.write.buffer.row_sizes import row_sizes
from streaming_lsm.write.buffer.sorting import (
    ORDER_BYTES,
    SORT_BYTES,
    EventRun,
    MemoryRun,
    merged_batches,
    merged_blocks,
    reduced,
    sort_events,
)
from streaming_lsm.write.buffer.spilled_run import SpilledRun
from streaming_lsm.write.intake.event_shape import codes
from streaming_lsm.write.intake.events import EventIntake, Intake
from streaming_lsm.write.intake.tombstones import LastEvents
from streaming_lsm.write.numbers import Timed
from streaming_lsm.write.plan import WritePlan


class RecordBuffer:
    """Collects batches, then returns them sorted and deduplicated.

    Batches are kept unsorted. Before one exceeds the budget, the kept ones are sorted, reduced and spilled to a local
    disk as a run; `drain` merges the runs block by block. A batch that fits into the budget is not spilled.

    Attributes:
        budget: the shares of the memory.
        meter: what of it is in use.
        rows_in: events taken in.
        rows_added: deletes of rows that move, and copies of events for further rows of their keys.
        rows_kept, rows_deleted: rows and deletes handed over.
        spilled_bytes: bytes written to disk.
        unordered_deletes: whether some events are deletes without an ordering value.
    """

    def __init__(self, plan: WritePlan, intake: Intake | None = None) -> None:
        """Create an empty buffer for one task of `plan`; `intake` checks its batches, by default an `EventIntake`."""
        self.budget = Budget(plan.buffer_bytes)
        self.meter = Meter()
        self.rows_in = self.rows_added = self.rows_kept = self.rows_deleted = self.spilled_bytes = 0
        self.unordered_deletes = False
        self._drained: Timed[FileGroupChanges] = Timed(())
        self._plan = plan
        self._intake: Intake = intake or EventIntake(plan)
        self._held = PendingBatches(self._intake.shape.schema, self.budget)
        self._runs: list[SpilledRun] = []

    @property
    def drain_seconds(self) -> float:
        """Time that `drain` took to sort, merge and gather."""
        return self._drained.seconds

    @property
    def groups(self) -> tuple[BucketId, ...]:
        """The file groups that the events belong to, those without files afterwards included."""
        return tuple(self._intake.groups[number] for number in range(len(self._intake.groups)))

    def indexed_keys(self, group: BucketId) -> pa.StringArray | None:
        """Record keys that the record index locates in a file group; None if none are known. See `GroupNumbers`."""
        return self._intake.groups.indexed(group)

    @property
    def last_events(self) -> LastEvents:
        """The last event of each topic partition."""
        return self._intake.last_events

    def append(self, batch: pa.RecordBatch) -> None:
        """Add a batch with the table's columns and, optionally, control columns.

        Raises:
            RecordError, SchemaError: see `EventIntake.check`.
            StorageError: there is no room on disk for what does not fit into memory.
        """
        if batch.num_rows == 0:
            return
        events = self._intake.check(batch)
        self.rows_in += batch.num_rows
        for part in self._held.parts(events):
            if self._held.rows and not self._held.takes(part):
                self._spill()
            self._held.add(part)
            self.meter.count("events", self._held.bytes)

    def drain(self) -> Iterator[tuple[BucketId, Iterator[FileGroupChanges]]]:
        """Drain the buffer by file group; the blocks of a group are valid until the next group is requested.

        The blocks of a group ascend by key, and no key is in two of them.

        Raises:
            StorageError: see `append`.
        """
        self._drained = Timed(self._blocks())
        return groupby(self._drained, key=attrgetter("group"))

    def _blocks(self) -> Iterator[FileGroupChanges]:
        # Release the pool between blocks when memory is tight, as it keeps pages of each size; otherwise reuse its
        # pages, which is faster than touching new ones.
        tight = bool(self._runs) or self._held.bytes > self.budget.beside_runs
        for block in self._merged() if self._runs else self._from_memory():
            self.meter.count("block", block.nbytes)
            if block.rows.num_rows or block.deletes.num_rows:
                self.rows_kept += block.rows.num_rows
                self.rows_deleted += block.deletes.num_rows
                yield block
            if tight:
                pa.default_memory_pool().release_unused()
        self.close()

    def _from_memory(self) -> Iterator[FileGroupChanges]:
        self.meter.count("sort", self._held.sorting - self._held.bytes)
        settled = self._settled()
        parts = [next(settled)]
        for part in settled:
            parts.append(part)
            if sum(2 * one.nbytes + SORT_BYTES * len(one) for one in parts) > self.budget.total // 2:
                self._keep(self._sorted_runs(chain(_released(parts), settled)))
                yield from self._merged()
                return
        events = parts[0] if len(parts) == 1 else pa.concat_tables(parts).combine_chunks()
        del parts
        found = sort_events(events, self._intake.shape, runs=self._intake.sorted_runs)
        self.meter.count("sort", ORDER_BYTES * len(events))
        deduplicator = Deduplicator(self._plan, self._intake.shape, events, stay=True)
        self.unordered_deletes |= deduplicator.has_unordered_deletes
        for code, block in found.blocks(codes(events), row_sizes(events), self.budget.block):
            yield deduplicator.deduplicate(self._intake.groups[code], block)

    def _merged(self) -> Iterator[FileGroupChanges]:
        shape = self._intake.shape
        if self._held.sorting > self.budget.beside_runs:
            self._spill()
        runs: list[EventRun] = [*self._runs]
        if self._held.rows:
            held = self._held_runs()
            first = next(held)
            self._keep(held)
            runs = [*self._runs, first]
        for code in sorted({code for run in runs for code in run.codes}):
            for events, found in merged_blocks(runs, code, shape, self.budget.block):
                self._count_loaded(events)
                deduplicator = Deduplicator(self._plan, shape, events, stay=False)
                self.unordered_deletes |= deduplicator.has_unordered_deletes
                yield deduplicator.deduplicate(self._intake.groups[code], found)

    def _spill(self) -> None:
        """Sort the pending events into a run on disk. Too many runs are merged."""
        self.meter.count("sort", self._held.sorting - self._held.bytes)
        self._keep(self._held_runs())
        pa.default_memory_pool().release_unused()

    def _merge_runs(self) -> None:
        """Compact runs by size tiers: merge the newest runs with older ones no larger than their sum.

        Only adjacent runs are merged, so that the runs stay in order of arrival.
        """
        first = len(self._runs) - self.budget.fan_in // 2
        while first and self._runs[first - 1].bytes <= sum(run.bytes for run in self._runs[first:]):
            first -= 1
        merging = self._runs[first:]
        batches = merged_batches(
            merging, self._intake.shape, self._plan.reducing_rule, self.budget.batch, self._count_loaded
        )
        self._runs[first:] = [self._written(batches)]
        for run in merging:
            run.close()
        self.meter.count("runs", 0)

    def _written(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> SpilledRun:
        run = SpilledRun(self._plan.spill_folder, self._intake.shape.schema, batches)
        self.spilled_bytes += run.bytes
        return run

    def _held_runs(self) -> Iterator[MemoryRun]:
        """Remove the pending events and yield them as sorted runs, without those that can no longer count."""
        return self._sorted_runs(self._settled())

    def _settled(self) -> Iterator[pa.Table]:
        """Remove the pending events and find their file groups; see `Intake.settled`."""
        events = self._held.take()
        self.rows_added -= len(events)
        for part in self._intake.settled(events):
            self.rows_added += len(part)
            yield part

    def _sorted_runs(self, parts: Iterable[pa.Table]) -> Iterator[MemoryRun]:
        rule = self._plan.reducing_rule
        for events in parts:
            found = sort_events(events, self._intake.shape, runs=self._intake.sorted_runs)
            order = found.order if rule is None else reduced(events, found, rule)
            yield MemoryRun(events, order, self.budget.batch)

    def _keep(self, runs: Iterable[MemoryRun]) -> None:
        """Write runs to disk. Too many are merged."""
        for run in runs:
            if len(self._runs) >= self.budget.fan_in:
                self._merge_runs()
            self._runs.append(self._written((code, batch) for code in run.codes for batch in run.batches(code)))
        # Without the events, which are held as long as there may be more runs of them.
        self.meter.count("events", 0)
        self.meter.count("sort", 0)
        if len(self._runs) >= self.budget.fan_in:
            self._merge_runs()

    def _count_loaded(self, events: pa.Table) -> None:
        """Count the memory of merging loaded `events`: the events, their joined copy, sorting and gathering.

        One key that has more than its share of them is loaded whole.
        """
        usual = 4 * max(len(self._runs) * self.budget.batch, self.budget.block)
        self.meter.count("runs", max(usual, 2 * events.nbytes + SORT_BYTES * len(events)))

    def close(self) -> None:
        """Drop all events and delete the files of spilled runs."""
        for run in self._runs:
            run.close()
        self._runs.clear()
        self.meter.clear()


def _released(parts: list[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables, and keep none."""
    while parts:
        yield parts.pop(0)
