"""What Spark alone does first in a process: a batch of a stream of files, appended, and a read of a table."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType


def stream_once(
    spark: SparkSession, source: str, schema: StructType, checkpoint: str, write: Callable[[DataFrame, int], None]
) -> None:
    """Write the files of a folder by ``foreachBatch``, all as one batch."""
    stream = spark.readStream.schema(schema).parquet(source)
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def total(rows: DataFrame) -> int:
    """Read a column of all rows, and add it up."""
    (found,) = rows.agg(F.sum("qty")).collect()
    return int(found[0])
