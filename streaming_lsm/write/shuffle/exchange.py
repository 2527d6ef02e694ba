"""Send sorted runs of checked events from the sender tasks of a batch to its writer tasks.

*Sender task*: reads a part of the batch; checks, sorts and reduces its rows, and sends them as messages. *Writer task*:
writes file groups; all rows of a key go to one of them. With a global index a *settling task* is between the two: it
has all events of its record keys, in whatever partition, and finds their file groups. *Message*: a compressed Arrow
stream for one task. *Cell*: a piece of a message and one row for Spark, which limits its transfers by rows: cells bound
their bytes.

The output of a sender task depends on its input only (no times, no random numbers), so that a repeated task is
verifiable. A settling task sorts its rows, which come in any order, so that the same holds of what fits its memory. A
nondeterministic query may repeat the input in another order, and messages are then cut elsewhere; a writer task takes
all cells of a sender from one run, so that each key is decided within one order: by the ordering fields, and among
equal values by arrival.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming_lsm.arrow.batches import rebatched
from streaming_lsm.arrow.columns import Int64s, pc
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.index.base import BucketIds, GroupNumbers
from streaming_lsm.index.lookup_index import LookupIndex
from streaming_lsm.index.table_index import index_of
from streaming_lsm.keys.bucket import java_string_hash
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.write.buffer.budget import Budget, Meter
from streaming_lsm.write.buffer.keyed_events import KeyedEvents
from streaming_lsm.write.buffer.pending_batches import PendingBatches
from streaming_lsm.write.buffer.record_buffer import RecordBuffer
from streaming_lsm.write.buffer.row_sizes import cuts, row_sizes
from streaming_lsm.write.buffer.sorting import ORDER_BYTES, Positions, gather, reduced, sort_events
from streaming_lsm.write.intake.dead_letters import DeadLetterBox
from streaming_lsm.write.intake.event_shape import CODE, EventShape, codes, event_keys
from streaming_lsm.write.intake.events import EventIntake, Intake, partition_moves, settled_events
from streaming_lsm.write.intake.tombstones import LastEvents, newest_events
from streaming_lsm.write.numbers import InputCounts, TaskNumbers, Timed, added
from streaming_lsm.write.partition_writer import CollectedRows, WriteResult, write_collected
from streaming_lsm.write.plan import TaskFileGroups, WritePlan
from streaming_lsm.write.shuffle.routing import positions_by_task, tasks_of

TASK = "task"
_TYPES: dict[str, pa.DataType] = {
    TASK: pa.int32(),
    "source": pa.int32(),
    "place": pa.int32(),
    "left": pa.int32(),
    "run": pa.bool_(),
    "data": pa.binary(),
}
CELLS = pa.schema(_TYPES)
"""A cell: the task that writes it, the task that sends it, its place among the cells between the two, the number of
cells of its message that follow, whether the message is part of a run (else a `SenderReport` or `TaskFileGroups`), its
bytes."""
CELL_BYTES = 4096

_MESSAGE_BYTES = 1 << 20
_DRIVER = -1
"""The driver's number among the tasks that send."""
_GROUPS = b"lsm.groups"
_SORTED = b"lsm.sorted"
_SAMPLE = 4096
_CHECKED_ROWS, _CHECKED_BYTES = 48 << 10, 6 << 20
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


@dataclass(frozen=True)
class SenderReport:
    """Reports the counts and last events of a sending task.

    Attributes:
        numbers: rows taken in, and memory.
        last_events: the last event of each topic partition.
        size: bytes of what the task read, as Spark handed it over.
    """

    numbers: TaskNumbers
    last_events: LastEvents
    size: int


Spread = Callable[[pa.Table, GroupNumbers, int], npt.NDArray[np.int32]]
"""Chooses the task of each of some events, int32 (events,), given their file groups and the number of tasks."""


def by_file_group(events: pa.Table, groups: GroupNumbers, tasks: int) -> npt.NDArray[np.int32]:
    """Send all events of a file group to the task that writes it."""
    return tasks_of(groups.ids, tasks)[codes(events)]


def by_record_key(events: pa.Table, groups: GroupNumbers, tasks: int) -> npt.NDArray[np.int32]:  # noqa: ARG001
    """Send all events of a record key, in whatever partition, to the task that looks it up."""
    task: npt.NDArray[np.int32] = (java_string_hash(event_keys(events)).astype(np.int64) % tasks).astype(np.int32)
    return task


class _SentRuns:
    """Sorts the events of one task in runs that its memory holds, and cuts them by the task to which they go."""

    def __init__(
        self, plan: WritePlan, intake: Intake, tasks: int, source: int, spread: Spread, *, sorts: bool = False
    ) -> None:
        self._plan, self._intake, self._tasks, self._source, self._spread = plan, intake, tasks, source, spread
        self._sorts = sorts
        self._held = PendingBatches(intake.shape.schema, Budget(plan.buffer_bytes))
        self._meter = Meter()
        self._places = [0] * tasks
        self.rows_added = 0

    @property
    def peak(self) -> int:
        """Most bytes that were in use."""
        return self._meter.peak

    def add(self, events: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Hold events; yield the cells of those that there is no room for beside them."""
        for _ in self._held.filling(events):
            yield from self._run()
        self._meter.count("events", self._held.bytes)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the cells of the events that are left."""
        if self._held.rows:
            yield from self._run()

    def report(self, report: SenderReport) -> pa.RecordBatch:
        """Return the cells of a report, for one of the tasks."""
        return self._cells(self._source % self._tasks, pa.py_buffer(pickle.dumps(report)), run=False)

    def _run(self) -> Iterator[pa.RecordBatch]:
        """Sort the pending events and yield to each task the cells of its rows."""
        self._meter.count("events", self._held.bytes)
        self._meter.count("sort", self._held.sorting - self._held.bytes)
        yield from self.settle(self._held.take())
        self._meter.count("sort", 0)
        self._meter.count("events", 0)

    def settle(self, found: pa.Table) -> Iterator[pa.RecordBatch]:
        """Find the file groups of events, and yield the cells of these."""
        self.rows_added -= len(found)
        for events in self._intake.settled(found):
            self.rows_added += len(events)
            yield from self._sent(events)

    def _sent(self, events: pa.Table) -> Iterator[pa.RecordBatch]:
        order = self._order(events) if self._sorts or _repeats(events) else None
        self._meter.count("sort", ORDER_BYTES * len(events))
        sizes, task = row_sizes(events), self._spread(events, self._intake.groups, self._tasks)
        for number, places in enumerate(positions_by_task(task if order is None else task[order], self._tasks)):
            positions = places if order is None else order[places]
            for first, last in cuts(np.cumsum(sizes[positions]), 0, len(positions), _MESSAGE_BYTES):
                message = self._message(gather(events, positions[first:last]), is_sorted=order is not None)
                yield self._cells(number, message, run=True)

    def _order(self, events: pa.Table) -> Positions:
        """Select the rows that may still count, by file group and key."""
        return reduced(events, sort_events(events, self._intake.shape), self._plan.reducing_rule)

    def _message(self, events: pa.Table, *, is_sorted: bool) -> pa.Buffer:
        used = np.flatnonzero(np.bincount(codes(events))).astype(np.int32)
        groups = self._intake.groups.ids.take(used)
        told = {_GROUPS: pickle.dumps((used, groups)), _SORTED: b"1" if is_sorted else b""}
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, events.schema.with_metadata(told), options=_WRITE) as writer:
            writer.write_table(events)
        return sink.getvalue()

    def _cells(self, task: int, message: pa.Buffer, *, run: bool) -> pa.RecordBatch:
        cells = _cut_message(message, task, self._source, self._places[task], run=run)
        self._places[task] += cells.num_rows
        return cells


class RunSender:
    """Sends the rows of one task."""

    def __init__(
        self,
        plan: WritePlan,
        tasks: int,
        source: int,
        counts: InputCounts | None = None,
        spread: Spread = by_file_group,
    ) -> None:
        """Create the sender of one task that reads.

        Args:
            plan: the batch being written.
            tasks: number of tasks to which rows go.
            source: number of the task that sends.
            counts: what is counted while the batches are read, for the report; zeros when not given.
            spread: chooses the task of a row.
        """
        self._counts = InputCounts() if counts is None else counts
        self._intake = EventIntake(plan)
        self._letters = DeadLetterBox(plan, WriteToken(source, 0, 0))
        self._runs = _SentRuns(plan, self._intake, tasks, source, spread)

    def send(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Check and sort `batches`, which have the table's types. Yield cells, the last with a `SenderReport`.

        Raises:
            RecordError, SchemaError: see `EventIntake.check` and `DeadLetterBox.divert`.
        """
        rows_in = 0
        # Checking a batch takes as long as checking some thousand rows.
        for batch in rebatched(batches, size=_CHECKED_BYTES, rows=_CHECKED_ROWS):
            placed = self._letters.divert(batch)
            if placed.num_rows:
                rows_in += placed.num_rows
                yield from self._runs.add(self._intake.check(placed))
        yield from self._runs.finish()
        self._letters.post()
        # No times: when a task runs again, Spark compares a checksum of its rows with that of the first run. Where they
        # differ it runs the tasks that took them again, or gives the batch up.
        numbers = TaskNumbers(
            rows_in=rows_in,
            rows_added=self._runs.rows_added,
            peak_bytes=self._runs.peak,
            dead_letters=self._letters.count,
            unknown_fields=added([self._counts.unknown_fields]),
            changing_schemas=frozenset(self._counts.changing_schemas),
        )
        yield self._runs.report(SenderReport(numbers, self._intake.last_events, self._counts.bytes))


def settle_received(
    plan: WritePlan, cells: Iterable[pa.RecordBatch], tasks: int, source: int
) -> Iterator[pa.RecordBatch]:
    """Find the file groups of the rows that other tasks sent to this one by record key, and send them on.

    Args:
        plan: the batch being written, with the look-up.
        cells: what the others sent.
        tasks: number of tasks that write.
        source: number of this task.

    Yields:
        Cells; the last ones with what the others had to say.

    Raises:
        CorruptFileError: see `EventIntake.settled`.
        RuntimeError: see `RunReceiver.receive`.
    """
    receiver = RunReceiver(plan)
    runs = _SentRuns(plan, receiver, tasks, source, by_file_group, sorts=True)
    keyed = KeyedEvents(plan, receiver.shape, Budget(plan.buffer_bytes), Meter())
    try:
        for events in receiver.receive(cells):
            keyed.add(events)
        for found in keyed.tables():
            yield from runs.settle(found)
    finally:
        keyed.close()
    reports = receiver.sent
    if reports:
        first = reports[0].numbers
        reports[0] = replace(reports[0], numbers=replace(first, rows_added=first.rows_added + runs.rows_added))
    yield from map(runs.report, reports)


def _cut_message(message: pa.Buffer, task: int, source: int, place: int, *, run: bool) -> pa.RecordBatch:
    """Cut a message into cells; `place` is that of the first cell."""
    offsets = np.minimum(np.arange(0, message.size + CELL_BYTES, CELL_BYTES), message.size).astype(np.int32)
    count = len(offsets) - 1
    data = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets.tobytes()), message])
    same = (np.full(count, value, np.int32) for value in (task, source))
    own = (np.arange(place, place + count, dtype=np.int32), np.arange(count, dtype=np.int32)[::-1].copy())
    columns = [*map(pa.array, same), *map(pa.array, own), pa.array(np.full(count, run)), data]
    return pa.RecordBatch.from_arrays(columns, schema=CELLS)


def group_cells(plan: WritePlan, tasks: int) -> Iterator[pa.RecordBatch]:
    """Build cells with the `TaskFileGroups` of each task, for a plan whose `groups_follow`; called on the driver.

    A closure of Spark is the same for all tasks. In a table of many file groups it would carry all of them to each.
    """
    groups = list(plan.file_ids.items())
    task = tasks_of(BucketIds.of(plan.file_ids), tasks)
    for each, positions in enumerate(positions_by_task(task, tasks)):
        file_ids = dict(groups[position] for position in positions.tolist())
        bases = {group: plan.bases[group] for group in file_ids if group in plan.bases} if plan.bases else {}
        kept = {group: plan.kept_deletes[group] for group in bases if group in plan.kept_deletes}
        logs = None if plan.logs is None else {group: plan.logs[group] for group in file_ids if group in plan.logs}
        told = pickle.dumps(TaskFileGroups(file_ids, bases, kept, logs))
        yield _cut_message(pa.py_buffer(told), each, _DRIVER, 0, run=False)


def _repeats(events: pa.Table) -> bool:
    """Estimate the share of repeated keys from equal pairs in a sample; sort before sending above a third.

    Two sampled keys are equal with a probability of one by the number of distinct keys.
    """
    places = np.unique(np.linspace(0, len(events) - 1, _SAMPLE).astype(np.int64))
    keys = events.column(RECORD_KEY).take(pa.array(places, pa.int64()))
    pairs = len(keys) - int(pc.count_distinct(keys).as_py())
    return len(keys) ** 2 < 2 * pairs * 1.25 * len(events)


class RunReceiver:
    """Joins cells to messages and yields their events; the `Intake` of a receiving task.

    Attributes:
        shape: columns of the events.
        sorted_runs: whether all of them came sorted.
        last_events: the last event of each topic partition, as the senders that report here saw it.
        settles: whether the task finds the file groups of the events.
        sent: what those senders had to say.
        live_groups: the live file groups that this task writes, where they do not come with the plan.
    """

    def __init__(self, plan: WritePlan) -> None:
        """Create a receiver for one task of `plan`."""
        self._unfinished: dict[int, list[pa.Buffer]] = {}
        self._places: dict[int, int] = {}
        self.shape = EventShape.of(plan)
        self.sorted_runs = True
        self.last_events: LastEvents = {}
        self.sent: list[SenderReport] = []
        self._received = GroupNumbers()
        index = None if plan.lookup is None else index_of(plan.config, plan.lookup)
        self._index = index if isinstance(index, LookupIndex) else None
        self.settles = self._index is not None
        self._moves = None if self._index is None else partition_moves(plan, self._index)
        self.live_groups: TaskFileGroups | None = None

    @property
    def groups(self) -> GroupNumbers:
        """The file groups of the events, by number."""
        return self._received if self._index is None else self._index.groups

    def check(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return `batch` as it is: the sender has checked it."""
        return batch

    def settled(self, events: pa.Table) -> Iterator[pa.Table]:
        """Return `events` as they are if the senders have found their file groups; else find them."""
        if self._index is None:
            return iter((events,))
        located = self._index.located(self._received.ids, codes(events))
        return settled_events(events, located, self._index, self._moves)

    def receive(self, cells: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the events in `cells`.

        Raises:
            RuntimeError: cells of a sender come in another order than it sent them, or not all of them come.
        """
        for batch in cells:
            yield from self._take(batch)
        if any(self._unfinished.values()):
            raise RuntimeError("rows were lost on the way between two tasks: run the batch again")

    def _take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        source, place, left = (np.asarray(batch.column(name)) for name in ("source", "place", "left"))
        # Spark may be set to hand over 64-bit offsets.
        offsets, data = _bytes_of(batch.column("data").cast(pa.binary()))
        ends = np.flatnonzero((left == 0) | np.append(source[1:] != source[:-1], True)) + 1
        for begin, end in pairwise([0, *ends.tolist()]):
            self._check_place(int(source[begin]), place[begin:end])
            parts = self._unfinished.setdefault(int(source[begin]), [])
            parts.append(data.slice(int(offsets[begin]), int(offsets[end] - offsets[begin])))
            if left[end - 1] == 0:
                message = parts[0] if len(parts) == 1 else pa.py_buffer(b"".join(parts))
                parts.clear()
                yield from self._open(message, is_run=batch.column("run")[begin].as_py())

    def _check_place(self, source: int, places: npt.NDArray[np.int32]) -> None:
        expected = self._places.get(source, 0)
        if places[0] != expected or places[-1] - places[0] != len(places) - 1:
            raise RuntimeError(f"task {source}: expected cell {expected}, received {places[0]}: run the batch again")
        self._places[source] = expected + len(places)

    def _open(self, message: pa.Buffer, *, is_run: bool) -> Iterator[pa.RecordBatch]:
        if not is_run:
            self._hear(pickle.loads(message))
            return
        with pa.ipc.open_stream(message, options=_READ) as reader:
            told = reader.schema.metadata
            self.sorted_runs &= bool(told[_SORTED])
            used, groups = pickle.loads(told[_GROUPS])
            numbers = np.zeros(used[-1] + 1, np.int64)
            numbers[used] = self._received.add(groups)
            for batch in reader:
                yield self._renumbered(batch, numbers)

    def _hear(self, report: SenderReport | TaskFileGroups) -> None:
        if isinstance(report, TaskFileGroups):
            self.live_groups = report
            return
        self.sent.append(report)
        self.last_events = newest_events(self.last_events, report.last_events)

    def _renumbered(self, batch: pa.RecordBatch, numbers: Int64s) -> pa.RecordBatch:
        """Replace the sender's numbers of file groups by those of this task."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns[CODE] = pa.array(numbers[codes(batch)])
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=self.shape.schema)


def _bytes_of(column: pa.Array[Any]) -> tuple[npt.NDArray[np.int32], pa.Buffer]:
    """Return the offsets of the values, int32 (rows + 1,), and their bytes, without a copy."""
    _, offsets, data = column.buffers()
    assert offsets is not None
    assert data is not None
    return np.frombuffer(memoryview(offsets), np.int32, len(column) + 1, column.offset * 4), data


def write_received(
    plan: WritePlan, cells: Iterable[pa.RecordBatch], token: WriteToken
) -> tuple[WriteResult, list[SenderReport]]:
    """Write the rows that other tasks sent to this one.

    Returns:
        What was written, and what those senders that report to this task had to say.

    Raises:
        LsmError: see `write_partition`.
    """
    receiver, received = RunReceiver(plan), Timed(cells)
    buffer = RecordBuffer(plan, receiver)
    begun = perf_counter()
    try:
        for events in receiver.receive(received):
            buffer.append(events)
    except BaseException:
        buffer.close()
        raise
    spent = perf_counter() - begun - received.seconds
    collected = CollectedRows(buffer, DeadLetterBox(plan, token), received.seconds, spent)
    if plan.groups_follow:
        if receiver.live_groups is None:  # every bucket would get a second file group
            buffer.close()
            raise RuntimeError("the file groups of a task were lost on the way to it: run the batch again")
        plan = plan.with_groups(receiver.live_groups)
    return write_collected(plan, collected, token), receiver.sent
