"""A stream into a table on S3: driver and Python workers are processes of their own, and use the same store."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming_lsm import LsmSink, LsmTable
from streaming_lsm.storage.objects.probe import PROBE_NAME
from tests.oracle.validator import validate
from tests.support.lake import OrdersLake
from tests.support.orders import final_rows, rows_of
from tests.support.raw_objects import download
from tests.support.s3_server import S3Server
from tests.support.small_tables import OPTIONS
from tests.support.spark_frames import arrow_of, read_by_spark


def test_a_stream_writes_a_table_on_s3_by_executors_and_goes_on(
    spark: SparkSession, s3_uri: str, tmp_path: Path
) -> None:
    lake = OrdersLake(spark, tmp_path, {"hoodie.metadata.enable": "true"})
    lake.path = s3_uri.replace("s3://", "s3a://")
    lake.produce(0, 1, 2)
    lake.run(1)
    lake.produce(3)
    lake.run(1)
    expected = final_rows(lake.orders)
    assert rows_of(LsmTable(lake.path).scan().to_arrow()) == expected
    assert rows_of(arrow_of(read_by_spark(spark, lake.path))) == expected
    assert lake.batches() == [0, 1, 2, 3]
    copy = download(s3_uri, tmp_path / "copy")
    assert rows_of(LsmTable(copy).scan().to_arrow()) == expected
    accepted = ("folder.missing: .hoodie/", "leftover.lock: .hoodie/lock")
    said = [violation for violation in validate(copy) if not violation.startswith(accepted)]
    assert [violation for violation in said if PROBE_NAME not in violation] == []


def test_events_that_cannot_be_read_go_to_s3(spark: SparkSession, s3_uri: str, tmp_path: Path) -> None:
    letters = f"{s3_uri}/letters"
    options = {"lsm.on.bad.event": "dead_letter", "lsm.dead.letter.path": letters}
    lake = OrdersLake(spark, tmp_path, options)
    lake.path = f"{s3_uri}/table"
    lake.produce(0, count=40)
    lake.run(1, prepared=lambda events: events.withColumn("order_id", F.expr("if(qty < 5, null, order_id)")))
    (copy,) = [download(letters, tmp_path / "letters")]
    assert pq.ParquetDataset(copy).read().num_rows == 5


def test_a_batch_of_a_query_costs_few_requests(spark: SparkSession, object_server: S3Server, s3_uri: str) -> None:
    sink = LsmSink(s3_uri, {**OPTIONS, "lsm.writer.id": "query", "hoodie.bucket.index.num.buckets": 4})
    for batch in range(3):
        values = [(f"k{number}", "nl", batch, number) for number in range(200)]
        events = spark.createDataFrame(values, "id string, country string, ts long, qty int").repartition(2)
        object_server.requests()
        sink(events, batch)
    found = object_server.requests()
    files = sum(".log.parquet" in request and "marker" not in request for request in found)
    listings = [request for request in found if "list-type" in request]
    tasks = sum(request.startswith("GET") and "/.heartbeat/" in request for request in found)
    assert files == 4
    assert tasks <= files
    # One listing of the markers of the batch, by which files of repeated tasks are found.
    assert len(listings) == 1
    assert ".hoodie%2F.temp" in listings[0]
    assert len(found) <= 12 + 2 * files + tasks + len(listings), found
