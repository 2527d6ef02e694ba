"""Read a table as a stream with limits of a batch, and with the trigger `availableNow`; PySpark 4.2 or later."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from streaming_lsm.query.table_stream import TableStream
from streaming_lsm.readable_table import ReadableTable
from streaming_lsm.spark.queries.stream_reader import COMPLETED, SNAPSHOT, LsmStreamReader, Offset, completed
from streaming_lsm.spark.queries.worker_errors import tells_in_one_line


class LimitedStreamReader(LsmStreamReader, SupportsTriggerAvailableNow):
    """Plans batches from where Spark says that they begin."""

    def __init__(self, table: ReadableTable, stream: TableStream) -> None:
        """Take the stream to read; see `LsmStreamReader`."""
        super().__init__(table, stream)
        self._last = "~"

    @tells_in_one_line
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # type: ignore[override]
        begin = completed(start)
        most = self._most if isinstance(limit, ReadMaxFiles) and SNAPSHOT not in start else 0
        end = min(self._stream.next(begin, most), self._last)
        return {COMPLETED: end} if end > begin else start

    def getDefaultReadLimit(self) -> ReadLimit:
        # Of Spark's kinds of limits none counts commits; this one is given back as it is.
        return ReadMaxFiles(self._most) if self._most else ReadAllAvailable()

    @tells_in_one_line
    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._stream.latest()

    @tells_in_one_line
    def reportLatestOffset(self) -> Offset:
        return {COMPLETED: self._stream.latest()}
