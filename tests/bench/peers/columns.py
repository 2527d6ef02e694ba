"""Columns of the tables that the systems write."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tests.bench.workload import KEY, ORDERING

LSN = "_event_lsn"
"""Position in the database's log, of a Debezium change; Hudi's name for it."""
DELETED = "_deleted"
"""Column of a batch of changes, beside those of the table: whether the row is deleted."""

_ARROW: dict[str, pa.DataType] = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DECIMAL(10,2)": pa.decimal128(10, 2),
}


@dataclass(frozen=True)
class Columns:
    """Columns of a table, its key being `KEY`.

    Attributes:
        types: Spark's type of each column.
        ordering: the column whose highest value wins.
        changes: whether batches are Debezium changes, with deletes.
    """

    types: dict[str, str]
    ordering: str
    changes: bool = False

    @property
    def names(self) -> list[str]:
        """Names, in order."""
        return list(self.types)

    @property
    def ddl(self) -> str:
        """Columns as Spark's DDL."""
        return ", ".join(f"{name} {kind}" for name, kind in self.types.items())

    @property
    def arrow(self) -> pa.Schema:
        """Columns as an Arrow schema."""
        return pa.schema({name: _ARROW[kind] for name, kind in self.types.items()})


_COMMON = {
    KEY: "STRING",
    "customer_id": "BIGINT",
    "country": "STRING",
    "status": "STRING",
    "item": "STRING",
    "qty": "INT",
}
_ROWS = {
    **_COMMON,
    "price": "DOUBLE",
    "discount": "DOUBLE",
    "express": "BOOLEAN",
    "created_at": "TIMESTAMP",
    ORDERING: "TIMESTAMP",
}
_DOCUMENTS = {**_ROWS, "price": "DECIMAL(10,2)", "created_at": "BIGINT", ORDERING: "BIGINT"}

ROW_COLUMNS = Columns(_ROWS, ORDERING)
"""Of the rows in Parquet files."""
DOCUMENT_COLUMNS = Columns(_DOCUMENTS, ORDERING)
"""Of the rows in JSON."""
CHANGE_COLUMNS = Columns({**_DOCUMENTS, LSN: "BIGINT"}, LSN, changes=True)
"""Of the Debezium changes."""
