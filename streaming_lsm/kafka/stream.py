"""The stream: Kafka → `Envelope` → `LsmSink`, with a line of numbers per batch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import LsmError
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.spark.sink import LsmSink
from streaming_lsm.storage.local import open_storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.write.control import OFFSET, TOPIC_PARTITION

Sink = Callable[[DataFrame, int], None]


def start_stream(spark: SparkSession, settings: JobSettings) -> StreamingQuery:
    """Start the query that the settings describe.

    Raises:
        ConfigError: settings are missing or contradict each other.
    """
    rows, path = settings.envelope().converter(), settings.need(config.TABLE_PATH)
    sink = LsmSink(path, _sink_options(settings.options))

    def write(batch: DataFrame, batch_id: int) -> None:
        sink(rows(batch), batch_id)

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
        rows, deletes, files, size: written; size in bytes.
        seconds: the batch as a whole, and `write_seconds` of it in the sink.
        behind: events on the brokers that the query has not read; None when Spark does not say.
        instant: of the commit; None when nothing was committed.
    """

    batch_id: int
    events: int
    rows: int
    deletes: int
    files: int
    size: int
    seconds: float
    write_seconds: float
    behind: int | None
    instant: str | None

    def __str__(self) -> str:
        behind = "" if self.behind is None else f", {self.behind:,} behind"
        rate = self.events / self.seconds if self.seconds else 0.0
        return (
            f"batch {self.batch_id}: {self.events:,} events -> {self.rows:,} rows and {self.deletes:,} deletes "
            f"in {self.files} files ({self.size / 1024:,.0f} KiB), {self.seconds:.1f} s of which "
            f"{self.write_seconds:.1f} in the sink ({rate:,.0f} events/s{behind}), {self.instant or 'no commit'}"
        )


class StreamWatcher:
    """Reports the batches of a query as they complete, until it ends."""

    def __init__(self, query: StreamingQuery, path: str) -> None:
        """Watch `query`, which writes the table at `path`."""
        self._query = query
        self._path = path
        self._seen = -1
        self._asked_to_stop = False
        self._commits = set(self._writes()[1])

    def stop(self) -> None:
        """Stop the query at the next look. Safe in a signal handler, where talking to Spark is not."""
        self._asked_to_stop = True

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
            ended = bool(self._query.awaitTermination(1))
            if self._asked_to_stop and not ended:
                self._query.stop()
            yield from self._new_reports()
            if deadline is not None and time.monotonic() > deadline and not ended:
                self._query.stop()
                raise TimeoutError(f"the stream did not end within {timeout_seconds:.0f} s and was stopped")

    def _new_reports(self) -> Iterator[BatchReport]:
        progress = [json.loads(each.json) for each in self._query.recentProgress]
        fresh = [each for each in progress if each["batchId"] > self._seen and each["numInputRows"] > 0]
        for each in {each["batchId"]: each for each in fresh}.values():
            self._seen = each["batchId"]
            yield self._report(each)

    def _report(self, progress: dict[str, object]) -> BatchReport:
        timeline, writes = self._writes()
        new = [write for write in writes if write not in self._commits]
        # Several batches may have ended since the last look; each made at most one commit, in order.
        commit = new[0] if new else None
        self._commits.update(new[:1])
        stats = timeline.read_commit(commit).stats if commit and timeline else ()
        took = progress["durationMs"]
        assert isinstance(took, dict)
        return BatchReport(
            batch_id=int(str(progress["batchId"])),
            events=int(str(progress["numInputRows"])),
            rows=sum(stat.num_inserts + stat.num_updates for stat in stats),
            deletes=sum(stat.num_deletes for stat in stats),
            files=len(stats),
            size=sum(stat.total_bytes for stat in stats),
            seconds=took.get("triggerExecution", 0) / 1000,
            write_seconds=took.get("addBatch", 0) / 1000,
            behind=_behind(progress),
            instant=commit.requested if commit else None,
        )

    def _writes(self) -> tuple[Timeline | None, tuple[Instant, ...]]:
        try:
            timeline = Timeline.load(open_storage(self._path))
        except LsmError:
            return None, ()
        return timeline, timeline.completed_writes


def _behind(progress: dict[str, object]) -> int | None:
    """Events that are in the topics and were not read yet, summed over partitions."""
    sources = progress.get("sources")
    if not isinstance(sources, list) or not sources:
        return None
    latest, end = (_total(sources[0].get(name)) for name in ("latestOffset", "endOffset"))
    return None if latest is None or end is None else max(latest - end, 0)


def _total(offsets: object) -> int | None:
    if isinstance(offsets, str):
        offsets = json.loads(offsets)
    if not isinstance(offsets, dict):
        return None
    return sum(sum(partitions.values()) for partitions in offsets.values())
