"""Start the streaming query from Kafka to `LsmSink`, and report the numbers of each batch."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import ConfigError, LsmError
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.kafka.source_watch import SourceWatch, TopicGone
from streaming_lsm.spark.batch_writer import own_error
from streaming_lsm.spark.listener import events_behind
from streaming_lsm.spark.sink import LsmSink
from streaming_lsm.spark.versions import progress_of
from streaming_lsm.storage.local import open_storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import LEDGER_KEY, LastBatch, WriterLedger
from streaming_lsm.write.intake.dead_letters import batch_folder, count_letters
from streaming_lsm.write.numbers import NUMBERS_KEY, Counts
from streaming_lsm.write.plan import DeadLetters

_SHOWN_FIELDS = 5


class BatchCancelled(LsmError):
    """Reports a batch that was cancelled by the stop of its query; the next start reads it again."""


def start_stream(
    spark: SparkSession, settings: JobSettings, stopping: Callable[[], bool] = lambda: False
) -> StreamingQuery:
    """Start the streaming query of the settings.

    Args:
        spark: the session.
        settings: options of source, sink and trigger.
        stopping: tells whether the query is being stopped; a batch that fails then raises `BatchCancelled`.

    Raises:
        ConfigError: settings are missing or contradict each other.
    """
    path = settings.need(config.TABLE_PATH)
    sink = LsmSink(path, dict(settings.options.items()), envelope=settings.envelope())

    def write(batch: DataFrame, batch_id: int) -> None:
        try:
            sink(batch, batch_id)
        except Exception as error:
            # A short text: Spark matches it with a regular expression that overflows the stack on a long traceback.
            if stopping():
                raise BatchCancelled(f"batch {batch_id}: {type(error).__name__}") from None
            raise

    events = spark.readStream.format("kafka").options(**settings.source()).load()
    writer = events.writeStream.foreachBatch(write).option("checkpointLocation", settings.need(config.CHECKPOINT))
    kind = settings.need(config.TRIGGER)
    if kind.lower() == "availablenow":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=kind).start()


@dataclass(frozen=True, slots=True)
class BatchReport:
    """Holds the numbers of one batch.

    Attributes:
        batch_id: Spark's number of the batch.
        events: number of events read from Kafka.
        rows, deletes, files, size: totals of the batch's commit; size in bytes.
        dead_letters: bad events written to the dead-letter folder; 0 without such a folder.
        unknown_fields: upserts by field of theirs that the table does not have.
        seconds: duration of the batch; `write_seconds` of it were spent in the sink.
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

    def __str__(self) -> str:
        behind = "" if self.behind is None else f", {self.behind:,} behind"
        rate = self.events / self.seconds if self.seconds else 0.0
        letters = f", {self.dead_letters:,} dead letters" if self.dead_letters else ""
        left_out = letters + _named(self.unknown_fields)
        commit = f"{self.instant}{', committed before' if self.replayed else ''}" if self.instant else "no commit"
        return (
            f"batch {self.batch_id}: {self.events:,} events -> {self.rows:,} rows and {self.deletes:,} deletes "
            f"in {self.files} files ({self.size / 1024:,.0f} KiB){left_out}, {self.seconds:.1f} s of which "
            f"{self.write_seconds:.1f} in the sink ({rate:,.0f} events/s{behind}), {commit}"
        )


@dataclass(frozen=True, slots=True)
class _Commit:
    """Holds the commit of a batch, and the query's entry in its ledger."""

    instant: Instant
    batch: LastBatch


class StreamWatcher:
    """Reports the batches of a query as they complete, until the query ends.

    Attributes:
        waiting: called with what is wrong with the source while Spark waits for it.
    """

    def __init__(
        self,
        query: StreamingQuery,
        options: Options,
        stopping: threading.Event | None = None,
        before_stop: Callable[[], None] = lambda: None,
        source: SourceWatch | None = None,
        waiting: Callable[[ConfigError], None] = lambda _: None,
    ) -> None:
        """Watch a query.

        Args:
            query: the query, started by `start_stream`.
            options: the options that it was started with.
            stopping: event that `stop` sets; `start_stream` gets its ``is_set`` to tell cancelled from failed batches.
            before_stop: called before `stop` takes effect on the query.
            source: looks at the source while no batch completes.
            waiting: see the class.
        """
        self._query = query
        self._storage = open_storage(str(options[config.TABLE_PATH]))
        self._writer = options[config.WRITER_ID] or str(query.id)
        letters = options[config.DEAD_LETTER_PATH] if options[config.ON_BAD_EVENT] == "dead_letter" else None
        self._letters = None if letters is None else open_storage(letters)
        self._seen = -1
        self._stopping = stopping or threading.Event()
        self._before_stop = before_stop
        self._source, self.waiting = source or SourceWatch(lambda: None), waiting
        self._ledgers: dict[Instant, LastBatch | None] = {}

    def stop(self) -> None:
        """Request a stop, which `reports` carries out within a second. Unlike calls of Spark it is signal-safe."""
        self._stopping.set()

    def reports(self, timeout_seconds: float | None = None) -> Iterator[BatchReport]:
        """Yield one report for each batch that read events, until the query ends.

        Args:
            timeout_seconds: time after which the query is stopped; no limit when not given.

        Raises:
            TimeoutError: the query was stopped after `timeout_seconds`.
            LsmError: a batch failed with this error, or the source did.
            StreamingQueryException: the query failed for another reason.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
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
            for report in self._new_reports():
                self._source.progressed()
                yield report
            if not ended:
                self._look_at_source()
            if deadline is not None and time.monotonic() > deadline and not ended:
                self._query.stop()
                raise TimeoutError(f"the stream did not end within {timeout_seconds:.0f} s and was stopped")
        if failure is not None:
            raise own_error(failure) or self._source.explained(failure)

    def _look_at_source(self) -> None:
        if self._seen >= 0 and not self._query.status["isTriggerActive"]:
            self._source.progressed()
        try:
            trouble = self._source.trouble()
        except TopicGone:
            self._before_stop()
            self._query.stop()
            raise
        if trouble is not None:
            self.waiting(trouble)

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
            yield self._report(each)

    def _report(self, progress: Mapping[str, object]) -> BatchReport:
        batch_id = int(str(progress["batchId"]))
        timeline = self._timeline()
        commit = self._commit_of(batch_id, timeline) if timeline else None
        stats = timeline.read_commit(commit.instant).stats if commit and timeline else ()
        took = progress["durationMs"]
        assert isinstance(took, dict)
        return BatchReport(
            batch_id=batch_id,
            events=int(str(progress["numInputRows"])),
            rows=sum(stat.num_inserts + stat.num_updates for stat in stats),
            deletes=sum(stat.num_deletes for stat in stats),
            files=len(stats),
            size=sum(stat.total_bytes for stat in stats),
            dead_letters=self._count_letters(batch_id),
            unknown_fields=_unknown_fields(timeline.read_commit(commit.instant).extra) if commit and timeline else {},
            seconds=took.get("triggerExecution", 0) / 1000,
            write_seconds=took.get("addBatch", 0) / 1000,
            behind=events_behind(progress),
            instant=commit.instant.requested if commit else None,
            replayed=commit is not None and commit.batch.committed_ms < _epoch_ms(str(progress["timestamp"])),
        )

    def _timeline(self) -> Timeline | None:
        try:
            return Timeline.load(self._storage)
        except LsmError:
            return None

    def _commit_of(self, batch_id: int, timeline: Timeline) -> _Commit | None:
        """Find the commit of a batch: the first completed one whose ledger has it. Later commits carry the ledger on.

        Commits are ordered by completion time, as a long compaction has a later ledger than its requested time shows.
        """
        found = None
        for instant in sorted(timeline.completed_writes, key=lambda write: write.completed or "", reverse=True):
            batch = self._ledger_of(instant, timeline)
            if batch is None:
                continue
            if batch.batch_id < batch_id:
                break
            if batch.batch_id == batch_id:
                found = _Commit(instant, batch)
        return found

    def _ledger_of(self, instant: Instant, timeline: Timeline) -> LastBatch | None:
        """Read the query's last batch from the ledger of a commit; None when the ledger does not have the query."""
        if instant not in self._ledgers:
            text = timeline.read_commit(instant).extra.get(LEDGER_KEY)
            ledger = WriterLedger() if text is None else WriterLedger.decode(text, instant.path)
            self._ledgers[instant] = ledger.writers.get(self._writer)
        return self._ledgers[instant]

    def _count_letters(self, batch_id: int) -> int:
        if self._letters is None:
            return 0
        return count_letters(DeadLetters(self._letters, batch_folder(self._writer, batch_id)))


def _unknown_fields(extra: Mapping[str, str]) -> Counts:
    """Read the unknown fields of a batch from the metadata of its commit."""
    counts: Counts = json.loads(extra.get(NUMBERS_KEY, "{}")).get("unknown_fields", {})
    return counts


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
