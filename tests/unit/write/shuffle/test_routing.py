"""Every row of a file group goes to one task."""

from __future__ import annotations

import pickle
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm.errors import RecordError
from streaming_lsm.index.bucket import BucketIndex
from streaming_lsm.keys.bucket import bucket_ids
from streaming_lsm.keys.generator import KeyGenerator
from streaming_lsm.write.shuffle.routing import Router, positions_by_task


def router(tasks: int) -> Router:
    return Router(KeyGenerator("SIMPLE", ("id",), (("part", "SIMPLE"),)), BucketIndex(("id",), ("id",), 5), tasks)


def rows(count: int = 200) -> pa.RecordBatch:
    return pa.record_batch({"id": [f"k{n}" for n in range(count)], "part": [f"p{n % 3}" for n in range(count)]})


@pytest.mark.parametrize("tasks", [1, 2, 7, 100])
def test_a_file_group_has_one_task(tasks: int) -> None:
    batch = rows()
    numbers = router(tasks).route(batch).tolist()
    buckets = bucket_ids(batch["id"], ("id",), ("id",), 5).tolist()
    found = defaultdict(set)
    for part, bucket, task in zip(batch["part"].to_pylist(), buckets, numbers, strict=True):
        found[part, bucket].add(task)
    assert all(len(tasks_of) == 1 for tasks_of in found.values())
    assert set(numbers) <= set(range(tasks))
    assert len(set(numbers)) > 1 or tasks == 1


def test_the_task_does_not_depend_on_the_batch() -> None:
    batch = rows()
    whole = router(4).route(batch).tolist()
    pieces = [router(4).route(batch.slice(begin, 33)).tolist() for begin in range(0, 200, 33)]
    assert [number for piece in pieces for number in piece] == whole
    assert pickle.loads(pickle.dumps(router(4))).route(batch).tolist() == whole


def test_unreadable_events_go_to_the_first_task() -> None:
    batch = rows(4).append_column("_lsm_bad", pa.array([None, "broken", None, "broken"]))
    batch = batch.set_column(0, "id", pa.array(["k0", None, "k2", ""]))
    numbers = router(4).route(batch).tolist()
    assert numbers[1] == numbers[3] == 0
    assert [numbers[0], numbers[2]] == router(4).route(rows(3)).tolist()[::2]


def test_a_readable_row_without_key_is_refused() -> None:
    with pytest.raises(RecordError, match="'id'"):
        router(4).route(rows(2).set_column(0, "id", pa.array(["a", None])))


@pytest.mark.parametrize(("count", "tasks"), [(0, 3), (1, 1), (1000, 7), (50, 70_000)])
def test_each_task_gets_the_positions_of_its_rows_in_the_order_in_which_they_came(count: int, tasks: int) -> None:
    numbers = np.random.default_rng(count).integers(0, tasks, count).astype(np.int32)
    found = [positions.tolist() for positions in positions_by_task(numbers, tasks)]
    assert len(found) == tasks
    expected: dict[int, list[int]] = {}
    for position, task in enumerate(numbers.tolist()):
        expected.setdefault(task, []).append(position)
    assert {task: positions for task, positions in enumerate(found) if positions} == expected


def test_the_rows_are_sorted_once_for_all_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_rows: list[int] = []
    argsort = np.argsort

    def noting(values: np.ndarray, **how: str) -> np.ndarray:  # type: ignore[type-arg]
        sorted_rows.append(len(values))
        return argsort(values, **how)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(np, "argsort", noting)
    monkeypatch.setattr(np, "flatnonzero", None)
    assert len(list(positions_by_task(np.arange(1000, dtype=np.int32), 1000))) == 1000
    assert sorted_rows == [1000]
