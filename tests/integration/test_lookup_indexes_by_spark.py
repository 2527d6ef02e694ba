"""Tasks of Spark that look keys up write the rows that one task writes, however a batch is split."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming_lsm import LsmSink, LsmTable
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.small_tables import OPTIONS as TABLE
from tests.support.small_tables import SCHEMA, rows, shown

ROWS = "id string, country string, ts long, qty int, _lsm_delete boolean"
FIXED = {key: value for key, value in TABLE.items() if "bucket" not in key}


def frame(spark: SparkSession, batch: int, tasks: int) -> DataFrame:
    """Rows of which each task has some that others have, too, in two partitions."""
    parts = [
        [(f"k{n}", "DE" if n % 3 else "FR", 100 * batch + task, n + task, batch > 0 and n % 11 == 0)
         for n in range(100 * batch, 100 * batch + 300, task + 1)]
        for task in range(tasks)
    ]  # fmt: skip
    return spark.createDataFrame(spark.sparkContext.parallelize(parts, tasks).flatMap(list), ROWS)


@pytest.mark.parametrize(
    ("index", "version", "kind"),
    [
        ("SIMPLE", 10, "MERGE_ON_READ"),
        ("SIMPLE", 9, "MERGE_ON_READ"),
        ("SIMPLE", 10, "COPY_ON_WRITE"),
        ("GLOBAL_BLOOM", 10, "MERGE_ON_READ"),
        ("RECORD_INDEX", 10, "MERGE_ON_READ"),
    ],
)
def test_rows_are_the_same_by_one_task_and_by_several(
    spark: SparkSession, tmp_path: Path, index: str, version: int, kind: str
) -> None:
    table: dict[str, object] = {
        **FIXED,
        "hoodie.index.type": index,
        "hoodie.write.table.version": version,
        "hoodie.datasource.write.table.type": kind,
        "lsm.writer.id": "test",
    }
    found = {}
    for tasks in (1, 3):
        sink = LsmSink(tmp_path / str(tasks), {**table, "lsm.write.shuffle.partitions": tasks})
        for number in range(3):
            sink(frame(spark, number, 3), number)
        found[tasks] = shown(LsmTable(tmp_path / str(tasks)))
        keys = [row[:2] for row in found[tasks]]
        assert len(set(keys)) == len(keys)
        if kind == "MERGE_ON_READ" and version == 10:
            assert validate(str(tmp_path / str(tasks))) == []
            found_rows = read_snapshot(tmp_path / str(tasks)).select(SCHEMA.names).to_pandas().to_numpy()
            assert sorted(map(tuple, found_rows)) == found[tasks]
    assert found[1] == found[3]
    assert len(found[1]) > 300


def test_rows_move_as_they_came_where_memory_does_not_hold_those_of_a_task(spark: SparkSession, tmp_path: Path) -> None:
    """Senders sort by partition first, so that the last event of a key may come first."""
    sink = LsmSink(
        tmp_path,
        {
            **{key: value for key, value in FIXED.items() if "ordering" not in key},
            "hoodie.index.type": "RECORD_INDEX",
            "hoodie.record.index.update.partition.path": True,
            "lsm.write.buffer.bytes": 1 << 20,
            "lsm.write.shuffle.partitions": 2,
            "lsm.writer.id": "test",
        },
    )
    # The first row makes FR the first partition.
    batch = spark.range(0, 16_001, 1, 2).selectExpr(
        "concat('key-', lpad(cast((id + 1) div 2 as string), 6, '0'), repeat('x', 50)) id",
        "case when id % 2 = 0 then 'FR' else 'DE' end country",
        "id ts",
        "cast(id % 2 as int) qty",
    )
    sink(batch, 0)
    assert sink.numbers(0).spilled_bytes > 0  # type: ignore[union-attr]
    found = LsmTable(tmp_path).scan(columns=["id", "country", "qty"]).to_arrow()
    assert found.num_rows == len(found["id"].unique()) == 8001
    assert set(found["country"].to_pylist()) == {"FR"}
    assert set(found["qty"].to_pylist()) == {0}


@pytest.mark.parametrize("tasks", [1, 3])
def test_rows_that_stay_in_another_partition_are_found_by_its_column(
    spark: SparkSession, tmp_path: Path, tasks: int
) -> None:
    options: dict[str, object] = {**FIXED, "hoodie.index.type": "RECORD_INDEX", "lsm.writer.id": "test"}
    sink = LsmSink(tmp_path, {**options, "lsm.write.shuffle.partitions": tasks})
    sink(frame(spark, 0, 3), 0)
    by_country = pc.field("country") == "DE"
    assert LsmTable(tmp_path).scan(filter=by_country).explain().skipped.partitions == 1
    moved = [(f"k{n}", "DE", 1000, 0, False) for n in (0, 3, 6)]
    sink(spark.createDataFrame(moved, ROWS).repartition(3), 1)
    found = LsmTable(tmp_path).scan(filter=by_country)
    assert {"k0", "k3", "k6"} <= set(found.to_arrow()["id"].to_pylist())
    assert found.explain().skipped.partitions == 0


@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_SIMPLE"])
def test_upserts_and_deletes_meet_all_rows_of_a_key_that_was_inserted_again(
    spark: SparkSession, tmp_path: Path, index: str
) -> None:
    options: dict[str, object] = {**FIXED, "hoodie.index.type": index, "hoodie.parquet.small.file.limit": 0}
    table = LsmTable.create(tmp_path, SCHEMA, options)
    for _ in range(2):
        table.insert(rows(*((f"k{n}", "DE", 1, 1) for n in range(40))))
    sink = LsmSink(tmp_path, {**options, "lsm.writer.id": "test", "lsm.write.shuffle.partitions": 3})
    events = [(f"k{n}", "DE", 2, 2, n % 2 == 0) for n in range(20)]
    sink(spark.createDataFrame(events, ROWS).repartition(3), 0)
    left = [(f"k{n}", "DE", 2, 2) if n < 20 else (f"k{n}", "DE", 1, 1) for n in range(40) if n >= 20 or n % 2]
    assert shown(LsmTable(tmp_path)) == sorted(left * 2)
