"""Two chained queries, to be killed: ``python -m tests.support.chained_job SERVERS TOPIC FOLDER [drain]``.

Kafka feeds table A; the changes of A, as a stream, feed table B. With ``drain`` both read what is there, A first, and
the job ends; without it they run until they are killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from streaming_lsm import Envelope, LsmSink, register
from streaming_lsm.kafka.packaged import connector_jars
from streaming_lsm.spark.session import local_session

COLUMNS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("ts", pa.int64(), nullable=False),
        ("qty", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
TABLE = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "3",
}
KEPT = {"hoodie.clean.commits.retained": "500", "hoodie.keep.min.commits": "510", "hoodie.keep.max.commits": "520"}
CDC = {
    "hoodie.datasource.query.type": "incremental",
    "hoodie.datasource.query.incremental.format": "cdc",
    "lsm.read.stream.max.commits": "3",
}


def events_into_a(spark: SparkSession, servers: str, topic: str, folder: Path) -> DataStreamWriter:
    """Read the topic, some events a batch, and write table A."""
    stream = spark.readStream.format("kafka").options(
        **{
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "60",
        }
    )
    envelope = Envelope(COLUMNS, record_key=("id",), ordering=("ts",))
    options = TABLE | KEPT | {"hoodie.table.name": "a", "hoodie.table.ordering.fields": "ts"}
    sink = LsmSink(folder / "a", options, envelope=envelope)
    return stream.load().writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint-a"))


def changes_into_b(spark: SparkSession, folder: Path) -> DataStreamWriter:
    """Read the changes of table A, some commits a batch, and write table B; changes of a key in A's order."""
    changes = spark.readStream.format("streaming_lsm").options(**CDC).load(str(folder / "a"))
    is_deleted = F.col("op") == "d"
    row = F.when(is_deleted, F.col("before")).otherwise(F.col("after"))
    rows = changes.select(
        row["id"].alias("id"),
        row["qty"].alias("qty"),
        is_deleted.alias("_hoodie_is_deleted"),
        F.col("ts_ms").cast("long").alias("ts_ms"),
    )
    options = TABLE | {"hoodie.table.name": "b", "lsm.write.arrival.fields": "ts_ms"}
    sink = LsmSink(folder / "b", options)
    return rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint-b"))


def run(servers: str, topic: str, folder: Path, *, drain: bool) -> None:
    """Run both queries, which fail together."""
    spark = local_session("chained", cores=2, jars=connector_jars(), settings={"spark.log.level": "ERROR"})
    register(spark)
    first = events_into_a(spark, servers, topic, folder)
    if drain:
        first.trigger(availableNow=True).start().awaitTermination()
        changes_into_b(spark, folder).trigger(availableNow=True).start().awaitTermination()
        spark.stop()
        return
    running: list[StreamingQuery] = [first.start()]
    while not (folder / "a" / ".hoodie" / "hoodie.properties").exists() and running[0].isActive:
        running[0].awaitTermination(1)
    running.append(changes_into_b(spark, folder).start())
    spark.streams.awaitAnyTermination()
    for query in running:
        if (error := query.exception()) is not None:
            raise error


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], Path(sys.argv[3]), drain=sys.argv[4:] == ["drain"])
