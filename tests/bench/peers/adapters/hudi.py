"""Hudi on Spark: merge-on-read with the bucket index; snapshots by Spark and hudi-rs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

import pyarrow as pa
from pyspark.sql import DataFrame

from tests.bench.peers.adapters.base import Place
from tests.bench.peers.adapters.spark_session import JAVA_OPTIONS, SparkSystem, parsed, selected, start_session
from tests.bench.peers.columns import DELETED, Columns
from tests.bench.peers.sizes import BUCKETS, CORES
from tests.bench.workload import KEY

SETTINGS = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    # Hudi measures objects with a library that otherwise tries for seconds to attach to its own process.
    "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Djol.skipHotspotSAAttach=true -Djdk.attach.allowAttachSelf=true",
}
OPTIONS = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "SIMPLE",
    "hoodie.bucket.index.num.buckets": str(BUCKETS),
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.parquet.compression.codec": "zstd",
    # Logs of Avro blocks have no codec, and take four times the bytes.
    "hoodie.logfile.data.block.format": "parquet",
    # It saves listings, which are cheap with few files on a local disk: a batch takes a third less of the processor.
    "hoodie.metadata.enable": "false",
    "hoodie.upsert.shuffle.parallelism": str(CORES),
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.embed.timeline.server": "false",
}


class _Table:
    def __init__(self, system: SparkSystem, name: str, columns: Columns) -> None:
        self.spark, self.columns = system.session, columns
        self.folder = system.place.folder / "hudi" / name
        self._options = {
            **OPTIONS,
            "hoodie.table.name": name,
            "hoodie.table.ordering.fields": columns.ordering,
            "hoodie.datasource.write.precombine.field": columns.ordering,
        }

    def upsert(self, files: Sequence[str], number: int) -> None:
        self._write(self.spark.read.parquet(*files))

    def take_messages(self, batch: DataFrame, number: int) -> None:
        rows = parsed(batch, self.columns)
        if self.columns.changes:
            rows = rows.withColumnRenamed(DELETED, "_hoodie_is_deleted")
        self._write(rows)

    def _write(self, rows: DataFrame) -> None:
        rows.write.format("hudi").options(**self._options).mode("append").save(str(self.folder))

    def compact(self) -> None:
        # It plans nothing before that many delta commits.
        options = {**self._options, "hoodie.compact.inline.max.delta.commits": "1"}
        given = ",".join(f"{key}={value}" for key, value in options.items() if value)
        call = f"CALL run_compaction(op => 'scheduleandexecute', path => '{self.folder}', options => '{given}')"
        done = self.spark.sql(call).collect()
        if not done and any(self.folder.glob(".*.log.*")):
            raise RuntimeError("Hudi planned no compaction of its logs")

    def spark_rows(self, columns: Sequence[str] | None = None, key: str | None = None) -> DataFrame:
        rows = self.spark.read.format("hudi").load(str(self.folder))
        return selected(rows, columns or self.columns.names, key)

    def spark_rows_of_last(self, batches: int) -> DataFrame:
        names = [path.name.partition(".")[0] for path in (self.folder / ".hoodie" / "timeline").glob("*.deltacommit")]
        begin = sorted(name.partition("_")[2] for name in names)[-batches - 1]
        options = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": begin}
        rows = self.spark.read.format("hudi").options(**options).load(str(self.folder))
        return rows.select(*self.columns.names)

    def arrow_rows(self) -> pa.Table:
        from tests.bench.peers.adapters.hudi_rs import snapshot

        return snapshot(str(self.folder))


def open_system(place: Place) -> SparkSystem:
    """Start the session."""
    return SparkSystem(place, start_session(place, SETTINGS), _Table, {"hudi-rs": version("hudi")})
