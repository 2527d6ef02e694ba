"""Read slices through their merge, or the changes of writes, in tasks of Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from streaming_lsm.spark.queries.worker_errors import told_in_one_line

T = TypeVar("T")
_PARTITION_BYTES = 128 << 20
_SMALL_PARTITION_BYTES = 8 << 20
"""A task costs what the reading of so many bytes does."""


def scan_parts(
    spark: SparkSession,
    parts: Sequence[T],
    read: Callable[[T], Iterator[pa.RecordBatch]],
    schema: StructType,
    size: int,
) -> DataFrame:
    """Return the rows of some parts of a query, each of which one task reads.

    As a rule there are four tasks for each core, or more so that a task reads 128 MiB. Of few bytes there are fewer, so
    that a task reads 8 MiB, but one for each core, and never more than parts.

    Args:
        spark: the session.
        parts: what `read` takes; pickled one by one, so that a task reads its own only.
        read: yields the rows of a part.
        schema: the columns of the rows.
        size: bytes of the files of all parts.
    """
    pickled = [pickle.dumps(part) for part in parts]
    cores = spark.sparkContext.defaultParallelism
    tasks = max(cores, min(4 * cores, size // _SMALL_PARTITION_BYTES), size // _PARTITION_BYTES)

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in np.asarray(batch.column(0)).tolist():
                with told_in_one_line():
                    yield from read(pickle.loads(pickled[number]))

    numbers = spark.range(0, len(parts), 1, max(1, min(len(parts), tasks)))
    return numbers.mapInArrow(rows, schema)
