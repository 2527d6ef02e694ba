"""Incremental queries open the files that the writes of their range wrote, and those that may have rows of theirs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from tests.support.log_compaction import compact_logs, every

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("ts", pa.int64())])
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.clean.automatic": False,
    "lsm.parquet.row.group.rows": 100,
}


def _completed(table: LsmTable) -> list[str]:
    return sorted(write.completed or "" for write in table.timeline.completed_writes)


def _upsert(table: LsmTable, numbers: range, ts: int) -> None:
    table.upsert(pa.table([[f"k{number:04d}" for number in numbers], [ts] * len(numbers)], schema=SCHEMA))


@pytest.fixture
def table(tmp_path: Path) -> LsmTable:
    made = LsmTable.create(tmp_path / "t", SCHEMA, OPTIONS)
    _upsert(made, range(1000), 0)
    made.compact()
    for ts in range(1, 6):
        _upsert(made, range(10 * ts, 10 * ts + 5), ts)
    return made


def test_neither_an_older_base_file_nor_logs_of_other_writes_are_opened(table: LsmTable) -> None:
    *_, begin, _ = _completed(table)
    scan = table.incremental(begin)
    assert scan.to_arrow()["ts"].to_pylist() == [5] * 5
    assert scan.explain().counts.files == 1
    assert table.incremental(_completed(table)[-1]).slices == []


def test_of_a_base_file_the_row_groups_with_rows_of_the_range_are_read(table: LsmTable) -> None:
    begin = _completed(table)[-1]
    _upsert(table, range(950, 960), 7)
    end = _completed(table)[-1]
    table.compact()
    scan = table.incremental(begin, None)
    assert scan.to_arrow()["ts"].to_pylist() == [7] * 10
    counts = scan.explain().counts
    assert (counts.row_groups, counts.by_values, counts.rows) == (10, 9, 100)
    assert table.incremental(begin, end).to_arrow().equals(scan.to_arrow())


def test_logs_below_a_log_compaction_stay_with_it(table: LsmTable) -> None:
    before = _completed(table)
    expected = [table.incremental(begin).to_arrow() for begin in before]
    compact_logs(table, every)
    assert [table.incremental(begin).to_arrow() for begin in before] == expected
