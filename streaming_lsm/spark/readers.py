"""Plan a query on Spark's driver and read each part of it in a task, for the data source; PySpark 4.0 or later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from streaming_lsm.arrow.nullable import as_nullable, nullable_schema
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.query.change_reader import GroupChanges
from streaming_lsm.query.changes import Changes
from streaming_lsm.query.scan import Scan
from streaming_lsm.spark.worker_errors import tells_in_one_line, told_in_one_line


@dataclass
class SlicePartition(InputPartition):
    """Holds the file slice that one task reads."""

    file_slice: FileSlice


class ScanReader(DataSourceReader):
    """Lists the file slices on the driver, and reads one of them in each task."""

    def __init__(self, scan: Scan) -> None:
        """Take the scan to run."""
        self._scan = scan

    def __getstate__(self) -> dict[str, object]:
        # A task has the slice that it reads, not all of them.
        return {"_scan": replace(self._scan, slices=())}

    @tells_in_one_line
    def partitions(self) -> Sequence[InputPartition]:
        self._scan.check()
        return [SlicePartition(file_slice) for file_slice in self._scan.slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SlicePartition):  # without slices Spark passes an empty InputPartition
            with told_in_one_line():
                yield from _nullable(self._scan.read_slice(partition.file_slice), self._scan.schema)


@dataclass
class ChangesPartition(InputPartition):
    """Holds the changes of one file group by one write, which one task reads."""

    changes: GroupChanges


class ChangesReader(DataSourceReader):
    """Plans a CDC query on the driver, and reads the changes of one file group by one write in each task."""

    def __init__(self, query: Changes) -> None:
        """Take the query to run."""
        self._query = query
        self._reader = query.reader

    def __getstate__(self) -> dict[str, object]:
        return {"_reader": self._reader}

    @tells_in_one_line
    def partitions(self) -> Sequence[InputPartition]:
        return [ChangesPartition(part) for part in self._query.parts()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ChangesPartition):
            with told_in_one_line():
                yield from _nullable(self._reader.read(partition.changes), self._reader.schema)


def _nullable(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches as Spark expects them: it compares their schema with that of the data source."""
    expected = nullable_schema(schema)
    return (as_nullable(batch, expected) for batch in batches)
