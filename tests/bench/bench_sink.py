"""The sink against Spark's plain Parquet append of the same batches, commit included."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from streaming_lsm import LsmSink
from streaming_lsm.spark.session import local_session
from tests.bench.reference.sink import append_parquet
from tests.bench.result import Result, in_turns
from tests.bench.workload import KEY, ORDERING, REPEATED, orders

ROWS, KEYS, BUCKETS, BATCHES = 250_000, 700_000, 8, 4
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.table.ordering.fields": ORDERING,
    "hoodie.bucket.index.num.buckets": BUCKETS,
    "lsm.writer.id": "bench",
}


def run() -> list[Result]:
    """Rows a second of warm batches; both write the same cached batches in turns.

    The reference is measured twice: with dictionaries for the columns that ours has them for, which makes it fastest,
    and for all columns, as Spark has it when nobody says otherwise.
    """
    spark = local_session("bench", cores=2)
    name = "sink, 250 k rows, 11 columns, 8 buckets"
    results = []
    with tempfile.TemporaryDirectory() as folder, cached_batches(spark, folder) as batches:
        sink, numbers = LsmSink(f"{folder}/table", OPTIONS), count()

        def ours() -> None:
            number = next(numbers)
            sink(batches[number % BATCHES], number)

        for dictionary, which in ((REPEATED, "for 5 columns"), (None, "for all columns")):
            appends = count()

            def reference() -> None:
                append_parquet(batches[next(appends) % BATCHES], f"{folder}/plain", dictionary)  # noqa: B023

            taken = in_turns(ours, reference, runs=9, warm_up=12 if dictionary else 3)
            note = f"zstd Parquet append by Spark, two tasks, dictionaries {which}"
            results.append(Result(name, *taken, ROWS, "rows", 0.75, True, note))
    return results


@contextmanager
def cached_batches(spark: SparkSession, folder: str, rows: int = ROWS) -> Iterator[list[DataFrame]]:
    """Batches of events that were read from Parquet files and lie in Spark's cache, two partitions each.

    Two are what the append is fastest with: one per core; more only make more files.
    """
    batches = []
    for number in range(BATCHES):
        source = Path(folder) / f"source-{number}"
        source.mkdir()
        events = orders(rows, KEYS, seed=number)
        for half in range(2):
            pq.write_table(events.slice(half * rows // 2, rows // 2), source / f"part-{half}.parquet")
        batch = spark.read.parquet(str(source)).cache()
        assert batch.count() == rows
        assert batch.rdd.getNumPartitions() == 2
        batches.append(batch)
    yield batches
    for batch in batches:
        batch.unpersist()
