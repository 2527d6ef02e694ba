"""The numbers of each batch beside Spark's own progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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
    """One batch as Spark and the sink saw it.

    Attributes:
        batch_id: its number.
        numbers: the sink's; None when the batch was committed before, or had nothing to write.
        behind: events that are in the source and were not read yet (Kafka's lag, summed over partitions); None when
            the source does not say.
        trigger_ms: the whole batch, as Spark timed it.
        spark: all that Spark reports, as in ``StreamingQuery.lastProgress``.
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
            sink: whose numbers are reported.
            report: called for each batch, on a thread of Spark's.
            query_id: the sink's query, needed where the session runs several.
        """
        self._sink, self._report, self._query_id = sink, report, query_id

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to report yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report a batch."""
        progress = json.loads(event.progress.json)
        if self._query_id in (None, progress["id"]):
            batch_id = int(progress["batchId"])
            took = int(progress["durationMs"].get("triggerExecution", 0))
            self._report(BatchProgress(batch_id, self._sink.numbers(batch_id), events_behind(progress), took, progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing came; nothing to report."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing to report any more."""


def events_behind(progress: Mapping[str, Any]) -> int | None:
    """Events that are in the topics and were not read yet, summed over partitions.

    Args:
        progress: of a batch, as Spark reports it.
    """
    sources = progress.get("sources")
    if not isinstance(sources, list) or not sources:
        return None
    latest, end = (_total(sources[0].get(name)) for name in ("latestOffset", "endOffset"))
    return None if latest is None or end is None else max(latest - end, 0)


def _total(offsets: object) -> int | None:
    """Sum of Kafka's offsets by topic and partition; None where these are something else."""
    if isinstance(offsets, str):
        offsets = json.loads(offsets)
    if not isinstance(offsets, dict) or not all(isinstance(partitions, dict) for partitions in offsets.values()):
        return None
    return sum(sum(partitions.values()) for partitions in offsets.values())
