"""Small batches: what the sink adds to Spark's own time, and what a commit takes."""

from __future__ import annotations

import tempfile
import time
from itertools import count

import pyarrow as pa
from pyspark.sql import DataFrame

from streaming_lsm import LsmSink, LsmTable
from streaming_lsm.format.names import WriteToken
from streaming_lsm.spark.session import local_session
from streaming_lsm.timeline.replay import ReplayIdentity
from streaming_lsm.write.partition_writer import write_partition
from tests.bench.bench_sink import OPTIONS
from tests.bench.reference.latency import shuffle_only
from tests.bench.result import Result, in_turns
from tests.bench.workload import orders

COMMIT_SECONDS = 0.05
RUNS = 15


def run() -> list[Result]:
    """Latency of batches without and with 1,000 rows, and of the commit alone at 10 and at 1,000 instants."""
    with tempfile.TemporaryDirectory() as folder:
        return [*_batches(folder), *_commits(folder)]


def _batches(folder: str) -> list[Result]:
    spark = local_session("bench", cores=2)
    rows = spark.createDataFrame(orders(1_000, 700_000, seed=0)).cache()
    assert rows.count() == 1_000
    empty = rows.where("qty < 0").cache()
    assert empty.count() == 0
    note = "foreachBatch with repartitionById and mapInArrow doing nothing, one task"
    results = []
    for name, batch in (("empty batch", empty), ("batch of 1,000 rows", rows)):
        taken = _small(f"{folder}/{batch.count()}", batch)
        results.append(Result(name, *taken, 1, "batches", 1.6, False, note))
    return results


def _small(path: str, batch: DataFrame) -> tuple[tuple[float, ...], tuple[float, ...]]:
    # While it warms up the sink learns that one task is enough for such batches.
    sink, numbers = LsmSink(path, OPTIONS), count()
    return in_turns(lambda: sink(batch, next(numbers)), lambda: shuffle_only(batch, 1), RUNS, warm_up=10)


def _commits(folder: str) -> list[Result]:
    """The time from the end of the tasks to the completed instant, against a fixed bound."""
    events = orders(1_000, 700_000, seed=1)
    table = LsmTable.create(f"{folder}/commits", events.schema, OPTIONS)
    table.upsert(events, batch_id=0)
    results, numbers = [], count(1)
    for instants in (10, 1_000):
        for _ in range(instants - len(table.timeline.completed_writes)):
            _commit(table, events.slice(0, 0), next(numbers))
        taken = tuple(_commit(table, events, next(numbers)) for _ in range(RUNS))
        bound = (COMMIT_SECONDS,) * RUNS
        name = f"commit at {instants:,} instants"
        results.append(Result(name, taken, bound, 1, "commits", 1.0, False, "no reference: the bound, 50 ms"))
    return results


def _commit(table: LsmTable, events: pa.Table, number: int) -> float:
    """Seconds from the end of the tasks, which wrote a file for each bucket, until the instant is complete."""
    with table.transaction(ReplayIdentity("bench", number)) as transaction:
        plan = table.plan(transaction, "upsert").at(transaction.begin())
        written = write_partition(plan, events.to_batches(), WriteToken(0, 0, 0))
        begun = time.perf_counter()
        transaction.reconcile(written.stats)
        table.commit(transaction, plan, written)
        return time.perf_counter() - begun
