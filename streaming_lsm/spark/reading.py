"""Read tables as Spark DataFrames, with one task for each file slice.

There are two ways to the same rows: the data source ``streaming_lsm`` (`datasource.py`), which needs PySpark 4.0, and
the function `read_table` for every version.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession

from streaming_lsm.errors import ConfigError
from streaming_lsm.spark.batch_writer import unwrapped_errors
from streaming_lsm.spark.versions import HAS_PYTHON_DATA_SOURCE, spark_schema
from streaming_lsm.storage.failures import named_failures, names_failures
from streaming_lsm.table import LsmTable


def register(spark: SparkSession) -> None:
    """Register the data source ``streaming_lsm`` with a session; call it once after starting Spark.

    Raises:
        ConfigError: this version of PySpark has no Python data sources.
    """
    if not HAS_PYTHON_DATA_SOURCE:
        raise ConfigError(
            f"PySpark {pyspark.__version__} has no data sources in Python, which 4.0 introduced: read with "
            "streaming_lsm.read_table(spark, path)"
        )
    from streaming_lsm.spark.datasource import LsmDataSource

    spark.dataSource.register(LsmDataSource)


@names_failures
def read_table(
    spark: SparkSession, path: str | os.PathLike[str], options: Mapping[str, object] | None = None
) -> DataFrame:
    """Return the snapshot of a table as a DataFrame, with one partition for each file slice.

    The file slices are listed now: actions on the DataFrame read the table as it is at this call.

    Args:
        spark: the session.
        path: the table's folder or ``file://`` URI.
        options: those under "Read" in docs/configuration.md, such as ``as.of.instant``.

    Raises:
        LsmError: the table cannot be read; errors of files that are found later are raised by Spark.
    """
    scan = LsmTable(path, options).scan()
    scan.check()
    slices = len(scan.slices)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in np.asarray(batch.column(0)).tolist():
                with named_failures():
                    yield from scan.read_slice(scan.slices[number])

    with unwrapped_errors():
        numbers = spark.range(0, slices, 1, max(1, slices))
        return numbers.mapInArrow(read, spark_schema(scan.schema))
