"""Rows as sorted JSON lines, the form in which two readers' rows are compared.

Runs on both sides, in this project's environment and in the judge's.

One object a line, keys sorted, every column present. Lines are sorted by (partition path, record
key, the line's text). Decimals are strings with all digits of their scale, binary is base64, dates
are ``YYYY-MM-DD``, timestamps ``YYYY-MM-DDTHH:MM:SS.ffffff`` in UTC, numbers that JSON lacks strings.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

KEY, PARTITION = "_hoodie_record_key", "_hoodie_partition_path"
Convert = Callable[[Any], Any]
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False).encode


def to_lines(table: pa.Table) -> list[str]:
    """The table's rows as sorted JSON lines, without line ends."""
    lines = [_encode(row) for row in to_rows(table)]
    names = table.column_names
    keys = [_texts(table, name) if name in names else [""] * len(lines) for name in (PARTITION, KEY)]
    return [line for *_, line in sorted(zip(*keys, lines, strict=True))]


def to_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The table's rows as dicts of what JSON knows, in the table's order."""
    names = table.column_names
    # A column at a time: which conversion a value needs is decided once per column, most need none.
    columns = [_converted(table.column(place)) for place in range(table.num_columns)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _texts(table: pa.Table, name: str) -> list[str]:
    return [value or "" for value in table.column(name).to_pylist()]


def _converted(column: pa.ChunkedArray[Any]) -> Sequence[Any]:
    values = column.to_pylist()
    convert = _converter(column.type)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(kind: pa.DataType) -> Convert | None:
    """What makes a value of `kind` fit for JSON; None when it already is."""
    for fits, convert in _PLAIN:
        if fits(kind):
            return convert
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_map(kind):
        value_of = _or_none(_converter(kind.item_type))
        return lambda pairs: {str(key): value_of(value) for key, value in pairs}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        item_of = _or_none(_converter(kind.value_type))
        return lambda items: [item_of(item) for item in items]
    return None


def _struct(kind: pa.StructType) -> Convert:
    fields = {field.name: _or_none(_converter(field.type)) for field in kind}
    return lambda row: {name: convert(row[name]) for name, convert in fields.items()}


def _or_none(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _digits(value: decimal.Decimal) -> str:
    return format(value, "f")


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _moment(value: datetime.datetime) -> str:
    utc = value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="microseconds")


def _is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Convert], ...] = (
    (pa.types.is_floating, _number),
    (pa.types.is_decimal, _digits),
    (_is_binary, _base64),
    (pa.types.is_date, datetime.date.isoformat),
    (pa.types.is_timestamp, _moment),
)
