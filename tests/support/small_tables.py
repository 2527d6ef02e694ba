"""Small tables of known rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming_lsm import LsmTable
from tests.support.writers import files_below

SCHEMA = pa.schema([("id", pa.string()), ("country", pa.string()), ("ts", pa.int64()), ("qty", pa.int32())])
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "country",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
    "lsm.read.threads": 2,
}
Row = tuple[str, str, int, int]


def create(root: Path, schema: pa.Schema = SCHEMA, **options: object) -> LsmTable:
    """An empty table; an option of None is left out."""
    chosen = {key: value for key, value in {**OPTIONS, **options}.items() if value is not None}
    return LsmTable.create(root, schema, chosen)


def rows(*values: Row, schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows as (id, country, ts, qty)."""
    columns = [list(column) for column in zip(*values, strict=True)] or [[]] * len(schema)
    return pa.table(columns, schema=schema)


def shown(table: LsmTable, **how: Any) -> list[Row]:
    """The snapshot's rows by id and country."""
    found = table.scan(["id", "country", "ts", "qty"], **how).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def data_files(root: Path) -> set[str]:
    """Everything that holds rows."""
    return {path for path in files_below(root) if path.endswith((".parquet", ".orc"))}
