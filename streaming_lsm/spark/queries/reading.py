"""Read tables as Spark DataFrames.

There are two ways to the same rows: the data source ``streaming_lsm`` (`datasource.py`), for SQL and PySpark 4.0, and
the function `read`, for every version. The function is the faster one: Spark itself reads the slices without logs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow.compute as pc
import pyspark
from pyspark.sql import Column, DataFrame, SparkSession

from streaming_lsm.arrow.nullable import nullable_schema
from streaming_lsm.config import READ_NATIVE
from streaming_lsm.errors import ConfigError
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.query.cdc.changes import Changes
from streaming_lsm.query.plain_slices import plain_slices
from streaming_lsm.query.scan import Scan
from streaming_lsm.readable_table import ReadableTable
from streaming_lsm.spark.batch_writer import unwrapped_errors
from streaming_lsm.spark.queries.conditions import condition_of
from streaming_lsm.spark.queries.merged_scan import scan_parts
from streaming_lsm.spark.queries.parquet_scan import named_for_hadoop, scan_files
from streaming_lsm.spark.versions import HAS_PYTHON_DATA_SOURCE, spark_schema
from streaming_lsm.storage.failures import names_failures


def register(spark: SparkSession) -> None:
    """Register the data source ``streaming_lsm`` with a session; call it once after starting Spark.

    Raises:
        ConfigError: this version of PySpark has no Python data sources.
    """
    if not HAS_PYTHON_DATA_SOURCE:
        raise ConfigError(
            f"PySpark {pyspark.__version__} has no data sources in Python, which 4.0 introduced: read with "
            "streaming_lsm.read(spark, path)"
        )
    from streaming_lsm.spark.queries.datasource import LsmDataSource

    spark.dataSource.register(LsmDataSource)


@names_failures
def read(
    spark: SparkSession,
    path: str | os.PathLike[str],
    options: Mapping[str, object] | None = None,
    *,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | str | None = None,
) -> DataFrame:
    """Return a table, or what was written to it in a range of time, as a DataFrame.

    The file slices are listed now: actions on the DataFrame read the table as it is at this call. Slices without logs,
    on a file system, are read by Spark's own Parquet reader, the others through their merge. Conditions and selections
    that are added to the DataFrame reach the former only; `columns` and `filter` reach both.

    Args:
        spark: the session.
        path: the table's folder or URI.
        options: those under "Read" in docs/configuration.md, such as ``as.of.instant``.
        columns: the columns to return, in this order; by default those of the option ``lsm.read.columns``, or all.
        filter: see `LsmTable.scan`.

    Raises:
        LsmError: the table cannot be read; errors of files that are found later are raised by Spark.
    """
    return read_query(spark, ReadableTable(path, options), columns, filter)


def read_query(
    spark: SparkSession,
    table: ReadableTable,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | str | None = None,
) -> DataFrame:
    """Return what an open table's options describe as a DataFrame; see `read`."""
    query = table.query(columns, filter)
    with unwrapped_errors():
        if isinstance(query, Changes):
            return frame_of_changes(spark, query)
        return frame_of_scan(spark, query, native=table.options[READ_NATIVE])


def frame_of_changes(spark: SparkSession, query: Changes) -> DataFrame:
    """Return the result of a CDC query, each file group's changes by one write read by one task."""
    parts = list(query.parts())
    schema = spark_schema(nullable_schema(query.schema))
    return scan_parts(spark, parts, query.reader.read, schema, sum(part.size for part in parts))


def frame_of_scan(spark: SparkSession, scan: Scan, *, native: bool = True) -> DataFrame:
    """Return the result of a scan.

    Args:
        spark: the session.
        scan: without a limit.
        native: whether Spark's own reader reads the slices that it can.
    """
    scan.check()
    schema, storage = spark_schema(nullable_schema(scan.schema)), scan.reader.storage
    condition = None if scan.filter is None else condition_of(scan.filter, scan.reader.schema)
    is_converted = scan.filter is None or condition is not None
    is_native = native and is_converted and storage.is_file_system and scan.columns
    plain = named_for_hadoop(storage.uri, plain_slices(scan)) if is_native else []
    known = set(plain)
    merged = [found for found in scan.slices if found not in known]
    files = _files(spark, scan, plain, condition) if plain else None
    if files is not None and not merged:
        return files
    # A task has the slices that it reads, not all of them.
    rows = scan_parts(spark, merged, replace(scan, slices=()).read_slice, schema, sum(found.size for found in merged))
    return rows if files is None else files.unionAll(rows)


def _files(spark: SparkSession, scan: Scan, plain: Sequence[FileSlice], condition: Column | None) -> DataFrame:
    """Return the rows of slices that Spark's own reader reads."""
    stored = scan.reader.output_schema
    files = scan_files(spark, scan.reader.storage.uri, plain, spark_schema(nullable_schema(stored)))
    if condition is not None:
        files = files.where(condition)
    if tuple(stored.names) == scan.columns:  # each call of Java's objects takes a millisecond or more
        return files
    return files.select(*(f"`{name.replace('`', '``')}`" for name in scan.columns))
