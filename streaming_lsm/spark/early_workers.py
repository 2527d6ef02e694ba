"""Start Spark's Python workers while the rest of a query starts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import SparkSession

_STARTED: set[str] = set()
"""Applications of this process whose workers were started."""


def start_workers() -> None:
    """Let the Spark session of this process, if there is one, run an empty Python task in the background.

    The first task in Python waits seconds until its worker has imported what it needs; Spark's Java process is busy for
    as long with the start of the query. A worker that cannot be started is reported by the first batch.
    """
    with suppress(Exception):  # such as a session of Spark Connect, which runs no sink
        spark = SparkSession.getActiveSession()
        if spark is None or spark.sparkContext.applicationId in _STARTED:
            return
        _STARTED.add(spark.sparkContext.applicationId)
        threading.Thread(target=_start_one, args=(spark,), name="lsm-start-workers", daemon=True).start()


def _start_one(spark: SparkSession) -> None:
    with suppress(Exception):
        run_empty_task(spark)


def run_empty_task(spark: SparkSession) -> None:
    """Run a task in Python that does nothing."""
    spark.range(0, 1, 1, 1).mapInArrow(_nothing, "nothing int").collect()


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())
