"""Buffer the events of one task within a memory budget, and return them sorted by file group and key."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter

import pyarrow as pa

from streaming_lsm.format.table.file_names import BucketId
from streaming_lsm.write.buffer.budget import Budget, Meter
from streaming_lsm.write.buffer.dedup import Deduplicator, FileGroupChanges
from streaming_lsm.write.buffer.keyed_events import KeyedEvents
from streaming_lsm.write.buffer.pending_batches import PendingBatches
from streaming_lsm.write.buffer.row_sizes import row_sizes
from streaming_lsm.write.buffer.run_store import RunStore
from streaming_lsm.write.buffer.sorting import ORDER_BYTES, MemoryRun, SortedEvents, reduced, sort_events
from streaming_lsm.write.intake.event_shape import codes
from streaming_lsm.write.intake.events import EventIntake, Intake
from streaming_lsm.write.intake.tombstones import LastEvents
from streaming_lsm.write.numbers import Timed
from streaming_lsm.write.plan import WritePlan

_BLOCKS_OF_A_FILE = 8
"""Least number of blocks in a file that ends at its size."""


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
        unordered_deletes: whether some events are deletes without an ordering value.
    """

    def __init__(self, plan: WritePlan, intake: Intake | None = None) -> None:
        """Create an empty buffer for one task of `plan`; `intake` checks its batches, by default an `EventIntake`."""
        self.budget = Budget(plan.buffer_bytes)
        self.meter = Meter()
        self.rows_in = self.rows_added = self.rows_kept = self.rows_deleted = 0
        self.unordered_deletes = False
        self._drained: Timed[FileGroupChanges] = Timed(())
        self._plan = plan
        self._intake: Intake = intake or EventIntake(plan)
        self._held = PendingBatches(self._intake.shape.schema, self.budget)
        self._runs = RunStore(plan, self._intake.shape, self.budget, self.meter)
        self._keyed: KeyedEvents | None = None
        if self._intake.settles:
            self._keyed = KeyedEvents(plan, self._intake.shape, self.budget, self.meter)

    @property
    def spilled_bytes(self) -> int:
        """Bytes written to disk."""
        return self._runs.spilled_bytes + (0 if self._keyed is None else self._keyed.spilled_bytes)

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
        if self._keyed is None:
            self._hold(events)
        else:
            self._keyed.add(events)

    def drain(self) -> Iterator[tuple[BucketId, Iterator[FileGroupChanges]]]:
        """Drain the buffer by file group; the blocks of a group are valid until the next group is requested.

        The blocks of a group ascend by key, and no key is in two of them.

        Raises:
            CorruptFileError: see `Intake.settled`.
            StorageError: see `append`.
        """
        self._drained = Timed(self._blocks())
        return groupby(self._drained, key=attrgetter("group"))

    def _blocks(self) -> Iterator[FileGroupChanges]:
        if self._keyed is not None:
            self._settle(self._keyed)
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

    def _settle(self, keyed: KeyedEvents) -> None:
        """Find the file groups of the events, all events of a key at once."""
        if keyed.is_spilled:
            self._held = PendingBatches(self._intake.shape.schema, self.budget.beside_keyed)
        for events in keyed.tables():
            self.rows_added -= len(events)
            for part in self._intake.settled(events):
                self.rows_added += len(part)
                for batch in part.to_batches():
                    self._hold(batch)

    def _hold(self, events: pa.RecordBatch) -> None:
        """Hold events whose file groups are known; spill those that there is no room for beside them."""
        for _ in self._held.filling(events):
            self._spill()
        self.meter.count("events", self._held.bytes)

    def _from_memory(self) -> Iterator[FileGroupChanges]:
        self.meter.count("sort", self._held.sorting - self._held.bytes)
        events = self._held.take()
        found = sort_events(events, self._intake.shape, runs=self._intake.sorted_runs)
        self.meter.count("sort", ORDER_BYTES * len(events))
        deduplicator = Deduplicator(self._plan, self._intake.shape, events, stay=True)
        self.unordered_deletes |= deduplicator.has_unordered_deletes
        for code, block in self._cut(events, found):
            yield deduplicator.deduplicate(self._intake.groups[code], block)

    def _merged(self) -> Iterator[FileGroupChanges]:
        if self._held.sorting > self.budget.beside_runs:
            self._spill()
        newest = [self._held_run()] if self._held.rows else []
        for _, events, found in self._runs.blocks(*newest):
            deduplicator = Deduplicator(self._plan, self._intake.shape, events, stay=False)
            self.unordered_deletes |= deduplicator.has_unordered_deletes
            for code, block in self._cut(events, found):
                yield deduplicator.deduplicate(self._intake.groups[code], block)

    def _cut(self, events: pa.Table, found: SortedEvents) -> Iterator[tuple[int, SortedEvents]]:
        """Cut sorted events into blocks; without buckets, files end after a block."""
        size = self.budget.block
        if not self._plan.config.has_buckets:
            size = min(size, self._plan.files.group_bytes // _BLOCKS_OF_A_FILE)
        return found.blocks(codes(events), row_sizes(events), size)

    def _spill(self) -> None:
        """Sort the pending events into a run on disk."""
        self.meter.count("events", self._held.bytes)
        self.meter.count("sort", self._held.sorting - self._held.bytes)
        self._runs.keep(self._held_run())

    def _held_run(self) -> MemoryRun:
        """Remove the pending events and return them as a sorted run, without those that can no longer count."""
        events = self._held.take()
        found = sort_events(events, self._intake.shape, runs=self._intake.sorted_runs)
        return MemoryRun(events, reduced(events, found, self._plan.reducing_rule), self.budget.batch)

    def close(self) -> None:
        """Drop all events and delete the files of spilled runs."""
        if self._keyed is not None:
            self._keyed.close()
        self._runs.close()
        self.meter.clear()
