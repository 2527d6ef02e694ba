"""Random histories of random tables: every query, run by Spark, shows the rows of an independent model."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streaming_lsm.query.cdc.changes import Changes
from streaming_lsm.query.scan import Scan
from streaming_lsm.spark.queries.reading import frame_of_changes, frame_of_scan
from tests.support.crash_points import random_cases
from tests.support.histories_model.running import Run
from tests.support.histories_model.steps import draw_history
from tests.support.spark_frames import arrow_of


@pytest.mark.parametrize("seed", range(random_cases(100, 6)))
def test_every_query_shows_the_rows_of_the_model(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    history = draw_history(seed)
    run = Run.begin(history, tmp_path / "table")
    run.collect, run.collect_changes = partial(collect, spark), partial(collect_changes, spark)
    run.all_steps()
    assert run.asked


def collect(spark: SparkSession, scan: Scan) -> pa.Table:
    return arrow_of(frame_of_scan(spark, scan))


def collect_changes(spark: SparkSession, changes: Changes) -> pa.Table:
    return arrow_of(frame_of_changes(spark, changes))
