"""SIGKILL of Python workers and executors at chosen points of a stream."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.lake import OrdersLake
from tests.support.task_faults import CREATE, FINISHED, MARKER, MIDDLE, ROWS, Blow, Fault, claimed, struck

POINTS = (ROWS, MARKER, CREATE, MIDDLE, FINISHED)
TWO_STAGES = {"lsm.write.shuffle.partitions": 2}


def stage_attempts(spark: SparkSession) -> int:
    """How many stages Spark has run again."""
    context: Any = spark.sparkContext
    empty = context._jvm.java.util.ArrayList()
    doubles = context._gateway.new_array(context._jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(empty, False, False, doubles, empty)
    return sum(stages.apply(number).attemptId() > 0 for number in range(stages.size()))


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


@pytest.mark.parametrize("point", [MIDDLE, FINISHED])
def test_a_task_that_fails_once_is_tried_again(spark: SparkSession, tmp_path: Path, point: str) -> None:
    lake = OrdersLake(spark, tmp_path, TWO_STAGES)
    lake.produce(0, 1)
    with struck(tmp_path / "faults", [Fault("once", 0, 1, point, Blow.FAIL)]):
        lake.run()
    assert claimed(tmp_path / "faults") == {"once"}
    lake.check(batches=1)


def test_a_batch_whose_shuffle_is_lost_is_read_again(spark: SparkSession, tmp_path: Path) -> None:
    lake = OrdersLake(spark, tmp_path, TWO_STAGES)
    lake.produce(0, 1, 2, 3)
    before = stage_attempts(spark)
    with struck(tmp_path / "faults", [Fault("others", 1, 0, MARKER, Blow.OTHERS)]):
        lake.run()
    assert claimed(tmp_path / "faults") == {"others"}
    assert stage_attempts(spark) > before, "no stage was run again"
    lake.check(batches=2)
