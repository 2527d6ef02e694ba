"""pypaimon, without a JVM: in Python, or with the native (Rust) reader and writer that it takes where it can."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.peers.adapters.base import NoReader, Place
from tests.bench.peers.columns import Columns
from tests.bench.peers.sizes import BUCKETS, CORES
from tests.bench.workload import KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PROPERTIES = {"bucket": str(BUCKETS), "file.format": "parquet", "file.compression": "zstd"}
NATIVE = {
    "write.native.enabled": "true",
    "commit.native.enabled": "true",
    "read.native.enabled": "true",
    "scan.native-plan.enabled": "true",
}


class _Table:
    def __init__(self, system: _System, name: str, columns: Columns) -> None:
        from pypaimon import Schema  # type: ignore[import-not-found]

        self._names = columns.names
        # The key may not be null in a table of Paimon.
        self._schema = pa.schema([field.with_nullable(field.name != KEY) for field in columns.arrow])
        self.folder = system.place.folder / "pypaimon" / "default.db" / name
        options = {**PROPERTIES, **system.options, "sequence.field": columns.ordering}
        schema = Schema.from_pyarrow_schema(self._schema, primary_keys=[KEY], options=options)
        system.catalog.create_table(f"default.{name}", schema, False)
        self._table: Any = system.catalog.get_table(f"default.{name}")

    def upsert(self, files: Sequence[str], number: int) -> None:
        rows = pa.concat_tables(map(pq.read_table, files)).cast(self._schema)
        builder = self._table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(rows)
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()

    def take_messages(self, batch: DataFrame, number: int) -> None:
        raise NotImplementedError("messages are read by Spark")

    def compact(self) -> None:
        raise NotImplementedError("pypaimon 2.1 has no compaction")

    def spark_rows(self) -> DataFrame:
        raise NoReader("no Spark")

    def arrow_rows(self) -> pa.Table:
        builder = self._table.new_read_builder()
        splits = builder.new_scan().plan().splits()
        return cast(pa.Table, builder.new_read().to_arrow(splits))


class _System:
    spark = None

    def __init__(self, place: Place) -> None:
        from pypaimon import CatalogFactory

        pa.set_cpu_count(CORES)
        self.place = place
        self.options = NATIVE if place.mode == "native" else {}
        self.versions = {"pyarrow": pa.__version__}
        if self.options:
            self.versions["pypaimon-rust"] = version("pypaimon-rust")
        self.catalog: Any = CatalogFactory.create({"warehouse": str(place.folder / "pypaimon")})
        self.catalog.create_database("default", True)

    def table(self, name: str, columns: Columns) -> _Table:
        return _Table(self, name, columns)

    def close(self) -> None:
        pass


def open_system(place: Place) -> _System:
    """Open the catalog."""
    return _System(place)
