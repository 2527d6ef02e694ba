"""Spark's plain Parquet append, which keeps every version of a row: what no upsert has to beat, and many are above."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame

from tests.bench.peers.adapters.base import NoReader, Place
from tests.bench.peers.adapters.spark_session import SparkSystem, start_session
from tests.bench.peers.columns import DOCUMENT_COLUMNS, Columns
from tests.bench.reference.kafka import append_documents
from tests.bench.reference.sink import append_parquet
from tests.bench.workload import REPEATED


class _Table:
    def __init__(self, system: SparkSystem, name: str, columns: Columns) -> None:
        self._spark, self._columns = system.session, columns
        self.folder = system.place.folder / "append" / name

    def upsert(self, files: Sequence[str], number: int) -> None:
        append_parquet(self._spark.read.parquet(*files), str(self.folder), REPEATED)

    def take_messages(self, batch: DataFrame, number: int) -> None:
        row = "after" if self._columns.changes else None
        append_documents(batch, DOCUMENT_COLUMNS.ddl, str(self.folder), row, REPEATED)

    def compact(self) -> None:
        raise NotImplementedError("plain files have no compaction")

    def spark_rows(self) -> DataFrame:
        return self._spark.read.parquet(str(self.folder))

    def arrow_rows(self) -> pa.Table:
        raise NoReader("it is no table")


def open_system(place: Place) -> SparkSystem:
    """Start the session."""
    return SparkSystem(place, start_session(place, {}), _Table)
