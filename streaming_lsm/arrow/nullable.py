"""Relax types and schemas: every column, field, element and value may be null."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a schema, without metadata, where each value of each level may be null."""
    return pa.schema([_nullable(field) for field in schema])


def as_nullable(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the schema that `nullable_schema` made of its own; no value is copied."""
    columns: list[Any] = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def nullable_type(kind: pa.DataType) -> pa.DataType:
    """Return a type in which each nested value may be null, but for the keys of maps."""
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(field) for field in kind.fields])
    if pa.types.is_map(kind):
        values: Any = _nullable(kind.item_field)
        return pa.map_(nullable_type(kind.key_type), values)
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_field))
    return kind


def _nullable(field: pa.Field[Any]) -> pa.Field[Any]:
    return pa.field(field.name, nullable_type(field.type))
