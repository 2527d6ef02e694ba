"""A source that is gone is told in seconds, with addresses and topics, and what was committed stays."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming_lsm import LsmTable
from streaming_lsm.errors import LsmError, TopicRecreated
from streaming_lsm.kafka.broker import KafkaBroker, create_topic
from tests.support.watched_stream import delete_topic, put, watched

OPTIONS = {"lsm.trigger": "1 second"}


def some(topic: str, count: int) -> list[dict[str, object]]:
    return [{"id": f"{topic}-{n}", "qty": n, "note": n % 3 or None} for n in range(count)]


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (None, "subscribe: topic 'gone' is not on the brokers at "),
        (
            3,
            "topic 'again', partition 0: the query has read up to offset 9, and the topic ends at 3: it was ",
        ),
    ],
    ids=["deleted", "created-again"],
)
def test_a_topic_that_vanishes_between_two_batches_is_named_and_its_rows_stay(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, again: int | None, said: str
) -> None:
    topic = "gone" if again is None else "again"
    create_topic(broker.bootstrap_servers, topic, 1)
    put(broker, topic, *some(topic, 9))
    # With one bucket a task reads and writes, with two others write than those that read.
    buckets = {"hoodie.bucket.index.num.buckets": "1" if again is None else "2"}
    with watched(spark, tmp_path, broker.bootstrap_servers, subscribe=topic, **OPTIONS, **buckets) as watcher:
        reports = watcher.reports(60)
        first = next(reports)
        assert (first.rows, first.unknown_fields) == (9, {"note": 6})
        assert ", no columns for note (6), " in str(first)
        delete_topic(broker, topic)
        if again is not None:
            create_topic(broker.bootstrap_servers, topic, 1)
            put(broker, topic, *some(topic, again))
        begun = time.monotonic()
        with pytest.raises(LsmError) as failed:
            next(reports)
    assert time.monotonic() - begun < 30
    assert str(failed.value).startswith(said)
    assert "All batches before are in the table." in str(failed.value)
    assert LsmTable(tmp_path / topic).scan().to_arrow().num_rows == 9


def test_a_topic_that_is_created_again_with_more_events_is_named_in_a_run_and_from_one_run_to_the_next(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    """Spark goes on at the offsets of the old topic."""

    def make(count: int) -> None:
        create_topic(broker.bootstrap_servers, "more", 1)
        put(broker, "more", *some("more", count))

    def make_again(count: int) -> None:
        delete_topic(broker, "more")
        make(count)

    once = {**OPTIONS, "lsm.trigger": "availableNow"}
    said = "^topic 'more' was deleted and created again since the query read it: .* All batches before are in the table"
    make(5)
    with watched(spark, tmp_path, broker.bootstrap_servers, subscribe="more", **once) as watcher:
        assert [report.rows for report in watcher.reports(60)] == [5]
    shutil.rmtree(tmp_path / "checkpoint" / "lsm-topic-ids")
    put(broker, "more", *some("more", 1))
    # A checkpoint of a release that kept no ids takes the present one.
    with watched(spark, tmp_path, broker.bootstrap_servers, subscribe="more", **OPTIONS) as watcher:
        reports = watcher.reports(60)
        assert next(reports).rows == 1
        make_again(20)
        begun = time.monotonic()
        with pytest.raises(TopicRecreated, match=said):
            list(reports)
    assert time.monotonic() - begun < 25
    again = watched(spark, tmp_path, broker.bootstrap_servers, subscribe="more", **once)
    with pytest.raises(TopicRecreated, match=said), again:
        pass
    before = LsmTable(tmp_path / "more").scan().to_arrow().num_rows
    put(broker, "more", {"id": "last", "qty": 1})
    on_purpose = {**once, "failOnDataLoss": "false"}
    with watched(spark, tmp_path, broker.bootstrap_servers, subscribe="more", **on_purpose) as watcher:
        assert sum(report.rows for report in watcher.reports(60)) > 0
    with watched(spark, tmp_path, broker.bootstrap_servers, subscribe="more", **once) as watcher:
        assert list(watcher.reports(60)) == []
    assert LsmTable(tmp_path / "more").scan().to_arrow().num_rows > before


def test_brokers_that_die_before_the_first_batch_are_named_while_spark_waits(
    spark: SparkSession, tmp_path: Path
) -> None:
    begun, told = time.monotonic(), []
    # Spark waits for so long before a stop takes effect.
    wait = {"kafka.default.api.timeout.ms": "4000", "kafka.request.timeout.ms": "2000"}
    with watched(spark, tmp_path, "127.0.0.1:1", subscribe="any", **wait) as watcher:

        def read(trouble: LsmError) -> None:
            told.append((str(trouble), time.monotonic() - begun))
            watcher.stop()

        watcher.waiting = read
        assert list(watcher.reports(60)) == []
    ((said, seconds),) = told
    assert "no broker answers (127.0.0.1:1: Connection refused)" in said
    assert seconds < 15
