"""The sink of this package, with its Kafka way; snapshots by its data source, and by `LsmTable`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from streaming_lsm import Envelope, EventFormat, LsmSink, LsmTable, read, register
from streaming_lsm.spark.engine import SparkEngine
from streaming_lsm.spark.session import local_session
from tests.bench.peers.adapters.base import Place
from tests.bench.peers.adapters.spark_session import SETTINGS, SparkSystem
from tests.bench.peers.columns import DOCUMENT_COLUMNS, ROW_COLUMNS, Columns
from tests.bench.peers.sizes import BUCKETS, CORES
from tests.bench.workload import KEY


def table_options(name: str, columns: Columns) -> dict[str, object]:
    """Options of a table."""
    return {
        "hoodie.table.name": name,
        "hoodie.datasource.write.recordkey.field": KEY,
        "hoodie.table.ordering.fields": columns.ordering,
        "hoodie.bucket.index.num.buckets": BUCKETS,
        "lsm.writer.id": "peers",
    }


class _Table:
    def __init__(self, system: SparkSystem, name: str, columns: Columns) -> None:
        self._spark = system.session
        self.folder = system.place.folder / "lsm" / name
        envelope = None
        if columns is not ROW_COLUMNS:
            kind = EventFormat.JSON if columns is DOCUMENT_COLUMNS else EventFormat.DEBEZIUM
            envelope = Envelope(columns.arrow, (KEY,), ordering=(columns.ordering,), format=kind)
        self._options = table_options(name, columns)
        self._sink = LsmSink(self.folder, self._options, envelope=envelope)

    def upsert(self, files: Sequence[str], number: int) -> None:
        self._sink(self._spark.read.parquet(*files), number)

    def take_messages(self, batch: DataFrame, number: int) -> None:
        self._sink(batch, number)

    def compact(self) -> None:
        LsmTable(self.folder, self._options).compact(SparkEngine(self._spark))

    def spark_rows(self, columns: Sequence[str] | None = None, key: str | None = None) -> DataFrame:
        condition = None if key is None else pc.field(KEY) == key
        return read(self._spark, self.folder, columns=columns, filter=condition)

    def spark_rows_of_last(self, batches: int) -> DataFrame:
        begin = LsmTable(self.folder).timeline.completed_writes[-batches - 1].completed
        options = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": begin}
        return read(self._spark, self.folder, options)

    def arrow_rows(self) -> pa.Table:
        return LsmTable(self.folder, {"lsm.read.threads": CORES}).scan().to_arrow()


def open_system(place: Place) -> SparkSystem:
    """Start the session."""
    settings = {key: value for key, value in SETTINGS.items() if key != "spark.master"}
    folders = {"spark.local.dir": str(place.folder / "spark")}
    jars = {"spark.driver.extraClassPath": ":".join(place.jars)}
    spark = local_session("peers", cores=CORES, settings={**settings, **folders, **jars})
    register(spark)
    return SparkSystem(place, spark, _Table)
