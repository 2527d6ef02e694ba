"""Paimon on Spark: tables with a primary key, written by appends; compacting, or write-only."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.bench.peers.adapters.base import NoReader, Place
from tests.bench.peers.adapters.spark_session import SparkSystem, parsed, selected, start_session
from tests.bench.peers.columns import DELETED, Columns
from tests.bench.peers.sizes import BUCKETS
from tests.bench.workload import KEY

_ROW_KIND = "row_kind"
SETTINGS = {
    "spark.sql.catalog.paimon": "org.apache.paimon.spark.SparkCatalog",
    "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
}
PROPERTIES = {
    "primary-key": KEY,
    "bucket": str(BUCKETS),
    "merge-engine": "deduplicate",
    "file.format": "parquet",
    "file.compression": "zstd",
    "snapshot.num-retained.min": "100",
    "snapshot.num-retained.max": "1000",
}


class _Table:
    def __init__(self, system: SparkSystem, name: str, columns: Columns) -> None:
        self.spark, self.columns = system.session, columns
        self.folder = system.place.folder / "paimon" / "default.db" / name
        self._name = name
        properties = {**PROPERTIES, "sequence.field": columns.ordering}
        if system.place.mode == "write-only":
            properties["write-only"] = "true"
        ddl = columns.ddl.replace(f"{KEY} STRING", f"{KEY} STRING NOT NULL")
        if columns.changes:
            # The kind of change comes from a column: a plain write then deletes, too, without a MERGE.
            properties["rowkind.field"] = _ROW_KIND
            ddl += f", {_ROW_KIND} STRING"
        given = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
        self.spark.sql(f"CREATE TABLE paimon.default.{name} ({ddl}) TBLPROPERTIES ({given})")

    def upsert(self, files: Sequence[str], number: int) -> None:
        self._write(self.spark.read.parquet(*files))

    def take_messages(self, batch: DataFrame, number: int) -> None:
        rows = parsed(batch, self.columns)
        if self.columns.changes:
            kind = F.when(F.col(DELETED), "-D").otherwise("+I")
            rows = rows.withColumn(_ROW_KIND, kind).drop(DELETED)
        self._write(rows)

    def _write(self, rows: DataFrame) -> None:
        rows.write.format("paimon").mode("append").save(str(self.folder))

    def compact(self) -> None:
        self.spark.sql(f"CALL paimon.sys.compact(table => 'default.{self._name}')").collect()

    def spark_rows(self, columns: Sequence[str] | None = None, key: str | None = None) -> DataFrame:
        rows = self.spark.read.format("paimon").load(str(self.folder))
        return selected(rows, columns or self.columns.names, key)

    def spark_rows_of_last(self, batches: int) -> DataFrame:
        last = max(int(path.name.rpartition("-")[2]) for path in (self.folder / "snapshot").glob("snapshot-*"))
        rows = self.spark.read.format("paimon").option("incremental-between", f"{last - batches},{last}")
        return rows.load(str(self.folder)).select(*self.columns.names)

    def arrow_rows(self) -> pa.Table:
        raise NoReader("pypaimon is a system of its own")


def open_system(place: Place) -> SparkSystem:
    """Start the session."""
    warehouse = {"spark.sql.catalog.paimon.warehouse": f"file:{place.folder}/paimon"}
    return SparkSystem(place, start_session(place, {**SETTINGS, **warehouse}), _Table)
