"""Implement ``spark.readStream.format("streaming_lsm")``: a table's writes as a stream; PySpark 4.0 or later.

An offset is a completion time, up to which writes were read, so that it stays true over restarts and compactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import methodcaller
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from streaming_lsm import config
from streaming_lsm.errors import ConfigError
from streaming_lsm.query.table_stream import FIRST, TableStream
from streaming_lsm.readable_table import ReadableTable
from streaming_lsm.spark.queries.readers import PartPartition, read_partition
from streaming_lsm.spark.queries.worker_errors import tells_in_one_line
from streaming_lsm.timeline.clock import moment_text
from streaming_lsm.timeline.timeline import limit_text

COMPLETED, SNAPSHOT, GIVEN = "completed", "snapshot", "given"
"""Fields of an offset: the completion time; whether the rows of then are to be read; whether a user gave the time."""
Offset = dict[str, Any]


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
            return {COMPLETED: FIRST}
        if start == "latest":
            # PySpark 4.0 and 4.1 ask for the latest offset first.
            return {COMPLETED: self._planned or self._stream.latest()}
        return {COMPLETED: moment_of(start, self._table.config.timeline_zone), GIVEN: True}

    @tells_in_one_line
    def latestOffset(self) -> Offset:  # type: ignore[override]  # PySpark 4.2 calls that of `LimitedStreamReader`
        # PySpark does not say where a batch begins: after a restart the first one has no limit.
        latest = self._stream.latest() if self._planned is None else self._stream.next(self._planned, self._most)
        self._planned = latest
        return {COMPLETED: latest}

    @tells_in_one_line
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        begin, until = completed(start), completed(end)
        if SNAPSHOT in start:
            return [PartPartition(part) for part in self._stream.snapshot(until)]
        if GIVEN not in start:
            self._stream.check_read(begin)
        return [PartPartition(part) for part in self._stream.parts(begin, until)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, methodcaller("read"), self._schema)

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


def moment_of(text: str, zone: str) -> str:
    """Convert the time after which a user wants a stream to begin into digits.

    Raises:
        ConfigError: the text is no time, such as seconds since 1970.
    """
    if text.isascii() and text.isdigit() and text.strip("0"):
        moment_text(f"{text[:4]}-{text[4:6]}-{text[6:8]}", zone)  # raises if these are no date
    return limit_text(text, zone)
