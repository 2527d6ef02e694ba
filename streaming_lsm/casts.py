"""Cast rows to the columns of a table: those of a batch, and those of files that were written with narrower types.

Columns and the fields of structs are matched by name; fields that are missing are null.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.errors import SchemaError
from streaming_lsm.keys.java_text import to_java_text
from streaming_lsm.schema import stored_type
from streaming_lsm.schema_evolution import promotes


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Select the columns of `schema` from `batch`, in its order, and cast them to its types.

    Columns are matched by name; columns that `schema` does not have are dropped. Values are cast to wider types, and to
    other encodings of the same type.

    Raises:
        SchemaError: a column is missing, has another type, or has nulls in a column that is not nullable.
    """
    return pa.RecordBatch.from_arrays([_fit_column(batch, field) for field in schema], schema=schema)


def fit_known(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast the columns of `batch` that `schema` has to its types, with nulls allowed; keep all others unchanged.

    Raises:
        SchemaError: a column has another type.
    """
    known = {field.name: field.with_nullable(True) for field in schema}
    fields = [known.get(field.name, _plain_field(field)) for field in batch.schema]
    return fit(batch, pa.schema(fields))


def _plain_field(field: pa.Field[Any]) -> pa.Field[Any]:
    if pa.types.is_null(field.type):
        return field
    return pa.field(field.name, stored_type(field.type, field.name), field.nullable)


def _fit_column(batch: pa.RecordBatch, field: pa.Field[Any]) -> pa.Array[Any]:
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        raise SchemaError(f"column {field.name!r} is missing; the batch has {', '.join(batch.schema.names)}")
    column = batch.column(index)
    if column.type != field.type:
        if not _fits(column.type, field.type):
            raise SchemaError(
                f"column {field.name!r} has type {column.type}, the table has {field.type}; cast it first"
            )
        try:
            column = cast_array(decoded(column), field.type)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"column {field.name!r} does not fit the table's {field.type}: {error}") from None
    if not field.nullable and column.null_count:
        raise SchemaError(f"column {field.name!r} has nulls, but is not nullable in the table; fill them")
    return column


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Test whether `found` is, or casts to, `wanted`; the nullability of nested fields is ignored."""
    if pa.types.is_null(found):  # inferred from a column that has only nulls
        return True
    pairs = _children(found, wanted)
    if pairs is not None:
        return all(_fits(one, other) for one, other in pairs)
    try:
        stored = stored_type(found, "")
    except SchemaError:
        return False
    return stored.equals(wanted) or promotes(stored, wanted)


def _children(found: Any, wanted: Any) -> list[tuple[pa.DataType, pa.DataType]] | None:
    """Pair the types inside two nested types of one kind; None if they are not."""
    if isinstance(found, pa.StructType) and isinstance(wanted, pa.StructType):
        names = {field.name for field in found}
        return [(found.field(field.name).type, field.type) for field in wanted if field.name in names]
    if is_list(found) and is_list(wanted):
        return [(found.value_type, wanted.value_type)]
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return [(found.key_type, wanted.key_type), (found.item_type, wanted.item_type)]
    return None


def is_list(kind: Any) -> bool:
    """Test whether a type is a list of any encoding that tables take."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def decoded(column: pa.Array[Any]) -> pa.Array[Any]:
    """Decode a dictionary of string views, which Arrow cannot cast."""
    if not isinstance(column, pa.DictionaryArray) or column.type.value_type != pa.string_view():
        return column
    return column.dictionary.cast(pa.string()).take(column.indices)


def cast_array(column: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Cast a column as Hudi does: a float becomes the double, or Java's text, of the same decimal digits.

    See docs/format/01-table.md, "Schema evolution".
    Fields of structs are matched by name; those that `column` lacks are null, those that `kind` lacks are left out.

    Raises:
        pa.ArrowInvalid, pa.ArrowNotImplementedError: a value, or the type, cannot be cast.
    """
    if column.type.equals(kind):
        return column
    if _children(column.type, kind) is not None:
        return _cast_nested(column, kind)
    if pa.types.is_floating(column.type) and pa.types.is_string(kind):
        return to_java_text(column)
    if pa.types.is_float32(column.type) and pa.types.is_float64(kind):
        return pc.cast(pc.cast(column, pa.string()), kind)  # the double 0.1 for the float 0.1
    promoted = pa.types.is_integer(column.type) and pa.types.is_floating(kind)
    return pc.cast(column, kind, safe=not promoted)


def _cast_nested(column: Any, kind: Any) -> pa.Array[Any]:
    if column.offset:
        column = column.take(np.arange(len(column)))  # children and masks begin where the array begins
    missing = column.is_null()
    if pa.types.is_struct(kind):
        children = list(_cast_fields(column, kind))
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)
    if pa.types.is_map(kind):
        keys, items = cast_array(column.keys, kind.key_type), cast_array(column.items, kind.item_type)
        maps: Any = pa.MapArray
        found: pa.Array[Any] = maps.from_arrays(column.offsets, keys, items, type=kind, mask=missing)
        return found
    if not pa.types.is_list(column.type):
        column = pc.cast(column, pa.list_(column.type.value_field))
    return pa.ListArray.from_arrays(column.offsets, cast_array(column.values, kind.value_type), type=kind, mask=missing)


def _cast_fields(column: pa.StructArray, kind: pa.StructType) -> Iterator[pa.Array[Any]]:
    for field in kind:
        place = column.type.get_field_index(field.name)
        yield pa.nulls(len(column), field.type) if place < 0 else cast_array(column.field(place), field.type)
