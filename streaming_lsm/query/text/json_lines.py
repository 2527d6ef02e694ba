"""Format rows as JSON lines, for display and for comparison with other engines."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Callable, Iterator

import pyarrow as pa

Convert = Callable[[object], object]


def json_lines(table: pa.Table) -> Iterator[str]:
    """Format one JSON object per row, keys sorted, every column present.

    Decimals are texts with all digits of their scale, binaries base64, dates and timestamps ISO texts (UTC, six
    decimals, no zone), NaN and infinities texts, maps objects.
    """
    converts = {field.name: _convert(field.type) for field in table.schema}
    for batch in table.to_batches():
        for row in batch.to_pylist():
            values = {name: converts[name](value) for name, value in row.items()}
            yield json.dumps(values, sort_keys=True, ensure_ascii=False)


def _convert(kind: pa.DataType) -> Convert:
    if pa.types.is_list(kind):
        element = _convert(kind.value_type)
        return _nullable(lambda value: [element(item) for item in value])  # type: ignore[attr-defined]
    if pa.types.is_map(kind):
        item_of = _convert(kind.item_type)
        return _nullable(lambda value: {str(key): item_of(item) for key, item in value})  # type: ignore[attr-defined]
    if pa.types.is_struct(kind):
        children = {child.name: _convert(child.type) for child in kind.fields}
        return _nullable(lambda value: {name: children[name](item) for name, item in value.items()})  # type: ignore[attr-defined]
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
