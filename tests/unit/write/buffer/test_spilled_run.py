"""A batch that does not fit into memory: sorted runs on disk, and nothing else is different."""

from __future__ import annotations

import errno
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_lsm.errors import ConfigError, StorageError
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.write.buffer.record_buffer import RecordBuffer
from streaming_lsm.write.buffer.spilled_run import SpilledRun
from streaming_lsm.write.partition_writer import write_partition
from streaming_lsm.write.plan import WritePlan
from tests.support.crash_points import random_cases
from tests.support.plans import SCHEMA, make_plan, open_instant

NOWHERE = Path("/nowhere")
TOKEN = WriteToken(0, 0, 0)
CONTROL = {"_lsm_topic": pa.string(), "_lsm_partition": pa.int32(), "_lsm_offset": pa.int64()}


def batch(rows: list[dict[str, Any]], **control: list[Any]) -> pa.RecordBatch:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    for name, values in control.items():
        table = table.append_column(name, pa.array(values, CONTROL.get(name, pa.bool_())))
    return table.combine_chunks().to_batches()[0]


def random_batches(count: int, rows: int, *, keys: int, seed: int = 3) -> Iterator[pa.RecordBatch]:
    """Batches with rows, deletes and unordered deletes."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        gone = random.random(rows) < 0.2
        ts = pa.array(random.integers(0, 50, rows), mask=gone & (random.random(rows) < 0.5))
        columns = [
            pa.array([f"key-{number:09d}" for number in random.integers(0, keys, rows)]),
            pa.array(["p"] * rows),
            ts,
            pa.array(random.integers(0, 2**31, rows).astype(np.int32)),
            pa.array(gone),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def handed_over(plan: WritePlan, batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch]) -> dict[Any, Any]:
    """All that a buffer hands over, by file group, and whether anything was spilled."""
    buffer = RecordBuffer(plan)
    for one in batches:
        buffer.append(one)
    found: dict[Any, Any] = {}
    for group, blocks in buffer.drain():
        parts = list(blocks)
        found[group] = {"keys": [key for part in parts for key in part.keys.to_pylist()]}
        for name in ("rows", "deletes", "earlier_deletes"):
            found[group][name] = [row for part in parts for row in getattr(part, name).to_pylist()]
        bounds = [part.keys for part in parts if len(part.keys)]
        assert all(one[-1].as_py() < other[0].as_py() for one, other in itertools.pairwise(bounds))
    return {**found, "spilled": buffer.spilled_bytes > 0}


events_of = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.integers(-1, 3), st.integers(0, 999), st.sampled_from("ruuwdt"), st.integers(0, 9)
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.parametrize("combine", [True, False], ids=["combined", "repeated-keys"])
@pytest.mark.parametrize("event_time", [True, False], ids=["event-time", "commit-time"])
@pytest.mark.parametrize("tombstones", [True, False], ids=["tombstones", "no-tombstones"])
@settings(max_examples=random_cases(25, 12), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(drawn=events_of, cuts=st.lists(st.integers(0, 25), max_size=6), by_offset=st.booleans())
def test_what_is_handed_over_is_the_same_whether_it_was_spilled_or_not(
    combine: bool, event_time: bool, tombstones: bool, drawn: list[Any], cuts: list[int], by_offset: bool
) -> None:
    rows = [
        {
            "id": key,
            "part": "p",
            "ts": None if kind in "wt" else ts,
            "value": value,
            "gone": kind in "dw" or (kind == "t" and not tombstones),
        }
        for key, ts, value, kind, _ in drawn
    ]
    control: dict[str, list[Any]] = {"_lsm_offset": [offset for *_, offset in drawn]}
    if tombstones:
        control["_lsm_tombstone"] = [kind == "t" for *_, kind, _ in drawn]
        control |= {"_lsm_topic": ["t"] * len(rows), "_lsm_partition": [0] * len(rows)}
    whole = batch(rows, **control)
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    parts = [whole.slice(begin, end - begin) for begin, end in itertools.pairwise(bounds)]
    arrival = ("_lsm_offset",) if by_offset else ()
    plan = make_plan(NOWHERE, combine=combine, event_time=event_time, arrival_fields=arrival, buckets=2)
    expected = handed_over(plan, parts)
    tight = make_plan(
        NOWHERE, combine=combine, event_time=event_time, arrival_fields=arrival, buckets=2, buffer_bytes=1
    )
    found = handed_over(tight, parts)
    assert (expected.pop("spilled"), found.pop("spilled")) == (False, len(rows) > 1)
    assert found == expected


def test_many_batches_of_many_groups_are_the_same_however_small_the_budget() -> None:
    others: dict[str, Any] = {"buckets": 3, "combine": True}
    expected = handed_over(make_plan(NOWHERE, **others), random_batches(20, 1500, keys=9000))
    assert expected.pop("spilled") is False
    assert len(expected) == 3
    for budget in (1 << 20, 1_500_000, 3 << 20):
        found = handed_over(make_plan(NOWHERE, **others, buffer_bytes=budget), random_batches(20, 1500, keys=9000))
        assert found.pop("spilled") is True
        assert found == expected


def test_events_that_can_no_longer_count_are_not_spilled() -> None:
    """Commit time keeps one event of each key in a run; without combine all have to stay."""
    spilled = []
    for combine in (True, False):
        plan = make_plan(NOWHERE, combine=combine, event_time=False, ordering=(), buffer_bytes=1 << 20)
        buffer = RecordBuffer(plan)
        for one in random_batches(20, 1500, keys=10):
            buffer.append(one)
        spilled.append(buffer.spilled_bytes)
        buffer.close()
    assert 0 < spilled[0] < spilled[1] / 5


def test_the_spill_folder_is_empty_even_while_runs_are_in_it(tmp_path: Path) -> None:
    buffer = RecordBuffer(make_plan(NOWHERE, buffer_bytes=1 << 20, spill_folder=str(tmp_path)))
    for one in random_batches(20, 1500, keys=9000):
        buffer.append(one)
    open_files = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if _is_open(number)]
    assert [name for name in open_files if name.startswith(str(tmp_path))]
    assert buffer.spilled_bytes > 0
    assert list(tmp_path.iterdir()) == []
    buffer.close()
    open_files = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if _is_open(number)]
    assert not [name for name in open_files if name.startswith(str(tmp_path))]


def _is_open(number: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{number}")


def test_what_the_buffer_counts_stays_within_the_budget() -> None:
    plan = make_plan(NOWHERE, buffer_bytes=4 << 20)
    buffer = RecordBuffer(plan)
    for one in random_batches(60, 3000, keys=10**9):
        buffer.append(one)
    rows = sum(block.rows.num_rows + block.deletes.num_rows for _, blocks in buffer.drain() for block in blocks)
    assert rows == buffer.rows_kept + buffer.rows_deleted
    assert buffer.rows_in == 180_000
    assert (2 << 20) < buffer.meter.peak <= (4 << 20)
    assert buffer.meter.in_use == 0


def test_a_batch_larger_than_the_budget_is_taken_in_pieces() -> None:
    (large,) = random_batches(1, 60_000, keys=10**9)
    plan = make_plan(NOWHERE, buffer_bytes=2 << 20)
    buffer = RecordBuffer(plan)
    buffer.append(large)
    assert buffer.meter.peak <= 2 << 20
    buffer.close()
    assert handed_over(plan, [large]) == {**handed_over(make_plan(NOWHERE), [large]), "spilled": True}


def test_a_view_of_a_large_message_is_counted_with_what_it_keeps_alive() -> None:
    rows = next(random_batches(1, 100, keys=9)).append_column("payload", pa.array(["x" * 20_000] * 100))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    received = pa.ipc.open_stream(sink.getvalue()).read_next_batch()
    buffer = RecordBuffer(make_plan(NOWHERE))
    buffer.append(received)
    assert buffer.meter.peak > 2_000_000
    buffer.close()


def test_a_spill_folder_that_is_not_there_is_named_with_its_option() -> None:
    plan = make_plan(NOWHERE, buffer_bytes=1, spill_folder="/nowhere/at/all")
    with pytest.raises(ConfigError, match=r"lsm\.write\.spill\.folder.*/nowhere/at/all"):
        handed_over(plan, random_batches(2, 10, keys=9))


def test_an_error_that_is_not_about_room_is_passed_on(tmp_path: Path) -> None:
    def failing() -> Iterator[tuple[int, pa.RecordBatch]]:
        yield 0, next(random_batches(1, 10, keys=9))
        raise OSError(errno.EIO, "bad sector")

    with pytest.raises(OSError, match="bad sector"):
        SpilledRun(str(tmp_path), SCHEMA, failing())


# --- a full disk: a limit on the size of files in a process of its own ------------------------------------------


def no_room_for(tmp_path: Path, budget: int, limit: int) -> dict[str, Any]:
    """Write 40,000 rows in a process whose files may not grow beyond `limit` bytes; the error and what is left."""
    program = f"""
import json, os, resource, sys
from pathlib import Path
from tests.unit.write.buffer import test_spilled_run as here
from tests.support.plans import make_plan, open_instant
root, spills = Path({str(tmp_path / "table")!r}), Path({str(tmp_path / "spills")!r})
spills.mkdir()
plan = open_instant(make_plan(root, buffer_bytes={budget}, spill_folder=str(spills)))
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
try:
    here.write_partition(plan, here.random_batches(20, 2000, keys=10**9), here.TOKEN)
except Exception as error:
    print(json.dumps([type(error).__name__, str(error), os.listdir(spills), [p.name for p in root.rglob("*.parquet")]]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    name, message, spills, files = json.loads(done.stdout)
    return {"name": name, "message": message, "spills": spills, "files": files}


def test_a_full_disk_while_spilling_names_folder_and_options(tmp_path: Path) -> None:
    found = no_room_for(tmp_path, budget=2 << 20, limit=100_000)
    assert found["name"] == StorageError.__name__
    assert str(tmp_path / "spills") in found["message"]
    assert "lsm.write.spill.folder" in found["message"]
    assert "lsm.write.buffer.bytes" in found["message"]
    assert (found["spills"], found["files"]) == ([], [])


def test_a_full_disk_while_writing_names_the_table_and_leaves_no_file(tmp_path: Path) -> None:
    found = no_room_for(tmp_path, budget=64 << 20, limit=100_000)
    assert found["name"] == StorageError.__name__
    assert str(tmp_path / "table") in found["message"]
    assert (found["spills"], found["files"]) == ([], [])


def test_numbers_say_what_a_task_did(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path, buffer_bytes=1 << 20))
    numbers = write_partition(plan, random_batches(20, 1500, keys=9000), TOKEN).numbers
    assert numbers.rows_in == 30_000
    assert numbers.rows_kept + numbers.rows_deleted + numbers.rows_replaced == 30_000
    assert min(numbers.rows_kept, numbers.rows_deleted, numbers.rows_replaced, numbers.spilled_bytes) > 0
    assert (1 << 19) < numbers.peak_bytes <= (1 << 20)
    assert min(numbers.receive_ms, numbers.sort_ms, numbers.write_ms) > 0
