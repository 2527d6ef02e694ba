"""A query that does not get on is told from one that works; what Spark says of its source names topic and remedy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import StreamingQueryException

from streaming_lsm.errors import ConfigError, LsmError, TopicRecreated
from streaming_lsm.kafka.addresses import UnknownTopics
from streaming_lsm.kafka.source_watch import SourceWatch, TopicGone


class Checks:
    """A source that answers as it is told to, and a clock."""

    def __init__(self, *answers: LsmError | None) -> None:
        self.answers, self.now, self.count = iter(answers), 0.0, 0

    def check(self) -> None:
        self.count += 1
        answer = next(self.answers, None)
        if answer is not None:
            raise answer

    def watch(self) -> SourceWatch:
        return SourceWatch(self.check, clock=lambda: self.now, silent_seconds=4, pause_seconds=5, routine_seconds=10)


def later(checks: Checks, watch: SourceWatch, seconds: float) -> ConfigError | None:
    """What a look says `seconds` later, once the check that it began has ended."""
    checks.now += seconds
    found = watch.trouble()
    for thread in threading.enumerate():
        if thread.name == "lsm-source-check":
            thread.join()
    return found or watch.trouble()


def test_the_source_is_checked_when_no_batch_completes_for_a_while_and_again_from_time_to_time() -> None:
    checks = Checks(None, ConfigError("no broker answers"), None)
    watch = checks.watch()
    assert later(checks, watch, 3) is None
    assert checks.count == 0
    assert later(checks, watch, 1) is None
    assert later(checks, watch, 4) is None
    assert checks.count == 1
    assert str(later(checks, watch, 1)) == "no broker answers"
    assert later(checks, watch, 5) is None
    assert checks.count == 3


def test_a_query_that_completes_batches_is_not_disturbed() -> None:
    checks = Checks(ConfigError("no broker answers"), UnknownTopics("topic 'orders' is not on the brokers"))
    watch = checks.watch()
    for _ in range(9):
        assert later(checks, watch, 3) is None
        watch.progressed()
    assert checks.count == 2


@pytest.mark.parametrize("busy", [True, False])
def test_a_topic_that_was_created_again_is_found_whether_batches_complete_or_not(busy: bool) -> None:
    checks = Checks(None, TopicRecreated("topic 'orders' was deleted and created again"))
    watch = checks.watch()

    def look_on() -> None:
        while True:
            assert later(checks, watch, 2) is None
            if busy:
                watch.progressed()

    with pytest.raises(TopicRecreated, match="'orders' was deleted"):
        look_on()
    assert (checks.count, checks.now) == (2, 20 if busy else 10)


def test_the_last_look_finds_topics_that_were_created_again_and_no_other_trouble() -> None:
    watch = Checks(ConfigError("no broker answers"), None, TopicRecreated("created again")).watch()
    watch.last_look()
    watch.last_look()
    with pytest.raises(TopicRecreated):
        watch.last_look()


def test_a_topic_counts_as_deleted_once_it_was_missing_three_times_in_a_row() -> None:
    gone = UnknownTopics("topic 'orders' is not on the brokers")
    checks = Checks(gone, gone, None, gone, gone, gone)
    watch = checks.watch()
    for _ in range(5):
        later(checks, watch, 5)
    with pytest.raises(TopicGone, match=r"topic 'orders' is not on the brokers\. All batches before are in the table"):
        later(checks, watch, 5)


def raising(error: LsmError | None) -> Callable[[], None]:
    def check() -> None:
        if error is not None:
            raise error

    return check


def explanations() -> Iterator[tuple[str, ConfigError | None, str]]:
    yield (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Some data may have been lost because they are not "
        "available in Kafka any more; set the source option failOnDataLoss to false.\nReason: Partition big-topic-0 "
        "offset was changed from 50 to 10.\nThis could be either 1) a user error SQLSTATE: XXKST",
        None,
        "topic 'big-topic', partition 0: the query has read up to offset 50, and the topic ends at 10: it was deleted "
        "and created again. All batches before are in the table. To read the topic as it is now from its begin, start "
        "with a new checkpointLocation",
    )
    yield (
        "Some data may have been lost; set the source option failOnDataLoss to false.\nReason: Cannot fetch offset 7 "
        "(TopicPartition: t-86). SQLSTATE: XXKST",
        None,
        "events were deleted on the brokers before they were read: Cannot fetch offset 7 (TopicPartition: t-86). All ",
    )
    yield (
        "failOnDataLoss to false.\nReason: Partitions Set(shop.a-0, b-c-11) have been deleted.\nThis could",
        None,
        "partition 0 of topic 'shop.a', partition 11 of topic 'b-c' are no more on the brokers. All batches before are",
    )
    yield (
        "UnknownTopicOrPartitionException: This server does not host this topic-partition.",
        UnknownTopics("subscribe: topic 'x' is not on the brokers at h:1; create it, or correct the name"),
        "subscribe: topic 'x' is not on the brokers at h:1; create it, or correct the name. All batches before",
    )
    yield (
        "TimeoutException: Timed out waiting for a node assignment. Call: listNodes",
        ConfigError("kafka.bootstrap.servers='h:1': no broker answers (h:1: Connection refused)"),
        "kafka.bootstrap.servers='h:1': no broker answers (h:1: Connection refused)",
    )


@pytest.mark.parametrize(("said", "trouble", "explained"), list(explanations()))
def test_a_failure_of_the_source_is_explained(said: str, trouble: ConfigError | None, explained: str) -> None:
    error = SourceWatch(raising(trouble)).explained(StreamingQueryException(said))
    assert isinstance(error, LsmError)
    assert not isinstance(error, ConfigError), "a stream that ran had good options"
    assert str(error).startswith(explained)


def test_a_failure_of_something_else_stays_what_it_is() -> None:
    failure = StreamingQueryException("java.lang.OutOfMemoryError: Java heap space")
    assert SourceWatch(raising(None)).explained(failure) is failure


def test_a_failure_after_a_topic_was_created_again_names_that() -> None:
    again = TopicRecreated("topic 'orders' was deleted and created again")
    assert SourceWatch(raising(again)).explained(StreamingQueryException("Java heap space")) is again
