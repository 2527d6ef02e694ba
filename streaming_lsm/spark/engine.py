"""Run independent tasks, such as the operations of a compaction, on Spark's executors."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming_lsm.spark.batch_writer import unwrapped_errors
from streaming_lsm.spark.hash_partitioning import repartitioned_by_id
from streaming_lsm.spark.versions import frame_of
from streaming_lsm.storage.failures import named_failures

T = TypeVar("T")
R = TypeVar("R")

_TASKS_A_CORE = 4
"""Spark tasks for each core. Several even out items of different size; each costs some milliseconds."""


@dataclass(frozen=True)
class SparkEngine:
    """Runs tasks on executors; implements `streaming_lsm.services.context.Engine`.

    Attributes:
        spark: the session that runs the tasks.
    """

    spark: SparkSession

    @property
    def width(self) -> int:
        """Number of tasks that run at a time."""
        return int(self.spark.sparkContext.defaultParallelism)

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Run `task` on each item and return the results in the order of `items`, after all tasks have ended.

        Task, items and results are pickled.

        Raises:
            LsmError: the error that the failed task raised.
        """
        numbered = list(enumerate(items))
        if not numbered:
            return iter(())
        called = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            work = pickle.loads(called)
            for batch in batches:
                for number, item in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    with named_failures():
                        result = pa.array([pickle.dumps(work(pickle.loads(item)))], pa.binary())
                    yield pa.record_batch([pa.array([number], pa.int32()), result], names=["number", "result"])

        numbers = pa.array([number for number, _ in numbered], pa.int32())
        pickled = pa.array([pickle.dumps(item) for _, item in numbered], pa.binary())
        frame = frame_of(self.spark, pa.table({"number": numbers, "item": pickled}))
        tasks = min(len(numbered), _TASKS_A_CORE * self.width)
        frame = repartitioned_by_id(frame, tasks, F.col("number") % tasks)
        with unwrapped_errors():
            rows = frame.mapInArrow(run, "number int, result binary").collect()
        return iter([pickle.loads(row.result) for row in sorted(rows, key=lambda row: row.number)])
