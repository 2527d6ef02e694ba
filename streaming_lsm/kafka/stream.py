"""The stream: Kafka → `Envelope` → `LsmSink`, with a line of numbers per batch."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import LsmError
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.spark.listener import events_behind
from streaming_lsm.spark.sink import LsmSink
from streaming_lsm.storage.local import open_storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import LEDGER_KEY, LastBatch, WriterLedger
from streaming_lsm.write.intake.control_columns import OFFSET, TOPIC_PARTITION
from streaming_lsm.write.intake.dead_letters import batch_folder, count_letters
from streaming_lsm.write.plan import DeadLetters


class BatchCancelled(LsmError):
    """The batch was cancelled as the query is being stopped: start it again, and the batch is read again."""


def start_stream(
    spark: SparkSession, settings: JobSettings, stopping: Callable[[], bool] = lambda: False
) -> StreamingQuery:
    """Start the query that the settings describe.

    Args:
        spark: the session.
        settings: where events come from and where they go.
        stopping: whether the query is being stopped, so that a batch which fails now was cancelled.

    Raises:
        ConfigError: settings are missing or contradict each other.
    """
    rows, path = settings.envelope().converter(), settings.need(config.TABLE_PATH)
    sink = LsmSink(path, _sink_options(settings.options))

    def write(batch: DataFrame, batch_id: int) -> None:
        try:
            sink(rows(batch), batch_id)
        except Exception as error:
            # Spark searches the text of the failure by an expression that a long one takes beyond its stack.
            if stopping():
                raise BatchCancelled(f"batch {batch_id}: {type(error).__name__}") from None
            raise

    events = spark.readStream.format("kafka").options(**settings.source()).load()
    writer = events.writeStream.foreachBatch(write).option("checkpointLocation", settings.need(config.CHECKPOINT))
    kind = settings.need(config.TRIGGER)
    if kind.lower() == "availablenow":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=kind).start()


def _sink_options(options: Options) -> dict[str, object]:
    """The job's options, with the events' order within a batch unless another one was asked for."""
    chosen: dict[str, object] = dict(options.items())
    chosen.setdefault(config.ARRIVAL_FIELDS.key, (TOPIC_PARTITION, OFFSET))
    return chosen


@dataclass(frozen=True, slots=True)
class BatchReport:
    """Numbers of one batch.

    Attributes:
        batch_id: of the query.
        events: read from Kafka.
        rows, deletes, files, size: what the batch's commit wrote; size in bytes.
        dead_letters: events that were set aside; 0 where there is no folder for them.
        seconds: the batch as a whole, and `write_seconds` of it in the sink.
        behind: events on the brokers that the query has not read; None when Spark does not say.
        instant: of the commit; None when the batch has none.
        replayed: the commit was there before: Spark ran the batch again, and nothing was written.
    """

    batch_id: int
    events: int
    rows: int
    deletes: int
    files: int
    size: int
    dead_letters: int
    seconds: float
    write_seconds: float
    behind: int | None
    instant: str | None
    replayed: bool

    def __str__(self) -> str:
        behind = "" if self.behind is None else f", {self.behind:,} behind"
        rate = self.events / self.seconds if self.seconds else 0.0
        letters = f", {self.dead_letters:,} dead letters" if self.dead_letters else ""
        commit = f"{self.instant}{', committed before' if self.replayed else ''}" if self.instant else "no commit"
        return (
            f"batch {self.batch_id}: {self.events:,} events -> {self.rows:,} rows and {self.deletes:,} deletes "
            f"in {self.files} files ({self.size / 1024:,.0f} KiB){letters}, {self.seconds:.1f} s of which "
            f"{self.write_seconds:.1f} in the sink ({rate:,.0f} events/s{behind}), {commit}"
        )


@dataclass(frozen=True, slots=True)
class _Commit:
    """The commit of a batch, and what its ledger says of the query."""

    instant: Instant
    batch: LastBatch


class StreamWatcher:
    """Reports the batches of a query as they complete, until it ends."""

    def __init__(
        self,
        query: StreamingQuery,
        options: Options,
        stopping: threading.Event | None = None,
        before_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Watch a query.

        Args:
            query: which `start_stream` started.
            options: with which it was started.
            stopping: set by `stop`; one that `start_stream` looks at, too, where cancelled batches are to be quiet.
            before_stop: called before the query is stopped by `stop`.
        """
        self._query = query
        self._storage = open_storage(str(options[config.TABLE_PATH]))
        self._writer = options[config.WRITER_ID] or str(query.id)
        letters = options[config.DEAD_LETTER_PATH] if options[config.ON_BAD_EVENT] == "dead_letter" else None
        self._letters = None if letters is None else open_storage(letters)
        self._seen = -1
        self._stopping = stopping or threading.Event()
        self._before_stop = before_stop
        self._ledgers: dict[Instant, LastBatch | None] = {}

    def stop(self) -> None:
        """Stop the query at the next look. Safe in a signal handler, where talking to Spark is not."""
        self._stopping.set()

    def reports(self, timeout_seconds: float | None = None) -> Iterator[BatchReport]:
        """One report per batch that read something.

        Args:
            timeout_seconds: the query is stopped after this time; it may run for ever when not given.

        Raises:
            TimeoutError: the time is over.
            StreamingQueryException: the query failed.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        ended = False
        while not ended:
            # Progress of the last batch may come after the query has ended, so it is read once more.
            ended = self._ended()
            if self._stopping.is_set() and not ended:
                self._before_stop()
                self._query.stop()
            yield from self._new_reports()
            if deadline is not None and time.monotonic() > deadline and not ended:
                self._query.stop()
                raise TimeoutError(f"the stream did not end within {timeout_seconds:.0f} s and was stopped")

    def _ended(self) -> bool:
        """Wait a second at most for the query to end."""
        try:
            return bool(self._query.awaitTermination(1))
        except StreamingQueryException:
            # A batch that is cancelled by the stop fails; Spark runs it again when the query is started again.
            if self._stopping.is_set():
                return True
            raise

    def _new_reports(self) -> Iterator[BatchReport]:
        progress = [json.loads(each.json) for each in self._query.recentProgress]
        fresh = [each for each in progress if each["batchId"] > self._seen and each["numInputRows"] > 0]
        for each in {each["batchId"]: each for each in fresh}.values():
            self._seen = each["batchId"]
            yield self._report(each)

    def _report(self, progress: dict[str, object]) -> BatchReport:
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
        """The commit of a batch: the first to be completed whose ledger has it, as later ones carry the ledger on.

        A compaction that took long was requested before batches whose ledger it has.
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
        """The query's last batch as of a commit; None in those of other programs and before its first one."""
        if instant not in self._ledgers:
            text = timeline.read_commit(instant).extra.get(LEDGER_KEY)
            ledger = WriterLedger() if text is None else WriterLedger.decode(text, instant.path)
            self._ledgers[instant] = ledger.writers.get(self._writer)
        return self._ledgers[instant]

    def _count_letters(self, batch_id: int) -> int:
        if self._letters is None:
            return 0
        return count_letters(DeadLetters(self._letters, batch_folder(self._writer, batch_id)))


def _epoch_ms(moment: str) -> int:
    """Milliseconds since the epoch of the time at which Spark began a batch, ``2026-01-02T03:04:05.678Z``."""
    return int(datetime.fromisoformat(moment).timestamp() * 1000)
