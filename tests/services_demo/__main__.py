"""Stream 500 micro-batches into a table with all table services, and check the rows after every step.

A query of Structured Streaming writes; hybrid compactions and cleans run in jobs of their own beside it. In between the
table is saved, at the end it is archived and restored. After each step the snapshot equals the model of the events and
what the oracle reads. A plot of files, sorted runs, bytes, write amplification and read time over the commits is left.

    python -m tests.services_demo [--batches 500] [--plot services.png]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from streaming_lsm import LsmSink, LsmTable
from streaming_lsm.file_group.log_facts import LogFactsReader
from streaming_lsm.services.compaction.planner import live_runs
from streaming_lsm.spark.session import local_session
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.services_demo.events import SCHEMA, Events, Row
from tests.services_demo.figures import Figures, plot

REPOSITORY = Path(__file__).resolve().parents[2]
OPTIONS: Mapping[str, object] = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.clean.automatic": False,
    "hoodie.clean.commits.retained": 10,
    "hoodie.compaction.plan.generator": "HybridCompactionPlanGenerator",
    "lsm.compaction.small.base.bytes": 65536,
    "lsm.compaction.log.share": 0.5,
    "lsm.compaction.max.runs": 12,
}
SPARK_SCHEMA = "id STRING, ts LONG, amount DOUBLE, note STRING, _hoodie_is_deleted BOOLEAN"
CHECK_EVERY, LOOK_EVERY = 50, 5


class Demo:
    """The table, its model, and what was measured."""

    def __init__(self, folder: Path, batches: int) -> None:
        self.table_path, self.folder = folder / "orders", folder
        self.batches, self.events = batches, Events(7)
        self.states: list[dict[str, Row]] = []
        self.figures = Figures()
        (folder / "incoming").mkdir()

    def prepare(self, count: int) -> None:
        """Write the files of the next batches, each of which is one micro-batch."""
        for _ in range(count):
            number = len(self.states)
            path = self.folder / "incoming" / f"{number:05d}.parquet"
            pq.write_table(self.events.batch(), path)
            os.utime(path, (number + 1, number + 1))  # the order in which the query takes them
            self.states.append(dict(self.events.rows))

    def stream(self, spark: SparkSession) -> None:
        """Run the query until it has taken all files."""
        sink = LsmSink(str(self.table_path), OPTIONS)

        def write(batch: DataFrame, number: int) -> None:
            begun = time.perf_counter()
            sink(batch, number)
            self.figures.batch_s.append(time.perf_counter() - begun)
            if number % LOOK_EVERY == 0:
                self.look(number)
            if number % CHECK_EVERY == 0:
                self.check(self.states[number], f"after batch {number}")

        reader = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1)
        events = reader.parquet(str(self.folder / "incoming"))
        query = events.writeStream.foreachBatch(write).option("checkpointLocation", str(self.folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    def look(self, number: int) -> None:
        """Measure the table."""
        table = LsmTable(self.table_path)
        slices = table.file_slices()
        facts = LogFactsReader(table.storage, table.rule)
        begun = time.perf_counter()
        rows = sum(batch.num_rows for batch in table.scan().to_batches())
        assert rows == len(self.states[number])
        self.figures.look(
            number,
            files=sum(1 for path in self.table_path.glob("*.parquet")),
            runs=max(len(live_runs(found.logs, facts(found.logs)).runs) for found in slices),
            live_bytes=sum(found.size for found in slices),
            read_s=time.perf_counter() - begun,
            timeline=len(os.listdir(self.table_path / ".hoodie/timeline")) - 1,
        )

    def check(self, expected: Mapping[str, Row], step: str) -> None:
        """Compare the snapshot with the model and with what the oracle reads."""
        columns = ["id", "ts", "amount", "note"]
        found = LsmTable(self.table_path).scan(columns).to_arrow().to_pylist()
        rows = {row["id"]: tuple(row.values()) for row in found}
        assert len(found) == len(rows), f"{step}: a key twice"
        assert rows == expected, f"{step}: the snapshot is not the model"
        by_oracle = read_snapshot(self.table_path).select(columns).to_pylist()
        assert {row["id"]: tuple(row.values()) for row in by_oracle} == expected, f"{step}: the oracle reads other rows"
        print(f"{step}: {len(rows):,} rows = model = oracle", flush=True)


@contextmanager
def jobs(path: Path) -> Iterator[None]:
    """Run a compaction job and a cleaning job beside the stream."""
    options = [f"{key}={value}" for key, value in OPTIONS.items() if key.startswith(("hoodie.c", "lsm.c"))]
    started = [
        subprocess.Popen(
            [sys.executable, f"jobs/{job}", "--watch", "1", f"lsm.table.path={path}", *options], cwd=REPOSITORY
        )
        for job in ("compact.py", "clean.py")
    ]
    try:
        yield
    finally:
        for job in started:
            job.terminate()
        statuses = [job.wait(120) for job in started]
    assert statuses == [0, 0], statuses


def run(folder: Path, batches: int, picture: Path) -> None:
    """Run all steps."""
    demo = Demo(folder, batches)
    spark = local_session("services demo", cores=2)
    demo.prepare(1)
    demo.stream(spark)
    with jobs(demo.table_path):
        demo.prepare(batches * 3 // 5 - 1)
        demo.stream(spark)
    table = LsmTable(demo.table_path, OPTIONS)
    saved, expected = table.savepoint(comment="before the second part"), demo.states[-1]
    demo.check(expected, f"savepoint {saved.requested}")
    with jobs(demo.table_path):
        demo.prepare(batches - len(demo.states))
        demo.stream(spark)
    spark.stop()
    demo.check(demo.states[-1], "the jobs have ended")
    for step, act in (("compaction", table.compact), ("clean", table.clean), ("archiving", table.archive)):
        act()
        demo.check(demo.states[-1], step)
    table.restore(saved.requested)
    demo.check(expected, "restore")
    demo.events.rows = dict(expected)
    for _ in range(20):
        table.upsert(demo.events.batch())
    demo.check(demo.events.rows, "20 batches after the restore")
    table.delete_savepoint(saved.requested)
    for step, act in (
        ("last compaction", table.compact),
        ("last clean", table.clean),
        ("last archiving", table.archive),
    ):
        act()
        demo.check(demo.events.rows, step)
    violations = validate(demo.table_path)
    assert violations == [], violations
    plot(demo.figures, LsmTable(demo.table_path), picture)
    print(demo.figures.summary(), flush=True)
    print(f"the plot: {picture}", flush=True)


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--plot", type=Path, default=Path("services.png"))
    arguments = parser.parse_args()
    assert SCHEMA.names == [field.split()[0] for field in SPARK_SCHEMA.split(", ")]
    with tempfile.TemporaryDirectory(prefix="services-demo-") as folder:
        run(Path(folder), arguments.batches, arguments.plot)


if __name__ == "__main__":
    main()
