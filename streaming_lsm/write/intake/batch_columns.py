"""Tell which columns the rows of a batch have, and leave out those that the table does not store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.schema import IS_DELETED, META_COLUMNS
from streaming_lsm.write.intake.control_columns import CONTROL_COLUMNS
from streaming_lsm.write.numbers import Counts

Rows = pa.Table | pa.RecordBatch


def columns_of(rows: Rows | pa.RecordBatchReader) -> pa.Schema:
    """Return the columns of rows; of rows in memory, those without nulls are not nullable.

    Values of rows that are deletes by ``_hoodie_is_deleted`` do not count.
    """
    if isinstance(rows, pa.RecordBatchReader):
        return rows.schema
    kept = None
    if IS_DELETED in rows.schema.names and pa.types.is_boolean(rows.schema.field(IS_DELETED).type):
        kept = pc.invert(pc.fill_null(rows.column(IS_DELETED), False))
    return pa.schema([field.with_nullable(_has_null(rows, field, kept)) for field in rows.schema])


def _has_null(rows: Rows, field: pa.Field[Any], kept: Any) -> bool:
    # A name may be there twice, which is refused elsewhere.
    place = rows.schema.names.index(field.name)
    column: Any = rows.column(place)
    if not column.null_count or kept is None:
        return bool(column.null_count)
    return bool(pc.any(pc.and_(pc.is_null(column), kept)).as_py())


def stored_columns(
    batch: pa.RecordBatch, schema: pa.Schema, arrival_fields: Sequence[str]
) -> tuple[pa.RecordBatch, Counts]:
    """Leave out the columns that the table does not store, and that describe no event.

    Args:
        batch: rows of a batch.
        schema: the table's columns.
        arrival_fields: columns that order the batch and need not be stored.

    Returns:
        The other columns; and the number of rows by ignored column that is not null, ``column.field`` for a field that
        is ignored of a struct.
    """
    used = {*schema.names, *CONTROL_COLUMNS, IS_DELETED, *arrival_fields}
    names = batch.schema.names
    kept = [place for place, name in enumerate(names) if name in used]
    ignored = [name for name in names if name not in used and name not in META_COLUMNS]
    counts = {name: _values(batch.column(name)) for name in ignored}
    for field in schema:
        if field.name in names and isinstance(batch.schema.field(field.name).type, pa.StructType):
            counts.update(_ignored_inside(batch.column(field.name), field))
    found = batch if len(kept) == len(names) else batch.select(kept)
    return found, {name: count for name, count in counts.items() if count}


def _ignored_inside(column: pa.Array[Any], field: pa.Field[Any]) -> Iterator[tuple[str, int]]:
    """Count the values of the fields of a struct that the column in the table does not have."""
    known = {inner.name for inner in field.type.fields} if isinstance(field.type, pa.StructType) else set()
    for place, inner in enumerate(column.type.fields):
        if inner.name not in known:
            yield f"{field.name}.{inner.name}", _values(pc.struct_field(column, [place]))


def _values(column: pa.Array[Any]) -> int:
    return len(column) - column.null_count
