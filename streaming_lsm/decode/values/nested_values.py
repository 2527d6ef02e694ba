"""Convert tokens to the values of ARRAY, MAP and STRUCT columns.

A value inside must have the JSON type of its declared type: unlike in a column of its own, a text is no number.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from streaming_lsm.decode.json.document import Members, Number, text_of
from streaming_lsm.decode.values.text_values import days_from_civil, float32

_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?\Z", re.DOTALL)
_DAYS = re.compile(r"[+-]?[0-9]{1,10}\Z")
_DATE_BITS = 31
_GREGORIAN_DAY = -141_427
"""1582-10-15, before which days since 1970 are counted in another calendar."""
_QUARTETS = re.compile(r"(?:[\0-\x20]*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==))*[\0-\x20]*\Z")
_BLANKS = re.compile(r"[\0-\x20]+")


class Misfit(ValueError):
    """Reports a token of another type.

    Attributes:
        partial: whether a value remains: an object whose members do not all fit.
    """

    def __init__(self, *, partial: bool = False) -> None:
        """Report a token."""
        super().__init__()
        self.partial = partial


Convert = Callable[[Any], Any]


def nested_converter(kind: pa.DataType) -> Convert:
    """Return the function that converts a token to a type inside a nested column, or to a nested one.

    It returns None for null, dates as days since 1970, objects as dicts, and those of a MAP as lists of pairs. It
    raises `Misfit`.
    """
    if pa.types.is_list(kind):
        return _array(nested_converter(kind.value_type))
    if pa.types.is_map(kind):
        return _map(nested_converter(kind.item_type))
    if pa.types.is_struct(kind):
        return _struct({field.name: nested_converter(field.type) for field in kind.fields})
    leaf = _leaf(kind)

    def convert(token: Any) -> Any:
        if token is None:
            return None
        value = leaf(token)
        if value is None:
            raise Misfit
        return value

    return convert


def _array(element: Convert) -> Convert:
    def convert(token: Any) -> Any:
        return None if token is None else _every(element, _checked(token, list))

    return convert


def _map(value: Convert) -> Convert:
    def convert(token: Any) -> Any:
        if token is None:
            return None
        members = _checked(token, Members).every
        values = _every(value, [one for _, one in members])
        return [(text_of(name), one) for (name, _), one in zip(members, values, strict=True)]

    return convert


def _struct(fields: dict[str, Convert]) -> Convert:
    def convert(token: Any) -> Any:
        if token is None:
            return None
        partial = False
        found: dict[str, Any] = {}
        for name, one in _checked(token, Members).every:
            if name in fields:
                try:
                    found[name] = fields[name](one)
                except Misfit:
                    partial = True
        if partial:
            raise Misfit(partial=True)
        return found

    return convert


def _checked(token: Any, kind: type) -> Any:
    if not isinstance(token, kind):
        raise Misfit
    return token


def _every(convert: Convert, tokens: list[Any]) -> list[Any]:
    """Convert tokens; one that fits in part makes the whole fit in part, one that does not fit at all is raised."""
    found, partial = [], False
    for token in tokens:
        try:
            found.append(convert(token))
        except Misfit as misfit:
            if not misfit.partial:
                raise
            partial = True
    if partial:
        raise Misfit(partial=True)
    return found


def _leaf(kind: pa.DataType) -> Convert:
    if pa.types.is_boolean(kind):
        return lambda token: token if isinstance(token, bool) else None
    if pa.types.is_integer(kind):
        return lambda token: _whole(token, kind.bit_width)
    if pa.types.is_float32(kind):
        return lambda token: _real(token, float32)
    if pa.types.is_float64(kind):
        return lambda token: _real(token, float)
    if pa.types.is_date(kind):
        return lambda token: _date(token) if _is_text(token) else None
    if pa.types.is_binary(kind):
        return lambda token: _bytes(token) if _is_text(token) else None
    return text_of


def _is_text(token: Any) -> bool:
    return isinstance(token, str) and not isinstance(token, Number)


def _real(token: Any, parse: Callable[[str], float]) -> float | None:
    if not isinstance(token, Number):
        return None
    value = parse(token)
    return abs(value) if value == 0 and token.is_whole else value


def _whole(token: Any, bits: int) -> int | None:
    if not isinstance(token, Number) or not token.is_whole:
        return None
    value = int(token)
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def _date(text: str) -> int | None:
    """Return the day of ``YYYY``, ``YYYY-MM`` or ``YYYY-MM-DD``, or of a whole number of days since 1970."""
    text = text.replace("GMT", "", 1).strip()
    found = _DATE.match(text)
    if found:
        sign, year, month, day = found.groups()
        days = days_from_civil(int(sign + year), int(month or 1), int(day or 1))
        if days is not None and abs(days) < 1 << _DATE_BITS:
            return days
    if not _DAYS.match(text):
        return None
    days = int(text)
    return days if _GREGORIAN_DAY <= days < 1 << _DATE_BITS else None


def _bytes(text: str) -> bytes | None:
    if not _QUARTETS.match(text):
        return None
    compact = _BLANKS.sub("", text)
    return b"".join(map(binascii.a2b_base64, re.findall("....", compact)))
