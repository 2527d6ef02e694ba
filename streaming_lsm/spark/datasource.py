"""Implement ``spark.read.format("streaming_lsm")``, with one task for each file slice; PySpark 4.0 or later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from streaming_lsm.errors import ConfigError
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.query.scan import Scan
from streaming_lsm.spark.versions import spark_schema
from streaming_lsm.storage.failures import named_failures, names_failures
from streaming_lsm.table import LsmTable

FORMAT = "streaming_lsm"


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
        return spark_schema(schema)

    @names_failures
    def reader(self, schema: StructType) -> DataSourceReader:
        scan = self._scan()
        if schema != spark_schema(scan.schema):
            raise ConfigError(
                "spark.read.schema(…) differs from the table's schema: leave it out, and select and cast instead"
            )
        return LsmReader(scan)

    def _scan(self) -> Scan:
        path = self.options.get("path")
        if not path:
            raise ConfigError('no table path; write spark.read.format("streaming_lsm").load("/path/of/table")')
        return LsmTable(path, {key: value for key, value in self.options.items() if key != "path"}).scan()


@dataclass
class SlicePartition(InputPartition):
    """Holds the file slice that one task reads."""

    file_slice: FileSlice


class LsmReader(DataSourceReader):
    """Lists the file slices on the driver, and reads one of them in each task."""

    def __init__(self, scan: Scan) -> None:
        """Take the scan to run."""
        self._scan = scan

    @names_failures
    def partitions(self) -> Sequence[InputPartition]:
        self._scan.check()
        return [SlicePartition(file_slice) for file_slice in self._scan.slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SlicePartition):  # without slices Spark passes an empty InputPartition
            with named_failures():
                yield from self._scan.read_slice(partition.file_slice)
