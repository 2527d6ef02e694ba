"""A stream of orders into a table, and whether the table shows what the orders say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from streaming_lsm import LsmSink, LsmTable
from streaming_lsm.format.table.file_names import parse_file_name
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.orders import OPTIONS, SPARK_SCHEMA, Order, final_rows, make_orders, rows_of, write_source
from tests.support.spark_frames import arrow_of, read_by_spark


class OrdersLake:
    """A source folder, a table and a checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, options: Mapping[str, object] | None = None) -> None:
        """Nothing is there yet; `options` are the sink's, besides those of the orders."""
        self.spark, self.options = spark, {**OPTIONS, **(options or {})}
        self.source, self.path, self.checkpoint = folder / "source", str(folder / "table"), str(folder / "checkpoint")
        self.orders: list[Order] = []

    def produce(self, *seeds: int, count: int = 300, keys: int = 300) -> None:
        """One file of events per seed."""
        for seed in seeds:
            part = make_orders(count, seed, keys)
            write_source(self.source, f"part-{seed:03d}", part)
            self.orders += part

    def run(
        self,
        files: int = 2,
        options: Mapping[str, object] | None = None,
        prepared: Callable[[DataFrame], DataFrame] = lambda events: events,
    ) -> None:
        """Write what is there, and stop.

        Args:
            files: so many of the source make a batch.
            options: the sink's for this time, besides its others.
            prepared: what a job does to the events before they come to the sink.
        """
        reader = self.spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", files)
        sink = LsmSink(self.path, {**self.options, **(options or {})})
        writer = prepared(reader.parquet(str(self.source))).writeStream.foreachBatch(sink)
        query = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()

    def batches(self) -> list[int]:
        """The batch ids that the commits remember, in the order of the commits."""
        timeline = LsmTable(self.path).timeline
        ledgers = [json.loads(timeline.read_commit(write).extra["lsm.writers"]) for write in timeline.every_write]
        return [batch for ledger in ledgers for batch, _ in ledger.values()]

    def check(self, batches: int | None = None) -> None:
        """The snapshot by the oracle, by Python and by Spark is what the events say, and no file is left over.

        Args:
            batches: so many were committed, each of them once; None where that is another matter.
        """
        expected = final_rows(self.orders)
        assert rows_of(read_snapshot(self.path)) == expected
        assert rows_of(LsmTable(self.path).scan().to_arrow()) == expected
        assert rows_of(arrow_of(read_by_spark(self.spark, self.path))) == expected
        assert validate(self.path) == [], "an orphan file, or a commit that does not fit its files"
        assert [str(file) for file in Path(self.path).rglob("*.lsm-tmp")] == []
        if batches is not None:
            assert self.batches() == list(range(batches))


def data_files(path: str) -> set[str]:
    """All data files of a table, also those that no commit lists, relative to its folder."""
    files = (file.relative_to(path) for file in Path(path).rglob("*") if file.is_file())
    return {str(file) for file in files if file.parts[0] != ".hoodie" and parse_file_name(file.name) is not None}
