"""Report the numbers of each batch together with Spark's query progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from streaming_lsm.spark.sink import LsmSink
from streaming_lsm.write.numbers import BatchNumbers


@dataclass(frozen=True)
class BatchProgress:
    """Holds the progress of one batch as Spark and the sink report it.

    Attributes:
        batch_id: Spark's number of the batch.
        numbers: counts and times of the sink; None when the batch was committed before, or had no rows.
        behind: events in the source that were not read yet (Kafka's lag, summed over partitions); None when the
            source reports no offsets.
        trigger_ms: duration of the whole trigger, measured by Spark.
        spark: Spark's report, as in ``StreamingQuery.lastProgress``.
    """

    batch_id: int
    numbers: BatchNumbers | None
    behind: int | None
    trigger_ms: int
    spark: Mapping[str, Any]


class LsmListener(StreamingQueryListener):
    """Calls back after each batch of a sink's query::

    spark.streams.addListener(LsmListener(sink, lambda batch: print(batch.numbers.line(), batch.behind)))
    """

    def __init__(self, sink: LsmSink, report: Callable[[BatchProgress], None], query_id: str | None = None) -> None:
        """Listen to the session's queries.

        Args:
            sink: the sink that counts and times the batches.
            report: called after each batch, on a listener thread of Spark.
            query_id: id of the sink's query; needed when the session runs several queries.
        """
        self._sink, self._report, self._query_id = sink, report, query_id

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Ignore the start of a query."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report a batch."""
        progress = json.loads(event.progress.json)
        if self._query_id in (None, progress["id"]):
            batch_id = int(progress["batchId"])
            took = int(progress["durationMs"].get("triggerExecution", 0))
            self._report(BatchProgress(batch_id, self._sink.numbers(batch_id), events_behind(progress), took, progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Ignore a trigger without new events."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Ignore the end of a query."""


def events_behind(progress: Mapping[str, Any], topics: Collection[str] | None = None) -> int | None:
    """Return the number of events that the query has not read yet, summed over topics and partitions.

    Args:
        progress: Spark's report of a batch.
        topics: the topics that count; None for all.

    Returns:
        None when the source reports no Kafka offsets.
    """
    sources = progress.get("sources")
    if not isinstance(sources, list) or not sources:
        return None
    latest, end = (_total(sources[0].get(name), topics) for name in ("latestOffset", "endOffset"))
    return None if latest is None or end is None else max(latest - end, 0)


def events_read(progress: Mapping[str, Any]) -> int:
    """Return the number of events of a batch, each counted once.

    Spark counts what its tasks read, and a batch that is written again is read twice.

    Args:
        progress: Spark's report of a batch.
    """
    counted = int(progress["numInputRows"])
    sources = progress.get("sources")
    if not isinstance(sources, list) or not sources:
        return counted
    begin, end = (_total(sources[0].get(name), None) for name in ("startOffset", "endOffset"))
    # A range of offsets may have fewer events: transactions and compacted topics leave gaps.
    return counted if begin is None or end is None else min(counted, end - begin)


def _total(offsets: object, topics: Collection[str] | None) -> int | None:
    """Add up Kafka's offsets by topic and partition; None when `offsets` has another shape."""
    if isinstance(offsets, str):
        offsets = json.loads(offsets)
    if not isinstance(offsets, dict) or not all(isinstance(partitions, dict) for partitions in offsets.values()):
        return None
    return sum(sum(partitions.values()) for topic, partitions in offsets.items() if topics is None or topic in topics)
