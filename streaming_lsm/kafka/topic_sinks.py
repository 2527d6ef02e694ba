"""Write the batches of a query to the tables of its topics.

*Part*: the messages of a batch for one table. Each table has a sink and commits of its own: if the driver dies between
two commits, Spark runs the batch again, the first table's sink finds it in the ledger, and the other one writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from streaming_lsm.decode.decoder import MESSAGE_COLUMNS
from streaming_lsm.errors import LsmError
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.kafka.topic_columns import envelope_of
from streaming_lsm.kafka.topic_tables import TopicTable, topic_tables
from streaming_lsm.spark.sink import LsmSink

_REMEMBERED = 200


@dataclass(frozen=True)
class Part:
    """Describes the messages of a batch for one table.

    Attributes:
        table: the table.
        events: number of messages; None if they were not counted, as the query has no other table.
        seconds: time in the sink.
    """

    table: TopicTable
    events: int | None
    seconds: float


class TopicSinks:
    """Writes micro-batches of Spark's Kafka source; called by ``foreachBatch``."""

    def __init__(self, settings: JobSettings) -> None:
        """Prepare the sinks of the topics that are known. Spark parses columns, so a session must be running.

        Args:
            settings: those of the query.

        Raises:
            ConfigError: topics have no table of their own, or options of a topic contradict each other.
        """
        self._settings = settings
        self._sinks: dict[str, LsmSink] = {}
        self._paths: dict[str, str] = {}
        self._parts: dict[int, tuple[Part, ...]] = {}
        known = settings.topics or tuple(settings.topic_options)
        tables = topic_tables(settings, known)
        for table in tables:
            self._sink(table)
        self._single = tables[0] if settings.pattern is None and len(tables) == 1 else None

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the tables so far."""
        return tuple(self._paths.values())

    def parts(self, batch_id: int) -> tuple[Part, ...]:
        """Return the parts of one of the last batches that were written or found committed."""
        return self._parts.get(batch_id, ())

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one micro-batch: each table gets its part as one commit, in the order of the topics.

        Raises:
            LsmError: a part could not be written; those before it are committed.
        """
        if self._single is not None:
            self._parts[batch_id] = (self._write(self._single, batch, batch_id, None),)
        else:
            self._parts[batch_id] = tuple(self._write_each(batch, batch_id))
        for old in sorted(self._parts)[:-_REMEMBERED]:
            del self._parts[old]

    def _write_each(self, batch: DataFrame, batch_id: int) -> Iterator[Part]:
        with _read_once(batch) as messages:
            counted = messages.groupBy("topic").agg(F.count("*").alias("events")).collect()
            counts = {row.topic: row.events for row in counted}
            # Of a pattern those with options, too: none of them may have the table of a topic that comes now.
            known = self._settings.topics or (*self._settings.topic_options, *sorted(counts))
            for table in topic_tables(self._settings, dict.fromkeys(known)):
                events = sum(counts.get(topic, 0) for topic in table.topics)
                if events:
                    part = messages.where(F.col("topic").isin(*table.topics))
                    with _names_topics(table):
                        yield self._write(table, part, batch_id, events)

    def _write(self, table: TopicTable, part: DataFrame, batch_id: int, events: int | None) -> Part:
        begun = perf_counter()
        self._sink(table)(part, batch_id)
        return Part(table, events, perf_counter() - begun)

    def _sink(self, table: TopicTable) -> LsmSink:
        if table.place not in self._sinks:
            options = dict(table.settings.options)
            self._sinks[table.place] = LsmSink(table.path, options, envelope=envelope_of(table))
            self._paths[table.place] = table.path
        return self._sinks[table.place]


@contextmanager
def _read_once(batch: DataFrame) -> Iterator[DataFrame]:
    """Keep the messages of a batch, in memory or on disk: each table selects its own from them."""
    messages = batch.select(*MESSAGE_COLUMNS).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield messages
    finally:
        messages.unpersist()


@contextmanager
def _names_topics(table: TopicTable) -> Iterator[None]:
    """Name table and topics in the errors of a part."""
    try:
        yield
    except LsmError as error:
        raise type(error)(f"{table.label}, table {table.path}: {error}") from None
