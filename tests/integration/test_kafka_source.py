"""A source that is gone is told in seconds, with addresses and topics, and what was committed stays."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, LsmError
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


def test_brokers_that_die_before_the_first_batch_are_named_while_spark_waits(
    spark: SparkSession, tmp_path: Path
) -> None:
    begun, told = time.monotonic(), []
    # Spark waits for so long before a stop takes effect.
    wait = {"kafka.default.api.timeout.ms": "4000", "kafka.request.timeout.ms": "2000"}
    with watched(spark, tmp_path, "127.0.0.1:1", subscribe="any", **wait) as watcher:

        def read(trouble: ConfigError) -> None:
            told.append((str(trouble), time.monotonic() - begun))
            watcher.stop()

        watcher.waiting = read
        assert list(watcher.reports(60)) == []
    ((said, seconds),) = told
    assert "no broker answers (127.0.0.1:1: Connection refused)" in said
    assert seconds < 15
