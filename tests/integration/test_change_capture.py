"""A stream into a table with change data capture: Spark reads the changes that Python reads, across compactions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from streaming_lsm import LsmSink, LsmTable, read
from tests.oracle.validator import validate
from tests.support.small_tables import OPTIONS as TABLE

ROWS = "id string, country string, ts long, qty int, _lsm_delete boolean"
CDC = {
    "hoodie.datasource.query.type": "incremental",
    "hoodie.datasource.query.incremental.format": "cdc",
    "hoodie.datasource.read.begin.instanttime": "000",
}


def _values(row: Row | dict[str, object] | None) -> tuple[object, ...] | None:
    return None if row is None else tuple(row[name] for name in ("id", "country", "ts", "qty"))


@pytest.mark.parametrize("mode", ["OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER"])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_stream_captures_its_changes(spark: SparkSession, tmp_path: Path, table_type: str, mode: str) -> None:
    options = {
        **TABLE,
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.table.cdc.enabled": True,
        "hoodie.table.cdc.supplemental.logging.mode": mode,
        "hoodie.compact.inline": True,
        "hoodie.compact.inline.max.delta.commits": 2,
        "lsm.writer.id": "test",
        "lsm.write.shuffle.partitions": 2,
    }
    path = tmp_path / "t"
    sink = LsmSink(path, options)
    for number in range(5):
        rows = [(f"k{n}", "DE", 10 * number + n % 30, n, n % 9 == number) for n in range(10 * number, 10 * number + 40)]
        sink(spark.createDataFrame(rows, ROWS), number)
    table = LsmTable(path)
    writes = [table.timeline.read_commit(write) for write in table.timeline.completed_writes]
    assert any(stat.cdc_files for write in writes for stat in write.stats)
    expected = [
        (row["op"], row["ts_ms"], _values(row["before"]), _values(row["after"]))
        for row in table.changes("000").to_arrow().to_pylist()
    ]
    found = [
        (row["op"], row["ts_ms"], _values(row["before"]), _values(row["after"]))
        for row in read(spark, path, CDC).collect()
    ]
    assert Counter(found) == Counter(expected)
    state: dict[object, tuple[object, ...]] = {}
    for _, _, before, after in sorted(expected, key=lambda change: change[1]):
        assert before is None or state.pop(before[0]) == before
        if after is not None:
            assert after[0] not in state
            state[after[0]] = after
    assert sorted(state.values()) == sorted(map(_values, table.scan().to_arrow().to_pylist()))
    assert validate(str(path)) == []
