"""Convert the statistics of a data file to bounds in the types of the table."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.file_group.column_bounds import StoredBounds, read_bounds
from streaming_lsm.file_group.data_file import OpenFile
from streaming_lsm.query.prune.bounds import UNKNOWN, Bounds

Decode = Callable[[bytes], object]
_NUMBERS = {"INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d", "BOOLEAN": "<?"}
_WIDER: dict[str, Callable[[pa.DataType], bool]] = {
    "INT32": pa.types.is_signed_integer,
    "INT64": pa.types.is_int64,
    # A float is read as the double of the same decimal digits, which is not its value.
    "FLOAT": pa.types.is_float32,
    "DOUBLE": pa.types.is_float64,
    "BOOLEAN": pa.types.is_boolean,
}
"""Tests the types that hold all values of a physical type, in the same order."""
_UNITS = {"ms": "milliseconds", "us": "microseconds"}


def file_bounds(file: OpenFile, path: str, schema: pa.Schema, names: Collection[str]) -> dict[str, Bounds]:
    """Read bounds of some columns in each row group of a file.

    A column is left out if it is not in the file, or stored with a type whose order is not that of its type in the
    table.

    Args:
        file: the open file.
        path: its name, for messages.
        schema: the table's columns, meta columns included.
        names: columns, or fields of structs by their Parquet path.

    Raises:
        CorruptFileError: the footer is malformed.
    """
    stored = read_bounds(file.source, path)
    return dict(_bounds(file.parquet.schema, stored, schema, names))


def _bounds(
    parquet: pq.ParquetSchema, stored: Sequence[Sequence[StoredBounds]], schema: pa.Schema, names: Collection[str]
) -> Iterator[tuple[str, Bounds]]:
    for place in range(len(parquet.names)):
        column = parquet.column(place)
        kind = _type_at(schema, column.path) if column.path in names else None
        decode = None if kind is None else _decoder(column, kind)
        if kind is None or decode is None or any(len(group) <= place for group in stored):
            continue
        chunks = [group[place] for group in stored]
        found = Bounds.of(
            kind,
            [_value(decode, chunk.low) for chunk in chunks],
            [_value(decode, chunk.high) for chunk in chunks],
            [UNKNOWN if chunk.nulls is None else chunk.nulls for chunk in chunks],
            [chunk.values for chunk in chunks],
        )
        if found is not None:
            yield column.path, found


def _type_at(schema: pa.Schema, path: str) -> pa.DataType | None:
    """Return the type of a column, or of a field of a struct; None if it is in a list or map, or nowhere."""
    name, *steps = path.split(".")
    if name not in schema.names:
        return None
    kind: pa.DataType = schema.field(name).type
    for step in steps:
        place = kind.get_field_index(step) if isinstance(kind, pa.StructType) else -1
        if not isinstance(kind, pa.StructType) or place < 0:
            return None
        kind = kind.field(place).type
    return None if pa.types.is_nested(kind) else kind


def _value(decode: Decode, data: bytes | None) -> object:
    """Decode a bound; None if it is malformed, such as one that was cut inside a character."""
    try:
        return None if data is None else decode(data)
    except (ValueError, struct.error):
        return None


def _decoder(column: pq.ColumnSchema, kind: pa.DataType) -> Decode | None:
    """Return the function that decodes a bound of a column as a value of type `kind`; None if its order may differ."""
    physical, logical = column.physical_type, json.loads(column.logical_type.to_json())
    if pa.types.is_decimal(kind):
        fits = logical["Type"] == "Decimal" and logical["scale"] == kind.scale
        return _decimal(physical, kind.scale) if fits else None
    if not _fits(kind, physical, logical):
        return None
    return _number(physical) if physical in _NUMBERS else lambda data: data.decode()


def _fits(kind: pa.DataType, physical: str, logical: dict[str, Any]) -> bool:
    """Whether values that are stored so have the order of `kind`."""
    name = logical["Type"]
    if pa.types.is_string(kind):
        return physical == "BYTE_ARRAY" and name == "String"
    if pa.types.is_date32(kind):
        return physical == "INT32" and name == "Date"
    if pa.types.is_timestamp(kind):
        unit = name == "Timestamp" and logical["timeUnit"] == _UNITS.get(kind.unit)
        return physical == "INT64" and unit and logical["isAdjustedToUTC"] == (kind.tz is not None)
    if name == "Int":
        return bool(logical["isSigned"]) and physical in ("INT32", "INT64") and pa.types.is_signed_integer(kind)
    is_wider = _WIDER.get(physical)
    return name == "None" and is_wider is not None and is_wider(kind)


def _number(physical: str) -> Decode:
    form = struct.Struct(_NUMBERS[physical])
    return lambda data: form.unpack(data)[0]


def _decimal(physical: str, scale: int) -> Decode | None:
    if physical in ("INT32", "INT64"):
        number = _number(physical)
        return lambda data: _scaled(number(data), scale)
    if physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
        return lambda data: _scaled(int.from_bytes(data, "big", signed=True), scale)
    return None


def _scaled(unscaled: Any, scale: int) -> Decimal:
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))
