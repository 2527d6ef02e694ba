"""A copy of a slow task wins; what the slow one writes later is nobody's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming_lsm import LsmTable
from streaming_lsm.spark.batch_writer import BatchResult
from tests.support.cluster import cluster, two_hosts
from tests.support.lake import OrdersLake, data_files
from tests.support.task_faults import CREATE, FINISHED, MARKER, MIDDLE, Blow, Fault, hung, struck

SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    # Else Spark ends the worker of the slow task before it can do any harm.
    "spark.python.task.killTimeout": "60s",
}


@pytest.fixture(scope="module")
def spark(cluster_folder: Path) -> Iterator[SparkSession]:
    with two_hosts(cluster_folder) as address, cluster(cluster_folder, SETTINGS, master=address) as session:
        yield session


def wait_until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def late_worker(faults: Path) -> Path:
    """Is there for as long as the worker of the slow task is."""
    return Path("/proc", str(hung(faults)))


@pytest.mark.parametrize("exchange", ["shuffle", "none"])
@pytest.mark.parametrize("point", [MARKER, CREATE, MIDDLE, FINISHED])
def test_what_a_late_task_writes_before_the_commit_is_removed(
    spark: SparkSession, tmp_path: Path, point: str, exchange: str
) -> None:
    faults, strange = tmp_path / "faults", set()
    lake = OrdersLake(spark, tmp_path, {"lsm.write.shuffle.partitions": 2, "lsm.write.exchange": exchange})
    lake.produce(0, 1)

    def release(batch: int, done: BatchResult) -> None:
        listed = {stat.path for stat in done.written.stats}
        (faults / "release").touch()
        wait_until(lambda: not late_worker(faults).exists(), "the late task does not end")
        strange.update(data_files(lake.path) - listed)

    with struck(faults, [Fault("slow", 0, 0, point, Blow.HANG)], afterwards=release):
        lake.run()
    assert strange, "there was no late file to be removed"
    lake.check(batches=1)


@pytest.mark.parametrize("point", [MARKER, MIDDLE, FINISHED])
def test_a_task_that_ends_after_the_commit_leaves_nothing(spark: SparkSession, tmp_path: Path, point: str) -> None:
    faults = tmp_path / "faults"
    lake = OrdersLake(spark, tmp_path, {"lsm.write.shuffle.partitions": 2, "lsm.write.exchange": "shuffle"})
    lake.produce(0, 1)
    with struck(faults, [Fault("slow", 0, 0, point, Blow.HANG)]):
        lake.run()
    listed = {path for found in LsmTable(lake.path).file_slices() for path in found.paths}
    assert late_worker(faults).exists(), "the late task is gone already"
    (faults / "release").touch()
    wait_until(lambda: not late_worker(faults).exists(), "the late task does not end")
    assert data_files(lake.path) == listed
    # A marker may still have appeared, of no file; the next write removes it.
    lake.produce(2)
    lake.run()
    lake.check(batches=2)
