"""What Spark alone does with the Parquet files of a table."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession


def consume(rows: DataFrame) -> None:
    """Compute every column of every row, and keep nothing."""
    rows.write.format("noop").mode("overwrite").save()


def read_files(spark: SparkSession, paths: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Some columns of all rows of the files."""
    return spark.read.parquet(*paths).select(*columns)
