"""The tables of this package without Spark and Java; read by `LsmTable`, or by hudi-rs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm import LsmTable
from tests.bench.peers.adapters.base import NoReader, Place
from tests.bench.peers.adapters.hudi_rs import snapshot
from tests.bench.peers.columns import Columns
from tests.bench.peers.sizes import BUCKETS, CORES
from tests.bench.workload import KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _Table:
    def __init__(self, place: Place, name: str, columns: Columns) -> None:
        self.folder = place.folder / "lsm-table" / name
        options: dict[str, object] = {
            "hoodie.table.name": name,
            "hoodie.datasource.write.recordkey.field": KEY,
            "hoodie.table.ordering.fields": columns.ordering,
            "hoodie.bucket.index.num.buckets": BUCKETS,
            "lsm.writer.id": "peers",
            "lsm.read.threads": CORES,
        }
        self._read_by_hudi_rs = place.mode == "hudi-rs"
        if self._read_by_hudi_rs:
            options["hoodie.write.table.version"] = 9
        self._table = LsmTable.create(self.folder, columns.arrow, options)

    def upsert(self, files: Sequence[str], number: int) -> None:
        self._table.upsert(pa.concat_tables(map(pq.read_table, files)), batch_id=number)

    def take_messages(self, batch: DataFrame, number: int) -> None:
        raise NotImplementedError("messages are read by Spark")

    def compact(self) -> None:
        self._table.compact()

    def spark_rows(self) -> DataFrame:
        raise NoReader("no Spark")

    def arrow_rows(self) -> pa.Table:
        if self._read_by_hudi_rs:
            return snapshot(str(self.folder))
        return LsmTable(self.folder, {"lsm.read.threads": CORES}).scan().to_arrow()


class _System:
    spark = None

    def __init__(self, place: Place) -> None:
        pa.set_cpu_count(CORES)
        self.place = place
        self.versions = {"pyarrow": pa.__version__}
        if place.mode == "hudi-rs":
            self.versions["hudi-rs"] = version("hudi")

    def table(self, name: str, columns: Columns) -> _Table:
        return _Table(self.place, name, columns)

    def close(self) -> None:
        pass


def open_system(place: Place) -> _System:
    """Limit the threads."""
    return _System(place)
