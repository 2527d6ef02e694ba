"""Start the streaming query from Kafka to the tables of its topics, and report the numbers of each batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming_lsm import config
from streaming_lsm.errors import ConfigError, LsmError, TopicRecreated
from streaming_lsm.format.actions.commit import count_deletes
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.kafka.source_watch import SourceWatch
from streaming_lsm.kafka.table_commits import TableCommits
from streaming_lsm.kafka.topic_ids import TopicIds
from streaming_lsm.kafka.topic_sinks import Part, TopicSinks
from streaming_lsm.spark.batch_writer import own_error
from streaming_lsm.spark.listener import events_behind, events_read
from streaming_lsm.spark.versions import progress_of
from streaming_lsm.write.numbers import Counts

_SHOWN_FIELDS = 5
_LAST_BATCH_SECONDS = 600.0
"""Limit for the batch that is running when a topic is found created again."""


class BatchCancelled(LsmError):
    """Reports a batch that was cancelled by the stop of its query; the next start reads it again."""


@dataclass(frozen=True)
class Stream:
    """Holds a query, the sinks that it writes to, and the ids of its topics."""

    query: StreamingQuery
    sinks: TopicSinks
    ids: TopicIds


def start_stream(
    spark: SparkSession,
    settings: JobSettings,
    stopping: Callable[[], bool] = lambda: False,
    before_failure: Callable[[], None] = lambda: None,
) -> Stream:
    """Start the streaming query of the settings.

    Args:
        spark: the session.
        settings: options of source, sink and trigger.
        stopping: tells whether the query is being stopped; a batch that fails then raises `BatchCancelled`.
        before_failure: called when a batch has failed with an `LsmError`, before Spark has it.

    Raises:
        ConfigError: settings are missing or contradict each other.
        TopicRecreated: a topic was deleted and created again since the checkpoint's first batch.
    """
    sinks = TopicSinks(settings)
    ids = TopicIds.of_query(spark, settings)
    # Brokers that do not answer are named while Spark waits for them.
    with suppress(ConfigError):
        ids.check()

    def write(batch: DataFrame, batch_id: int) -> None:
        try:
            ids.before_batch()
            sinks(batch, batch_id)
        except Exception as error:
            # A short text: Spark matches it with a regular expression that overflows the stack on a long traceback.
            if stopping():
                raise BatchCancelled(f"batch {batch_id}: {type(error).__name__}") from None
            if isinstance(error, LsmError):
                before_failure()
            raise

    events = spark.readStream.format("kafka").options(**settings.source()).load()
    writer = events.writeStream.foreachBatch(write).option("checkpointLocation", settings.need(config.CHECKPOINT))
    kind = settings.need(config.TRIGGER)
    timed = writer.trigger(availableNow=True) if kind.lower() == "availablenow" else writer.trigger(processingTime=kind)
    return Stream(timed.start(), sinks, ids)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """Holds the numbers of one batch, or of its part for one of several tables.

    Attributes:
        batch_id: Spark's number of the batch.
        topics: the topics that are written to the table; none if the query has no other table.
        events: number of events read from these topics.
        rows, deletes, files, size: totals of the batch's commit; size in bytes.
        dead_letters: bad events written to the dead-letter folder; 0 without such a folder.
        unknown_fields: upserts by field of theirs that the table does not have.
        seconds: duration of the whole batch; `write_seconds` of it were spent in the sink of the table.
        behind: events on the brokers that the query has not read; None when Spark reports no offsets.
        instant: instant of the commit; None when the batch made no commit.
        replayed: whether the batch had been committed before, so that this run wrote nothing.
    """

    batch_id: int
    events: int
    rows: int
    deletes: int
    files: int
    size: int
    dead_letters: int
    unknown_fields: Counts
    seconds: float
    write_seconds: float
    behind: int | None
    instant: str | None
    replayed: bool
    topics: tuple[str, ...] = ()

    def __str__(self) -> str:
        behind = "" if self.behind is None else f", {self.behind:,} behind"
        rate = self.events / self.seconds if self.seconds else 0.0
        letters = f", {self.dead_letters:,} dead letters" if self.dead_letters else ""
        left_out = letters + _named(self.unknown_fields)
        commit = f"{self.instant}{', committed before' if self.replayed else ''}" if self.instant else "no commit"
        batch = f"batch {self.batch_id}{_labelled(self.topics)}"
        return (
            f"{batch}: {self.events:,} events -> {self.rows:,} rows and {self.deletes:,} deletes "
            f"in {self.files} files ({self.size / 1024:,.0f} KiB){left_out}, {self.seconds:.1f} s of which "
            f"{self.write_seconds:.1f} in the sink ({rate:,.0f} events/s{behind}), {commit}"
        )


@dataclass
class Totals:
    """Adds up the reports of a query.

    Attributes:
        events: number of events.
        batches: number of batches.
        seconds: their durations.
    """

    events: int = 0
    batches: int = 0
    seconds: float = 0.0
    _last: int = -1

    def add(self, report: BatchReport) -> None:
        """Add a report; those of a batch come one after another, one for each table."""
        self.events += report.events
        if report.batch_id != self._last:
            self._last = report.batch_id
            self.batches += 1
            self.seconds += report.seconds

    def __str__(self) -> str:
        rate = f" ({self.events / self.seconds:,.0f} events/s)" if self.seconds else ""
        return f"{self.events:,} events in {self.batches} batches{rate}"


class StreamWatcher:
    """Reports the batches of a query as they complete, until the query ends.

    Attributes:
        waiting: called with what is wrong with the source while Spark waits for it; and with a topic that was created
            again, while the batch that is running then is waited for.
    """

    def __init__(
        self,
        query: StreamingQuery,
        parts: Callable[[int], Sequence[Part]],
        stopping: threading.Event | None = None,
        before_stop: Callable[[], None] = lambda: None,
        source: SourceWatch | None = None,
        waiting: Callable[[LsmError], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch a query.

        Args:
            query: the query, started by `start_stream`.
            parts: returns the parts of a batch by its number, as `TopicSinks.parts` does.
            stopping: event that `stop` sets; `start_stream` gets its ``is_set`` to tell cancelled from failed batches.
            before_stop: called before `stop` takes effect on the query.
            source: looks at the source while no batch completes.
            waiting: see the class.
            clock: seconds.
        """
        self._query, self._query_id, self._parts = query, str(query.id), parts
        self._commits: dict[str, TableCommits] = {}
        self._seen = -1
        self._stopping = stopping or threading.Event()
        self._before_stop = before_stop
        self._source, self.waiting = source or SourceWatch(lambda: None), waiting
        self._clock = clock
        self._recreated: TopicRecreated | None = None
        self._last_batch_ends = 0.0

    def stop(self) -> None:
        """Request a stop, which `reports` carries out within a second. Unlike calls of Spark it is signal-safe."""
        self._stopping.set()

    def reports(self, timeout_seconds: float | None = None) -> Iterator[BatchReport]:
        """Yield one report for each batch that read events, and for each table that it wrote, until the query ends.

        Args:
            timeout_seconds: time after which the query is stopped; no limit when not given.

        Raises:
            TimeoutError: the query was stopped after `timeout_seconds`.
            TopicRecreated: a topic was deleted and created again, also if that was found before the time was over.
            LsmError: a batch failed with this error, or the source did.
            StreamingQueryException: the query failed for another reason.
        """
        deadline = None if timeout_seconds is None else self._clock() + timeout_seconds
        ended, failure = False, None
        while not ended:
            # Batches may complete while this waits, also when the query fails after them: reports come before the end.
            try:
                ended = self._ended()
            except StreamingQueryException as error:
                ended, failure = True, error
            if self._stopping.is_set() and not ended:
                self._before_stop()
                self._query.stop()
            reported = False
            for report in self._new_reports():
                reported = True
                self._source.progressed()
                yield report
            if not ended:
                self._look_at_source(reported)
            if deadline is not None and self._clock() > deadline and not ended:
                self._query.stop()
                raise self._recreated or TimeoutError(
                    f"the stream did not end within {timeout_seconds:.0f} s and was stopped"
                )
        if failure is not None:
            raise own_error(failure) or self._recreated or self._source.explained(failure)
        if self._recreated is not None:
            raise self._recreated
        if not self._stopping.is_set():
            self._source.last_look()

    def _look_at_source(self, reported: bool) -> None:
        active = self._query.status["isTriggerActive"]
        if self._seen >= 0 and not active:
            self._source.progressed()
        # The batch that was running then may be one of the old topic, which cannot be read again.
        waited = reported or not active or self._clock() > self._last_batch_ends
        if self._recreated is not None and waited:
            self._stop_query()
            raise self._recreated
        trouble: LsmError | None
        try:
            trouble = self._source.trouble()
        except TopicRecreated as error:
            trouble = self._found_again(error)
        except LsmError as error:
            self._stop_query()
            raise self._recreated or error from None
        if trouble is not None:
            self.waiting(trouble)

    def _found_again(self, error: TopicRecreated) -> LsmError | None:
        """Remember that a topic was created again; returns what to say of it, once."""
        if self._recreated is not None:
            return None
        self._recreated, self._last_batch_ends = error, self._clock() + _LAST_BATCH_SECONDS
        return LsmError(f"for a batch that may be running, {_LAST_BATCH_SECONDS:.0f} s at most, as {error}")

    def _stop_query(self) -> None:
        self._before_stop()
        self._query.stop()

    def _ended(self) -> bool:
        """Wait up to a second for the query to end; True if it has ended."""
        try:
            return bool(self._query.awaitTermination(1))
        except StreamingQueryException:
            # A batch that the stop cancels fails; the next start of the query runs it again.
            if self._stopping.is_set():
                return True
            raise

    def _new_reports(self) -> Iterator[BatchReport]:
        progress = [progress_of(each) for each in self._query.recentProgress]
        fresh = [each for each in progress if each["batchId"] > self._seen and each["numInputRows"] > 0]
        for each in {each["batchId"]: each for each in fresh}.values():
            self._seen = each["batchId"]
            for part in self._parts(self._seen):
                yield self._report(each, part)

    def _report(self, progress: Mapping[str, object], part: Part) -> BatchReport:
        batch_id = int(str(progress["batchId"]))
        table = self._commits.setdefault(part.table.place, TableCommits(part.table.settings.options, self._query_id))
        commit = table.commit_of(batch_id)
        stats = commit.stats if commit else ()
        took = progress["durationMs"]
        assert isinstance(took, dict)
        several = part.events is not None
        return BatchReport(
            batch_id=batch_id,
            topics=part.table.topics if several else (),
            events=events_read(progress) if part.events is None else part.events,
            rows=sum(stat.num_inserts + stat.num_updates for stat in stats),
            deletes=count_deletes(stats),
            files=len(stats),
            size=sum(stat.total_bytes for stat in stats),
            dead_letters=table.dead_letters(batch_id),
            unknown_fields=commit.unknown_fields if commit else {},
            seconds=took.get("triggerExecution", 0) / 1000,
            write_seconds=part.seconds,
            behind=events_behind(progress, part.table.topics if several else None),
            instant=commit.instant if commit else None,
            replayed=commit is not None and commit.committed_ms < _epoch_ms(str(progress["timestamp"])),
        )


def _labelled(topics: Sequence[str]) -> str:
    return f", {', '.join(topics)}" if topics else ""


def _named(fields: Counts) -> str:
    """Name the most frequent unknown fields."""
    if not fields:
        return ""
    first = ", ".join(f"{name} ({count:,})" for name, count in list(fields.items())[:_SHOWN_FIELDS])
    more = len(fields) - _SHOWN_FIELDS
    return f", no columns for {first}{f' and {more} more' if more > 0 else ''}"


def _epoch_ms(moment: str) -> int:
    """Convert the time at which Spark began a batch, ``2026-01-02T03:04:05.678Z``, to epoch milliseconds."""
    return int(datetime.fromisoformat(moment).timestamp() * 1000)
