"""One query serves several topics, each with a table of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming_lsm import Envelope, LsmSink
from streaming_lsm.errors import ConfigError, LsmError, RecordError
from streaming_lsm.kafka.broker import KafkaBroker, create_topic
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.kafka.stream import BatchReport
from streaming_lsm.kafka.topic_sinks import TopicSinks
from tests.support.watched_stream import OPTIONS, commits, delete_topic, put, rows, watched


def until_it_fails(broker: KafkaBroker, topic: str, reports: Iterator[BatchReport]) -> None:
    """Send events to a topic, batch after batch."""
    while True:
        put(broker, topic, {"id": "b", "qty": 3})
        next(reports)


def shown(report: BatchReport) -> tuple[object, ...]:
    return (report.batch_id, report.topics, report.events, report.rows, report.replayed)


def test_topics_have_tables_formats_numbers_and_replays_of_their_own(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    for topic in ("shop.orders", "shop.users"):
        create_topic(broker.bootstrap_servers, topic, 2)
    of_users = "lsm.kafka.topic.shop.users."
    options = {
        "subscribe": "shop.orders,shop.users",
        f"{of_users}kafka.schema": "id BIGINT, name STRING",
        f"{of_users}kafka.format": "debezium-json",
    }
    # The same keys in both topics.
    put(broker, "shop.orders", *({"id": str(n), "qty": n, "note": 1} for n in range(4)))
    put(broker, "shop.users", *({"before": None, "after": {"id": n, "name": "u"}, "op": "c"} for n in range(3)))
    with watched(spark, tmp_path, broker.bootstrap_servers, **options) as watcher:
        found = list(watcher.reports(60))
    assert [shown(report) for report in found] == [
        (0, ("shop.orders",), 4, 4, False),
        (0, ("shop.users",), 3, 3, False),
    ]
    assert [report.unknown_fields for report in found] == [{"note": 4}, {}]

    put(broker, "shop.orders", {"id": "3", "qty": 30})
    with watched(spark, tmp_path, broker.bootstrap_servers, **options) as watcher:
        assert [shown(report) for report in watcher.reports(60)] == [(1, ("shop.orders",), 1, 1, False)]
    assert commits(tmp_path / "shop.users") == 1, "a table without events in a batch has no commit of it"

    # The query ends after the commit of one table and before that of the other, as if the driver had died.
    put(broker, "shop.orders", {"id": "0", "qty": 10})
    put(broker, "shop.users", {"op": "?"}, {"before": None, "after": {"id": 2, "name": "w"}, "op": "u"})
    said = r"^topic shop\.users, table .*/shop\.users: .* offset \d+"
    with (
        watched(spark, tmp_path, broker.bootstrap_servers, **options) as watcher,
        pytest.raises(RecordError, match=said),
    ):
        list(watcher.reports(60))
    assert [commits(tmp_path / topic) for topic in ("shop.orders", "shop.users")] == [3, 1]
    letters = {f"{of_users}on.bad.event": "dead_letter", f"{of_users}dead.letter.path": str(tmp_path / "dead")}
    with watched(spark, tmp_path, broker.bootstrap_servers, **options, **letters) as watcher:
        again = list(watcher.reports(60))
    assert [shown(report) for report in again] == [
        (2, ("shop.orders",), 1, 1, True),
        (2, ("shop.users",), 2, 1, False),
    ]
    assert [report.dead_letters for report in again] == [0, 1]
    assert [commits(tmp_path / topic) for topic in ("shop.orders", "shop.users")] == [3, 2]
    assert rows(tmp_path / "shop.orders") == [{"id": str(n), "qty": {0: 10, 3: 30}.get(n, n)} for n in range(4)]
    assert rows(tmp_path / "shop.users") == [{"id": n, "name": "w" if n == 2 else "u"} for n in range(3)]


def test_topics_that_share_a_table_by_intention_are_one_part_of_a_batch(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    for topic in ("north", "south"):
        create_topic(broker.bootstrap_servers, topic, 1)
        put(broker, topic, {"id": topic, "qty": 1})
    one = {
        "lsm.table.path": str(tmp_path / "both"),
        "lsm.kafka.topics.share.table": "true",
        "hoodie.table.name": "both",
    }
    with watched(spark, tmp_path, broker.bootstrap_servers, subscribe="north,south", **one) as watcher:
        (report,) = watcher.reports(60)
    assert shown(report) == (0, (), 2, 2, False)
    assert [row["id"] for row in rows(tmp_path / "both")] == ["north", "south"]


def messages(spark: SparkSession, *topics: str) -> DataFrame:
    """A message of each topic, as Spark's Kafka source gives them."""
    rows = [(b"k", json.dumps({"id": topic, "qty": 1}).encode(), topic, 0, 5) for topic in topics]
    return spark.createDataFrame(rows, "key binary, value binary, topic string, partition int, offset long")


def test_a_topic_that_comes_later_is_refused_the_table_that_options_give_to_another_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    keys = {
        "subscribePattern": ".*",
        "lsm.table.path": f"{tmp_path}/{{topic}}",
        "lsm.kafka.topic.a.table.path": f"{tmp_path}/b",
        "lsm.writer.id": "w",
    }
    sinks = TopicSinks(JobSettings.load(None, {**OPTIONS, **keys}))
    with pytest.raises(ConfigError, match="topics 'a' and 'b' have one table"):
        sinks(messages(spark, "b"), 0)
    sinks(messages(spark, "a"), 0)
    with pytest.raises(ConfigError, match="topics 'a' and 'b' have one table"):
        sinks(messages(spark, "c", "b"), 1)
    assert ([row["id"] for row in rows(tmp_path / "b")], (tmp_path / "c").exists()) == (["a"], False)


def test_a_sink_of_your_own_program_refuses_the_events_of_a_second_topic(spark: SparkSession, tmp_path: Path) -> None:
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id", "lsm.writer.id": "w"}
    envelope = Envelope(pa.schema([("id", pa.string()), ("qty", pa.int32())]), ("id",))

    sink = LsmSink(tmp_path, options, envelope=envelope)
    sink(messages(spark, "a"), 0)
    with pytest.raises(ConfigError, match=r"the batch has events of topics 'a' and 'b', and the table .* is for one"):
        sink(messages(spark, "a", "b"), 1)
    said = "events of topic 'b', and the table .* has rows of topic 'a', .* set lsm.kafka.topics.share.table=true"
    restarted = LsmSink(tmp_path, options, envelope=envelope)
    other_query = LsmSink(tmp_path, {**options, "lsm.writer.id": "other"}, envelope=envelope)
    for each in (sink, restarted, other_query):
        with pytest.raises(ConfigError, match=said):
            each(messages(spark, "b"), 2)
    restarted(messages(spark, "a"), 2)
    assert [row["id"] for row in rows(tmp_path)] == ["a"]
    LsmSink(tmp_path, {**options, "lsm.kafka.topics.share.table": "true"}, envelope=envelope)(
        messages(spark, "a", "b"), 3
    )
    assert [row["id"] for row in rows(tmp_path)] == ["a", "b"]
    with pytest.raises(ConfigError, match=r"events of topic 'a', and the table .* has rows of topic 'b'"):
        LsmSink(tmp_path, options, envelope=envelope)(messages(spark, "a"), 4)


def test_topics_of_a_pattern_get_tables_as_they_come_and_one_that_is_deleted_is_named(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, "log.first", 1)
    put(broker, "log.first", {"id": "a", "qty": 1})
    continuous = {"subscribePattern": r"log\..*", "lsm.trigger": "1 second"}
    with watched(spark, tmp_path, broker.bootstrap_servers, **continuous) as watcher:
        reports = watcher.reports(90)
        assert shown(next(reports)) == (0, ("log.first",), 1, 1, False)
        create_topic(broker.bootstrap_servers, "log.second", 1)
        put(broker, "log.second", {"id": "a", "qty": 2})
        assert next(reports).topics == ("log.second",)
        delete_topic(broker, "log.first")
        begun = time.monotonic()
        with pytest.raises(LsmError) as failed:
            until_it_fails(broker, "log.second", reports)
    assert time.monotonic() - begun < 30
    assert str(failed.value).startswith("partition 0 of topic 'log.first' is no more on the brokers. ")
    assert "All batches before are in the table." in str(failed.value)
    assert [row["id"] for row in rows(tmp_path / "log.first")] == ["a"]
    assert rows(tmp_path / "log.second")[0] == {"id": "a", "qty": 2}


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (None, "subscribe: topic 'lost-None' is not on the brokers at "),
        (1, "partition 1 of topic 'lost-1' is no more on the brokers. "),
    ],
    ids=["topic", "partition"],
)
def test_a_topic_or_partition_that_vanishes_beside_others_that_go_on_is_named(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, again: int | None, said: str
) -> None:
    lost, kept = f"lost-{again}", f"kept-{again}"
    create_topic(broker.bootstrap_servers, lost, 2)
    create_topic(broker.bootstrap_servers, kept, 1)
    put(broker, lost, *({"id": str(n), "qty": n} for n in range(8)))
    put(broker, kept, {"id": "a", "qty": 1})
    options = {"subscribe": f"{lost},{kept}", "lsm.trigger": "1 second"}
    with watched(spark, tmp_path, broker.bootstrap_servers, **options) as watcher:
        reports = watcher.reports(90)
        assert {next(reports).topics for _ in range(2)} == {(lost,), (kept,)}
        delete_topic(broker, lost)
        if again is not None:
            time.sleep(1)
            create_topic(broker.bootstrap_servers, lost, again)
            put(broker, lost, *({"id": str(n), "qty": n} for n in range(20)))
        begun = time.monotonic()
        with pytest.raises(LsmError) as failed:
            until_it_fails(broker, kept, reports)
    assert time.monotonic() - begun < 30
    assert str(failed.value).startswith(said)
    assert "All batches before are in the table." in str(failed.value)
    assert len(rows(tmp_path / lost)) == 8
    if again is not None:
        # Offsets of the other partition, which was made again, begin before those that were read.
        go_on = {**options, "failOnDataLoss": "false", "lsm.trigger": "availableNow"}
        with watched(spark, tmp_path, broker.bootstrap_servers, **go_on) as watcher:
            assert (kept,) in [report.topics for report in watcher.reports(60)]
        assert [row["id"] for row in rows(tmp_path / kept)] == ["a", "b"]
