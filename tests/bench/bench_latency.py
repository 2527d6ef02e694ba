"""Small batches: what the sink adds to Spark's own time, how far batches differ, and what a commit takes."""

from __future__ import annotations

import tempfile
import time
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from streaming_lsm import LsmSink, LsmTable
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.spark.session import local_session
from streaming_lsm.txn.batch_ledger import BatchIdentity
from streaming_lsm.write.partition_writer import write_partition
from tests.bench.bench_sink import OPTIONS
from tests.bench.reference.latency import move_only
from tests.bench.result import Result
from tests.bench.workload import orders
from tests.support.writers import outcome

COMMIT_SECONDS = 0.05
RUNS, WARM_UP, TRIGGERS = 15, 15, 100


def run() -> list[Result]:
    """Latency of batches without and with 1,000 rows, its spread, and of the commit at 10 and at 1,000 instants."""
    with tempfile.TemporaryDirectory() as folder:
        return [*_batches(folder), *_commits(folder)]


def _batches(folder: str) -> list[Result]:
    kept = {"spark.sql.streaming.numRecentProgressUpdates": str(2 * (WARM_UP + TRIGGERS))}
    spark = local_session("bench", cores=2, settings=kept)
    source = Path(folder) / "source"
    source.mkdir()
    for number in range(2 * (WARM_UP + TRIGGERS)):
        pq.write_table(orders(1_000, 700_000, seed=number), source / f"{number:05d}.parquet")
    schema = spark.read.parquet(str(source)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    note = "foreachBatch that hands the rows to one Python task, which does nothing with them"
    results = []
    for name, rows in (("empty batch", stream.where("qty < 0")), ("batch of 1,000 rows", stream)):
        taken = _small(f"{folder}/{name}", rows)
        results.append(Result(name, *taken, 1, "batches", 1.2, False, note))
    slowest, usual = (float(np.quantile(results[-1].ours, share)) for share in (0.99, 0.5))
    spread = "p50 of the same batches"
    return [*results, Result("batch of 1,000 rows, p99", (slowest,), (usual,), 1, "batches", 3.0, False, spread)]


def _small(folder: str, rows: DataFrame) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of whole triggers, as Spark reports them, of one query whose batches go to either in turns.

    While it warms up the sink learns that one task is enough for such batches.
    """
    sink = LsmSink(f"{folder}/table", OPTIONS)

    def write(batch: DataFrame, number: int) -> None:
        if number % 2:
            move_only(batch)
        else:
            sink(batch, number)

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = {each["batchId"]: each["durationMs"]["triggerExecution"] / 1000 for each in query.recentProgress}
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
        results.append(
            Result(
                name=name,
                ours=taken,
                reference=bound,
                work=1,
                unit="commits",
                target=1.0,
                speed=False,
                note="no reference: the bound, 50 ms",
            )
        )
    return results


def _commit(table: LsmTable, events: pa.Table, number: int) -> float:
    """Seconds from the end of the tasks, which wrote a file for each bucket, until the instant is complete."""
    with table.transaction(BatchIdentity("bench", number)) as transaction:
        plan = table.plan(transaction, "upsert").at(transaction.begin())
        written = write_partition(plan, events.to_batches(), WriteToken(0, 0, 0))
        begun = time.perf_counter()
        transaction.reconcile(outcome(written.stats))
        table.commit(transaction, plan, written)
        return time.perf_counter() - begun
