"""Hold the events of one task until all of each key are there, for an index that looks keys up.

Where a key goes follows from its row and all of its events: with a global index from those in whatever partition. So
the events that memory does not hold are sorted by key, and only then are their file groups found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streaming_lsm.write.buffer.budget import Budget, Meter
from streaming_lsm.write.buffer.pending_batches import PendingBatches
from streaming_lsm.write.buffer.run_store import RunStore
from streaming_lsm.write.buffer.sorting import MemoryRun, gather, reduced, sort_events
from streaming_lsm.write.intake.event_shape import CODE, EventShape, codes, with_column
from streaming_lsm.write.plan import WritePlan

_LOCATED = "_lsm_located"
"""int64: what the index noted of an event. `CODE` is that, too, or 0 in runs if keys are sought in all partitions."""
_MOST_EVENTS = 1 << 16
"""Events of a table that is made of runs; of so many keys at most the look-up prunes files by keys."""


class KeyedEvents:
    """Collects checked events, then returns all events of some keys at a time."""

    def __init__(self, plan: WritePlan, shape: EventShape, budget: Budget, meter: Meter) -> None:
        """Start without events.

        Args:
            plan: the batch being written, with the look-up.
            shape: columns of the events.
            budget: the shares of the memory.
            meter: counts what of it is in use.
        """
        assert plan.lookup is not None
        # An insert looks no key up: in another partition it is another row.
        looks_up = plan.lookup.lookup is not None
        self._is_global = plan.lookup.is_global and looks_up
        self._rule = plan.reducing_rule
        self._budget, self._meter = budget, meter
        self._held = PendingBatches(shape.schema, budget.beside_keyed if looks_up else budget)
        self._shape = replace(shape, schema=shape.schema.append(pa.field(_LOCATED, pa.int64())))
        self._runs = RunStore(plan, self._shape, budget, meter)

    @property
    def spilled_bytes(self) -> int:
        """Bytes written to disk."""
        return self._runs.spilled_bytes

    @property
    def is_spilled(self) -> bool:
        """Whether memory did not hold all events."""
        return len(self._runs) > 0

    def add(self, events: pa.RecordBatch) -> None:
        """Add events, later than those before.

        Raises:
            StorageError: there is no room on disk for what does not fit into memory.
        """
        for _ in self._held.filling(events):
            self._spill()
        self._meter.count("events", self._held.bytes)

    def tables(self) -> Iterator[pa.Table]:
        """Remove the events and yield them, one chunk a column; no key is in two tables.

        With an index that is not global, the same key in another partition is another key. The events of a key are in
        the order of their arrival columns, and of their arrival.

        Raises:
            StorageError: see `add`.
        """
        if not self._runs:
            self._meter.count("sort", self._held.sorting - self._held.bytes)
            if self._held.rows:
                yield self._held.take()
            return
        if self._held.rows:
            self._spill()
        for _, events, found in self._runs.blocks():
            for _, block in found.blocks(codes(events), np.ones(len(events), np.int64), _MOST_EVENTS):
                some = gather(events, block.order)
                yield with_column(some, CODE, some.column(_LOCATED)).drop_columns([_LOCATED])
        self.close()

    def close(self) -> None:
        """Drop all events."""
        self._runs.close()

    def _spill(self) -> None:
        self._meter.count("events", self._held.bytes)
        self._meter.count("sort", self._held.sorting - self._held.bytes)
        self._runs.keep(self._held_run())

    def _held_run(self) -> MemoryRun:
        """Remove the events and return them as a run by key, which alone holds them."""
        events = self._held.take()
        events = events.append_column(_LOCATED, events.column(CODE))
        if self._is_global:
            events = with_column(events, CODE, pa.array(np.zeros(len(events), np.int64)))
        found = sort_events(events, self._shape)
        return MemoryRun(events, reduced(events, found, self._rule), self._budget.batch)
