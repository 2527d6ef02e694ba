"""A stream of orders into a table, and whether the table shows what the orders say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from streaming_lsm import LsmSink, LsmTable
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.orders import OPTIONS, SPARK_SCHEMA, Order, final_rows, make_orders, rows_of, write_source


class OrdersLake:
    """A source folder, a table and a checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, options: Mapping[str, object] | None = None) -> None:
        self.spark, self.options = spark, {**OPTIONS, **(options or {})}
        self.source, self.path, self.checkpoint = folder / "source", str(folder / "table"), str(folder / "checkpoint")
        self.orders: list[Order] = []

    def produce(self, *seeds: int, count: int = 300, keys: int = 300) -> None:
        """One file of events per seed."""
        for seed in seeds:
            part = make_orders(count, seed, keys)
            write_source(self.source, f"part-{seed:03d}", part)
            self.orders += part

    def run(self, files: int = 2) -> None:
        """Write what is there, so many files a batch, and stop."""
        events = self.spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", files)
        writer = events.parquet(str(self.source)).writeStream.foreachBatch(LsmSink(self.path, self.options))
        query = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()

    def batches(self) -> list[int]:
        """The batch ids that the commits remember, in the order of the commits."""
        timeline = LsmTable(self.path).timeline
        ledgers = [json.loads(timeline.read_commit(write).extra["lsm.writers"]) for write in timeline.completed_writes]
        return [batch for ledger in ledgers for batch, _ in ledger.values()]

    def check(self, batches: int) -> None:
        """The snapshot is what the events say; each batch is there once, and no file that no commit lists."""
        expected = final_rows(self.orders)
        assert rows_of(read_snapshot(self.path)) == expected
        assert rows_of(LsmTable(self.path).scan().to_arrow()) == expected
        assert validate(self.path) == [], "an orphan file, or a commit that does not fit its files"
        assert self.batches() == list(range(batches))
        assert [str(file) for file in Path(self.path).rglob("*.lsm-tmp")] == []
