"""Convert the text of one value to the type of its column, without rounding or guessing.

Each function returns None for a text that does not fit. A text may end with a line break, as a pattern's end may stand
before one.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from datetime import datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.decode.column_types import CONNECT_DECIMAL, SEMANTIC_UNITS, TimeUnit, is_timestamp
from streaming_lsm.decode.values.zones import utc_offset

Value = int | float | str | bool | bytes | Decimal
Typed = Callable[[str, str | None], Value | None]
"""Converts a text; the second argument is the schema name that the event states for it, or None."""

_END = r"(?:\r\n|[\n\r])?\Z"
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}" + _END)
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?" + _END)
_DAYS = re.compile(r"-?[0-9]{1,7}" + _END)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})" + _END)
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9].*)?)?)?\Z",
    re.DOTALL,
)
_ISO_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}[^\n\r\u0085\u2028\u2029]*)?" + _END)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?\Z")
_PADDED_INSIDE = re.compile("=[^=]")
_TRIMMED = "".join(map(chr, [*range(33), 127]))
_BLANK = re.compile("[\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000]")
_DAY = 86_400
# Years 1 to 9999, the range of Hudi's, Spark's and Python's timestamps alike.
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
FIRST_DAY, LAST_DAY = FIRST_SECOND // _DAY, LAST_SECOND // _DAY
_DIGITS = 38
_EXACT = Context(prec=1_000_000)


def converter(kind: pa.DataType, unit: TimeUnit | None, zone: str) -> Typed:
    """Return the function that converts a text to a type other than a nested one.

    Args:
        kind: the type.
        unit: unit of a TIMESTAMP that is a whole number; None when only the event's schema gives it.
        zone: zone of timestamps that name none.
    """
    if pa.types.is_integer(kind):
        return partial(_whole, bits=kind.bit_width)
    if pa.types.is_float32(kind):
        return lambda text, _: _finite(text, float32)
    if pa.types.is_float64(kind):
        return lambda text, _: _finite(text, float)
    if pa.types.is_boolean(kind):
        return lambda text, _: {"true": True, "false": False}.get(text)
    if pa.types.is_date(kind):
        return _date
    if is_timestamp(kind):
        return partial(_timestamp, unit=unit, zone=zone)
    if pa.types.is_timestamp(kind):
        return lambda text, _: local_micros(text)
    if pa.types.is_binary(kind):
        return lambda text, _: base64_bytes(text)
    return lambda text, _: text


def is_number(text: str) -> bool:
    """Test whether a text is a number."""
    return bool(_NUMBER.match(text))


def _whole(text: str, _: str | None, bits: int) -> int | None:
    value = _whole_number(text)
    return value if value is not None and -(1 << bits - 1) <= value < 1 << bits - 1 else None


def _whole_number(text: str) -> int | None:
    if not _WHOLE.match(text):
        return None
    return int(text)


def _finite(text: str, parse: Callable[[str], float]) -> float | None:
    if not _NUMBER.match(text):
        return None
    value = parse(text.rstrip())
    return value if abs(value) < float("inf") else None


def float32(text: str) -> float:
    """Return the 32-bit float nearest to a number; infinity when it is too large."""
    with np.errstate(over="ignore"):
        near = float(np.float32(text))
    if float(text) == near:
        return near
    # The way through 64 bits rounds twice: it is wrong for a number beside the middle between two 32-bit floats.
    return float(pa.scalar(text.lstrip("+")).cast(pa.float32()).as_py())


def raw_decimal(text: str, kind: Any) -> Decimal | None:
    """Return a decimal, commas left out; None if it is none, or has more digits before the point than `kind`."""
    text = text.replace(",", "")
    if not _DECIMAL.match(text):
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_zero() or value.adjusted() < kind.precision - kind.scale else None


def fitting_decimal(raw: Decimal, kind: Any, semantic: str | None) -> Decimal | None:
    """Return a decimal in the type of its column; None if it has more digits, or is sent as bytes."""
    if semantic == CONNECT_DECIMAL:
        return None
    value = raw.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, _EXACT)
    if value != raw or not (value.is_zero() or value.adjusted() < kind.precision - kind.scale):
        return None
    return abs(value) if value.is_zero() else value


def _date(text: str, _: str | None) -> int | None:
    found = _DATE.match(text)
    if found:
        return days_from_civil(*map(int, found.groups()))
    if not _DAYS.match(text):
        return None
    days = int(text)
    return days if FIRST_DAY <= days <= LAST_DAY else None


def days_from_civil(year: int, month: int, day: int) -> int | None:
    """Return the days from 1970-01-01 to a date of the proleptic Gregorian calendar; None for no date."""
    try:
        # The calendar repeats every 400 years, and Python's begins in year 1.
        cycles, within = divmod(year - 2000, 400)
        return (datetime(2000 + within, month, day) - datetime(1970, 1, 1)).days + cycles * 146_097
    except ValueError:
        return None


def _timestamp(text: str, semantic: str | None, unit: TimeUnit | None, zone: str) -> int | None:
    written = micros(text, zone)
    unit = unit or SEMANTIC_UNITS.get(semantic or "")
    if written is not None or unit is None:
        return written
    number = _whole_number(text)
    first, last = FIRST_SECOND * unit.per_second, (LAST_SECOND + 1) * unit.per_second - 1
    if number is None or not max(first, -(2**63)) <= number <= min(last, 2**63 - 1):
        return None
    # Floor, not truncation: a nanosecond before 1970 belongs to the microsecond before it.
    return number // 1000 if unit is TimeUnit.NANOS else number * (10**6 // unit.per_second)


def micros(text: str, zone: str) -> int | None:
    """Return an ISO 8601 text as microseconds since 1970-01-01 UTC; `zone` is that of a text that names none."""
    parts = _time_parts(text)
    if parts is None:
        return None
    day, second, micro, named = parts
    offset = utc_offset(named or zone, day, second)
    return None if offset is None else (day * _DAY + second - offset) * 1_000_000 + micro


def local_micros(text: str) -> int | None:
    """Return the date and time of an ISO 8601 text, without its zone, as microseconds since 1970-01-01."""
    parts = _time_parts(text)
    if parts is None:
        return None
    day, second, micro, named = parts
    if named and utc_offset(named, day, second) is None:
        return None
    return (day * _DAY + second) * 1_000_000 + micro


def _time_parts(text: str) -> tuple[int, int, int, str | None] | None:
    """Return day, second of the day, microsecond and zone of a text; None if it is none."""
    if not _ISO_TIME.match(text):
        return None
    found = _TIME.match(text.strip(_TRIMMED))
    if not found:
        return None
    year, month, day, hour, minute, second, part, zone = found.groups()
    days = days_from_civil(int(year), int(month), int(day))
    if days is None:
        return None
    h, m, s = int(hour or 0), int(minute or 0), int(second or 0)
    if h > 23 or m > 59 or s > 59:
        return None
    return days, h * 3600 + m * 60 + s, int(f"{part or '':0<6}"[:6]), zone and zone.strip(_TRIMMED)


def base64_bytes(text: str) -> bytes | None:
    """Decode base64 (RFC 4648, section 4), with blanks between its characters, and with or without padding."""
    compact = _BLANK.sub("", text)
    if _PADDED_INSIDE.search(text) or not _BASE64.match(compact):
        return None
    return binascii.a2b_base64(compact + "=" * (-len(compact) % 4))
