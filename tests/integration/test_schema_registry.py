"""Avro messages in Spark's tasks, with a real registry that lacks a schema or does not answer: nothing is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streaming_lsm import Envelope, EventFormat, LsmSink, LsmTable
from streaming_lsm.errors import RegistryError, SchemaError
from streaming_lsm.schema_registry.registry import SchemaRegistry
from tests.oracle.validator import validate
from tests.support.avro_messages import encoded, framed, record
from tests.support.event_columns import Message, event_columns, kafka_messages
from tests.support.registries import new_registry

ROW = record(("id", "long"), ("v", "int"))
LATER = record(("added", "string"), ("v", ["null", "long"]), ("id", "int"))


class Topic:
    """A table, and the messages that go to it batch by batch."""

    def __init__(self, spark: SparkSession, folder: Path, url: str) -> None:
        options: dict[str, object] = {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.bucket.index.num.buckets": 2,
            "lsm.writer.id": "w",
            "lsm.write.shuffle.partitions": 2,
            "lsm.on.bad.event": "dead_letter",
            "lsm.dead.letter.path": str(folder / "dead"),
        }
        registry = SchemaRegistry(url, timeout_seconds=1)
        columns = event_columns("id BIGINT, v INT")
        envelope = Envelope(columns, ("id",), format=EventFormat.AVRO, schemas=(registry,))
        self.path = folder / "table"
        self._spark, self._sink, self._batch = spark, LsmSink(self.path, options, envelope=envelope), 0

    def write(self, messages: Sequence[Message]) -> None:
        """Write a batch; one that fails is written again, as by a query that is started again."""
        frame = self._spark.createDataFrame(pa.Table.from_batches([kafka_messages(messages)]))
        self._sink(frame, self._batch)
        self._batch += 1

    def rows(self) -> dict[int, int | None]:
        found = LsmTable(self.path).scan(columns=["id", "v"]).to_arrow().to_pylist()
        return {row["id"]: row["v"] for row in found}


def test_a_batch_whose_schema_cannot_be_had_fails_whole_and_is_written_when_it_can(
    spark: SparkSession, tmp_path: Path
) -> None:
    with new_registry() as server:
        topic = Topic(spark, tmp_path, server.url)
        first = server.register("t-value", json.dumps(ROW))
        topic.write([(None, framed(first, encoded(ROW, {"id": n, "v": n}))) for n in range(50)])
        later = [(None, framed(first, encoded(ROW, {"id": 50, "v": 5}))), (None, b"no Avro")]
        later.append((None, framed(first + 1, encoded(LATER, {"id": 51, "v": 5, "added": "x"}))))
        said = rf"topic 't', partition 2, offset 102: schema {first + 1} is not known to {server.url}: register it"
        with pytest.raises(RegistryError, match=said):
            topic.write(later)
        assert topic.rows() == {n: n for n in range(50)}
        assert LsmTable(topic.path).timeline.pending == ()
        server.register("t-value", json.dumps(LATER))
        topic.write(later)
        assert topic.rows() == {n: n for n in range(50)} | {50: 5, 51: 5}
        wrong = server.register("t-value", json.dumps(record(("id", "long"), ("v", "double"))))
        with pytest.raises(SchemaError, match=rf"offset 100: schema {wrong} .*field 'v' is double, which never fits"):
            topic.write([(None, framed(wrong, b""))])
        url = server.url
    begun = time.monotonic()
    # A worker whose task failed has ended, and with it the schemas that it knew.
    with pytest.raises(RegistryError, match=rf"gives no answer within 1 s .{url}/schemas/ids/\d+: .*refused"):
        topic.write([(None, framed(first, encoded(ROW, {"id": 52, "v": 5}))), (None, framed(99, b""))])
    assert time.monotonic() - begun < 15
    assert topic.rows() == {n: n for n in range(50)} | {50: 5, 51: 5}
    assert validate(topic.path) == []
