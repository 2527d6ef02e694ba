"""Spark reads every type that it wrote, by the data source and by the function."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming_lsm import LsmSink, LsmTable, read, register
from streaming_lsm.errors import ConfigError, CorruptFileError, TableNotFound
from streaming_lsm.spark.versions import HAS_PYTHON_DATA_SOURCE
from tests.support.lake import data_files
from tests.support.spark_frames import read_by_spark

COLUMNS = (
    "k STRING, b BOOLEAN, i INT, l LONG, f FLOAT, d DOUBLE, m DECIMAL(20, 3), y BINARY, t DATE, at TIMESTAMP, "
    "here TIMESTAMP_NTZ, a ARRAY<STRING>, p MAP<STRING, INT>, s STRUCT<x: INT, when: TIMESTAMP>"
)
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "types",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.bucket.index.num.buckets": 2,
    "lsm.writer.id": "w",
}


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[DataFrame, Path]:
    path = tmp_path_factory.mktemp("types") / "table"
    values = (
        True, 1, 2, 0.5, 0.25, Decimal("12.345"), b"\0\xff", MOMENT.date(), MOMENT, MOMENT, ["a", None],
        {"x": 1, "y": None}, (7, MOMENT),
    )  # fmt: skip
    rows = [(f"k{number}", *(values if number % 2 else [None] * len(values))) for number in range(20)]
    frame = spark.createDataFrame(rows, COLUMNS)
    LsmSink(path, OPTIONS)(frame, 0)
    return frame, path


@pytest.mark.parametrize("by", [read_by_spark, read])
def test_every_type_is_read_as_it_was_written(
    spark: SparkSession, written: tuple[DataFrame, Path], by: Callable[[SparkSession, str], DataFrame]
) -> None:
    frame, path = written
    found = by(spark, str(path))
    assert [(field.name, field.dataType) for field in found.schema] == [
        (field.name, field.dataType) for field in frame.schema
    ]
    assert found.orderBy("k").collect() == frame.orderBy("k").collect()
    assert found.where("i = 1").select("s.x").distinct().collect() == [(7,)]


def test_the_function_reads_one_slice_a_task_and_takes_the_options_of_reading(
    spark: SparkSession, written: tuple[DataFrame, Path]
) -> None:
    _, path = written
    (commit,) = LsmTable(path).timeline.completed_writes
    found = read(spark, path, {"as.of.instant": commit.requested, "lsm.read.meta": "true"})
    assert found.rdd.getNumPartitions() == len(LsmTable(path).file_slices()) == 2
    assert found.columns[0] == "_hoodie_commit_time"
    with pytest.raises(ConfigError, match=r"did you mean 'as\.of\.instant'"):
        read(spark, path, {"as.of.instnat": commit.requested})
    with pytest.raises(TableNotFound):
        read(spark, path.parent / "nothing")


def test_the_function_names_a_file_that_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    LsmSink(tmp_path / "table", OPTIONS)(spark.createDataFrame([("a", 1)], "k STRING, i INT"), 0)
    (file,) = data_files(str(tmp_path / "table"))
    whole = (tmp_path / "table" / file).read_bytes()
    frame = read(spark, tmp_path / "table")
    (tmp_path / "table" / file).write_bytes(whole[:-20])
    with pytest.raises(Exception, match=rf"{CorruptFileError.__name__}: .*{Path(file).name}"):
        frame.collect()


@pytest.mark.skipif(HAS_PYTHON_DATA_SOURCE, reason="PySpark 4.0 introduced data sources in Python")
def test_without_data_sources_the_error_names_the_function(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"read with streaming_lsm\.read\("):
        register(spark)
