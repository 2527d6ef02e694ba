"""Tasks on executors: the order of results, our own errors, and a compaction spread over them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.service_job.stopping import Stop, StoppableEngine
from streaming_lsm.services.context import EngineStopped
from streaming_lsm.services.plan_worker import PutBack
from streaming_lsm.spark.early_workers import run_empty_task
from streaming_lsm.spark.engine import SparkEngine
from streaming_lsm.spark.service_engine import ServiceEngine
from streaming_lsm.spark.versions import SPARK, limits_bytes
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.service_tables import assert_sound, grow, grown, reopened

T = TypeVar("T")
R = TypeVar("R")


def test_results_come_in_the_order_of_the_items(spark: SparkSession) -> None:
    assert list(SparkEngine(spark).map(lambda number: number * number, range(7))) == [n * n for n in range(7)]
    assert list(SparkEngine(spark).map(lambda number: number, [])) == []


def test_workers_begin_with_the_package_imported_and_an_installed_pyspark(spark: SparkSession) -> None:
    def begun(_: int) -> tuple[bool, str]:
        return "streaming_lsm.write.partition_writer" in sys.modules, str(sys.modules["pyspark"].__file__)

    for imported, origin in spark.sparkContext.parallelize(range(2), 2).map(begun).collect():
        assert imported
        assert ".zip" not in origin


def test_an_error_of_ours_arrives_as_itself(spark: SparkSession) -> None:
    def fail(path: str) -> None:
        raise CorruptFileError(f"{path}: restore the file")

    with pytest.raises(CorruptFileError, match=r"^some/file: restore the file$"):
        list(SparkEngine(spark).map(fail, ["some/file"]))


def test_executors_compact_a_table(spark: SparkSession, tmp_path: Path) -> None:
    options = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.bucket.index.num.buckets": 3,
    }
    schema = pa.schema([("id", pa.string()), ("value", pa.int64())])
    table = LsmTable.create(tmp_path / "table", schema, options)
    for step in range(3):
        numbers = range(step * 50, step * 50 + 100)
        table.upsert(pa.table({"id": [str(n) for n in numbers], "value": [n + step for n in numbers]}, schema=schema))
    before = table.scan().to_arrow()
    completed = table.compact(SparkEngine(spark))
    assert completed is not None
    assert [len(found.logs) for found in table.file_slices()] == [0, 0, 0]
    assert len({found.base.name.token for found in table.file_slices() if found.base}) == 3, "not spread over tasks"
    assert table.scan().to_arrow() == before
    assert read_snapshot(str(tmp_path / "table")).num_rows == before.num_rows
    assert validate(str(tmp_path / "table")) == []


def test_executors_delete_the_files_of_a_clean(spark: SparkSession, tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    table.compact()
    grow(table, model, 3)
    cleaning = reopened(table, None, **{"hoodie.clean.commits.retained": 1})
    old = [f"{path}/{name}" for path, names in cleaning.services.preview_clean().files.items() for name in names]
    (cleaned,) = cleaning.services.cleaning_worker(SparkEngine(spark)).look()
    assert cleaned.files == len(old) > 0
    assert not any(table.storage.exists(path) for path in old)
    assert_sound(table, model)


def test_a_compaction_on_executors_is_put_back_when_the_grace_of_its_job_is_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, model = grown(tmp_path)
    planned, _ = table.services.schedule()
    assert planned is not None
    stop = Stop(grace_s=0.1)

    class Held(ServiceEngine):
        """Its tasks do not end by themselves."""

        def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
            def hold(item: T) -> R:
                time.sleep(600)
                return task(item)

            threading.Timer(1.0, stop.request).start()
            return super().map(hold, items)

    engine = Held(SparkEngine(spark))
    begun = time.monotonic()
    looking = table.services.compaction_worker(StoppableEngine(engine, stop, engine.cancel)).look()
    assert next(looking) == PutBack(planned)
    with pytest.raises(EngineStopped):
        next(looking)
    assert time.monotonic() - begun < 300
    assert_sound(table, model)
    assert table.compact(SparkEngine(spark)) is not None
    assert_sound(table, model)


def test_a_python_worker_starts_before_there_is_a_batch(spark: SparkSession) -> None:
    jobs = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("early", "start of a worker")
    run_empty_task(spark)
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    (job,) = jobs.getJobIdsForGroup("early")
    # Spark hears of the end of a job some time after the job has returned.
    deadline = time.monotonic() + 60
    while (found := jobs.getJobInfo(job)) is not None and found.status == "RUNNING" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found is not None
    assert found.status == "SUCCEEDED"


def test_spark_says_whether_it_limits_the_bytes_of_a_transfer(spark: SparkSession) -> None:
    assert limits_bytes(spark) == (SPARK >= (4, 0)), "its own default counts"
