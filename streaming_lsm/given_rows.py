"""Take rows, of a batch or of keys, in the forms that libraries have them, as Arrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.errors import SchemaError


class ArrowStream(Protocol):
    """Gives rows as an Arrow C stream, as data frames of pandas and polars, relations of DuckDB and scans do."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the stream."""
        ...


Rows = pa.Table | pa.RecordBatch | pa.RecordBatchReader | ArrowStream | Mapping[str, Any]


def has_columns(values: object) -> bool:
    """Tell whether values are rows with named columns, rather than the values of one column: a list, array or series.

    Mappings are for the caller to tell apart.
    """
    if isinstance(values, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return True
    # Series of pandas and polars are streams, too; only they, and no data frame, have one type of values.
    is_series = isinstance(values, pa.ChunkedArray) or hasattr(type(values), "dtype")
    return hasattr(values, "__arrow_c_stream__") and not is_series


def _is_pandas(rows: object) -> bool:
    return type(rows).__module__.partition(".")[0] == "pandas"


def arrow_of(rows: object, schema: Callable[[], pa.Schema]) -> pa.Table | pa.RecordBatchReader:
    """Return rows as an Arrow table, or a reader as it is.

    Of a data frame of pandas the index is left out; a column of reals that is one of integers in the table, as pandas
    has those with nulls, becomes one of integers if all its values are. Numbers in lists, which have no width, get the
    width of the table's column if they fit.

    Args:
        rows: see `Rows`.
        schema: returns the table's columns.

    Raises:
        SchemaError: they are no rows.
    """
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    try:
        if isinstance(rows, list | str):  # Arrow takes lists with names only
            raise TypeError
        known: Any = rows
        if isinstance(rows, Mapping) and any(isinstance(values, list | tuple) for values in rows.values()):
            return _with_widths(rows, schema())
        if not _is_pandas(rows):
            return pa.table(known)
        if not known.columns.is_unique:
            twice = known.columns[known.columns.duplicated()][0]
            raise SchemaError(f"the data frame has several columns {twice!r}: give each a name of its own")
        return _with_integers(pa.Table.from_pandas(known, preserve_index=False), schema())
    except TypeError:
        raise SchemaError(
            f"the rows are of type {type(rows).__name__}: give an Arrow table, batch or reader, a data frame of pandas "
            "or polars, a mapping of columns, or another object with an Arrow C stream"
        ) from None


def _with_widths(rows: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    types = {field.name: field.type for field in schema}
    return pa.table(
        {
            name: _fitted(name, values, types[name]) if name in types and isinstance(values, list | tuple) else values
            for name, values in rows.items()
        }
    )


def _fitted(name: str, values: Any, known: pa.DataType) -> pa.Array[Any]:
    """Return the values of a list, its numbers with the widths of the column's type if they fit."""
    try:
        found: pa.Array[Any] = pa.array(values)
    except OverflowError:
        raise SchemaError(f"column {name!r} has a number that no integer of 64 bits holds: give decimals") from None
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaError(f"column {name!r} has values of several types or of none that Arrow has: {error}") from None
    are_reals = pa.types.is_floating(found.type) and pa.types.is_floating(known)
    with suppress(pa.ArrowInvalid):
        fitted: pa.Array[Any] = found.cast(known if are_reals else _with_integers_of(found.type, known))
        # A real that is too large becomes infinite.
        if not are_reals or pc.is_inf(fitted).equals(pc.is_inf(found)):
            return fitted
    return found


def _with_integers_of(found: pa.DataType, known: pa.DataType) -> pa.DataType:
    """Return a type with the widths of another type's integers, and with its types of what has nulls only."""
    if pa.types.is_null(found) or (pa.types.is_integer(found) and pa.types.is_integer(known)):
        return known
    if pa.types.is_struct(found) and pa.types.is_struct(known):
        types = {field.name: field.type for field in known}
        return pa.struct(
            [field.with_type(_with_integers_of(field.type, types.get(field.name, field.type))) for field in found]
        )
    if pa.types.is_list(found) and pa.types.is_list(known):
        return pa.list_(found.value_field.with_type(_with_integers_of(found.value_type, known.value_type)))
    return found


def _with_integers(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    for place, column in enumerate(rows.schema):
        known = schema.field(column.name).type if column.name in schema.names else None
        if known is not None and pa.types.is_integer(known) and pa.types.is_floating(column.type):
            with suppress(pa.ArrowInvalid):
                rows = rows.set_column(place, column.name, rows.column(place).cast(known))
    return rows
