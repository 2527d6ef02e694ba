"""Read base files by Spark's own vectorised Parquet reader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from streaming_lsm.file_group.file_system_view import FileSlice

_PATTERN = re.compile(r"[\\{}\[\]*?]")
"""Characters that Hadoop reads as a pattern of file names."""
_LISTED_BY_TASKS = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_NO_MORE = str(2**31 - 1)
_LISTED_BY_DRIVER = 32
"""Files that the driver looks up by Spark's default."""


def named_for_hadoop(table_uri: str, slices: Iterable[FileSlice]) -> list[FileSlice]:
    """Return the slices whose base file Hadoop finds: in a path that is a pattern a colon ends a scheme."""
    paths = ((found, f"{_root(table_uri)}/{found.base.path}") for found in slices if found.base)
    return [found for found, path in paths if ":" not in path or _PATTERN.search(path) is None]


def scan_files(spark: SparkSession, table_uri: str, slices: Sequence[FileSlice], schema: StructType) -> DataFrame:
    """Return the rows of the base files of slices, of which Spark reads only the columns and row groups that it needs.

    Args:
        spark: the session.
        table_uri: the table's ``file://`` URI.
        slices: slices with a base file, at least one.
        schema: the columns to return, each nullable.
    """
    root = _root(table_uri)
    paths = [f"file://{_PATTERN.sub(_escaped, f'{root}/{found.base.path}')}" for found in slices if found.base]
    with _listed_by_driver(spark) if len(paths) > _LISTED_BY_DRIVER else nullcontext():
        return (
            spark.read.schema(schema)
            .option("recursiveFileLookup", "true")  # else folders such as day=1 become columns
            .option("ignoreMissingFiles", "false")
            .option("ignoreCorruptFiles", "false")
            .option("mergeSchema", "false")
            .option("datetimeRebaseMode", "CORRECTED")
            .option("int96RebaseMode", "CORRECTED")
            .parquet(*paths)
        )


def _root(table_uri: str) -> str:
    return url2pathname(urlsplit(table_uri).path).rstrip("/")


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


@contextmanager
def _listed_by_driver(spark: SparkSession) -> Iterator[None]:
    """Let the driver look up the files, each of which is named: Spark would start a job of tasks for many."""
    known = spark.conf.get(_LISTED_BY_TASKS, None)
    spark.conf.set(_LISTED_BY_TASKS, _NO_MORE)
    try:
        yield
    finally:
        if known is None:
            spark.conf.unset(_LISTED_BY_TASKS)
        else:
            spark.conf.set(_LISTED_BY_TASKS, known)
