"""A topic that was deleted and created again is found, in a run and from one run to the next."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from streaming_lsm.errors import ConfigError, StorageError, TopicRecreated
from streaming_lsm.kafka.addresses import SourceLook
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.kafka.topic_ids import CheckpointIds, TopicIds
from tests.support.fake_broker import broker, listener

OLD, NEW = UUID(int=1), UUID(int=2)
Found = dict[str, UUID | None]
topic_ids = partial(TopicIds, sleep=lambda _: None)


class Kept:
    """Ids that outlive a run."""

    def __init__(self) -> None:
        self.ids: set[tuple[str, UUID]] = set()

    def load(self) -> dict[str, set[UUID]]:
        return {topic: {id_ for name, id_ in self.ids if name == topic} for topic, _ in self.ids}

    def add(self, topic: str, topic_id: UUID) -> None:
        self.ids.add((topic, topic_id))


def asking(*answers: Found | ConfigError | SourceLook) -> Callable[[], SourceLook]:
    """Brokers that answer one after another; the last answer comes again."""
    left = list(answers)

    def ask() -> SourceLook:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, SourceLook):
            return answer
        return SourceLook({}, answer) if isinstance(answer, ConfigError) else SourceLook(answer)

    return ask


def test_a_topic_that_is_created_again_in_a_run_is_named_with_both_ids_and_what_to_do() -> None:
    ids = topic_ids(asking({"a": OLD, "b": OLD}, {"a": OLD}, {"a": OLD, "b": NEW}), Kept())
    ids.check()
    ids.before_batch()
    ids.check()
    with pytest.raises(TopicRecreated) as failed:
        ids.check()
    assert str(failed.value) == (
        "topic 'b' was deleted and created again since the query read it: its id is "
        f"{NEW} now, and was {OLD}. All batches before are in the table. To read the topic as it is now from its "
        "begin, start with a new checkpointLocation and, if lsm.writer.id is set, a new one of that; to go on at the "
        "offsets of the checkpoint, without the events before them, set failOnDataLoss=false"
    )


def test_ids_are_kept_before_the_first_batch_and_compared_by_the_next_run() -> None:
    kept = Kept()
    first = topic_ids(asking({"a": OLD}), kept)
    first.check()
    assert not kept.ids, "no file is in the checkpoint of a query that Spark has not begun"
    first.before_batch()
    assert kept.ids == {("a", OLD)}
    for _ in range(2):
        with pytest.raises(TopicRecreated, match="topic 'a'"):
            topic_ids(asking({"a": NEW}), kept).check()
    topic_ids(asking({"a": OLD}), kept).check()


def test_a_checkpoint_without_ids_takes_the_present_ones_and_topics_may_come_later() -> None:
    kept = Kept()
    ids = topic_ids(asking({"a": NEW}, {"a": NEW, "late": OLD}), kept)
    ids.check()
    ids.before_batch()
    ids.check()
    assert kept.ids == {("a", NEW), ("late", OLD)}


def test_the_id_that_was_read_first_is_kept_if_the_topic_changes_before_the_first_batch() -> None:
    kept = Kept()
    ids = topic_ids(asking({"a": OLD}, {"a": NEW}), kept)
    ids.check()
    with pytest.raises(TopicRecreated):
        ids.check()
    ids.before_batch()
    assert kept.ids == {("a", OLD)}


def test_brokers_that_do_not_answer_before_the_start_are_asked_before_the_first_batch() -> None:
    kept = Kept()
    ids = topic_ids(asking(ConfigError("no broker answers"), {"a": OLD}), kept)
    with pytest.raises(ConfigError):
        ids.check()
    ids.before_batch()
    ids.before_batch()
    assert kept.ids == {("a", OLD)}
    with pytest.raises(TopicRecreated):
        topic_ids(asking({"a": NEW}), kept).before_batch()
    silent = topic_ids(asking(ConfigError("no broker answers"), {"a": NEW}), kept)
    silent.before_batch()
    with pytest.raises(TopicRecreated):
        silent.check()


def test_trouble_with_one_topic_hides_no_change_of_another() -> None:
    trouble = ConfigError("partition 0 of topic 'b' has no leader")
    kept = Kept()
    ids = topic_ids(asking(*[SourceLook({"a": OLD}, trouble)] * 3, SourceLook({"a": NEW}, trouble)), kept)
    with pytest.raises(ConfigError, match="'b' has no leader"):
        ids.check()
    ids.before_batch()
    assert kept.ids == {("a", OLD)}
    with pytest.raises(ConfigError, match="'b' has no leader"):
        ids.check()
    with pytest.raises(TopicRecreated, match="topic 'a'"):
        ids.check()


@pytest.mark.parametrize("fail_on_loss", [True, False])
def test_an_old_id_of_a_broker_that_is_behind_is_no_change(
    fail_on_loss: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Changes count that two answers in a row have."""
    kept, pauses = Kept(), list[float]()
    new, behind, other = {"a": NEW, "b": OLD}, {"a": OLD, "b": OLD}, {"a": NEW, "b": NEW}
    answers = (new, behind, new, behind, other, other, behind, new)
    ids = TopicIds(asking(*answers), kept, fail_on_loss=fail_on_loss, sleep=pauses.append)
    ids.check()
    ids.before_batch()
    ids.check()
    ids.check()
    assert kept.ids == {("a", NEW), ("b", OLD)}
    assert (len(pauses), caplog.messages) == (2, [])


def test_a_query_that_goes_on_over_lost_events_warns_once_and_keeps_the_new_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = Kept()
    kept.ids = {("a", OLD)}
    ids = topic_ids(asking({"a": NEW}, {"a": NEW}), kept, fail_on_loss=False)
    ids.check()
    ids.before_batch()
    ids.check()
    (record,) = caplog.records
    assert record.getMessage().startswith("topic 'a' was deleted and created again since the query read it")
    topic_ids(asking({"a": NEW}), kept).check()


def test_topics_that_the_query_does_not_read_may_change() -> None:
    kept = Kept()
    ids = topic_ids(asking({"a": OLD, "b": OLD}, {"a": OLD, "b": NEW}), kept, selects="a".__eq__)
    ids.check()
    ids.before_batch()
    ids.check()
    assert kept.ids == {("a", OLD)}


def test_brokers_without_ids_are_told_once_and_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    kept.ids = {("a", OLD)}
    with caplog.at_level(logging.WARNING):
        for found in ({"a": None, "b": None}, {"a": None}):
            ids = topic_ids(asking(found, found), kept)
            ids.check()
            ids.before_batch()
            ids.check()
    assert len(caplog.records) == 2, "once in a run"
    assert (
        "the id of topic 'a' is not known, as its brokers are older than Kafka 2.8, or give none: "
        in caplog.messages[0]
    )
    assert kept.ids == {("a", OLD)}


@pytest.mark.parametrize("found", [{}, {"a": None}], ids=["subscribePattern", "subscribe"])
def test_brokers_that_may_not_be_asked_for_topics_are_told_once(found: Found, caplog: pytest.LogCaptureFixture) -> None:
    silent = ConfigError("no broker answers")
    ids = topic_ids(asking(silent, found, found), Kept(), security="sasl_ssl")
    with pytest.raises(ConfigError):
        ids.check()
    assert not caplog.messages
    ids.check()
    ids.check()
    (said,) = caplog.messages
    assert "not known, as kafka.security.protocol=SASL_SSL lets only Kafka's client ask for topics: " in said
    topic_ids(asking({}), Kept()).check()
    assert len(caplog.messages) == 1, "a pattern may select no topic yet"


def test_ids_are_files_of_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = tmp_path / "with space"
    kept = CheckpointIds(spark, str(checkpoint))
    assert kept.load() == {}
    long = "x" * 249
    for topic in ("a", "a", "A", long, long[:100], "_b.c-d", ".x.crc"):
        kept.add(topic, OLD)
    kept.add("a", NEW)
    (checkpoint / "lsm-topic-ids" / "61" / "other").touch()
    (checkpoint / "lsm-topic-ids" / "other").mkdir()
    (checkpoint / "lsm-topic-ids" / "other" / str(NEW)).touch()
    again = CheckpointIds(spark, checkpoint.as_uri().replace("%20", " "))
    alone = ("A", long, long[:100], "_b.c-d", ".x.crc")
    assert again.load() == {"a": {OLD, NEW}, **{topic: {OLD} for topic in alone}}
    names = [path.name for path in checkpoint.rglob("*") if path.is_dir()]
    assert all(name == name.lower() and len(name) <= 255 for name in names), "file systems may ignore case"


def test_a_query_reads_the_ids_of_its_topics_from_the_brokers_and_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    def ids_of(address: str, **options: str) -> TopicIds:
        given = {"kafka.bootstrap.servers": address, "checkpointLocation": str(tmp_path / "c"), **options}
        return TopicIds.of_query(spark, JobSettings.load(None, given))

    topics: dict[str, dict[int, int]] = {"a.b": {}, "ab": {}, "xa": {}}
    pattern = {"subscribePattern": r"a\.?\p{Lower}"}
    with listener(broker({}, topics, dict.fromkeys(topics, OLD))) as address:
        for options in (pattern, {"subscribe": "ab"}):
            ids = ids_of(address, **options)
            ids.check()
            ids.before_batch()
    assert CheckpointIds(spark, str(tmp_path / "c")).load() == {"a.b": {OLD}, "ab": {OLD}}
    with listener(broker({}, topics, {"a.b": NEW, "ab": OLD, "xa": NEW})) as address:
        ids_of(address, subscribe="ab").check()
        with pytest.raises(TopicRecreated, match=r"topic 'a\.b' was deleted and created again"):
            ids_of(address, **pattern).check()
        with pytest.raises(ConfigError, match=r"subscribePattern='a\(' cannot be compared with topics: "):
            ids_of(address, subscribePattern="a(").check()


def test_a_checkpoint_that_cannot_be_written_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "c").touch()
    with listener(broker({}, {"a": {}}, {"a": OLD})) as address:
        given = {"kafka.bootstrap.servers": address, "checkpointLocation": str(tmp_path / "c"), "subscribe": "a"}
        with pytest.raises(StorageError) as failed:
            TopicIds.of_query(spark, JobSettings.load(None, given)).before_batch()
    assert f"checkpointLocation='{tmp_path / 'c'}': its folder lsm-topic-ids cannot be" in str(failed.value)
    assert str(failed.value).endswith("; let this process read and write there")
