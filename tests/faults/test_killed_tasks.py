"""SIGKILL of Python workers and executors at chosen points of a stream."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.oracle.validator import validate
from tests.support.cluster import await_executors, stages
from tests.support.lake import OrdersLake
from tests.support.task_faults import CREATE, FINISHED, MARKER, MIDDLE, ROWS, Blow, Fault, claimed, struck

POINTS = (ROWS, MARKER, CREATE, MIDDLE, FINISHED)
TWO_STAGES = {"lsm.write.shuffle.partitions": 2, "lsm.write.exchange": "shuffle"}
AS_READ = {"lsm.write.shuffle.partitions": 2, "lsm.write.exchange": "none"}


@pytest.fixture(autouse=True)
def both_executors(spark: SparkSession) -> None:
    """Without the second executor all of a batch would be on the one that a fault leaves alive."""
    await_executors(spark)


# The other task has not finished when the first one comes to its marker: it needs what the killed executor has sent.
OTHERS = Fault("others", 1, None, MARKER, Blow.OTHERS)


def stage_attempts(spark: SparkSession) -> int:
    """How many stages Spark has run again."""
    return sum(stage.attemptId() > 0 for stage in stages(spark))


def executors(folder: Path) -> int:
    """How many executors there have been so far."""
    return len(list((folder / "spark" / "work").glob("app-*/*")))


@pytest.mark.timeout(900)
def test_twenty_killed_workers_and_five_killed_executors_lose_and_repeat_nothing(
    spark: SparkSession, tmp_path: Path, cluster_folder: Path
) -> None:
    workers = [
        Fault(f"worker-{number}", number // 2, task, point, Blow.WORKER)
        for number, (point, task) in enumerate([*product(POINTS, (0, 1))] * 2)
    ]
    killed = [Fault(f"executor-lost-{point}", 10 + n, n % 2, point, Blow.EXECUTOR) for n, point in enumerate(POINTS)]
    before = executors(cluster_folder)
    lake = OrdersLake(spark, tmp_path, TWO_STAGES)
    lake.produce(*range(32))
    with struck(tmp_path / "faults", [*workers, *killed]):
        lake.run()
    assert claimed(tmp_path / "faults") == {fault.name for fault in [*workers, *killed]}
    assert executors(cluster_folder) - before == 5
    lake.check(batches=16)


def test_workers_of_small_batches_are_killed_and_replaced(spark: SparkSession, tmp_path: Path) -> None:
    faults = [Fault(point, number, 0, point, Blow.WORKER, nth=2) for number, point in enumerate(POINTS[1:], start=1)]
    lake = OrdersLake(spark, tmp_path)
    lake.produce(*range(6))
    with struck(tmp_path / "faults", faults):
        lake.run(files=1)
    assert claimed(tmp_path / "faults") == set(POINTS[1:])
    lake.check(batches=6)


@pytest.mark.parametrize("options", [TWO_STAGES, AS_READ], ids=["exchanged", "written-as-read"])
@pytest.mark.parametrize("point", [MIDDLE, FINISHED])
def test_a_task_that_fails_once_is_tried_again(
    spark: SparkSession, tmp_path: Path, point: str, options: dict[str, object]
) -> None:
    lake = OrdersLake(spark, tmp_path, options)
    lake.produce(0, 1)
    with struck(tmp_path / "faults", [Fault("once", 0, 1, point, Blow.FAIL)]):
        lake.run()
    assert claimed(tmp_path / "faults") == {"once"}
    lake.check(batches=1)


def test_a_batch_whose_shuffle_is_lost_is_read_again(spark: SparkSession, tmp_path: Path) -> None:
    lake = OrdersLake(spark, tmp_path, TWO_STAGES)
    lake.produce(0, 1, 2, 3)
    before = stage_attempts(spark)
    with struck(tmp_path / "faults", [OTHERS]):
        lake.run()
    assert claimed(tmp_path / "faults") == {"others"}
    assert stage_attempts(spark) > before, "no stage was run again"
    lake.check(batches=2)


def spread_twice(events: DataFrame) -> DataFrame:
    """Rows in turns to three tasks, and from those to four; a column in between keeps Spark from making it one."""
    return events.repartition(3).withColumn("qty", F.col("qty") + 0 * F.spark_partition_id()).repartition(4)


def run_or_refuse(lake: OrdersLake) -> str:
    """Run the stream; the error that it ends with."""
    try:
        lake.run(prepared=spread_twice)
    except StreamingQueryException as error:
        return str(error)
    return ""


@pytest.mark.parametrize("sorts", ["true", "false"], ids=["same-rows-again", "other-rows-again"])
def test_rows_are_right_whether_spark_repeats_or_refuses_a_batch(
    spark: SparkSession, tmp_path: Path, sorts: str
) -> None:
    # Unless Spark sorts what it hands out in turns, every attempt hands out other rows. Even then they come in another
    # order, so that Spark may take what is sent to the task that writes for other rows.
    setting = "spark.sql.execution.sortBeforeRepartition"
    lake = OrdersLake(spark, tmp_path, TWO_STAGES)
    lake.produce(*range(6))
    before = stage_attempts(spark)
    spark.conf.set(setting, sorts)
    try:
        with struck(tmp_path / "faults", [OTHERS]):
            refusal = run_or_refuse(lake)
        assert lake.batches() == ([0] if refusal else [0, 1, 2])
        assert "indeterminate output was failed and retried" in refusal or not refusal
        assert validate(lake.path) == []
        assert run_or_refuse(lake) == ""
    finally:
        spark.conf.unset(setting)
    assert claimed(tmp_path / "faults") == {"others"}
    assert stage_attempts(spark) > before, "no stage was run again"
    lake.check(batches=3)
