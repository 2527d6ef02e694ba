"""How many tasks the next batch gets, from what the last ones were like."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest

from streaming_lsm.config import Options
from streaming_lsm.spark import batch_writer
from streaming_lsm.spark.batch_rows import BatchRows
from streaming_lsm.spark.batch_size_history import UNBOUNDED_BYTES, BatchSize, BatchSizeHistory, Transfer

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


def test_spark_need_not_count_bytes_where_rows_are_known_to_be_narrow() -> None:
    bounded, free = Transfer(2048, 8 << 20), Transfer(2048, UNBOUNDED_BYTES)
    widest = bounded.bytes // bounded.rows
    assert history_after().transfer(BUDGET) == bounded
    assert history_after((0, 0)).transfer(BUDGET) == bounded
    assert history_after((10, 10 * widest)).transfer(BUDGET) == free
    assert history_after((10, 10 * widest + 1)).transfer(BUDGET) == bounded


def test_rows_bound_a_transfer_where_spark_does_not_limit_bytes() -> None:
    def rows(*seen: tuple[int, int]) -> int:
        transfer = history_after(*seen).transfer(BUDGET, limits_bytes=False)
        assert transfer.bytes is None
        return transfer.rows

    assert rows() == rows((0, 0)) == 256
    assert rows((10_000, 1_000_000)) == 2048
    assert rows((100, 100 * (64 << 10))) == 128
    assert rows((100, 100 * (64 << 10)), (100_000, 1_000_000)) == 128, "sized by the widest of the last batches"
    assert rows((3, 3 << 30)) == 16


def test_a_transfer_is_a_small_share_of_the_budget() -> None:
    assert BatchSizeHistory().transfer(64 << 20) == Transfer(512, 2 << 20)
    assert BatchSizeHistory().transfer(4 << 20) == Transfer(256, 128 << 10)
    assert BatchSizeHistory().transfer(8 << 30) == Transfer(4096, 256 << 20)


class Planned:
    """As much of a plan."""

    buffer_bytes = BUDGET


class Table:
    """As much of a table."""

    options = Options({})


class Session:
    """As much of a Spark session as handing over a batch takes; remembers the last bounds that were set."""

    def __init__(self) -> None:
        self.conf = self
        self.sparkSession = self
        self.bounds: list[object] = []

    def get(self, key: str, default: object = None) -> str:
        return "as before"

    def set(self, key: str, value: object) -> None:
        self.bounds.append(value)


def test_a_batch_that_fails_is_written_again_with_all_tasks_and_bounded_transfers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError("a worker is gone")

    monkeypatch.setattr(batch_writer, "_tasks", lambda spark, table, history: history.tasks(8))
    monkeypatch.setattr(batch_writer, "_one_stage", fail)
    monkeypatch.setattr(batch_writer, "_two_stages", fail)
    monkeypatch.setattr(batch_writer, "exchanges", lambda *_, **known: True)
    history, table, plan = history_after((10, 10)), cast(Any, Table()), cast(Any, Planned())
    assert history.tasks(8) == 1
    for transfer in (history.transfer(BUDGET), BatchSizeHistory().transfer(BUDGET)):
        session = Session()
        with pytest.raises(OSError, match="a worker is gone"):
            batch_writer.write_batch(BatchRows(cast(Any, session), pa.schema([])), table, plan, history)
        assert session.bounds == [transfer.rows, transfer.bytes, "as before", "as before"]
    assert history.tasks(8) == 8


def test_a_batch_that_is_written_leaves_what_is_known() -> None:
    history = history_after((10, 10))
    with history.trusted():
        pass
    assert (history.tasks(8), history.transfer(BUDGET).bytes) == (1, UNBOUNDED_BYTES)
