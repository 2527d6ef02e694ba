"""How many tasks the next batch gets, from what the last ones were like."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from streaming_lsm.config import Options
from streaming_lsm.spark import batch_writer
from streaming_lsm.spark.batch_rows import BatchRows
from streaming_lsm.spark.batch_size_history import UNBOUNDED_BYTES, BatchSize, BatchSizeHistory, Transfer
from streaming_lsm.spark.versions import BYTES_LIMIT, ROWS_LIMIT
from streaming_lsm.write.plan import WritePlan

BUDGET = 256 << 20


def history_after(*sizes: tuple[int, int]) -> BatchSizeHistory:
    history = BatchSizeHistory()
    for rows, size in sizes:
        history.note(BatchSize(rows, size))
    return history


@pytest.mark.parametrize(
    ("seen", "tasks"),
    [
        ([], 8),
        ([(0, 0)], 1),
        ([(1_000, 100_000)], 1),
        ([(120_000, 1 << 20)], 3),
        ([(1_000, 40 << 20)], 3),
        ([(10_000_000, 1 << 30)], 8),
        ([(200_000, 1 << 20), (10, 100)], 4),
        ([(200_000, 1 << 20), *[(10, 100)] * 4], 1),
    ],
    ids=["unknown", "empty", "small", "rows", "bytes", "all-cores", "one-small-batch-proves-nothing", "small-again"],
)
def test_tasks_follow_the_largest_of_the_last_batches(seen: list[tuple[int, int]], tasks: int) -> None:
    assert history_after(*seen).tasks(8) == tasks


@pytest.mark.parametrize(("rows", "has_cells"), [(10_000, False), (2048, False), (2048, True)])
def test_spark_need_not_count_bytes_where_rows_are_known_to_be_narrow(rows: int, has_cells: bool) -> None:
    widest = (8 << 20) // rows

    def transfer(*seen: tuple[int, int]) -> Transfer:
        return history_after(*seen).transfer(BUDGET, has_cells=has_cells)

    assert transfer() == transfer((0, 0)) == Transfer(2048, 8 << 20)
    assert transfer((10, 10 * widest)) == Transfer(rows, UNBOUNDED_BYTES)
    wider = Transfer(2048, UNBOUNDED_BYTES if rows == 10_000 else 8 << 20)
    assert transfer((10, 10 * widest + 10)) == wider


def test_rows_bound_a_transfer_where_spark_does_not_limit_bytes() -> None:
    def rows(*seen: tuple[int, int]) -> int:
        transfer = history_after(*seen).transfer(BUDGET, limits_bytes=False)
        assert transfer.bytes is None
        return transfer.rows

    assert rows() == rows((0, 0)) == 256
    assert rows((10_000, 1_000_000)) == 10_000
    assert rows((100, 100 * (64 << 10))) == 128
    assert rows((100, 100 * (64 << 10)), (100_000, 1_000_000)) == 128, "sized by the widest of the last batches"
    assert rows((3, 3 << 30)) == 16


def test_a_transfer_is_a_small_share_of_the_budget() -> None:
    assert BatchSizeHistory().transfer(64 << 20) == Transfer(512, 2 << 20)
    assert BatchSizeHistory().transfer(4 << 20) == Transfer(256, 128 << 10)
    assert BatchSizeHistory().transfer(8 << 30) == Transfer(10_000, 256 << 20)


class Planned:
    """As much of a plan."""

    buffer_bytes = BUDGET


class Table:
    """As much of a table."""

    options = Options({})
    config = SimpleNamespace(has_global_index=False)


def test_a_batch_that_fails_is_written_again_with_all_tasks_and_bounded_transfers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[tuple[int, Transfer]] = []

    def fail(batch: object, plan: WritePlan, known: BatchSizeHistory, tasks: int, *_: object) -> None:
        used.append((tasks, known.transfer(plan.buffer_bytes)))
        raise OSError("a worker is gone")

    monkeypatch.setattr(batch_writer, "_tasks", lambda spark, table, history: (history.tasks(8), 8))
    monkeypatch.setattr(batch_writer, "_one_stage", fail)
    monkeypatch.setattr(batch_writer, "_two_stages", fail)
    monkeypatch.setattr(batch_writer, "exchanges", lambda *_: True)
    batch = BatchRows(cast(Any, SimpleNamespace(sparkSession=None)), pa.schema([]))
    history, table, plan = history_after((10, 10)), cast(Any, Table()), cast(Any, Planned())
    for _ in range(2):
        with pytest.raises(OSError, match="a worker is gone"):
            batch_writer.write_batch(batch, table, plan, history)
    assert used == [(1, Transfer(10_000, UNBOUNDED_BYTES)), (8, Transfer(2048, 8 << 20))]


def test_the_limits_of_a_transfer_hold_for_one_batch() -> None:
    kept: dict[str, object] = {ROWS_LIMIT: "10", BYTES_LIMIT: "20"}
    spark = cast(Any, SimpleNamespace(conf=SimpleNamespace(get=kept.get, set=kept.__setitem__)))
    with batch_writer._limited(spark, Transfer(3, 4)):
        assert kept == {ROWS_LIMIT: 3, BYTES_LIMIT: 4}
    assert kept == {ROWS_LIMIT: "10", BYTES_LIMIT: "20"}


def test_a_batch_that_is_written_leaves_what_is_known() -> None:
    history = history_after((10, 10))
    with history.trusted():
        pass
    assert (history.tasks(8), history.transfer(BUDGET).bytes) == (1, UNBOUNDED_BYTES)
