"""How many tasks the next batch gets, from what the last ones were like."""

from __future__ import annotations

import pytest

from streaming_lsm.spark.pace import TRANSFER_BYTES, TRANSFER_ROWS, UNBOUNDED, BatchSize, Pace


def pace_after(*sizes: tuple[int, int]) -> Pace:
    pace = Pace()
    for rows, size in sizes:
        pace.note(BatchSize(rows, size))
    return pace


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
    assert pace_after(*seen).tasks(8) == tasks


def test_spark_need_not_count_bytes_where_rows_are_known_to_be_narrow() -> None:
    widest = TRANSFER_BYTES // TRANSFER_ROWS
    assert pace_after().transfer_bytes == TRANSFER_BYTES
    assert pace_after((0, 0)).transfer_bytes == TRANSFER_BYTES
    assert pace_after((10, 10 * widest)).transfer_bytes == UNBOUNDED
    assert pace_after((10, 10 * widest + 1)).transfer_bytes == TRANSFER_BYTES
