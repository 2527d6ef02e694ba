"""DataFrames to Arrow tables, and tables as DataFrames, in every version of PySpark."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from streaming_lsm import read
from streaming_lsm.spark.versions import HAS_PYTHON_DATA_SOURCE


def arrow_of(frame: DataFrame) -> pa.Table:
    """The rows of a DataFrame, as `DataFrame.toArrow` of PySpark 4.0 returns them."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    return pa.Table.from_batches(frame._collect_as_arrow())


def read_by_spark(spark: SparkSession, path: str, **options: str) -> DataFrame:
    """The snapshot of a table by the data source, where PySpark has data sources in Python, else by the function."""
    if HAS_PYTHON_DATA_SOURCE:
        return spark.read.format("streaming_lsm").options(**options).load(path)
    return read(spark, path, options)
