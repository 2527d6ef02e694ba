"""Plan a query on Spark's driver and read each part of it in a task, for the data source; PySpark 4.0 or later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from streaming_lsm.arrow.nullable import as_nullable, nullable_schema
from streaming_lsm.query.cdc.changes import Changes
from streaming_lsm.query.scan import Scan
from streaming_lsm.spark.queries.worker_errors import tells_in_one_line, told_in_one_line

Read = Callable[[Any], Iterator[pa.RecordBatch]]


@dataclass
class PartPartition(InputPartition):
    """Holds the part of a query that one task reads; picklable."""

    part: Any


class QueryReader(DataSourceReader):
    """Lists the parts of a query on the driver, and reads one of them in each task."""

    def __init__(self, parts: Callable[[], Iterable[object]], read: Read, schema: pa.Schema) -> None:
        """Take a query.

        Args:
            parts: lists its parts; not sent to tasks.
            read: yields the rows of a part.
            schema: the columns of the rows.
        """
        self._parts, self._read, self._schema = parts, read, nullable_schema(schema)

    def __getstate__(self) -> dict[str, object]:
        return {"_read": self._read, "_schema": self._schema}

    @tells_in_one_line
    def partitions(self) -> Sequence[InputPartition]:
        return [PartPartition(part) for part in self._parts()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._read, self._schema)


def scan_reader(scan: Scan) -> QueryReader:
    """Build the reader of a scan, with a task for each file slice, which has that slice and no other."""

    def slices() -> Iterable[object]:
        scan.check()
        return scan.slices

    return QueryReader(slices, replace(scan, slices=()).read_slice, scan.schema)


def changes_reader(query: Changes) -> QueryReader:
    """Build the reader of a CDC query, with a task for the changes of each file group by each write."""
    return QueryReader(query.parts, query.reader.read, query.schema)


def read_partition(partition: InputPartition, read: Read, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read a part in a task, with the schema that Spark expects: each column nullable."""
    if isinstance(partition, PartPartition):  # without parts Spark passes an empty InputPartition
        with told_in_one_line():
            for batch in read(partition.part):
                yield as_nullable(batch, schema)
