"""Queries of a table in Spark, against Spark's own read of the same files and against the query of the whole table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from streaming_lsm import LsmTable, read
from streaming_lsm.spark.session import local_session
from tests.bench.reference.spark_read import consume, read_files
from tests.bench.result import Result, in_turns
from tests.bench.tables import data_paths

ROWS, DAYS, BUCKETS = 4_000_000, 8, 2
LOGS, LOG_ROWS = 20, 40_000
OPTIONS = {
    "hoodie.table.name": "wide",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": BUCKETS,
    "hoodie.clean.automatic": "false",
}
READ_OPTIMIZED = {"hoodie.datasource.query.type": "read_optimized"}
Actions = tuple[Callable[[], object], Callable[[], object]]


def run() -> list[Result]:
    """Seconds of whole queries, planning included."""
    spark = local_session("bench", cores=2, settings={"spark.log.level": "ERROR"})
    try:
        with tempfile.TemporaryDirectory() as folder:
            return [*_of_one_table(spark, folder), *_of_many_commits(spark, folder)]
    finally:
        spark.stop()


def _of_one_table(spark: SparkSession, folder: str) -> list[Result]:
    path = str(Path(folder) / "wide")
    table = LsmTable.create(path, wide_rows(0, 1).schema, OPTIONS)
    table.bulk_insert(wide_rows(0, ROWS))
    names, files = table.schema.names, partial(data_paths, table, path)
    whole = partial(_read, spark, path)
    compared = partial(_compare, ROWS)
    plain = "spark.read.parquet of the same files and columns"
    base = partial(_files, spark, files(), names)
    some = partial(_read, spark, path, columns=names[:2])
    day = partial(_read, spark, path, filter=pc.field("day") == "day-3")
    results = [
        compared("Spark, compacted table", whole, base, 0.9, True, plain),
        compared("Spark, two of 16 columns", some, whole, 0.3, False, "all columns"),
        compared("Spark, one partition of 8", day, whole, 0.2, False, "all partitions"),
    ]
    for number in range(1, LOGS + 1):
        table.upsert(wide_rows(number, LOG_ROWS))
    results.append(
        compared("Spark, read-optimised", partial(_read, spark, path, READ_OPTIMIZED), base, 0.95, True, plain)
    )
    rows = ROWS + LOGS * LOG_ROWS
    merged = "spark.read.parquet of the base and log files"
    return [
        *results,
        _compare(rows, f"Spark, {LOGS} logs", whole, partial(_files, spark, files(), names), 0.5, True, merged),
    ]


def _of_many_commits(spark: SparkSession, folder: str) -> list[Result]:
    """A table of 200 commits of which the last ten are queried."""
    path = str(Path(folder) / "commits")
    options = OPTIONS | {"hoodie.archive.automatic": "false"}
    table = LsmTable.create(path, wide_rows(0, 1).schema, options)
    table.bulk_insert(wide_rows(0, ROWS))
    for number in range(1, 201):
        table.upsert(wide_rows(number, 5_000))
    begin = [write.completed for write in table.timeline.completed_writes][-11]
    ranged = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": str(begin),
    }
    last, whole = partial(_read, spark, path, ranged), partial(_read, spark, path)
    python = (lambda: table.incremental(str(begin)).to_arrow(), lambda: table.scan().to_arrow())
    name = "the last 10 of 200 commits"
    return [
        Result(f"Spark, {name}", *in_turns(last, whole), 1, "queries", 0.15, False, "the snapshot"),
        Result(f"Python, {name}", *in_turns(*python), 1, "queries", 0.15, False, "the snapshot"),
    ]


def wide_rows(seed: int, rows: int) -> pa.Table:
    """Events of 16 columns; those of seed 0 have each key once, the others some of these keys."""
    random = np.random.default_rng(seed)
    numbers = np.arange(rows) if seed == 0 else random.choice(ROWS, rows, replace=False)
    columns: dict[str, object] = {
        "id": pc.binary_join_element_wise("order-", pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 9, "0"), ""),
        "qty": random.integers(0, 100, rows).astype(np.int32),
        "day": pc.binary_join_element_wise("day-", pa.array(numbers % DAYS).cast(pa.string()), ""),
        "ts": np.full(rows, seed, np.int64),
    }
    columns |= {f"n{place}": random.integers(0, 1 << 40, rows) for place in range(4)}
    columns |= {f"x{place}": random.random(rows) for place in range(4)}
    columns |= {f"s{place}": pa.array(random.integers(0, 10**6, rows)).cast(pa.string()) for place in range(4)}
    return pa.table(columns)


def _read(spark: SparkSession, path: str, options: dict[str, str] | None = None, **asked: object) -> None:
    consume(read(spark, path, options, **asked))


def _files(spark: SparkSession, paths: list[str], columns: list[str]) -> None:
    consume(read_files(spark, paths, columns))


def _compare(
    rows: int,
    name: str,
    ours: Callable[[], object],
    reference: Callable[[], object],
    target: float,
    speed: bool,
    note: str,
) -> Result:
    return Result(name, *in_turns(ours, reference), rows, "rows", target, speed, note)
