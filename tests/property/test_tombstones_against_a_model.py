"""Random change events with tombstones, cut at random, against the rule told event by event.

The rule: a tombstone says nothing new exactly if the event before it in its topic partition, of those that the table
takes, deletes the same key with a value; else it deletes its key whatever the ordering value.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_lsm import LsmTable
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.txn.batch_ledger import BatchIdentity
from streaming_lsm.write.intake.dead_letters import batch_folder
from streaming_lsm.write.partition_writer import WriteResult, write_partition
from streaming_lsm.write.plan import DeadLetters, WritePlan
from streaming_lsm.write.shuffle import exchange
from streaming_lsm.write.shuffle.exchange import RunSender, write_received
from tests.oracle.reader import read_snapshot
from tests.support.changes import shown
from tests.support.crash_points import random_cases

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("value", pa.int32())])
EVENTS = pa.schema(
    [
        *SCHEMA,
        ("_lsm_delete", pa.bool_()),
        ("_lsm_tombstone", pa.bool_()),
        ("_lsm_bad", pa.string()),
        ("_lsm_topic", pa.string()),
        ("_lsm_partition", pa.int32()),
        ("_lsm_offset", pa.int64()),
    ]
)
KEYS = "abcd"
PARTITIONS = 2


@dataclass(frozen=True)
class Event:
    """A change of a key: a row, delete or tombstone, an unreadable event, or one that is set aside for its key."""

    key: str
    ts: int
    kind: str


@dataclass(frozen=True)
class Way:
    """How a stream becomes commits: where they are cut, rows of an Arrow batch, tasks that read, memory of a task."""

    cuts: list[int]
    rows: int
    one_task: bool
    sorts: bool
    buffer_bytes: int


keys, times = st.sampled_from(KEYS), st.integers(0, 4)
kinds = st.sampled_from(["row", "delete", "tombstone", "bad", "keyless"])


@st.composite
def late_deletes(draw: st.DrawFn) -> list[Event]:
    """A row, a delete that is older more often than not, and a tombstone, with other events in between or none."""
    key, between = draw(keys), st.lists(st.builds(Event, keys, times, kinds), max_size=2)
    row, delete = Event(key, draw(st.integers(2, 4)), "row"), Event(key, draw(st.integers(0, 3)), "delete")
    tombstone = Event(draw(st.sampled_from([key, key, "a"])), 0, "tombstone")
    return [row, delete, *draw(between), tombstone]


streams = st.lists(late_deletes() | st.lists(st.builds(Event, keys, times, kinds), max_size=4), min_size=1, max_size=8)
ways = st.builds(
    Way,
    cuts=st.lists(st.integers(1, 30), max_size=6),
    rows=st.integers(1, 30),
    one_task=st.booleans(),
    sorts=st.booleans(),
    buffer_bytes=st.sampled_from([1, 1 << 24]),
)


def partition(event: Event) -> int:
    """All events of a key are in one topic partition."""
    return KEYS.index(event.key) % PARTITIONS


def fold(stream: list[Event]) -> dict[str, tuple[int | None, int]]:
    """The rows in the end: ordering value and number of the event; of equal ordering values the later event wins."""
    last: dict[int, Event] = {}
    # Ordering value, and number of the row or None for a delete.
    state: dict[str, tuple[int | None, int | None]] = {}
    for number, event in enumerate(stream):
        if event.kind in ("bad", "keyless"):
            continue
        before, last[partition(event)] = last.get(partition(event)), event
        if event.kind == "tombstone":
            if before is None or before.kind != "delete" or before.key != event.key:
                state[event.key] = (None, None)
            continue
        stored = state.get(event.key, (None, None))[0]
        if stored is None or event.ts >= stored:
            state[event.key] = (event.ts, number if event.kind == "row" else None)
    return {key: (ts, number) for key, (ts, number) in state.items() if number is not None}


def as_arrow(stream: list[Event]) -> pa.Table:
    """The events at consecutive offsets of their topic partitions."""
    offsets = [itertools.count() for _ in range(PARTITIONS)]
    rows = [
        {
            "id": "" if event.kind == "keyless" else event.key,
            "ts": None if event.kind == "tombstone" else event.ts,
            "value": number,
            "_lsm_delete": event.kind in ("delete", "tombstone"),
            "_lsm_tombstone": event.kind == "tombstone",
            "_lsm_bad": "not JSON" if event.kind == "bad" else None,
            "_lsm_topic": "orders",
            "_lsm_partition": partition(event),
            "_lsm_offset": next(offsets[partition(event)]),
        }
        for number, event in enumerate(stream)
    ]
    return pa.Table.from_pylist(rows, schema=EVENTS)


def commit(table: LsmTable, number: int, events: pa.Table, way: Way, letters: Path) -> None:
    with table.transaction(BatchIdentity("query", number)) as tx:
        target = DeadLetters(LocalStorage(letters), batch_folder("query", number))
        plan = table.plan(tx, "upsert", arrival_fields=("_lsm_partition", "_lsm_offset"), dead_letters=target)
        plan = replace(plan.at(tx.begin(plan.action)), buffer_bytes=way.buffer_bytes)
        batches = events.combine_chunks().to_batches(max_chunksize=way.rows)
        if way.one_task:
            written = write_partition(plan, batches, WriteToken(0, 0, 0))
            assert written.numbers.rows_in == events.num_rows - count_bad(events)
        else:
            written = WriteResult.joined(two_stages(plan, batches))
        table.commit(tx, plan, written)


def count_bad(events: pa.Table) -> int:
    return sum(row["_lsm_bad"] is not None or row["id"] == "" for row in events.to_pylist())


def two_stages(plan: WritePlan, batches: list[pa.RecordBatch], tasks: int = 2) -> Iterator[WriteResult]:
    """One task reads each topic partition; `tasks` others write."""
    received: list[list[pa.RecordBatch]] = [[] for _ in range(tasks)]
    reading = replace(plan, file_ids={}, bases={})
    for source in range(PARTITIONS):
        own = [batch.filter(pa.compute.equal(batch["_lsm_partition"], source)) for batch in batches]
        for cells in RunSender(reading, tasks, source).send(own):
            received[cells.column("task")[0].as_py()].append(cells)
    for task, cells in enumerate(received):
        yield write_received(plan, cells, WriteToken(task, 1, task))[0]


@settings(
    max_examples=random_cases(150, 15), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(parts=streams, way=ways)
def test_tombstones_count_by_the_event_before_them_however_the_stream_is_cut(
    parts: list[list[Event]], way: Way
) -> None:
    stream = [event for part in parts for event in part]
    events, expected = as_arrow(stream), fold(stream)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "_repeats", lambda found: way.sorts)
        patch.setattr(exchange, "_CHECKED_ROWS", way.rows)
        options = {
            "hoodie.table.name": "model",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.table.ordering.fields": "ts",
            "hoodie.bucket.index.num.buckets": 3,
            "lsm.read.threads": 1,
        }
        table = LsmTable.create(Path(folder) / "table", SCHEMA, options)
        bounds = sorted({0, len(stream), *(cut for cut in way.cuts if cut < len(stream))})
        for number, (begin, end) in enumerate(itertools.pairwise(bounds)):
            commit(table, number, events.slice(begin, end - begin), way, Path(folder) / "letters")
        assert shown(table.scan().to_arrow()) == expected
        assert shown(read_snapshot(Path(folder) / "table")) == expected
