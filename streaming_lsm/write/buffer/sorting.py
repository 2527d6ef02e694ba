"""Sort checked events into runs, and merge sorted runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.batches import rebatched
from streaming_lsm.arrow.columns import Flags, Int64s
from streaming_lsm.keys.words import KeyWords, sort_keys
from streaming_lsm.merge.fold import survivors
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.sorted_runs import SortedRun, aligned_blocks
from streaming_lsm.write.buffer.row_sizes import cuts, row_sizes
from streaming_lsm.write.intake.event_shape import EventShape, codes, deleted_flags, event_keys

Positions = Int64s

SORT_BYTES = 80
"""Maximum bytes of a row while it is sorted: words, offsets and order; a copy of its key comes on top."""
ORDER_BYTES = 40
"""Bytes of a row that are kept from sorting until gathering: order, key starts, ranks and flags."""


@dataclass(frozen=True)
class SortedEvents:
    """Holds the order of events: by file group, record key, arrival, and row number.

    Attributes:
        order: int64, row numbers.
        starts: int64, positions in `order` at which another file group or key begins.
    """

    order: Positions
    starts: Positions

    def blocks(self, code: Int64s, sizes: Int64s, block_bytes: int) -> Iterator[tuple[int, SortedEvents]]:
        """Cut into blocks of about `block_bytes` that no key or file group spans, each with its file group.

        Args:
            code: file group of each row, by row number.
            sizes: bytes of each row, by row number.
            block_bytes: a block passes them by its last key at most.
        """
        if not len(self.order):
            return
        before = np.append(0, np.cumsum(sizes[self.order]))
        group = code[self.order[self.starts]]
        begins = np.flatnonzero(_differs(group))
        for first, last in pairwise([*begins.tolist(), len(group)]):
            end = int(self.starts[last]) if last < len(group) else len(self.order)
            for block in self._cut(self.starts[first:last], end, before, max(1, block_bytes)):
                yield int(group[first]), block

    def _cut(self, starts: Positions, end: int, before: Int64s, block_bytes: int) -> Iterator[SortedEvents]:
        wanted = np.arange(before[starts[0]], before[end], block_bytes)
        places = np.unique(np.searchsorted(before[starts], wanted))
        places = places[places < len(starts)].tolist()
        for first, last in pairwise([*places, len(starts)]):
            begin, stop = int(starts[first]), int(starts[last]) if last < len(starts) else end
            yield SortedEvents(self.order[begin:stop], starts[first:last] - begin)


def sort_events(events: pa.Table, shape: EventShape, *, runs: bool = False) -> SortedEvents:
    """Sort events by file group, record key and arrival.

    Args:
        events: in the order in which they came, as far as the arrival columns leave it open.
        shape: their columns.
        runs: whether they are a few sorted runs of one file group, one after the other.
    """
    arrivals = [np.asarray(events.column(name), np.int64) for name in shape.arrivals]
    by_key = sort_keys(KeyWords.of(event_keys(events)), arrivals, runs=runs)
    code = codes(events)
    if len(code) == 0 or code.min() == code.max():
        return SortedEvents(by_key.order, by_key.starts)
    starts = np.zeros(len(code), np.int64)
    starts[by_key.starts] = 1
    regroup = np.argsort(code[by_key.order], kind="stable")
    order, key_number = by_key.order[regroup], np.cumsum(starts)[regroup]
    return SortedEvents(order, np.flatnonzero(_differs(key_number) | _differs(code[order])))


def _differs(values: Int64s) -> Flags:
    differs = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=differs[1:])
    return differs


def reduced(events: pa.Table, found: SortedEvents, rule: MergeRule | None) -> Positions:
    """Select the rows, in order, that may still count when the run is merged with others; see `survivors`.

    Args:
        events: the events.
        found: their order.
        rule: see `WritePlan.reducing_rule`.
    """
    if rule is None or len(found.starts) == len(found.order):
        return found.order
    ranks, unordered_deletes = rule.ranks(events), rule.unordered_deletes(events, deleted_flags(events))
    order = found.order
    return order[survivors(found.starts, unordered_deletes[order], None if ranks is None else ranks[order])]


class EventRun(Protocol):
    """A sorted run of events, in memory or on disk."""

    @property
    def codes(self) -> Iterable[int]:
        """The file groups of which the run has rows, ascending."""
        ...

    def batches(self, code: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file group by key; they are gathered or read lazily."""
        ...


class MemoryRun:
    """Gathers its rows piece by piece, which reuses memory and avoids a full sorted copy."""

    def __init__(self, events: pa.Table, order: Positions, batch_bytes: int) -> None:
        """Create a run of the rows `order`, sorted by file group and key.

        Args:
            events: one chunk per column; several chunks would be joined for each piece.
            order: row numbers.
            batch_bytes: size of a piece; one row may exceed it.
        """
        self._events, self._order, self._batch_bytes = events, order, batch_bytes
        self._ends = np.cumsum(row_sizes(events)[order])
        code = codes(events)[order]
        begins = np.flatnonzero(_differs(code))
        self._ranges = dict(zip(code[begins].tolist(), pairwise([*begins.tolist(), len(order)]), strict=True))

    @property
    def codes(self) -> Iterable[int]:
        """The file groups of which the run has rows, ascending."""
        return self._ranges

    def batches(self, code: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file group by key."""
        begin, end = self._ranges.get(code, (0, 0))
        for first, last in cuts(self._ends, begin, end, self._batch_bytes):
            yield from gather(self._events, self._order[first:last]).to_batches()


def merged_blocks(
    runs: Sequence[EventRun], code: int, shape: EventShape, loaded_bytes: int
) -> Iterator[tuple[pa.Table, SortedEvents]]:
    """Merge the rows of one file group from all runs, by ranges of keys.

    Args:
        runs: in arrival order; arrival columns decide where they differ.
        code: the file group.
        shape: the events' columns.
        loaded_bytes: target for all runs together; at least one batch of each is loaded.

    Yields:
        The events of a range, one chunk a column, and their order; ranges ascend and share no key.
    """
    having = [run for run in runs if code in run.codes]
    # With fewer runs there is memory for more rows of each.
    windows = [rebatched(run.batches(code), size=loaded_bytes // len(having)) for run in having]
    parts = [SortedRun("a sorted run of this task", batches, trusted=True) for batches in windows]
    for block in aligned_blocks(parts):
        batches = [batch for _, of_run in block for batch in of_run]
        events = pa.Table.from_batches(batches).combine_chunks()
        yield events, sort_events(events, shape, runs=True)


def merged_batches(
    runs: Sequence[EventRun],
    shape: EventShape,
    rule: MergeRule | None,
    batch_bytes: int,
    loaded: Callable[[pa.Table], None],
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Merge runs into one.

    Args:
        runs: as for `merged_blocks`.
        shape: the events' columns.
        rule: reduces repeated keys; None to keep all events.
        batch_bytes: target size of a batch.
        loaded: called with all events that are loaded at a time.
    """
    for code in sorted({code for run in runs for code in run.codes}):
        for events, found in merged_blocks(runs, code, shape, batch_bytes * len(runs)):
            loaded(events)
            for batch in MemoryRun(events, reduced(events, found, rule), batch_bytes).batches(code):
                yield code, batch


def gather(events: pa.Table, positions: Positions, *, outlives: bool = False) -> pa.Table:
    """Take rows of a table; a range of adjacent rows is not copied.

    Args:
        events: one chunk per column.
        positions: row numbers.
        outlives: whether the result outlives `events`; few rows are then copied, as a view keeps the whole table.
    """
    may_view = not outlives or 2 * len(positions) >= len(events)
    if (
        may_view
        and len(positions)
        and positions[-1] - positions[0] == len(positions) - 1
        and (np.diff(positions) == 1).all()
    ):
        return events.slice(int(positions[0]), len(positions))
    return events.take(pa.array(positions, pa.int64()))
