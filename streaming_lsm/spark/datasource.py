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
from streaming_lsm.read.file_view import FileSlice
from streaming_lsm.read.scan import Scan
from streaming_lsm.table import LsmTable

FORMAT = "streaming_lsm"
AS_OF = "as.of.instant"
META = "lsm.read.meta"


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("streaming_lsm")`` known to a session; call it once after starting Spark."""
    spark.dataSource.register(LsmDataSource)


class LsmDataSource(DataSource):
    """Reads the snapshot of the table at ``load(path)``.

    Options: ``as.of.instant`` (an instant or a date and time), ``lsm.read.meta`` (``true`` puts the meta
    columns first).
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        schema = self._scan().schema
        return from_arrow_schema(schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return LsmReader(self._scan())

    def _scan(self) -> Scan:
        path = self.options.get("path")
        if not path:
            raise ConfigError('no table path; write spark.read.format("streaming_lsm").load("/path/of/table")')
        meta = (self.options.get(META) or "false").lower() == "true"
        return LsmTable(path).scan(as_of=self.options.get(AS_OF), meta=meta)


@dataclass
class SlicePartition(InputPartition):
    """The input of one task."""

    file_slice: FileSlice


class LsmReader(DataSourceReader):
    """Plans on the driver which slices there are, and reads one on an executor."""

    def __init__(self, scan: Scan) -> None:
        """Read what `scan` describes."""
        self._scan = scan

    def partitions(self) -> Sequence[InputPartition]:
        return [SlicePartition(file_slice) for file_slice in self._scan.slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SlicePartition)
        yield from self._scan.read_slice(partition.file_slice)
