"""Implement ``spark.readStream.format("streaming_lsm")``: a table's writes as a stream; PySpark 4.0 or later.

An offset is a completion time, up to which writes were read, so that it stays true over restarts and compactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from streaming_lsm import config
from streaming_lsm.arrow.nullable import as_nullable
from streaming_lsm.errors import ConfigError
from streaming_lsm.query.table_stream import FIRST, StreamPart, TableStream
from streaming_lsm.readable_table import ReadableTable
from streaming_lsm.spark.worker_errors import tells_in_one_line, told_in_one_line
from streaming_lsm.timeline.timeline import limit_text

COMPLETED, SNAPSHOT = "completed", "snapshot"
Offset = dict[str, Any]


@dataclass
class StreamPartition(InputPartition):
    """Holds what one task reads."""

    part: StreamPart


class LsmStreamReader(DataSourceStreamReader):
    """Plans the batches of a stream on the driver, and reads a file slice, or a file group's changes, in each task."""

    def __init__(self, table: ReadableTable, stream: TableStream) -> None:
        """Take the stream to read.

        Args:
            table: the table, with the options of the stream.
            stream: its plan, with the columns of the query.
        """
        self._table, self._stream, self._schema = table, stream, stream.schema
        self._most: int = table.options[config.STREAM_COMMITS]
        self._planned: str | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_schema": self._schema}

    @tells_in_one_line
    def initialOffset(self) -> Offset:
        start = self._table.options[config.STREAM_START] or "earliest"
        if start == SNAPSHOT:
            return {COMPLETED: FIRST, SNAPSHOT: True}
        if start == "earliest":
            self._planned = FIRST
        elif start == "latest":
            self._planned = self._stream.latest()
        else:
            self._planned = limit_text(start, self._table.config.timeline_zone)
        return {COMPLETED: self._planned}

    @tells_in_one_line
    def latestOffset(self) -> Offset:  # type: ignore[override]  # PySpark 4.2 calls that of `LimitedStreamReader`
        # PySpark does not say where a batch begins: after a restart the first one has no limit.
        latest = self._stream.latest() if self._planned is None else self._stream.next(self._planned, self._most)
        self._planned = latest
        return {COMPLETED: latest}

    @tells_in_one_line
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        begin, until = completed(start), completed(end)
        parts = self._stream.snapshot(until) if SNAPSHOT in start else self._stream.parts(begin, until)
        return [StreamPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, StreamPartition):
            with told_in_one_line():
                for batch in partition.part.read():
                    yield as_nullable(batch, self._schema)

    def commit(self, end: Offset) -> None:
        """Do nothing: what was read is known to Spark's checkpoint alone."""

    def stop(self) -> None:
        """Do nothing: no file is open between batches."""


def completed(offset: Offset) -> str:
    """Return the completion time of an offset.

    Raises:
        ConfigError: the checkpoint is of another source.
    """
    found = offset.get(COMPLETED)
    if not isinstance(found, str) or not found.isdigit():
        raise ConfigError(f"offset {offset} in the checkpoint is not of this source: start with a new checkpoint")
    return found
