"""Hold every difference between the supported versions of PySpark, 3.5 to 4.3.

| version | difference |
| --- | --- |
| 4.0 | DataFrames from Arrow tables; data sources in Python; a limit for the bytes of a transfer to Python workers; |
| | `StructType.fromDDL`; reports of progress as objects; Java 17 |
| 4.2 | `to_arrow_schema` takes the time zone; Java 25 |

Compared are the first two numbers of the installed version, since releases of vendors change the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructType, _parse_datatype_string

from streaming_lsm.errors import ConfigError, MissingPackage
from streaming_lsm.spark.jvm.java import Releases

ROWS_LIMIT = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES_LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"

Version = tuple[int, int]


def parse_version(text: str) -> Version:
    """Return the first two numbers of a version of PySpark: ``4.1.0.dev3`` is (4, 1).

    Raises:
        ConfigError: there are no such numbers, or the version is older than 3.5.
    """
    numbers = re.match(r"(\d+)\.(\d+)", text)
    found = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    if found < (3, 5):
        raise ConfigError(f"PySpark {text} is not supported: install 3.5 or later")
    return found


SPARK: Version = parse_version(pyspark.__version__)
"""First two numbers of the installed version of PySpark."""

if SPARK < (4, 0) and find_spec("distutils") is None:
    raise MissingPackage(
        f"PySpark {pyspark.__version__} needs the package distutils, which Python 3.12 removed and setuptools has: "
        "pip install setuptools, or PySpark 4.0 or later",
        name="distutils",
    )

HAS_PYTHON_DATA_SOURCE = SPARK >= (4, 0)


def java_releases(spark: Version = SPARK) -> Releases:
    """Return the releases of Java that a version of PySpark runs on."""
    if spark < (4, 0):
        return Releases(8, 17)
    return Releases(17, 21) if spark < (4, 2) else Releases(17)


def parse_ddl(text: str) -> DataType:
    """Parse columns in Spark DDL; a session must be running.

    Returns:
        A `StructType`, or another type if `text` names a type and no columns.

    Raises:
        PySparkException: `text` is not Spark DDL.
    """
    return StructType.fromDDL(text) if SPARK >= (4, 0) else _parse_datatype_string(text)


def arrow_schema(columns: StructType) -> pa.Schema:
    """Convert Spark's columns to Arrow; a ``TIMESTAMP`` is in UTC.

    Raises:
        PySparkException: a column's type has no Arrow type.
    """
    return to_arrow_schema(columns) if SPARK < (4, 2) else to_arrow_schema(columns, timezone="UTC")


def spark_schema(columns: pa.Schema) -> StructType:
    """Convert Arrow columns to Spark's; a timestamp without a zone is a ``TIMESTAMP_NTZ``."""
    return from_arrow_schema(columns, prefer_timestamp_ntz=True)


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Create a DataFrame of few rows, such as one for each task; the order of the rows is kept.

    PySpark 3.5 takes no Arrow table, and serializes row by row.
    """
    if SPARK >= (4, 0):
        return spark.createDataFrame(rows)
    tuples = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    return spark.createDataFrame(tuples, spark_schema(rows.schema), verifySchema=False)


def limits_bytes(spark: SparkSession) -> bool:
    """Tell whether Spark limits the bytes of a transfer to a Python worker, not only its rows."""
    try:
        # A default given here would be returned for a setting that has only Spark's own.
        return bool(spark.conf.get(BYTES_LIMIT))
    except (PySparkException, Py4JJavaError):
        return False


def progress_of(report: Any) -> Mapping[str, Any]:
    """Return Spark's report of a batch as parsed JSON. PySpark 3.5 has it as a dict, later ones as an object."""
    text = getattr(report, "json", None)
    found: Mapping[str, Any] = report if text is None else json.loads(text)
    return found
