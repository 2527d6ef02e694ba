"""Turn what a caller looks up, values of the key columns or texts, into record keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from streaming_lsm.arrow.columns import pc, strings
from streaming_lsm.casts import decoded
from streaming_lsm.errors import ConfigError, SchemaError
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.key_generation import key_generator
from streaming_lsm.given_rows import Rows, arrow_of, has_columns

_Columns: TypeAlias = "Mapping[str, Sequence[object]] | pa.Table"
Keys: TypeAlias = "Sequence[object] | pa.Array[Any] | pa.ChunkedArray[Any] | Rows"
"""Keys to look up: record keys as texts, values of the only key column, or rows with the key columns."""


def record_keys_of(keys: Keys, table: TableConfig, schema: pa.Schema) -> pa.StringArray:
    """Compute the record keys to look up.

    Args:
        keys: texts are record keys as in ``_hoodie_record_key``; other values are those of the only key column. Rows
            have all key columns, and may have others; see `Rows`.
        table: names the key columns, and how their values become a key.
        schema: the table's columns.

    Returns:
        The keys, ascending, each once.

    Raises:
        ConfigError: a single text, or a null; or values where the table has several key columns.
        SchemaError: a value does not fit its column, or a key column is missing.
        RecordError: a key is empty.
    """
    if isinstance(keys, str | bytes):
        raise ConfigError(f"keys={keys!r}: give a list of record keys: [{keys!r}]")
    if isinstance(keys, Mapping):
        found = _generated(_columns(keys, table), table, schema)
    elif has_columns(keys):
        rows = arrow_of(keys, lambda: schema)
        whole = rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows
        found = _generated(_columns(whole, table), table, schema)
    else:
        values = _array(keys)
        is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        if values.null_count:
            raise ConfigError("keys: a key is null; record keys are never null")
        found = strings(values.cast(pa.string())) if is_text else _generated({_only(table): values}, table, schema)
    return ascending_keys(found)


def ascending_keys(keys: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.StringArray:
    """Return record keys in ascending order, each once."""
    unique = pc.unique(keys)
    ordered: pa.StringArray = unique.take(pc.array_sort_indices(unique))
    return ordered


def _array(keys: object) -> pa.Array[Any] | pa.ChunkedArray[Any]:
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return keys
    try:
        found: pa.Array[Any] = pa.array(list(keys))  # type: ignore[call-overload]  # of any values
    except (TypeError, OverflowError, pa.ArrowException) as error:
        raise SchemaError(
            f"keys={keys!r:.100}: expected a list of record keys, or of values of one type: {error}"
        ) from None
    return found if len(found) else pa.array([], pa.string())


def _only(table: TableConfig) -> str:
    fields = table.record_key_fields
    if len(fields) != 1:
        raise ConfigError(
            f"keys: the record key has the columns {', '.join(fields)}: give them as a table or as a mapping of "
            f"names to values, or the record keys as texts such as {_example(fields)!r}"
        )
    return fields[0]


def _example(fields: Sequence[str]) -> str:
    return ",".join(f"{field}:…" for field in fields)


def _columns(keys: _Columns, table: TableConfig) -> dict[str, Any]:
    names = keys.schema.names if isinstance(keys, pa.Table) else list(keys)
    missing = [field for field in table.record_key_fields if field not in names]
    if missing:
        raise SchemaError(f"keys: no column {missing[0]!r}, which the record key has; given are {', '.join(names)}")
    take = keys.column if isinstance(keys, pa.Table) else keys.__getitem__
    return {field: take(field) for field in table.record_key_fields}


def _generated(columns: Mapping[str, Any], table: TableConfig, schema: pa.Schema) -> pa.StringArray:
    """Generate the record keys of values of the key columns."""
    try:
        generator = key_generator(table)
    except ConfigError as error:
        raise ConfigError(f"keys: {error}: give the record keys as texts, as in _hoodie_record_key") from None
    arrays = [_as_column(name, values, schema) for name, values in columns.items()]
    if len({len(array) for array in arrays}) > 1:
        raise ConfigError(f"keys: the columns {', '.join(columns)} have different numbers of values")
    return generator.record_keys(pa.RecordBatch.from_arrays(arrays, names=list(columns)))


def _as_column(name: str, values: Any, schema: pa.Schema) -> pa.Array[Any]:
    """Convert values to the type of their column."""
    kind = schema.field(name).type if name in schema.names else None
    try:
        found = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if not isinstance(found, pa.Array):
            found = pa.array(list(values), kind)
        return found if kind is None else decoded(found).cast(kind)
    except (TypeError, OverflowError, pa.ArrowException) as error:
        raise SchemaError(f"keys: column {name!r} has type {kind}, which the values do not fit: {error}") from None
