"""Queries from a broker to tables, in the session of the tests, watched as the job does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka.admin import KafkaAdminClient
from pyspark.sql import SparkSession

from streaming_lsm import LsmTable
from streaming_lsm.kafka.broker import KafkaBroker
from streaming_lsm.kafka.connector import provide_connector
from streaming_lsm.kafka.demo.orders import Message
from streaming_lsm.kafka.demo.producing import send
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.kafka.source_watch import SourceWatch
from streaming_lsm.kafka.stream import StreamWatcher, start_stream

OPTIONS = {
    "lsm.kafka.schema": "id STRING, qty INT",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.name": "{topic}",
    "hoodie.bucket.index.num.buckets": "1",
    "lsm.trigger": "availableNow",
}


@contextmanager
def watched(spark: SparkSession, folder: Path, servers: str, **options: str) -> Iterator[StreamWatcher]:
    """A query with a table for each topic in `folder`; it is stopped on leaving."""
    provide_connector(spark)
    places = {"lsm.table.path": str(folder / "{topic}"), "checkpointLocation": str(folder / "checkpoint")}
    settings = JobSettings.load(None, {**OPTIONS, **places, "kafka.bootstrap.servers": servers, **options})
    stream = start_stream(spark, settings)
    try:
        yield StreamWatcher(stream.query, stream.sinks.parts, source=SourceWatch(stream.ids.check))
    finally:
        stream.query.stop()


def put(broker: KafkaBroker, topic: str, *documents: object) -> None:
    """Send documents, as JSON or as the bytes that they are."""
    values = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in documents]
    send(broker.bootstrap_servers, topic, [Message(b"k", value) for value in values])


def delete_topic(broker: KafkaBroker, topic: str) -> None:
    """Delete a topic."""
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    client.delete_topics([topic])
    client.close()


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table, by id."""
    table = LsmTable(path).scan().to_arrow()
    hidden = [name for name in table.column_names if name.startswith("_hoodie")]
    return sorted(table.drop_columns(hidden).to_pylist(), key=lambda row: str(row["id"]))


def commits(path: Path) -> int:
    """The number of commits of a table."""
    return len(LsmTable(path).timeline.every_write)
