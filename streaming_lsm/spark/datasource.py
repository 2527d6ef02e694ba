"""``spark.read.format("streaming_lsm")``: snapshots as Spark DataFrames, one task per file slice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from streaming_lsm.errors import ConfigError
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.read.scan import Scan
from streaming_lsm.storage.failures import named_failures, names_failures
from streaming_lsm.table import LsmTable

FORMAT = "streaming_lsm"


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("streaming_lsm")`` known to a session; call it once after starting Spark."""
    spark.dataSource.register(LsmDataSource)


class LsmDataSource(DataSource):
    """Reads the snapshot of the table at ``load(path)``.

    Options are those under "Read" in docs/configuration.md, such as ``as.of.instant``.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @names_failures
    def schema(self) -> StructType:
        schema = self._scan().schema
        return from_arrow_schema(schema)

    @names_failures
    def reader(self, schema: StructType) -> DataSourceReader:
        scan = self._scan()
        if schema != from_arrow_schema(scan.schema):
            raise ConfigError("a schema cannot be given to spark.read, the table has its own; select and cast instead")
        return LsmReader(scan)

    def _scan(self) -> Scan:
        path = self.options.get("path")
        if not path:
            raise ConfigError('no table path; write spark.read.format("streaming_lsm").load("/path/of/table")')
        return LsmTable(path, {key: value for key, value in self.options.items() if key != "path"}).scan()


@dataclass
class SlicePartition(InputPartition):
    """The input of one task."""

    file_slice: FileSlice


class LsmReader(DataSourceReader):
    """Plans on the driver which slices there are, and reads one on an executor."""

    def __init__(self, scan: Scan) -> None:
        """Read what `scan` describes."""
        self._scan = scan

    @names_failures
    def partitions(self) -> Sequence[InputPartition]:
        self._scan.check()
        return [SlicePartition(file_slice) for file_slice in self._scan.slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SlicePartition):  # Spark makes one of its own where there is no slice
            with named_failures():
                yield from self._scan.read_slice(partition.file_slice)
