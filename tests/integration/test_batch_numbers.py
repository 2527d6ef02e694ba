"""What is counted of a batch: by the sink, in the commit, and for whoever listens to the query."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming_lsm import LsmListener, LsmSink, LsmTable
from streaming_lsm.spark.listener import BatchProgress
from tests.support.orders import OPTIONS, SPARK_SCHEMA, make_orders, write_source

LATER = ("commit_ms", "wait_ms", "lock_ms", "conflicts")
"""What is known when the commit is written."""


def test_each_batch_is_counted_in_the_log_in_its_commit_and_for_a_listener(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts = [300, 200]
    for number, count in enumerate(counts):
        write_source(tmp_path / "source", f"part-{number}", make_orders(count, seed=number))
    sink = LsmSink(tmp_path / "table", OPTIONS)
    heard: list[BatchProgress] = []
    all_heard = threading.Event()

    def hear(batch: BatchProgress) -> None:
        heard.append(batch)
        if len(heard) == len(counts):
            all_heard.set()

    events = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "source"))
    writer = events.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    listener = LsmListener(sink, hear)
    spark.streams.addListener(listener)
    try:
        with caplog.at_level(logging.INFO, logger="streaming_lsm.table"):
            writer.trigger(availableNow=True).start().awaitTermination()
        assert all_heard.wait(60)
    finally:
        spark.streams.removeListener(listener)

    timeline = LsmTable(tmp_path / "table").timeline
    assert [batch.batch_id for batch in heard] == [0, 1]
    logged = [record.getMessage() for record in caplog.records if "rows_in=" in record.getMessage()]
    for batch, write, count, line in zip(heard, timeline.every_write, counts, logged, strict=True):
        numbers, commit = batch.numbers, timeline.read_commit(write)
        assert numbers is not None
        assert numbers.rows_in == count
        stored = sum(stat.num_writes for stat in commit.stats)
        assert numbers.rows_deleted == sum(stat.num_deletes for stat in commit.stats)
        assert numbers.rows_deduplicated == count - stored - numbers.rows_deleted
        assert (numbers.files, numbers.bytes) == (len(commit.stats), sum(stat.total_bytes for stat in commit.stats))
        assert numbers.commit_ms is not None
        assert numbers.lock_ms is not None
        assert numbers.lock_ms > 0
        assert numbers.conflicts == 0
        kept = json.loads(commit.extra["lsm.numbers"])
        assert kept == {name: value for name, value in vars_of(numbers).items() if name not in LATER}
        assert write.requested in line
        assert f"rows_in={count}, " in line
        assert batch.trigger_ms > 0
    slices = LsmTable(tmp_path / "table").file_slices()
    assert heard[-1].numbers is not None
    assert heard[-1].numbers.log_files == max(len(found.logs) for found in slices)


def vars_of(numbers: object) -> dict[str, object]:
    return {name: getattr(numbers, name) for name in numbers.__dataclass_fields__}  # type: ignore[attr-defined]
