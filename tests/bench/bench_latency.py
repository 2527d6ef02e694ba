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
from tests.bench.reference.latency import move_only
from tests.bench.result import Result
from tests.bench.workload import orders

COMMIT_SECONDS = 0.05
RUNS, WARM_UP = 15, 15


def run() -> list[Result]:
    """Latency of batches without and with 1,000 rows, and of the commit alone at 10 and at 1,000 instants."""
    with tempfile.TemporaryDirectory() as folder:
        return [*_batches(folder), *_commits(folder)]


def _batches(folder: str) -> list[Result]:
    spark = local_session("bench", cores=2)
    note = "foreachBatch that hands the rows to one Python task, which does nothing with them"
    results = []
    for name, least in (("empty batch", 20), ("batch of 1,000 rows", 0)):
        # Not fewer rows in the source: Spark would leave the batch out.
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1_000).load().selectExpr(*_ORDERS)
        taken = _small(f"{folder}/{least}", rows.where(f"qty >= {least}"))
        results.append(Result(name, *taken, 1, "batches", 1.6, False, note))
    return results


_ORDERS = (
    "concat('order', lpad(value % 700000, 12, '0')) AS order_id",
    "value % 50021 AS customer_id",
    "element_at(array('AT', 'BE', 'BR', 'CH'), cast(value % 4 + 1 AS int)) AS country",
    "element_at(array('created', 'paid', 'sent'), cast(value % 3 + 1 AS int)) AS status",
    "concat_ws(' ', 'small', 'brass', hash(value) % 11) AS item",
    "cast(value % 19 + 1 AS int) AS qty",
    "value % 99900 / 100.0D AS price",
    "value % 10 / 100.0D AS discount",
    "value % 5 = 0 AS express",
    "timestamp_seconds(value) AS created_at",
    "timestamp_millis(value) AS updated_at",
)


def _small(folder: str, rows: DataFrame) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of whole triggers, as Spark reports them, of one query whose batches go to either in turns.

    While it warms up the sink learns that one task is enough for such batches.
    """
    sink, seconds = LsmSink(f"{folder}/table", OPTIONS), dict[int, float]()

    def write(batch: DataFrame, number: int) -> None:
        (move_only(batch) if number % 2 else sink(batch, number))

    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint").start()
    try:
        while len(seconds) < 2 * (WARM_UP + RUNS):
            if query.awaitTermination(1):
                raise RuntimeError("the query ended")
            for progress in query.recentProgress:
                seconds[progress["batchId"]] = progress["durationMs"]["triggerExecution"] / 1000
    finally:
        query.stop()
    kept = sorted(seconds)[2 * WARM_UP :]
    ours, reference = (tuple(seconds[number] for number in kept if number % 2 == odd) for odd in (0, 1))
    return ours, reference


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
