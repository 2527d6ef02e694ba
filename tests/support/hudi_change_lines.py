"""Format changes as JSON lines, as Hudi prints them: the images of a row are JSON texts inside the line."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from streaming_lsm.query.cdc.change_reader import AFTER, BEFORE
from streaming_lsm.schema import META_COLUMNS, RECORD_KEY, decimal_bytes

_EPOCH_DAY = datetime.date(1970, 1, 1)
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e7
"""Java writes reals in this range without an exponent."""


def hudi_change_lines(changes: pa.Table) -> Iterator[str]:
    """Format one JSON object per change, keys sorted.

    An image from a change log is Avro's text of a record, and the text "null" if missing. An image from a comparison of
    rows has the meta columns and is Spark's text of a row, which leaves nulls out; it is a JSON null if missing.
    """
    kind = changes.schema.field(AFTER).type
    for batch in changes.to_batches():
        for row in batch.to_pylist():
            images = (row[BEFORE], row[AFTER])
            logged = all(image is None or image[RECORD_KEY] is None for image in images)
            texts = [_avro_image(image, kind) if logged else _spark_image(image, kind) for image in images]
            yield json.dumps({**row, BEFORE: texts[0], AFTER: texts[1]}, sort_keys=True, ensure_ascii=False)


def _avro_image(image: Mapping[str, object] | None, kind: pa.StructType) -> str:
    if image is None:
        return "null"
    return _avro(image, pa.struct([field for field in kind if field.name not in META_COLUMNS]))


def _spark_image(image: Mapping[str, object] | None, kind: pa.StructType) -> str | None:
    return None if image is None else _spark(image, kind)


def _avro(value: Any, kind: Any) -> str:
    """Format a value as Avro's generic record does: logical types as they are stored."""
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        return "{" + ", ".join(f"{_quoted(field.name)}: {_avro(value[field.name], field.type)}" for field in kind) + "}"
    if pa.types.is_list(kind):
        return "[" + ", ".join(_avro(item, kind.value_type) for item in value) + "]"
    if pa.types.is_map(kind):
        return "{" + ", ".join(f"{_quoted(key)}: {_avro(item, kind.item_type)}" for key, item in value) + "}"
    if isinstance(value, decimal.Decimal):
        unscaled = int(value.scaleb(kind.scale))
        return str([byte - 256 if byte > 127 else byte for byte in _two_complement(unscaled, kind.precision)])
    if isinstance(value, datetime.datetime):
        return str(pa.scalar(value, kind).value)
    if isinstance(value, datetime.date):
        return str((value - _EPOCH_DAY).days)
    if isinstance(value, bytes):
        return _quoted(value.decode("latin-1"))
    return _scalar(value)


def _two_complement(unscaled: int, precision: int) -> bytes:
    return unscaled.to_bytes(decimal_bytes(precision), "big", signed=True)


def _spark(value: Any, kind: Any) -> str:
    """Format a value as Spark does: nulls of a struct are left out."""
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        fields = [field for field in kind if value[field.name] is not None]
        return (
            "{" + ",".join(f"{_quoted(field.name)}:{_spark(value[field.name], field.type)}" for field in fields) + "}"
        )
    if pa.types.is_list(kind):
        return "[" + ",".join(_spark(item, kind.value_type) for item in value) + "]"
    if pa.types.is_map(kind):
        return "{" + ",".join(f"{_quoted(key)}:{_spark(item, kind.item_type)}" for key, item in value) + "}"
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime):
        text = f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}"
        return _quoted(text + ("Z" if kind.tz else ""))
    if isinstance(value, datetime.date):
        return _quoted(value.isoformat())
    if isinstance(value, bytes):
        return _quoted(base64.b64encode(value).decode())
    return _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _real(value)
    return _quoted(value) if isinstance(value, str) else str(value)


def _real(value: float) -> str:
    """Format a double as Java does; NaN and infinities, which JSON lacks, in quotes."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else ('"Infinity"' if value > 0 else '"-Infinity"')
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_TO:
        return repr(value)
    sign, digits, exponent = decimal.Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
