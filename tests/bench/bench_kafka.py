"""The Kafka job's batches against Spark's own way from a topic to files: ``from_json`` and a plain append."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession

from streaming_lsm import Envelope, EventFormat, LsmSink
from streaming_lsm.kafka.broker import KafkaBroker, create_topic
from streaming_lsm.kafka.packaged import broker_jars, connector_jars
from streaming_lsm.kafka.settings import READING
from streaming_lsm.spark.jvm.java import find_java
from streaming_lsm.spark.session import local_session
from tests.bench.documents import SCHEMA, documents
from tests.bench.processor import processor_seconds
from tests.bench.reference.kafka import append_documents
from tests.bench.result import Result, in_turns
from tests.bench.workload import KEY, ORDERING, REPEATED

EVENTS, KEYS, PARTITIONS, BUCKETS, RUNS, WARM_UP, POISON = 250_000, 700_000, 8, 8, 5, 6, 100
COLUMNS = (
    f"{KEY} STRING, customer_id BIGINT, country STRING, status STRING, item STRING, qty INT, price DECIMAL(10,2), "
    f"discount DOUBLE, express BOOLEAN, created_at BIGINT, {ORDERING} BIGINT"
)
TOPICS = {"rows": EventFormat.JSON, "changes": EventFormat.DEBEZIUM, "poison": EventFormat.JSON}


def run() -> list[Result]:
    """Batches that read a whole topic, warm: rates and processor time; the reference takes turns with ours."""
    results = []
    java = find_java()
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaBroker(Path(folder) / "broker", broker_jars(java), java) as broker,
    ):
        rows, changes = f"{EVENTS // 1000} k JSON rows of Kafka", f"{EVENTS // 1000} k Debezium events of Kafka"
        spark = local_session("bench", cores=2, jars=connector_jars(java), settings={"spark.log.level": "ERROR"})
        for topic, kind in (
            ("rows", EventFormat.JSON),
            ("changes", EventFormat.DEBEZIUM),
            ("poison", EventFormat.JSON),
        ):
            _send(broker.bootstrap_servers, topic, kind, POISON if topic == "poison" else None)
        ways = {topic: _Ways(spark, broker.bootstrap_servers, topic, folder) for topic in ("rows", "changes", "poison")}
        for topic, name in (("rows", rows), ("changes", changes)):
            ours, reference = _Measured(ways[topic].sink), _Measured(ways[topic].append)
            taken = in_turns(ours, reference, runs=RUNS, warm_up=WARM_UP)
            note = "from_json and a zstd Parquet append by Spark, two cores"
            results.append(Result(name, *taken, EVENTS, "events", 1.4, True, note))
            spent = (tuple(ours.spent[-RUNS:]), tuple(reference.spent[-RUNS:]))
            if topic == "rows":
                results.append(Result(f"{name}, processor", *spent, EVENTS, "events", 0.75, False, note))
        poisoned = in_turns(ways["poison"].sink, ways["rows"].sink, runs=RUNS, warm_up=WARM_UP)
        note = "the same without bad events, which go to dead letters"
        results.append(Result(f"{rows}, 1 % bad", *poisoned, EVENTS, "events", 0.8, True, note))
        spark.stop()
    return results


class _Measured:
    """Calls a function and notes the processor time of this process and all below it, the broker included."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.spent: list[float] = []
        self._call = call

    def __call__(self) -> None:
        begun = processor_seconds(os.getpid())
        self._call()
        self.spent.append(processor_seconds(os.getpid()) - begun)


class _Ways:
    """Takes a topic to a table, and to plain files."""

    def __init__(self, spark: SparkSession, servers: str, topic: str, folder: str) -> None:
        self._spark, self._servers, self._topic, self._folder = spark, servers, topic, f"{folder}/{topic}"
        options: dict[str, object] = {
            "hoodie.table.name": "orders",
            "hoodie.datasource.write.recordkey.field": KEY,
            "hoodie.table.ordering.fields": ORDERING,
            "hoodie.bucket.index.num.buckets": BUCKETS,
            "lsm.writer.id": "bench",
            "lsm.on.bad.event": "dead_letter",
            "lsm.dead.letter.path": f"{self._folder}-letters",
        }
        envelope = Envelope(SCHEMA, (KEY,), ordering=(ORDERING,), format=TOPICS[topic])
        self._sink = LsmSink(f"{self._folder}-table", options, envelope=envelope)
        self._row = "after" if TOPICS[topic] is EventFormat.DEBEZIUM else None
        self._numbers = count()

    def _messages(self) -> DataFrame:
        reader = self._spark.read.format("kafka").option("kafka.bootstrap.servers", self._servers)
        reader = reader.options(**READING)
        return reader.option("subscribe", self._topic).option("startingOffsets", "earliest").load()

    def sink(self) -> None:
        """Upsert the whole topic as one batch."""
        self._sink(self._messages(), next(self._numbers))

    def append(self) -> None:
        """Append the whole topic."""
        append_documents(self._messages(), COLUMNS, f"{self._folder}-plain", self._row, REPEATED)


def _send(servers: str, topic: str, kind: EventFormat, poison: int | None) -> None:
    create_topic(servers, topic, PARTITIONS)
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=50, batch_size=1 << 18)
    for number, (key, value) in enumerate(documents(EVENTS, KEYS, kind, poison)):
        producer.send(topic, key=key, value=value, partition=number % PARTITIONS)
    producer.flush()
    producer.close()
