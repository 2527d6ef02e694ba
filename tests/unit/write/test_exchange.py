"""Rows that go from tasks that read to tasks that write come down to what one task would make of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_lsm.errors import RecordError
from streaming_lsm.write import control, exchange
from streaming_lsm.write.exchange import CELLS, RunReceiver, RunSender
from streaming_lsm.write.plan import FileGroup, WritePlan
from streaming_lsm.write.record_buffer import RecordBuffer
from tests.support.changes import CONTROLLED, KEYS, Event, batch, cut, cuts, streams
from tests.support.plans import make_plan

NOWHERE = Path("/nowhere")
Found = dict[FileGroup, list[tuple[list[Any], ...]]]


def plan_of(**others: Any) -> WritePlan:
    schema = pa.schema([field for field in CONTROLLED if not field.name.startswith("_lsm")])
    plan = make_plan(NOWHERE, schema=schema, partitioned=True, buckets=3, arrival_fields=(control.ROW,), **others)
    return replace(plan, rule=replace(plan.rule, delete_field=None, delete_marker=None))


def numbered(parts: list[list[Event]]) -> list[pa.RecordBatch]:
    """Each part as a batch of its own, rows numbered through."""
    batches, first = [], 0
    for part in parts:
        rows = batch(part).append_column(control.ROW, pa.array(range(first, first + len(part)), pa.int64()))
        batches += rows.combine_chunks().to_batches()
        first += len(part)
    return batches


def drained(buffer: RecordBuffer) -> Found:
    parts = ("rows", "deletes", "wipes")
    return {
        group: [tuple(getattr(block, part).to_pylist() for part in parts) for block in blocks]
        for group, blocks in buffer.drain()
    }


def sent_cells(plan: WritePlan, sources: list[list[pa.RecordBatch]], tasks: int) -> list[list[pa.RecordBatch]]:
    """What each of the tasks receives, the last source first."""
    received: list[list[pa.RecordBatch]] = [[] for _ in range(tasks)]
    for source, batches in reversed(list(enumerate(sources))):
        for cells in RunSender(plan, tasks, source).send(batches):
            received[cells.column("task")[0].as_py()].append(cells)
    return received


def received_rows(plan: WritePlan, cells: list[pa.RecordBatch], rows: int) -> tuple[Found, RunReceiver]:
    """What a task makes of cells that come `rows` at a time."""
    receiver = RunReceiver(plan)
    buffer = RecordBuffer(plan, receiver)
    joined = pa.Table.from_batches(cells, exchange.CELLS).combine_chunks()
    for events in receiver.receive(joined.to_batches(rows)):
        buffer.append(events)
    return drained(buffer), receiver


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "CELL_BYTES", 100)
    monkeypatch.setattr(exchange, "_MESSAGE_BYTES", 500)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(streams, cuts, st.integers(1, 3), st.integers(1, 50), st.booleans(), st.booleans(), st.booleans())
def test_several_tasks_make_of_a_batch_what_one_would(
    monkeypatch: pytest.MonkeyPatch,
    stream: list[Event],
    places: list[int],
    tasks: int,
    rows: int,
    sorts: bool,
    event_time: bool,
    combine: bool,
) -> None:
    monkeypatch.setattr(exchange, "_repeats", lambda events: sorts)
    plan = plan_of(event_time=event_time, combine=combine)
    batches = numbered(cut(stream, places))
    alone = RecordBuffer(plan)
    for one in batches:
        alone.append(one)
    together: Found = {}
    senders = 0
    for cells in sent_cells(plan, [[one] for one in batches], tasks):
        found, receiver = received_rows(plan, cells, rows)
        assert not together.keys() & found.keys(), "two tasks have rows of one file group"
        together.update(found)
        senders += len(receiver.sent)
    assert together == drained(alone)
    assert senders == len(batches)


def test_each_sender_reports_what_it_took_in_even_when_nothing_remains_to_send() -> None:
    (cells,) = sent_cells(plan_of(), [[], numbered([[Event("a", 1, 1, False), Event("a", 2, 2, False)]])], 1)
    _, receiver = received_rows(plan_of(), cells, 1000)
    assert sorted(sent.numbers.rows_in for sent in receiver.sent) == [0, 2]


def test_events_that_cannot_count_stay_behind_where_keys_repeat() -> None:
    events = [Event("a", place, place, False) for place in range(100)]
    (cells,) = sent_cells(plan_of(), [numbered([events])], 1)
    receiver = RunReceiver(plan_of())
    assert sum(found.num_rows for found in receiver.receive(cells)) == 1
    assert receiver.sorted_runs


def test_a_row_without_key_is_refused_where_it_is_read() -> None:
    (bad,) = numbered([[Event("a", 1, 1, False)]])
    bad = bad.set_column(0, "id", pa.array([None], pa.string()))
    with pytest.raises(RecordError, match="no record key"):
        sent_cells(plan_of(), [[bad]], 2)


def test_cells_that_are_lost_or_out_of_order_are_noticed() -> None:
    (cells,) = sent_cells(plan_of(), [numbered([[Event(key, 1, 1, False) for key in KEYS]])], 1)
    joined = pa.Table.from_batches(cells).combine_chunks()
    begin, end = joined.slice(0, 5), joined.slice(6)
    with pytest.raises(RuntimeError, match="task 0 sent cell 5 next, and cell 6 came"):
        list(RunReceiver(plan_of()).receive(pa.concat_tables([begin, end]).to_batches()))
    with pytest.raises(RuntimeError, match="were lost"):
        list(RunReceiver(plan_of()).receive(begin.to_batches()))


def test_a_task_that_runs_again_sends_the_same_bytes() -> None:
    events = [Event(key, number, number, number % 3 == 0) for number, key in enumerate(KEYS * 3)]
    batches = numbered([events[:20], events[20:]])
    first, again = (sent_cells(plan_of(), [batches], 2) for _ in range(2))
    assert first == again, "Spark takes a batch for indeterminate whose rows differ when they are sent once more"


def test_cells_with_wide_offsets_are_received_as_well() -> None:
    (cells,) = sent_cells(plan_of(), [numbered([[Event("a", 1, 1, False), Event("b", 2, 2, False)]])], 1)
    wide = CELLS.set(CELLS.get_field_index("data"), pa.field("data", pa.large_binary()))
    receiver = RunReceiver(plan_of())
    found = [row for part in cells for row in receiver.receive([part.cast(wide)])]
    assert sum(rows.num_rows for rows in found) == 2
    assert len(receiver.sent) == 1
