"""Columns that follow the schemas of Avro messages, in Spark's tasks, with a real registry: no value is lost."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from random import Random
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
from tests.support.registries import new_registry
from tests.support.watched_stream import commits, put, rows, watched

Row = dict[str, Any]

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}

ONE = record(("id", "long"), ("v", "int"))
TWO = record(("id", "long"), ("v", "long"), ("note", nullable("string")))
THREE = record(("id", "long"), ("v", "int"), ("place", nullable(record(("lat", "double"), name="Place"))))
LARGE = 1 << 40


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with new_registry() as server:
        yield server


class Topic:
    """A topic of a query, whose batches are written one by one; each query is a restart."""

    def __init__(self, spark: SparkSession, folder: Path, registry: RegistryServer, **options: str) -> None:
        self._spark, self._registry = spark, registry
        self.path, self.dead = folder / "t", folder / "dead"
        self._options: dict[str, str] = {
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

    @cached_property
    def sinks(self) -> TopicSinks:
        return TopicSinks(JobSettings.load(None, self._options))

    def start(self) -> None:
        """Start the query again."""
        self.__dict__.pop("sinks", None)

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
    first = registry.register("t-value", json.dumps(ONE))
    topic = Topic(spark, tmp_path, registry, **more)
    topic.write(0, [topic.message(ONE, {"id": n, "v": n}) for n in range(20)])
    assert LsmTable(topic.path).schema == pa.schema({"id": pa.int64(), "v": pa.int32()})
    new = [topic.message(TWO, {"id": n, "v": LARGE + n, "note": f"n{n}"}) for n in range(10, 30)]
    new += [topic.message(THREE, {"id": n, "v": n, "place": {"lat": n / 4}}) for n in range(30, 35)]
    new += [b"no Avro", (b"3", None), topic.message(ONE, {"id": 40, "v": 40})]
    with caplog.at_level(logging.WARNING, sink_module.__name__):
        topic.write(1, new)
    changing = f"schemas of messages ({first + 1}, {first + 2})"
    assert f"{changing}: v BIGINT, note STRING, place STRUCT<LAT:DOUBLE>" in caplog.text
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
    first = registry.register("t-value", json.dumps(ONE))
    topic = Topic(spark, tmp_path, registry, **{"lsm.schema.evolution": mode})
    topic.write(0, [topic.message(ONE, {"id": 1, "v": 1})])
    same = record(("id", "long"), ("v", "int"), ("note", nullable("string")))
    batch = [topic.message(ONE, {"id": 2, "v": 2}), topic.message(same, {"id": 3, "v": 3, "note": "x"})]
    if mode == "fail":
        new = first + 1
        said = (
            rf"topic 't', partition 1, offset 101: schema {new} .http.*/ids/{new}.: column 'note' is not in the table"
        )
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
    first = registry.register("t-value", json.dumps(ONE))
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
    assert calls == [frozenset({first + 1}), frozenset()][: 1 if place == "once" else 2]
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
        return message("follow.users", avro, value)

    old = record(("id", "long"), ("name", "string"), name="Row")
    new = record(("id", "long"), ("name", "string"), ("age", nullable("int")), name="Row")
    for topic in ("follow.orders", "follow.users"):
        create_topic(broker.bootstrap_servers, topic, 1)
    of_users = "lsm.kafka.topic.follow.users."
    options = {
        "subscribe": "follow.orders,follow.users",
        "lsm.kafka.schema": "",
        "lsm.kafka.format": "avro",
        "lsm.kafka.schema.registry.url": registry.url,
        f"{of_users}kafka.format": "debezium-avro",
        f"{of_users}hoodie.table.ordering.fields": "_event_lsn",
    }
    put(broker, "follow.orders", *(message("follow.orders", ONE, {"id": n, "v": n}) for n in range(3)))
    put(broker, "follow.users", *(change(old, {"id": n, "name": "a"}, n) for n in range(3)))
    with watched(spark, tmp_path, broker.bootstrap_servers, **options) as watcher:
        found = list(watcher.reports(60))
    assert [report.rows for report in found] == [3, 3]
    assert rows(tmp_path / "follow.users")[0] == {"id": 0, "name": "a", "_event_lsn": 0}

    put(broker, "follow.orders", message("follow.orders", TWO, {"id": 3, "v": LARGE, "note": "x"}))
    put(broker, "follow.users", change(new, {"id": 1, "name": "b", "age": 7}, 10))
    put(broker, "follow.users", change(new, None, 11, {"id": 2, "name": "a", "age": None}))
    with watched(spark, tmp_path, broker.bootstrap_servers, **options) as watcher:
        assert [(report.rows, report.deletes) for report in watcher.reports(60)] == [(1, 0), (1, 1)]
    assert rows(tmp_path / "follow.orders") == [
        *({"id": n, "v": n, "note": None} for n in range(3)),
        {"id": 3, "v": LARGE, "note": "x"},
    ]
    assert rows(tmp_path / "follow.users") == [
        {"id": 0, "name": "a", "_event_lsn": 0, "age": None},
        {"id": 1, "name": "b", "_event_lsn": 10, "age": 7},
    ]
    fail = {f"{of_users}schema.evolution": "fail"}
    newest = record(("id", "long"), ("name", "string"), ("city", "string"), name="Row")
    put(broker, "follow.users", change(newest, {"id": 1, "name": "b", "city": "c"}, 12))
    said = r"^topic follow\.users, table .*: topic 'follow\.users', .*column 'city' is not in the table"
    with (
        watched(spark, tmp_path, broker.bootstrap_servers, **options, **fail) as watcher,
        pytest.raises(LsmError, match=said),
    ):
        list(watcher.reports(60))


def test_topics_that_share_a_table_have_the_columns_of_all_their_schemas(
    spark: SparkSession, tmp_path: Path, registry: RegistryServer
) -> None:
    of_south = record(("id", "long"), ("note", "string"))
    topic = Topic(
        spark, tmp_path, registry, **{"subscribe": "north,south", "lsm.kafka.topics.share.table": "true"}
    )  # fmt: skip
    ids = [registry.register(f"{name}-value", json.dumps(avro)) for name, avro in (("north", ONE), ("south", of_south))]
    values = (encoded(ONE, {"id": 1, "v": 1}), encoded(of_south, {"id": 2, "note": "x"}))
    batch = kafka_messages(
        [(None, framed(one, value)) for one, value in zip(ids, values, strict=True)],
        sources=[("north", 0, 5), ("south", 0, 5)],
    )
    topic.sinks(spark.createDataFrame(pa.Table.from_batches([batch])), 0)
    assert rows(topic.path) == [{"id": 1, "v": 1, "note": None}, {"id": 2, "v": None, "note": "x"}]


def test_the_job_tells_a_missing_schema_before_spark_starts_and_needs_no_columns_with_one(
    broker: KafkaBroker, tmp_path: Path, registry: RegistryServer
) -> None:
    create_topic(broker.bootstrap_servers, "by-schema", 1)
    command = [
        sys.executable, "jobs/kafka_to_lsm.py", "--timeout", "150", "--bootstrap-servers", broker.bootstrap_servers,
        "subscribe=by-schema", f"lsm.table.path={tmp_path / 'table'}", f"checkpointLocation={tmp_path / 'checkpoint'}",
        "lsm.kafka.format=avro", f"lsm.kafka.schema.registry.url={registry.url}", "hoodie.table.name=t",
        "hoodie.datasource.write.recordkey.field=id", "hoodie.bucket.index.num.buckets=1",
    ]  # fmt: skip

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)

    refused = run()
    assert refused.returncode == 2
    assert (
        "the columns of topic 'by-schema' cannot be had from its schema: subject 'by-schema-value' is" in refused.stderr
    )
    one = registry.register("by-schema-value", json.dumps(ONE))
    put(broker, "by-schema", framed(one, encoded(ONE, {"id": 1, "v": 1})))
    two = registry.register("by-schema-value", json.dumps(TWO))
    put(broker, "by-schema", framed(two, encoded(TWO, {"id": 2, "v": LARGE, "note": "x"})))
    three = registry.register("other", json.dumps(THREE))
    put(broker, "by-schema", framed(three, encoded(THREE, {"id": 3, "v": 3, "place": {"lat": 0.5}})))
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert rows(tmp_path / "table") == [
        {"id": 1, "v": 1, "note": None, "place": None},
        {"id": 2, "v": LARGE, "note": "x", "place": None},
        {"id": 3, "v": 3, "note": None, "place": {"lat": 0.5}},
    ]


class Versions:
    """Random versions of a schema, with values, and the column types that a table has after them."""

    WIDER = (("int", "long", "string"), ("float", "double"), ((6, 2), (9, 4)))

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.reached: dict[str, int] = {}

    def version(self) -> dict[str, int]:
        """The fields of a version, some of a family each, with the width of their types."""
        names = self.random.sample(("a0", "b0", "a1", "b1", "a2", "b2", "s.x0", "s.y0", "s.z1"), 5)
        return {name: self.random.randrange(len(self.WIDER[int(name[-1])])) for name in names}

    def avro(self, version: dict[str, int]) -> Any:
        def kind(name: str) -> Any:
            one = self.WIDER[int(name[-1])][version[name]]
            if isinstance(one, tuple):
                one = {"type": "bytes", "logicalType": "decimal", "precision": one[0], "scale": one[1]}
            return nullable(one)

        inside = [(name[2:], kind(name)) for name in version if name.startswith("s.")]
        plain: list[tuple[str, Any]] = [(name, kind(name)) for name in version if not name.startswith("s.")]
        if inside:
            plain.insert(self.random.randrange(len(plain) + 1), ("s", nullable(record(*inside, name="S"))))
        return record(("id", "long"), *plain)

    def row(self, version: dict[str, int]) -> Row:
        number = self.random.randrange(10_000)
        values: dict[str, tuple[Any, ...]] = {"0": (number, LARGE + number, f"t{number}"), "1": (number / 8,) * 2}
        values["2"] = (Decimal(number) / 100, Decimal(number) / 10_000)
        found: Row = {"id": self.random.randrange(30)}
        for name, width in version.items():
            self.reached[name] = max(width, self.reached.get(name, 0))
            value = values[name[-1]][width] if self.random.random() < 0.8 else None
            if name.startswith("s."):
                found.setdefault("s", {})[name[2:]] = value
            else:
                found[name] = value
        return found

    def stored(self, row: Row) -> Row:
        """The row as a table has it at last."""

        def value(name: str, given: Any) -> Any:
            is_text = name[-1] == "0" and self.reached[name] == 2
            return str(given) if is_text and given is not None else given

        plain = {name: value(name, row.get(name)) for name in self.reached if not name.startswith("s.")}
        inside = [name for name in self.reached if name.startswith("s.")]
        given = row.get("s")
        held = None if given is None else {name[2:]: value(name, given.get(name[2:])) for name in inside}
        return {"id": row["id"], **plain, **({"s": held} if inside else {})}


@pytest.mark.parametrize("seed", range(4))
def test_a_table_has_the_values_of_all_versions_of_a_schema_in_any_order_and_mix(
    spark: SparkSession, tmp_path: Path, registry: RegistryServer, seed: int
) -> None:
    versions = Versions(seed)
    known: list[tuple[dict[str, int], Any]] = []
    model: dict[int, Row] = {}
    topic: Topic | None = None
    for batch_id in range(6):
        for _ in range(versions.random.randrange(3) if known else 1):
            version = versions.version()
            known.append((version, versions.avro(version)))
            registry.register("t-value", json.dumps(known[-1][1]))
        topic = topic or Topic(spark, tmp_path, registry)
        batch = []
        for _ in range(40):
            version, avro = versions.random.choice(known)
            row = versions.row(version)
            model[row["id"]] = row
            batch.append((str(row["id"]).encode(), topic.message(avro, row)))
        # One topic partition, as the order of others is not defined.
        messages = kafka_messages(batch, sources=[("t", 0, 100 * batch_id + place) for place in range(40)])
        topic.sinks(spark.createDataFrame(pa.Table.from_batches([messages])).repartition(1), batch_id)
        if versions.random.random() < 0.3:
            topic.start()
    assert topic is not None
    expected = [versions.stored(row) for row in model.values()]
    assert rows(topic.path) == sorted(expected, key=lambda row: str(row["id"]))
    assert not topic.dead.exists()
    assert validate(topic.path) == []
