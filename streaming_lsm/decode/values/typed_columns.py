"""Convert whole columns of parsed JSON to the types of the table's columns.

Each conversion returns the values, and flags of those that it vouches for: the others are left to the exact reader.
Nulls are vouched for. *Token*: the kind of JSON value that a form reads for a column.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Context, Decimal
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, flags, pc
from streaming_lsm.decode.column_types import TimeUnit, is_nested, is_timestamp
from streaming_lsm.decode.values.text_values import FIRST_DAY, FIRST_SECOND, LAST_DAY, LAST_SECOND
from streaming_lsm.decode.values.zones import fixed_offset

Typed = tuple[Any, Flags]

_WHOLE = r"^-?[0-9]{1,18}$"
_NUMBER = r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_ZONED = _TIME + r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])$"
_LOCAL = _TIME + "$"
_BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_DIGITS = 38
_EXACT = Context(prec=_DIGITS)
_LAST_LISTED = pa.scalar(datetime(2037, 12, 30), pa.timestamp("us"))
"""Files of zones may list the changes of clocks up to 2037; later ones follow from a rule, which Arrow may not read."""
_SMALLEST = 2.0**-126
"""Least 32-bit float with all its bits."""
_BELOW_FLOAT = (1 << 29) - 1
_MIDDLE = 1 << 28
_VALUES = np.full(256, 0, np.uint8)
_VALUES[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)


class Token(StrEnum):
    """Names the kind of JSON value that a form reads for a column."""

    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NESTED = "nested"


def usual_token(kind: pa.DataType) -> Token:
    """Return the kind of JSON value that is read for a column of a type when no document tells otherwise."""
    if is_nested(kind):
        return Token.NESTED
    if pa.types.is_boolean(kind):
        return Token.BOOLEAN
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind):
        return Token.NUMBER
    return Token.STRING


def parsed_type(kind: pa.DataType, token: Token) -> pa.DataType | None:
    """Return the type as which the parser reads a kind of JSON value for a column; None if there is none."""
    if token is Token.STRING:
        return None if is_nested(kind) else pa.string()
    if token is Token.BOOLEAN:
        return pa.bool_() if pa.types.is_boolean(kind) or pa.types.is_string(kind) else None
    if token is Token.NESTED:
        return kind if is_nested(kind) else None
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal128(kind):
        return pa.decimal128(_DIGITS, _DIGITS - (kind.precision - kind.scale))
    whole = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind) or is_timestamp(kind)
    return pa.int64() if whole else None


def typed(column: Any, kind: pa.DataType, unit: TimeUnit | None, zone: str) -> Typed:
    """Convert a column.

    Args:
        column: values of a `parsed_type` of `kind`.
        kind: the type of the table's column.
        unit: unit of a TIMESTAMP that is a whole number; None if it is not known.
        zone: zone of timestamps that name none.

    Returns:
        The values, null where they are not vouched for; bool (rows,).
    """
    if pa.types.is_float64(kind) and column.type == kind:
        return column, flags(pc.fill_null(pc.is_finite(column), True))
    if column.type == kind:
        return column, np.ones(len(column), np.bool_)
    if pa.types.is_string(column.type):
        return _from_text(column, kind, zone)
    if pa.types.is_string(kind):
        return pc.cast(column, pa.string()), np.ones(len(column), np.bool_)
    if pa.types.is_decimal128(column.type):
        return _decimal(column, kind)
    if pa.types.is_floating(column.type):
        return _float32(column, kind)
    if is_timestamp(kind):
        return _since_epoch(column, kind, unit)
    if pa.types.is_date(kind):
        return _within(column, FIRST_DAY, LAST_DAY, lambda days: pc.cast(pc.cast(days, pa.int32()), kind))
    bits = kind.bit_width - 1
    return _within(column, -(1 << bits), (1 << bits) - 1, lambda values: pc.cast(values, kind))


def _from_text(column: Any, kind: pa.DataType, zone: str) -> Typed:
    if pa.types.is_integer(kind):
        values, good = _matching(column, _WHOLE, pa.int64())
        fitting, inside = typed(values, kind, None, zone)
        return fitting, good & inside
    if pa.types.is_floating(kind):
        values, good = _matching(column, _NUMBER, kind)
        finite = flags(pc.fill_null(pc.is_finite(values), True))
        return values, good & finite
    if pa.types.is_decimal128(kind):
        raw = parsed_type(kind, Token.NUMBER)
        values, good = _matching(column, _decimal_pattern(kind), raw)
        fitting, inside = _decimal(values, kind)
        return fitting, good & inside
    if pa.types.is_boolean(kind):
        return _matching(column, "^(true|false)$", kind)
    if pa.types.is_date(kind):
        return _matching(column, _DATE, kind)
    if pa.types.is_timestamp(kind):
        return _timestamp(column, kind, zone)
    return _matching(column, _BASE64, kind, _base64)


def _decimal_pattern(kind: Any) -> str:
    """Return the pattern of decimals whose digits are not too many: in 128 bits the cast lets them overflow."""
    whole = kind.precision - kind.scale
    digits = f"[0-9]{{1,{whole}}}" if whole else "0"
    part = rf"(\.[0-9]{{1,{_DIGITS - whole}}})?" if whole < _DIGITS else ""
    return f"^-?{digits}{part}$"


def _matching(column: Any, pattern: str, kind: Any, convert: Callable[[Any], Any] | None = None) -> Typed:
    """Convert the texts that match a pattern, and that `convert` (by default a cast) takes."""
    good = flags(pc.fill_null(pc.match_substring_regex(column, pattern), True))
    return _converted(_masked(column, good), good, kind, convert or (lambda texts: pc.cast(texts, kind)))


def _masked(column: Any, good: Flags) -> Any:
    return column if good.all() else pc.if_else(pa.array(good), column, pa.scalar(None, column.type))


def _converted(column: Any, good: Flags, kind: Any, convert: Callable[[Any], Any]) -> Typed:
    """Convert values to a type of which some may be refused: halves are tried until those are found."""
    try:
        return convert(column), good
    except pa.ArrowInvalid:
        if len(column) == 1:
            return pa.nulls(1, kind), np.zeros(1, np.bool_)
    half = len(column) // 2
    parts = [
        _converted(column.slice(0, half), good[:half], kind, convert),
        _converted(column.slice(half), good[half:], kind, convert),
    ]
    return pa.concat_arrays([values for values, _ in parts]), np.concatenate([found for _, found in parts])


def _within(column: Any, least: int, most: int, convert: Callable[[Any], Any]) -> Typed:
    inside = pc.and_(pc.greater_equal(column, least), pc.less_equal(column, most))
    good = flags(pc.fill_null(inside, True))
    return convert(_masked(column, good)), good


def _decimal(raw: Any, kind: pa.DataType) -> Typed:
    # The parser does not count the digits before the point.
    most = pa.scalar(Decimal(10**_DIGITS - 1).scaleb(-raw.type.scale, _EXACT), raw.type)
    inside = flags(pc.fill_null(pc.less_equal(pc.abs(raw), most), True))
    fitting = pc.cast(_masked(raw, inside), kind, safe=False)
    good = inside & flags(pc.fill_null(pc.equal(pc.cast(fitting, raw.type), raw), True))
    return _masked(fitting, good), good


def _float32(column: Any, kind: pa.DataType) -> Typed:
    values = np.asarray(column.fill_null(0.0), np.float64)
    size = np.abs(values)
    # A number beside the middle between two 32-bit floats is not seen to be so when it was rounded to 64 bits.
    middle = (values.view(np.int64) & _BELOW_FLOAT) == _MIDDLE
    good: Flags = ~middle & ((size == 0) | ((size >= _SMALLEST) & (size < np.finfo(np.float32).max)))
    return pc.cast(_masked(column, good), kind, safe=False), good


def _since_epoch(column: Any, kind: pa.DataType, unit: TimeUnit | None) -> Typed:
    if unit is None:
        return column.cast(pa.timestamp("us")).cast(kind), flags(pc.is_null(column))
    first, last = FIRST_SECOND * unit.per_second, (LAST_SECOND + 1) * unit.per_second - 1

    def convert(values: Any) -> Any:
        if unit is TimeUnit.NANOS:
            # Floor, not truncation: a nanosecond before 1970 belongs to the microsecond before it.
            numbers = np.asarray(values.fill_null(0), np.int64) // 1000
            values = pa.array(numbers, mask=flags(pc.is_null(values)))
        elif unit is TimeUnit.MILLIS:
            values = pc.multiply(values, 1000)
        return pc.cast(pc.cast(values, pa.timestamp("us")), kind)

    return _within(column, max(first, -(2**63)), min(last, 2**63 - 1), convert)


def in_zone(column: Any, zone: str) -> Typed:
    """Convert dates and times without a zone, timestamp[us], to those of `zone`, as timestamp[us, UTC]."""
    every, kind = np.ones(len(column), np.bool_), pa.timestamp("us", "UTC")
    return _converted(column, every, kind, lambda values: _in_zone(values, kind, zone))


def _timestamp(column: Any, kind: pa.DataType, zone: str) -> Typed:
    local = flags(pc.fill_null(pc.match_substring_regex(column, _LOCAL), True))
    plain = pa.timestamp("us")
    if kind == plain:
        return _converted(_masked(column, local), local, kind, lambda text: pc.cast(text, plain))
    if local.all():
        return _converted(column, local, kind, lambda text: _in_zone(pc.cast(text, plain), kind, zone))
    zoned = flags(pc.fill_null(pc.match_substring_regex(column, _ZONED), True))
    values, good = _converted(_masked(column, zoned), zoned, kind, lambda text: pc.cast(text, kind))
    mixed = local & ~zoned
    if not mixed.any():
        return values, good
    others, found = _converted(
        _masked(column, mixed), mixed, kind, lambda text: _in_zone(pc.cast(text, plain), kind, zone)
    )
    return pc.if_else(pa.array(mixed), others, values), np.where(mixed, found, good)


def _in_zone(values: Any, kind: pa.DataType, zone: str) -> Any:
    ahead = fixed_offset(zone)
    if ahead is not None:
        return pc.cast(pc.subtract(values, pa.scalar(timedelta(seconds=ahead), pa.duration("us"))), kind)
    if pc.any(pc.greater(values, _LAST_LISTED)).as_py():
        raise pa.ArrowInvalid("a time after the last change of clocks that files of zones list")
    return pc.cast(pc.assume_timezone(values, zone, ambiguous="earliest", nonexistent="raise"), kind)


def _base64(column: Any) -> Any:
    """Decode base64 texts; each has whole groups of four characters."""
    text = pc.cast(pc.fill_null(column, ""), pa.binary())
    _, ends, data = text.buffers()
    offsets = np.frombuffer(ends, np.int32, len(text) + 1, text.offset * 4)
    first, last = int(offsets[0]), int(offsets[-1])
    letters = np.frombuffer(data, np.uint8, last - first, first) if last > first else np.zeros(0, np.uint8)
    groups = _VALUES[letters].reshape(-1, 4).astype(np.uint32)
    whole = groups[:, 0] << 18 | groups[:, 1] << 12 | groups[:, 2] << 6 | groups[:, 3]
    every = np.stack([whole >> 16, whole >> 8 & 255, whole & 255], axis=1).astype(np.uint8)
    padding = (letters.reshape(-1, 4) == ord("=")).sum(axis=1)
    kept = np.arange(3) < 3 - padding[:, None]
    sizes = np.concatenate([[0], np.cumsum(3 - padding)])
    places = sizes[(offsets - first) // 4].astype(np.int32)
    nulls = column.is_null()
    valid = None if not column.null_count else pc.invert(nulls).buffers()[1]
    buffers = [valid, pa.py_buffer(places.tobytes()), pa.py_buffer(every[kept].tobytes())]
    return pa.BinaryArray.from_buffers(pa.binary(), len(text), buffers)
