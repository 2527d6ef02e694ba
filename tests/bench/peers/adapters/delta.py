"""Delta: MERGE with deletion vectors; snapshots by Spark and delta-rs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tests.bench.peers.adapters.base import Place
from tests.bench.peers.adapters.merging import merge_files, merge_messages
from tests.bench.peers.adapters.spark_session import SparkSystem, start_session
from tests.bench.peers.columns import Columns

# The codec is that of the session.
PROPERTIES = {"delta.enableDeletionVectors": "true"}
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The batch is the same each time it is read, so that no copy of it is needed.
    "spark.databricks.delta.merge.materializeSource": "none",
    # The log is small: states of 50 partitions would cost tasks for nothing.
    "spark.databricks.delta.snapshotPartitions": "2",
}


class _Table:
    def __init__(self, system: SparkSystem, name: str, columns: Columns) -> None:
        self.spark, self.columns = system.session, columns
        self.folder = system.place.folder / "delta" / name
        self.identifier = f"delta.`{self.folder}`"
        properties = ", ".join(f"'{key}'='{value}'" for key, value in PROPERTIES.items())
        self.spark.sql(f"CREATE TABLE {self.identifier} ({columns.ddl}) USING delta TBLPROPERTIES ({properties})")

    def upsert(self, files: Sequence[str], number: int) -> None:
        merge_files(self, files)

    def take_messages(self, batch: DataFrame, number: int) -> None:
        merge_messages(self, batch)

    def compact(self) -> None:
        self.spark.sql(f"OPTIMIZE {self.identifier}").collect()
        # OPTIMIZE leaves files alone that have few deleted rows; this merges all deletion vectors.
        self.spark.sql(f"REORG TABLE {self.identifier} APPLY (PURGE)").collect()

    def spark_rows(self) -> DataFrame:
        return self.spark.read.format("delta").load(str(self.folder))

    def arrow_rows(self) -> pa.Table:
        from deltalake import DeltaTable, QueryBuilder  # type: ignore[import-not-found]

        # The reader of datasets refuses deletion vectors; the query engine takes them.
        found: Any = QueryBuilder().register("t", DeltaTable(str(self.folder))).execute("SELECT * FROM t").read_all()
        return pa.table(found)


def open_system(place: Place) -> SparkSystem:
    """Start the session."""
    return SparkSystem(place, start_session(place, SETTINGS), _Table, {"deltalake": version("deltalake")})
