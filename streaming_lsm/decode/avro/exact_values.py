"""Convert one value at a time, and print values as text.

A value is printed as the JSON value that stands for it, decimals as plain text, bytes as base64.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from streaming_lsm.decode.avro.column_fit import unit_of
from streaming_lsm.decode.avro.record_reading import ReadColumn
from streaming_lsm.decode.avro.written_types import Sense, WrittenType
from streaming_lsm.decode.column_types import TimeUnit, is_nested
from streaming_lsm.decode.json.document import Members, Number, text_of
from streaming_lsm.decode.values.text_values import (
    FIRST_DAY,
    FIRST_SECOND,
    LAST_DAY,
    LAST_SECOND,
    converter,
    fitting_decimal,
    micros,
    raw_decimal,
)

Convert = Callable[[Any], Any]
"""Converts a value other than null; returns None for one that does not fit."""

_EXACT = Context(prec=1000)
_MOST_BYTES, _MOST_ZEROS = 64, 200
_EPOCH = datetime(1970, 1, 1)
_NUMBERS = (Sense.WHOLE, Sense.DATE, Sense.TIME, Sense.INSTANT, Sense.LOCAL)


class _Misfit(ValueError):
    """Reports a value inside another one that does not fit."""


def printed(value: Any, written: WrittenType) -> str | None:
    """Print a value of a written type; None for null."""
    try:
        return text_of(_token(value, written))
    except _Misfit:
        return "…"


def _exact_text(value: Any, written: WrittenType) -> str | None:
    try:
        return text_of(_token(value, written))
    except _Misfit:
        return None


def _token(value: Any, written: WrittenType) -> Any:
    """Return the JSON value that stands for a value; see `json/document.py`."""
    sense = written.sense
    if value is None or sense in (Sense.BOOLEAN, Sense.TEXT):
        return value
    if sense in _NUMBERS:
        return Number(value)
    if sense is Sense.REAL:
        return Number(repr(value)) if math.isfinite(value) else _not_finite(value)
    if sense is Sense.BYTES:
        return base64.b64encode(value).decode()
    if sense is Sense.UUID:
        return str(UUID(bytes=value))
    if sense is Sense.DECIMAL:
        return f"{value:f}"
    if sense is Sense.SCALED:
        return f"{_scaled(value):f}"
    if sense is Sense.ARRAY:
        return [_token(one, written.fields["element"]) for one in value]
    if sense is Sense.MAP:
        return Members([(name, _token(one, written.fields["value"])) for name, one in value])
    return Members([(name, _token(one, written.fields[name])) for name, one in value.items()])


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _scaled(value: Any) -> Decimal:
    """Return a decimal with its own scale.

    Raises:
        _Misfit: it is no number, or one of far more digits than a column has.
    """
    unscaled, scale = value["value"], value["scale"]
    if not 0 < len(unscaled) <= _MOST_BYTES or abs(scale) > _MOST_ZEROS:
        raise _Misfit
    return Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, _EXACT)


def exact_converter(read: ReadColumn, zone: str) -> Convert:
    """Return the function that converts values of a field to the type of its column.

    Args:
        read: field and column, which fit.
        zone: zone of dates and times that name none.

    Returns:
        A function that returns dates as days, timestamps as microseconds since 1970, objects as dicts, and those of a
        MAP as lists of pairs.
    """
    return _converter(read.written, read.column.type, unit_of(read.column, read.written), zone)


def _converter(written: WrittenType, kind: Any, unit: TimeUnit | None, zone: str) -> Convert:
    sense = written.sense
    if is_nested(kind):
        return _nested(written, kind, zone)
    if pa.types.is_string(kind):
        return lambda value: _exact_text(value, written)
    if pa.types.is_decimal128(kind):
        return lambda value: _decimal(_exact_text(value, written), kind)
    if sense in (Sense.TEXT, Sense.DECIMAL):
        typed = converter(kind, unit, zone)
        return lambda value: typed(str(printed(value, written)), None)
    if pa.types.is_floating(kind):
        return lambda value: _real(value, kind)
    if pa.types.is_date(kind):
        return lambda value: value if FIRST_DAY <= value <= LAST_DAY else None
    if pa.types.is_timestamp(kind):
        assert unit is not None
        in_zone = kind.tz is not None and sense is Sense.LOCAL
        return lambda value: _moment(value, unit, zone if in_zone else None)
    if pa.types.is_integer(kind):
        most = 1 << kind.bit_width - 1
        return lambda value: value if -most <= value < most else None
    return lambda value: value


def _decimal(text: str | None, kind: Any) -> Decimal | None:
    raw = None if text is None else raw_decimal(text, kind)
    return None if raw is None else fitting_decimal(raw, kind, None)


def _real(value: float, kind: Any) -> float | None:
    """Return a number as float, where that is exact."""
    if isinstance(value, int):
        near = float(value) if kind == pa.float64() else float(pa.scalar(float(value)).cast(kind, safe=False).as_py())
        return near if near == value and float(value) == value else None
    return value if math.isfinite(value) else None


def _moment(value: int, unit: TimeUnit, zone: str | None) -> int | None:
    """Return a number of units since 1970 as microseconds; `zone` is that of a local time, which becomes UTC."""
    second, rest = divmod(value, unit.per_second)
    if not FIRST_SECOND <= second <= LAST_SECOND:
        return None
    # Floor, not truncation: a nanosecond before 1970 belongs to the microsecond before it.
    found = second * 10**6 + rest * 10**6 // unit.per_second
    if zone is None:
        return found
    return micros((_EPOCH + timedelta(microseconds=found)).isoformat(), zone)


def _nested(written: WrittenType, kind: Any, zone: str) -> Convert:
    if pa.types.is_struct(kind):
        fields = {
            field.name: _nullable(_converter(written.fields[field.name], field.type, None, zone))
            for field in kind.fields
            if field.name in written.fields
        }
        return lambda value: _object(value, fields)
    inside, item = ("element", kind.value_type) if pa.types.is_list(kind) else ("value", kind.item_type)
    convert = _nullable(_converter(written.fields[inside], item, None, zone))
    if pa.types.is_map(kind):
        return lambda value: _pairs(value, convert)
    return lambda value: _list(value, convert)


def _nullable(convert: Convert) -> Convert:
    def converted(value: Any) -> Any:
        if value is None:
            return None
        found = convert(value)
        if found is None:
            raise _Misfit
        return found

    return converted


def _list(values: list[Any], convert: Convert) -> list[Any] | None:
    try:
        return [convert(value) for value in values]
    except _Misfit:
        return None


def _pairs(entries: list[tuple[str, Any]], convert: Convert) -> list[tuple[str, Any]] | None:
    try:
        return [(name, convert(value)) for name, value in entries]
    except _Misfit:
        return None


def _object(members: dict[str, Any], fields: dict[str, Convert]) -> dict[str, Any] | None:
    try:
        return {name: convert(members[name]) for name, convert in fields.items()}
    except _Misfit:
        return None
