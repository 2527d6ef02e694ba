"""A batch that is many times the memory of its tasks, most of it for one bucket: ``python -m tests.size``.

On executors of their own, each worker under a hard limit of private memory, the driver with no room for results. The
stream writes a batch of a few rows, which loads and warms up everything, then all the others in one batch; then Spark
scans the table. Prints what was counted and measured, and ends with 1 when any of it is not as promised.

Variables: ``SIZE_ROWS`` (20000000), ``SIZE_BUDGET`` (bytes of ``lsm.write.buffer.bytes``; its default, of which most of
those rows are five times as much), ``SIZE_FOLDER`` (a folder on a disk with room for 5 GB).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming_lsm import LsmSink, LsmTable
from streaming_lsm.config import BUFFER_BYTES
from streaming_lsm.spark import sink as sink_module
from streaming_lsm.spark.batch_writer import BatchResult
from tests.size.workload import BUCKETS, OPTIONS, SHARE, SPARK_SCHEMA, Expected, write_files
from tests.support.cluster import WATCHED, cluster, stages
from tests.support.watched_worker import FOLDER, TaskMemory, tasks

MAX_RESULT = 1 << 20
WARM_UP = 2_000
_SLACK = 0.25
# What is private and no memory: stacks of threads that start later, and pages that an allocator has given back without
# their addresses. It comes on top for the limit of private memory, not for what may be resident.
_ADDRESSES = 64 << 20


@dataclass
class Checks:
    """Prints a line for each promise, and remembers whether all are kept."""

    kept: bool = True

    def check(self, what: str, found: float, allowed: float, *, exact: bool = False, unit: str = "") -> None:
        """`found` is at most, or exactly, what is allowed."""
        good = found == allowed if exact else found <= allowed
        self.kept &= good
        scale = 1 << 20 if unit == "MiB" else 1
        shown = f"{found / scale:,.1f} {unit}" if unit else f"{found:,}"
        bound = f"{allowed / scale:,.1f} {unit}" if unit else f"{allowed:,}"
        print(f"{'ok  ' if good else 'FAIL'} {what}: {shown} ({'=' if exact else 'at most'} {bound})", flush=True)


def main() -> int:
    """Run it all."""
    rows = int(os.environ.get("SIZE_ROWS", 20_000_000))
    budget = int(os.environ.get("SIZE_BUDGET", BUFFER_BYTES.default))
    folder = Path(tempfile.mkdtemp(prefix="lsm-size-", dir=os.environ.get("SIZE_FOLDER")))
    try:
        return 0 if run(folder, rows, budget) else 1
    finally:
        shutil.rmtree(folder)


def run(folder: Path, rows: int, budget: int) -> bool:
    """Write and scan `rows` rows; whether everything was as promised."""
    watch, checks = folder / "watch", Checks()
    watch.mkdir()
    environment = {
        FOLDER: str(watch),
        # Arrow's allocator would keep the addresses of what it gave back, and they count as private memory.
        "MIMALLOC_DISALLOW_ARENA_ALLOC": "1",
    }
    settings = {"spark.driver.maxResultSize": f"{MAX_RESULT}b", **WATCHED}
    with cluster(folder, settings, environment) as spark:
        done = note_batches()
        job = Job(spark, folder, {**OPTIONS, "lsm.write.buffer.bytes": budget})
        small = job.write(WARM_UP, first=1 << 40)
        job.scan()
        warm = tasks(watch)
        baseline, private = max(task.peak for task in warm), max(task.private for task in warm)
        allowed = round(budget * (1 + _SLACK))
        (watch / "limit").write_text(str(private + allowed + _ADDRESSES))
        print(
            f"baseline of a worker {mib(baseline)} resident, {mib(private)} private; budget {mib(budget)}", flush=True
        )

        large = job.write(rows, first=0)
        check_batch(checks, done[-1], large, budget)
        job.check_input(checks, large)
        before = set(tasks(watch))
        check_memory(checks, spark, "write", before.difference(warm), baseline + allowed)
        job.check_scan(checks, small, large)
        check_memory(checks, spark, "scan", set(tasks(watch)).difference(before), baseline + allowed)
        check_results(checks, spark)
    return checks.kept


class Job:
    """The stream and the scan."""

    def __init__(self, spark: SparkSession, folder: Path, options: dict[str, object]) -> None:
        self._spark, self._folder, self._options = spark, folder, options
        self._path = str(folder / "table")
        self._input_rows = 0

    def write(self, rows: int, *, first: int) -> Expected:
        """Make the rows, and write them as one batch."""
        begun = time.perf_counter()
        expected = write_files(self._folder / "source", rows, first=first)
        made = time.perf_counter()
        stream = self._spark.readStream.schema(SPARK_SCHEMA).parquet(str(self._folder / "source"))
        writer = stream.writeStream.foreachBatch(LsmSink(self._path, self._options))
        query = writer.option("checkpointLocation", str(self._folder / "checkpoint")).trigger(once=True).start()
        query.awaitTermination()
        progress = query.recentProgress
        self._input_rows = sum(each["numInputRows"] for each in progress)
        spent = time.perf_counter() - made
        print(
            f"{expected.rows:,} rows, {mib(expected.bytes)}: made in {made - begun:.1f} s, "
            f"written in {spent:.1f} s, {expected.rows / spent / 1e3:,.0f} k rows/s",
            flush=True,
        )
        return expected

    def check_input(self, checks: Checks, expected: Expected) -> None:
        """Spark's source counts what is read of it, however often."""
        checks.check("rows that Spark's source gave out", self._input_rows, expected.rows, exact=True)

    def scan(self) -> Any:
        """Rows, different keys and sum of a snapshot."""
        table = self._spark.read.format("streaming_lsm").load(self._path)
        return table.agg(F.count("*"), F.count_distinct("id"), F.sum("qty")).collect()[0]

    def check_scan(self, checks: Checks, *parts: Expected) -> None:
        """The snapshot is what was written."""
        begun = time.perf_counter()
        rows, keys, qty = self.scan()
        spent = time.perf_counter() - begun
        print(f"scanned in {spent:.1f} s, {rows / spent / 1e3:,.0f} k rows/s", flush=True)
        checks.check("rows scanned", rows, sum(part.keys for part in parts), exact=True)
        checks.check("different keys scanned", keys, sum(part.keys for part in parts), exact=True)
        checks.check("sum scanned", qty, sum(part.qty for part in parts), exact=True)
        table = LsmTable(self._path)
        checks.check("file groups", len(table.file_slices()), BUCKETS, exact=True)


def note_batches() -> list[BatchResult]:
    """What the executors say of each batch from now on."""
    done: list[BatchResult] = []
    write_batch = sink_module.write_batch

    def noted(*arguments: Any) -> BatchResult:
        done.append(write_batch(*arguments))
        return done[-1]

    sink_module.write_batch = noted
    return done


def check_batch(checks: Checks, done: BatchResult, expected: Expected, budget: int) -> None:
    """What the tasks counted themselves."""
    numbers = done.numbers
    print(
        f"tasks: {done.written.numbers.rows_in:,} rows received, {mib(numbers.spilled_bytes)} spilled, "
        f"{len(done.written.stats)} files of {mib(sum(stat.total_bytes for stat in done.written.stats))}; receive "
        f"{numbers.receive_ms} ms, sort {numbers.sort_ms} ms, write {numbers.write_ms} ms",
        flush=True,
    )
    checks.check("rows in", numbers.rows_in, expected.rows, exact=True)
    checks.check("rows kept", numbers.rows_kept, expected.keys, exact=True)
    checks.check("bytes that a task has counted", numbers.peak_bytes, budget, unit="MiB")
    checks.check("budget, as the fullest bucket is larger", 5 * budget, SHARE * expected.bytes, unit="MiB")


def check_memory(checks: Checks, spark: SparkSession, what: str, found: set[TaskMemory], allowed: float) -> None:
    """What the kernel counted."""
    limits = sorted({task.limit for task in found})
    print(f"{what}: {len(found)} tasks under a limit of {', '.join(mib(limit) for limit in limits)} private memory")
    theirs = [stage for stage in stages(spark) if stage.stageId() in {task.stage for task in found}]
    started, failed = sum(stage.numTasks() for stage in theirs), sum(stage.numFailedTasks() for stage in theirs)
    checks.check(f"tasks of the {what} that were watched", len(found), started, exact=True)
    checks.check(f"tasks of the {what} that failed", failed, 0, exact=True)
    checks.check(f"tasks of the {what} without a limit", sum(task.limit < 0 for task in found), 0, exact=True)
    checks.check(f"peak of a worker, {what}", max(task.peak for task in found), allowed, unit="MiB")


def check_results(checks: Checks, spark: SparkSession) -> None:
    """What the driver got from all tasks."""
    sizes = [stage.resultSize() for stage in stages(spark)]
    checks.check("bytes of results of one stage", max(sizes), MAX_RESULT, unit="MiB")
    checks.check("bytes of results of all stages", sum(sizes), MAX_RESULT, unit="MiB")


def mib(size: float) -> str:
    """A size in MiB."""
    return f"{size / (1 << 20):,.1f} MiB"


if __name__ == "__main__":
    sys.exit(main())
