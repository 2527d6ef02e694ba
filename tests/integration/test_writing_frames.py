"""A DataFrame outside of a stream is written as a batch is: one commit, one task per file group."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming_lsm import ConfigError, LsmTable, RecordError, read, write_frame
from streaming_lsm.spark.versions import HAS_PYTHON_DATA_SOURCE

COLUMNS = "id STRING, ts LONG, qty INT"
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 3,
}


def rows_of(path: Path) -> list[tuple[object, ...]]:
    found = LsmTable(path).scan().to_arrow().sort_by("id")
    return [tuple(row.values()) for row in found.to_pylist()]


def test_frames_are_upserted_and_deleted_each_as_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    frame = spark.createDataFrame([(f"k{number}", 1, number) for number in range(9)], COLUMNS).repartition(4)
    write_frame(frame, path, OPTIONS)
    write_frame(spark.createDataFrame([("k1", 2, 10), ("k2", 0, 10), ("k9", 1, 10)], COLUMNS), path, OPTIONS)
    deleted = spark.createDataFrame([("k8", 2)], "id STRING, ts LONG")
    write_frame(deleted, path, OPTIONS | {"hoodie.datasource.write.operation": "delete"})
    changed = {"k1": (2, 10), "k9": (1, 10)}
    assert rows_of(path) == [(f"k{number}", *changed.get(f"k{number}", (1, number))) for number in (*range(8), 9)]
    assert len(LsmTable(path).timeline.completed_writes) == 3


def test_a_table_is_written_from_a_read_of_itself(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_frame(spark.createDataFrame([("a", 1, 1), ("b", 1, 2)], COLUMNS), path, OPTIONS)
    write_frame(read(spark, path).selectExpr("id", "ts + 1 AS ts", "qty * 10 AS qty"), path, OPTIONS)
    assert rows_of(path) == [("a", 2, 10), ("b", 2, 20)]


def test_a_batch_id_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    path, frame = tmp_path / "t", spark.createDataFrame([("a", 1, 1)], COLUMNS)
    named = OPTIONS | {"lsm.writer.id": "nightly"}
    for _ in range(2):
        write_frame(frame, path, named, batch_id=7)
    assert len(LsmTable(path).timeline.completed_writes) == 1
    with pytest.raises(ConfigError, match=r"lsm\.writer\.id"):
        write_frame(frame, path, OPTIONS, batch_id=8)


def test_bad_rows_are_refused_and_nothing_is_written(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_frame(spark.createDataFrame([("a", 1, 1)], COLUMNS), path, OPTIONS)
    with pytest.raises(RecordError, match="id"):
        write_frame(spark.createDataFrame([("b", 1, 1), (None, 1, 1)], COLUMNS), path, OPTIONS)
    dead = OPTIONS | {"lsm.on.bad.event": "dead_letter", "lsm.dead.letter.path": str(tmp_path / "dead")}
    with pytest.raises(ConfigError, match="dead_letter needs a batch id"):
        write_frame(spark.createDataFrame([("b", 1, 1)], COLUMNS), path, dead)
    assert rows_of(path) == [("a", 1, 1)]


@pytest.mark.skipif(not HAS_PYTHON_DATA_SOURCE, reason="PySpark 4.0 introduced data sources in Python")
def test_the_data_source_names_the_function_that_writes(spark: SparkSession, tmp_path: Path) -> None:
    write_frame(spark.createDataFrame([("a", 1, 1)], COLUMNS), tmp_path / "t", OPTIONS)
    with pytest.raises(Exception, match=r"write with streaming_lsm\.write_frame\(df, path, options\)"):
        read(spark, tmp_path / "t").write.format("streaming_lsm").mode("append").save(str(tmp_path / "t"))
