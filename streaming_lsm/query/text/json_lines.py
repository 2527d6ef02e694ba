"""Format rows as JSON lines, for display and for comparison with other engines."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Callable, Iterator, Sequence
from json.encoder import encode_basestring
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import pc

Convert = Callable[[object], object]
_ESCAPED = r'["\\\x00-\x1f]'
"""Characters that JSON does not have as they are."""


def json_lines(table: pa.Table, *, zone: bool = False) -> Iterator[str]:
    """Format one JSON object per row, keys sorted, every column present.

    Decimals are texts with all digits of their scale, binaries base64, dates and timestamps ISO texts (UTC, six
    decimals, no zone), NaN and infinities texts, maps and structs objects.

    Args:
        table: the rows.
        zone: whether times of a zone end in ``Z``, nested ones, too, and so differ from those without.
    """
    for batch in table.to_batches():
        yield from map(str, _json_texts(batch, zone=zone).to_pylist())


def json_text(batch: pa.RecordBatch, *, zone: bool = False) -> memoryview:
    """Format the rows of a batch as `json_lines` does, as lines in UTF-8."""
    lines: Any = pc.binary_join_element_wise(_json_texts(batch, zone=zone), _large("\n"), _large(""))
    _, offsets, values = lines.buffers()
    ends = np.frombuffer(offsets, np.int64, len(lines) + 1, 8 * lines.offset)
    return memoryview(values)[ends[0] : ends[-1]] if values else memoryview(b"")


def _json_texts(batch: pa.RecordBatch, *, zone: bool) -> pa.LargeStringArray:
    return _objects(batch.schema.names, batch.columns, batch.num_rows, zone=zone)


def _objects(names: Sequence[str], columns: Sequence[pa.Array[Any]], rows: int, *, zone: bool) -> pa.LargeStringArray:
    """Format an object of each row of some columns."""
    parts: list[Any] = []
    named = sorted((name, place) for place, name in enumerate(names))
    for nth, (name, place) in enumerate(named):
        parts.append(_large(f"{', ' if nth else '{'}{json.dumps(name, ensure_ascii=False)}: "))
        parts.append(_texts(columns[place], zone=zone))
    if not parts:
        return pa.array(["{}"] * rows, pa.large_string())
    joined: pa.LargeStringArray = pc.binary_join_element_wise(*parts, _large("}"), _large(""))
    return joined


def _large(text: str) -> pa.Scalar[Any]:
    return pa.scalar(text, pa.large_string())


def _texts(column: pa.Array[Any], *, zone: bool) -> pa.LargeStringArray:
    """Format a column, without Python for each value where Arrow's text of the type is JSON's."""
    kind: pa.DataType = column.type
    found: Any = None
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        found = column.cast(pa.large_string())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
            found = _quoted(column.cast(pa.large_string()))
        else:
            found = pa.array(_of_each(column, encode_basestring), pa.large_string())
    elif pa.types.is_floating(kind) and pc.all(pc.is_finite(column)).as_py() is not False:
        found = pa.array(_of_each(column, repr), pa.large_string())
    elif pa.types.is_timestamp(kind) and kind.unit != "ns":
        naive: Any = column.cast(pa.timestamp("us", kind.tz)).cast(pa.timestamp("us"))
        texts: Any = pc.replace_substring(naive.cast(pa.large_string()), " ", "T")
        found = _quoted(texts, "Z" if zone and kind.tz else "")
    elif pa.types.is_date32(kind):
        found = _quoted(column.cast(pa.large_string()))
    elif pa.types.is_decimal(kind):
        digits: Any = column.cast(pa.large_string())
        if not pc.any(pc.match_substring(digits, "E")).as_py():  # of small values Arrow's text has an exponent
            found = _quoted(digits)
    elif pa.types.is_struct(kind):
        nested: Any = column
        objects = _objects([field.name for field in kind], nested.flatten(), len(column), zone=zone)
        found = pc.if_else(pc.is_valid(column), objects, _large("null"))
    if found is None:
        convert = _convert(kind, zone=zone)
        found = pa.array(
            [json.dumps(convert(value), sort_keys=True, ensure_ascii=False) for value in column.to_pylist()]
        )
    filled: pa.LargeStringArray = pc.fill_null(found.cast(pa.large_string()), "null")
    return filled


def _of_each(column: pa.Array[Any], convert: Callable[[Any], str]) -> list[str | None]:
    return [None if value is None else convert(value) for value in column.to_pylist()]


def _quoted(texts: Any, end: str = "") -> Any:
    return pc.binary_join_element_wise(_large('"'), texts, _large(f'{end}"'), _large(""))


def _convert(kind: pa.DataType, *, zone: bool) -> Convert:
    if pa.types.is_list(kind):
        element = _convert(kind.value_type, zone=zone)
        return _nullable(lambda value: [element(item) for item in value])  # type: ignore[attr-defined]
    if pa.types.is_map(kind):
        item_of = _convert(kind.item_type, zone=zone)
        return _nullable(lambda value: {str(key): item_of(item) for key, item in value})  # type: ignore[attr-defined]
    if pa.types.is_struct(kind):
        children = {child.name: _convert(child.type, zone=zone) for child in kind.fields}
        return _nullable(lambda value: {name: children[name](item) for name, item in value.items()})  # type: ignore[attr-defined]
    if zone and pa.types.is_timestamp(kind) and kind.tz:
        return _nullable(lambda value: f"{_scalar(value)}Z")
    return _nullable(_scalar)


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _scalar(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f").rjust(26, "0")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value
