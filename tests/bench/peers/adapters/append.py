"""Spark's plain Parquet append, which keeps every version of a row: what no upsert has to beat, and many are above."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame

from tests.bench.peers.adapters.base import NoReader, Place
from tests.bench.peers.adapters.spark_session import spark_versions, start_session
from tests.bench.peers.columns import DOCUMENT_COLUMNS, Columns
from tests.bench.reference.kafka import append_documents
from tests.bench.reference.sink import append_parquet
from tests.bench.workload import REPEATED


class _Table:
    def __init__(self, system: _System, name: str, columns: Columns) -> None:
        self._spark, self._columns = system.spark, columns
        self.folder = system.place.folder / "append" / name

    def upsert(self, files: Sequence[str], number: int) -> None:
        append_parquet(self._spark.read.parquet(*files), str(self.folder), REPEATED)

    def take_messages(self, batch: DataFrame, number: int) -> None:
        row = "after" if self._columns.changes else None
        append_documents(batch, DOCUMENT_COLUMNS.ddl, str(self.folder), row)

    def compact(self) -> None:
        raise NotImplementedError("plain files have no compaction")

    def spark_rows(self) -> DataFrame:
        return self._spark.read.parquet(str(self.folder))

    def arrow_rows(self) -> pa.Table:
        raise NoReader("it is no table")


class _System:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.spark = start_session(place, {})
        self.versions = spark_versions(self.spark)

    def table(self, name: str, columns: Columns) -> _Table:
        return _Table(self, name, columns)

    def close(self) -> None:
        self.spark.stop()


def open_system(place: Place) -> _System:
    """Start the session."""
    return _System(place)
