"""Cast tables whose null structs have required fields.

Arrow stores a value for each field of a null struct, and often a null. It then refuses to cast the struct, also to its
own type, and to write it to Parquet if the field is required.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Column, pc


def cast_table(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Take the columns of `schema`, cast those of another type, and fill required fields of null structs.

    Raises:
        ValueError: a required column has nulls.
        ArrowInvalid: a value does not fit its type.
    """
    columns = []
    for field in schema:
        column = rows.column(field.name)
        if not field.nullable and column.null_count:
            raise ValueError(f"column {field.name!r} is required, and has nulls")
        columns.append(cast_column(column, field.type))
    return pa.table(columns, schema=schema)


def cast_column(column: Column, kind: pa.DataType) -> Column:
    """Cast a column that has another type, and fill required fields of null structs."""
    filled = fill_required_fields(column)
    return filled if filled.type == kind else filled.cast(kind)


def fill_required_fields(column: Column) -> Column:
    """Fill nulls of required fields in null structs; a null in a struct that is none stays, and is refused by Arrow."""
    if not _has_required_fields(column.type):
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_filled(chunk) for chunk in column.chunks], column.type)
    return _filled(column)


def _has_required_fields(kind: pa.DataType) -> bool:
    fields = [kind.field(place) for place in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    is_struct = pa.types.is_struct(kind)
    return any((is_struct and not field.nullable) or _has_required_fields(field.type) for field in fields)


def _filled(array: pa.Array[Any]) -> pa.Array[Any]:
    kind = array.type
    if not _has_required_fields(kind):
        return array
    if isinstance(array, pa.StructArray):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        children = [_child(array, place, field) for place, field in enumerate(fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if array.offset:  # Arrow builds no lists from a part of a null bitmap; the bitmap of a copy is whole
        array = pa.concat_arrays([array, array.slice(0, 0)])
    nulls: Any = array.is_null()
    if isinstance(array, pa.MapArray):
        parts = [_filled(array.keys), _filled(array.items)]
        # The stubs miss the items.
        found: pa.Array[Any] = pa.MapArray.from_arrays(array.offsets, *parts, type=kind, mask=nulls)  # type: ignore[call-overload]
        return found
    if isinstance(array, pa.ListArray):
        return pa.ListArray.from_arrays(array.offsets, _filled(array.values), type=kind, mask=nulls)
    return array


def _child(array: pa.StructArray, place: int, field: pa.Field[Any]) -> pa.Array[Any]:
    child = _filled(array.field(place))
    if field.nullable or not child.null_count or pc.any(pc.and_(child.is_null(), array.is_valid())).as_py():
        return child
    places = pc.if_else(child.is_valid(), pa.array(np.arange(len(child))), len(child))
    return pa.concat_arrays([child, _zero(field.type)]).take(places)


def _zero(kind: pa.DataType) -> pa.Array[Any]:
    """Build one value of a type, which no reader sees."""
    if isinstance(kind, pa.StructType):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return pa.StructArray.from_arrays([_zero(field.type) for field in fields], fields=fields)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return pa.array([[]], kind)
    if pa.types.is_decimal(kind):
        return pa.array([Decimal(0)], kind)
    if pa.types.is_fixed_size_binary(kind):
        return pa.array([b"\0" * kind.byte_width], kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.array([""], pa.string()).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.array([False])
    return pa.array([0], kind)
