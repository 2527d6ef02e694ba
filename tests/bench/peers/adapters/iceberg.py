"""Iceberg: MERGE INTO, merge-on-read; snapshots by Spark and pyiceberg."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame

from tests.bench.peers.adapters.base import Place
from tests.bench.peers.adapters.merging import merge_files, merge_messages
from tests.bench.peers.adapters.spark_session import SparkSystem, start_session
from tests.bench.peers.columns import Columns
from tests.bench.peers.sizes import BUCKETS
from tests.bench.workload import KEY

PROPERTIES = {
    "format-version": "3",  # deletion vectors: one a data file, against position delete files of v2
    "write.merge.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
SETTINGS = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.peers": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.peers.type": "hadoop",
    # Storage-partitioned join: the target is not shuffled for the MERGE.
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
}


class _Table:
    def __init__(self, system: SparkSystem, name: str, columns: Columns) -> None:
        self.spark, self.columns = system.session, columns
        self.identifier = f"peers.db.{name}"
        self.folder = system.place.folder / "iceberg" / "db" / name
        properties = ", ".join(f"'{key}'='{value}'" for key, value in PROPERTIES.items())
        self.spark.sql(
            f"CREATE TABLE {self.identifier} ({columns.ddl}) USING iceberg PARTITIONED BY (bucket({BUCKETS}, {KEY})) "
            f"TBLPROPERTIES ({properties})"
        )

    def upsert(self, files: Sequence[str], number: int) -> None:
        merge_files(self, files)

    def take_messages(self, batch: DataFrame, number: int) -> None:
        merge_messages(self, batch)

    def compact(self) -> None:
        name = self.identifier.removeprefix("peers.")
        self.spark.sql(
            f"CALL peers.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true', "
            "'remove-dangling-deletes', 'true', 'max-concurrent-file-group-rewrites', '2'))"
        ).collect()

    def spark_rows(self) -> DataFrame:
        # The session keeps the table as it was made; foreachBatch writes by another session.
        self.spark.sql(f"REFRESH TABLE {self.identifier}")
        return self.spark.table(self.identifier)

    def arrow_rows(self) -> pa.Table:
        from pyiceberg.table import StaticTable  # type: ignore[import-not-found]

        current = (self.folder / "metadata" / "version-hint.text").read_text().strip()
        table = StaticTable.from_metadata(f"{self.folder}/metadata/v{current}.metadata.json")
        return cast(pa.Table, cast(Any, table).scan().to_arrow())


def open_system(place: Place) -> SparkSystem:
    """Start the session."""
    warehouse = {"spark.sql.catalog.peers.warehouse": str(place.folder / "iceberg")}
    return SparkSystem(
        place, start_session(place, {**SETTINGS, **warehouse}), _Table, {"pyiceberg": version("pyiceberg")}
    )
