"""Columns that follow the schemas of Avro messages, in Spark's tasks, with a real registry: no value is lost."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, LsmError, RegistryError, SchemaError
from streaming_lsm.kafka.broker import KafkaBroker, create_topic
from streaming_lsm.kafka.demo.registry_server import RegistryServer
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.kafka.topic_columns import check_columns
from streaming_lsm.kafka.topic_sinks import TopicSinks
from streaming_lsm.kafka.topic_tables import check_tables
from streaming_lsm.spark import sink as sink_module
from tests.oracle.validator import validate
from tests.support.avro_messages import debezium, encoded, framed, nullable, record
from tests.support.event_columns import Message, kafka_messages
from tests.support.watched_stream import commits, put, rows, watched

Row = dict[str, Any]

ONE = record(("id", "long"), ("v", "int"))
TWO = record(("id", "long"), ("v", "long"), ("note", nullable("string")))
THREE = record(("id", "long"), ("v", "int"), ("place", nullable(record(("lat", "double"), name="Place"))))
LARGE = 1 << 40


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


class Topic:
    """A topic of a query, whose batches are written one by one; each query is a restart."""

    def __init__(self, spark: SparkSession, folder: Path, registry: RegistryServer, **options: str) -> None:
        self._spark, self._registry = spark, registry
        self.path, self.dead = folder / "t", folder / "dead"
        self._options = {
            "kafka.bootstrap.servers": "none:1",
            "subscribe": "t",
            "lsm.table.path": str(self.path),
            "lsm.kafka.format": "avro",
            "lsm.kafka.schema.registry.url": registry.url,
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.bucket.index.num.buckets": "2",
            "lsm.writer.id": "w",
            "lsm.write.shuffle.partitions": "2",
            "lsm.on.bad.event": "dead_letter",
            "lsm.dead.letter.path": str(self.dead),
            **options,
        }
        self.start()

    def start(self) -> None:
        """Start the query, again."""
        self.sinks = TopicSinks(JobSettings.load(None, self._options))

    def message(self, avro: Any, value: Row) -> bytes:
        return framed(self._registry.register("t-value", json.dumps(avro)), encoded(avro, value))

    def write(self, batch_id: int, messages: Sequence[bytes | Message | None]) -> None:
        pairs = [one if isinstance(one, tuple) else (None, one) for one in messages]
        batch = kafka_messages(pairs, sources=[("t", place % 2, 100 * batch_id + place) for place in range(len(pairs))])
        self.sinks(self._spark.createDataFrame(pa.Table.from_batches([batch])).repartition(2), batch_id)

    def columns(self) -> list[str]:
        return list(LsmTable(self.path).schema.names)


@pytest.mark.parametrize("exchange", ["shuffle", "none", "auto", "one task", "copy on write"])
def test_the_batch_that_first_has_a_new_schema_stores_all_of_its_values(
    spark: SparkSession, tmp_path: Path, registry: RegistryServer, exchange: str, caplog: pytest.LogCaptureFixture
) -> None:
    more = {
        "one task": {"lsm.write.shuffle.partitions": "1"},
        "copy on write": {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"},
    }.get(exchange, {"lsm.write.exchange": exchange})
    if exchange == "none":
        more["hoodie.table.ordering.fields"] = "id"
    registry.register("t-value", json.dumps(ONE))
    topic = Topic(spark, tmp_path, registry, **more)
    topic.write(0, [topic.message(ONE, {"id": n, "v": n}) for n in range(20)])
    assert LsmTable(topic.path).schema == pa.schema({"id": pa.int64(), "v": pa.int32()})
    new = [topic.message(TWO, {"id": n, "v": LARGE + n, "note": f"n{n}"}) for n in range(10, 30)]
    new += [topic.message(THREE, {"id": n, "v": n, "place": {"lat": n / 4}}) for n in range(30, 35)]
    new += [b"no Avro", (b"3", None), topic.message(ONE, {"id": 40, "v": 40})]
    with caplog.at_level(logging.WARNING, sink_module.__name__):
        topic.write(1, new)
    assert "schemas of messages (2, 3): v BIGINT, note STRING, place STRUCT<LAT:DOUBLE>" in caplog.text
    expected = [{"id": n, "v": n, "note": None, "place": None} for n in (*range(10), 40) if n != 3]
    expected += [{"id": n, "v": LARGE + n, "note": f"n{n}", "place": None} for n in range(10, 30)]
    expected += [{"id": n, "v": n, "note": None, "place": {"lat": n / 4}} for n in range(30, 35)]
    assert rows(topic.path) == sorted(expected, key=lambda row: str(row["id"]))
    assert topic.columns() == ["id", "v", "note", "place"]
    assert commits(topic.path) == 2
    assert len(list(topic.dead.rglob("*.parquet"))) == 1
    numbers = next(iter(topic.sinks._sinks.values())).numbers(1)
    assert numbers is not None
    assert (numbers.dead_letters, numbers.unknown_fields, numbers.rows_in) == (1, {}, 27)
    assert validate(topic.path) == []
    # A restart takes the columns of the table, and asks for no newer ones.
    topic.start()
    topic.write(2, [topic.message(ONE, {"id": 50, "v": 50})])
    assert {"id": 50, "v": 50, "note": None, "place": None} in rows(topic.path)
    assert topic.columns() == ["id", "v", "note", "place"]
    assert commits(topic.path) == 3


@pytest.mark.parametrize("mode", ["fail", "ignore"])
def test_new_fields_stop_the_batch_by_name_or_are_counted(
    spark: SparkSession, tmp_path: Path, registry: RegistryServer, mode: str
) -> None:
    registry.register("t-value", json.dumps(ONE))
    topic = Topic(spark, tmp_path, registry, **{"lsm.schema.evolution": mode})
    topic.write(0, [topic.message(ONE, {"id": 1, "v": 1})])
    same = record(("id", "long"), ("v", "int"), ("note", nullable("string")))
    batch = [topic.message(ONE, {"id": 2, "v": 2}), topic.message(same, {"id": 3, "v": 3, "note": "x"})]
    if mode == "fail":
        said = r"topic 't', partition 1, offset 101: schema 2 .http.*/schemas/ids/2.: column 'note' is not in the table"
        with pytest.raises(SchemaError, match=said):
            topic.write(1, batch)
        assert [row["id"] for row in rows(topic.path)] == [1]
        # The same batch, once the option is changed.
        topic = Topic(spark, tmp_path, registry)
        topic.write(1, batch)
        assert rows(topic.path)[-1] == {"id": 3, "v": 3, "note": "x"}
        return
    topic.write(1, batch)
    assert rows(topic.path) == [{"id": n, "v": n} for n in (1, 2, 3)]
    numbers = next(iter(topic.sinks._sinks.values())).numbers(1)
    assert numbers is not None
    assert numbers.unknown_fields == {"note": 1}
    with pytest.raises(SchemaError, match="column 'v' has type int64, the table has int32"):
        topic.write(2, [topic.message(TWO, {"id": 3, "v": LARGE, "note": None})])


class Killed(Exception):
    """Stands for the end of the driver."""


@pytest.mark.parametrize("place", ["once", "twice", "committed"])
def test_a_batch_with_a_new_schema_that_is_run_again_after_a_crash_gives_the_same_table(
    spark: SparkSession, tmp_path: Path, registry: RegistryServer, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.register("t-value", json.dumps(ONE))
    topic = Topic(spark, tmp_path, registry)
    topic.write(0, [topic.message(ONE, {"id": n, "v": n}) for n in range(5)])
    batch = [topic.message(TWO, {"id": n, "v": LARGE, "note": "x"}) for n in range(3, 9)]
    batch.append(topic.message(ONE, {"id": 9, "v": 9}))
    write_batch, commit, calls = sink_module.write_batch, LsmTable.commit, []

    def dying(*arguments: Any) -> Any:
        done = write_batch(*arguments)
        calls.append(done.changing_schemas)
        if len(calls) == {"once": 1, "twice": 2}.get(place, 0):
            raise Killed
        return done

    def dying_after(*arguments: Any, **more: Any) -> Any:
        commit(*arguments, **more)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(sink_module, "write_batch", dying)
        if place == "committed":
            patched.setattr(LsmTable, "commit", dying_after)
        with pytest.raises(Killed):
            topic.write(1, batch)
    assert calls == [frozenset({2}), frozenset()][: 1 if place == "once" else 2]
    # A newer schema than those of the batch is not looked at.
    registry.register("t-value", json.dumps(THREE))
    topic.start()
    topic.write(1, batch)
    topic.write(1, batch)
    expected = [{"id": n, "v": n, "note": None} for n in (0, 1, 2, 9)]
    expected += [{"id": n, "v": LARGE, "note": "x"} for n in range(3, 9)]
    assert rows(topic.path) == sorted(expected, key=lambda row: row["id"])
    assert topic.columns() == ["id", "v", "note"]
    assert commits(topic.path) == 2
    assert validate(topic.path) == []


def test_a_registry_that_ends_while_the_stream_runs_stops_the_batch_and_nothing_is_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = JobSettings.schemas
    monkeypatch.setattr(
        JobSettings,
        "schemas",
        lambda settings: tuple(replace(one, timeout_seconds=1.0) for one in sources(settings)),  # type: ignore[arg-type]
    )
    with RegistryServer() as registry:
        registry.register("t-value", json.dumps(ONE))
        topic = Topic(spark, tmp_path, registry)
        topic.write(0, [topic.message(ONE, {"id": 1, "v": 1})])
        batch = [topic.message(TWO, {"id": 2, "v": LARGE, "note": "x"})]
        port = int(registry.url.rpartition(":")[2])
    begun = time.monotonic()
    with pytest.raises(RegistryError, match=r"offset 100: the schema registry gives no answer within 1 s .*ids/2"):
        topic.write(1, batch)
    assert time.monotonic() - begun < 15
    assert rows(topic.path) == [{"id": 1, "v": 1}]
    with RegistryServer(port=port) as registry:
        for avro in (ONE, TWO):
            registry.register("t-value", json.dumps(avro))
        topic.write(1, batch)
    assert rows(topic.path)[-1] == {"id": 2, "v": LARGE, "note": "x"}


def test_columns_that_no_schema_gives_are_told_before_spark_starts(
    spark: SparkSession, tmp_path: Path, registry: RegistryServer
) -> None:
    def settings(**options: str) -> JobSettings:
        given = {
            "kafka.bootstrap.servers": "none:1", "subscribe": "t", "lsm.table.path": str(tmp_path / "{topic}"),
            "lsm.kafka.format": "avro", "lsm.kafka.schema.registry.url": registry.url,
            "hoodie.datasource.write.recordkey.field": "id",
        }  # fmt: skip
        return JobSettings.load(None, {**given, **options})

    def refused(said: str, **options: str) -> None:
        with pytest.raises(ConfigError, match=said):
            check_columns(check_tables(settings(**options)))

    refused(rf"columns of topic 't' cannot be had .*: subject 't-value' is not known to {registry.url}: register")
    registry.register("t-value", json.dumps(record(("id", "long"), ("v", ["int", "string"]))))
    refused(r"newest schema of subject 't-value' .http.*versions/latest.: field 'v' is a union of int, string, for")
    registry.register("other", json.dumps(record(("key", "long"))))
    subject = {"lsm.kafka.schema.subject": "other"}
    refused("the newest schema or the table has no column 'id'", **subject)
    check_columns(check_tables(settings(**subject, **{"hoodie.datasource.write.recordkey.field": "key"})))
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "t-value.avsc").write_text(json.dumps(ONE))
    check_columns(check_tables(settings(**{"lsm.kafka.schema.folder": str(folder)})))
    with pytest.raises(ConfigError, match=r"lsm\.kafka\.schema is not set: declare the columns, .*avro"):
        TopicSinks(settings(**{"lsm.kafka.format": "json"}))


def test_two_topics_of_a_query_have_columns_of_their_own_that_follow_their_schemas(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, registry: RegistryServer
) -> None:
    def message(topic: str, avro: Any, value: Row) -> bytes:
        return framed(registry.register(f"{topic}-value", json.dumps(avro)), encoded(avro, value))

    def change(row: Any, after: Row | None, lsn: int, before: Row | None = None) -> bytes:
        avro = debezium(row, ("lsn", "long"))
        source = {"version": "3", "lsn": lsn}
        value = {"before": before, "after": after, "source": source, "op": "d" if after is None else "u", "ts_ms": None}
        return message("shop.users", avro, value)

    old = record(("id", "long"), ("name", "string"), name="Row")
    new = record(("id", "long"), ("name", "string"), ("age", nullable("int")), name="Row")
    for topic in ("shop.orders", "shop.users"):
        create_topic(broker.bootstrap_servers, topic, 1)
    of_users = "lsm.kafka.topic.shop.users."
    options = {
        "subscribe": "shop.orders,shop.users",
        "lsm.kafka.schema": "",
        "lsm.kafka.format": "avro",
        "lsm.kafka.schema.registry.url": registry.url,
        f"{of_users}kafka.format": "debezium-avro",
        f"{of_users}hoodie.table.ordering.fields": "_event_lsn",
    }
    put(broker, "shop.orders", *(message("shop.orders", ONE, {"id": n, "v": n}) for n in range(3)))
    put(broker, "shop.users", *(change(old, {"id": n, "name": "a"}, n) for n in range(3)))
    with watched(spark, tmp_path, broker.bootstrap_servers, **options) as watcher:
        found = list(watcher.reports(60))
    assert [report.rows for report in found] == [3, 3]
    assert rows(tmp_path / "shop.users")[0] == {"id": 0, "name": "a", "_event_lsn": 0}

    put(broker, "shop.orders", message("shop.orders", TWO, {"id": 3, "v": LARGE, "note": "x"}))
    put(broker, "shop.users", change(new, {"id": 1, "name": "b", "age": 7}, 10))
    put(broker, "shop.users", change(new, None, 11, {"id": 2, "name": "a", "age": None}))
    with watched(spark, tmp_path, broker.bootstrap_servers, **options) as watcher:
        assert [(report.rows, report.deletes) for report in watcher.reports(60)] == [(1, 0), (1, 1)]
    assert rows(tmp_path / "shop.orders") == [
        *({"id": n, "v": n, "note": None} for n in range(3)),
        {"id": 3, "v": LARGE, "note": "x"},
    ]
    assert rows(tmp_path / "shop.users") == [
        {"id": 0, "name": "a", "_event_lsn": 0, "age": None},
        {"id": 1, "name": "b", "_event_lsn": 10, "age": 7},
    ]
    fail = {f"{of_users}schema.evolution": "fail"}
    newest = record(("id", "long"), ("name", "string"), ("city", "string"), name="Row")
    put(broker, "shop.users", change(newest, {"id": 1, "name": "b", "city": "c"}, 12))
    said = r"^topic shop\.users, table .*: topic 'shop\.users', .*column 'city' is not in the table"
    with watched(spark, tmp_path, broker.bootstrap_servers, **options, **fail) as watcher:
        with pytest.raises(LsmError, match=said):
            list(watcher.reports(60))
