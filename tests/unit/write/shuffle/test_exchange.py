"""Rows that go from tasks that read to tasks that write come down to what one task would make of them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_lsm.errors import RecordError
from streaming_lsm.file_group.file_system_view import BaseFile
from streaming_lsm.format.table.file_names import BaseFileName, BucketId, WriteToken
from streaming_lsm.index.base import BucketIds
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.write.buffer.record_buffer import RecordBuffer
from streaming_lsm.write.intake import control_columns
from streaming_lsm.write.numbers import InputCounts
from streaming_lsm.write.plan import WritePlan
from streaming_lsm.write.shuffle import exchange
from streaming_lsm.write.shuffle.exchange import CELLS, RunReceiver, RunSender, group_cells, write_received
from streaming_lsm.write.shuffle.routing import tasks_of
from tests.support.changes import CONTROLLED, KEYS, Event, batch, cut, cuts, streams
from tests.support.plans import make_plan, open_instant

NOWHERE = Path("/nowhere")
Found = dict[BucketId, list[tuple[list[Any], ...]]]


def plan_of(**others: Any) -> WritePlan:
    schema = pa.schema([field for field in CONTROLLED if not field.name.startswith("_lsm")])
    plan = make_plan(
        NOWHERE, schema=schema, partitioned=True, buckets=3, arrival_fields=(control_columns.ROW,), **others
    )
    return replace(plan, rule=replace(plan.rule, delete_field=None, delete_marker=None))


def numbered(parts: list[list[Event]]) -> list[pa.RecordBatch]:
    """Each part as a batch of its own, rows numbered through."""
    batches, first = [], 0
    for part in parts:
        rows = batch(part).append_column(control_columns.ROW, pa.array(range(first, first + len(part)), pa.int64()))
        batches += rows.combine_chunks().to_batches()
        first += len(part)
    return batches


def drained(buffer: RecordBuffer) -> Found:
    parts = ("rows", "deletes", "earlier_deletes")
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
    with pytest.raises(RuntimeError, match="task 0: expected cell 5, received 6"):
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


def plan_of_groups(count: int) -> WritePlan:
    groups = {(f"p{number % 97}", number // 97): f"{number:08d}-0000" for number in range(count)}
    return plan_of(file_ids=groups)


def own_groups(plan: WritePlan, tasks: int) -> list[RunReceiver]:
    """What each task hears from the driver."""
    heard = [RunReceiver(plan) for _ in range(tasks)]
    for cells in group_cells(plan, tasks):
        assert list(heard[cells.column("task")[0].as_py()].receive([cells])) == []
    return heard


def test_each_task_hears_of_the_file_groups_that_rows_of_it_go_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "CELL_BYTES", 4096)
    plan, tasks = plan_of_groups(1000), 8
    told = [receiver.live_groups for receiver in own_groups(plan, tasks)]
    found: dict[BucketId, str] = {}
    for task, groups in enumerate(told):
        assert groups is not None
        assert groups.bases == {}
        assert not groups.file_ids.keys() & found.keys()
        found.update(groups.file_ids)
        for path, bucket in groups.file_ids:
            assert tasks_of(BucketIds.of([(path, bucket)]), tasks).tolist() == [task]
    assert found == plan.file_ids


def test_each_task_hears_of_the_deletes_that_are_kept_beside_its_base_files() -> None:
    plan = plan_of_groups(100)
    bases = {
        (path, bucket): BaseFile(path, BaseFileName(found, "0-0-0", "10"), 1)
        for (path, bucket), found in plan.file_ids.items()
    }
    kept = {group: (f"{group}_1.deletes.parquet",) for number, group in enumerate(bases) if number % 3 == 0}
    told: dict[BucketId, tuple[str, ...]] = {}
    for receiver in own_groups(replace(plan, bases=bases, kept_deletes=kept), 8):
        assert receiver.live_groups is not None
        assert receiver.live_groups.kept_deletes.keys() <= receiver.live_groups.bases.keys()
        told.update(receiver.live_groups.kept_deletes)
    assert told == kept


def test_what_a_task_is_sent_grows_with_its_own_file_groups_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "CELL_BYTES", 4096)
    few, many = plan_of_groups(100), plan_of_groups(10_000)
    shipped = [len(pickle.dumps(plan.without_groups(follow=True))) for plan in (few, many)]
    assert shipped[0] == shipped[1] < 8_000
    sizes = [cells.column("data").nbytes for cells in group_cells(many, 64)]
    assert max(sizes) <= 2 * len(pickle.dumps(many)) / 64


def test_a_sender_reports_the_size_of_what_it_read_not_of_the_rows_that_came_of_it() -> None:
    plan, counts, rows = plan_of(), InputCounts(), numbered([[Event("a", 1, 1, False)]])

    def read() -> Iterator[pa.RecordBatch]:
        for each in rows:
            counts.bytes += 20_000  # a message with its schema
            yield each

    receiver = RunReceiver(plan)
    assert sum(each.num_rows for each in receiver.receive(RunSender(plan, 1, 0, counts).send(read()))) == 1
    assert [report.size for report in receiver.sent] == [20_000]


def test_a_task_that_was_told_no_file_groups_writes_nothing(tmp_path: Path) -> None:
    plan = replace(plan_of().without_groups(follow=True), storage=LocalStorage(tmp_path))
    cells = [cells for cells in RunSender(plan, 1, 0).send(numbered([[]]))]
    with pytest.raises(RuntimeError, match="file groups of a task were lost"):
        write_received(plan, cells, WriteToken(0, 0, 0))
    assert list(tmp_path.iterdir()) == []


def test_a_task_writes_into_the_file_groups_that_it_was_told(tmp_path: Path) -> None:
    known = {("", 0): "00000000-aaaa-bbbb-cccc-000000000000-0"}
    plan = open_instant(make_plan(tmp_path, file_ids=known))
    rows = pa.record_batch([["a"], ["x"], [1], [1], [False]], schema=plan.schema)
    bare = plan.without_groups(follow=True)
    cells = [*RunSender(bare, 1, 0).send([rows]), *group_cells(plan, 1)]
    written, _ = write_received(bare, cells, WriteToken(0, 0, 0))
    assert [stat.file_id for stat in written.stats] == list(known.values())
