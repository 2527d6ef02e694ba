"""Parse one JSON document strictly, and print its values as text.

*Token*: a value of the document: None, bool, str, `Number`, a list of tokens, or `Members`. *Text*: a value printed for
a column of texts: a string as it is, a number as Java prints it, an object or array as compact JSON.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from streaming_lsm.decode.json.structure import deepest

MOST_DEPTH = 999
"""Most levels of nested objects and arrays."""
MOST_DIGITS = 1000
"""Most digits of a number."""
_SHALLOW = 100

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = re.compile('["\\\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_SURROGATE = re.compile("[\ud800-\udfff]")


class Number(str):
    """The text of a JSON number, as written."""

    __slots__ = ()

    @property
    def is_whole(self) -> bool:
        """Whether it has neither a fraction nor an exponent."""
        return self.lstrip("-").isdigit()


class Members(dict[str, Any]):
    """The members of an object; of a repeated name the last one counts.

    Attributes:
        every: all members, also those that a later one of the same name replaced.
    """

    __slots__ = ("every",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        """Keep the members of an object."""
        super().__init__(pairs)
        self.every = pairs


class NotJson(ValueError):
    """Reports a text that is not one JSON document."""


def parse_document(text: str) -> Any:
    """Parse a text that must be one whole JSON document (RFC 8259), and return its token.

    Raises:
        NotJson: it is not, it is nested deeper than `MOST_DEPTH`, or a number has more than `MOST_DIGITS`.
    """
    try:
        if text.count("[") + text.count("{") <= _SHALLOW:
            return _DECODER.decode(text)
        if deepest(np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)) > MOST_DEPTH:
            raise NotJson("nested too deeply")
        with room_to_recurse():
            return _DECODER.decode(text)
    except ValueError as error:
        raise NotJson(str(error)) from None


@contextmanager
def room_to_recurse() -> Iterator[None]:
    """Let functions that call themselves for each level of a document do so for `MOST_DEPTH` levels."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + 4 * MOST_DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _number(text: str) -> Number:
    if len(text) > MOST_DIGITS and sum(map(str.isdigit, text)) > MOST_DIGITS:
        raise NotJson("too many digits")
    return Number(text)


def _constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=Members, parse_float=_number, parse_int=_number, parse_constant=_constant, strict=True
)


def text_of(token: Any) -> str | None:
    """Print a token as the text of a column; None for null. Half surrogate pairs, which UTF-8 cannot hold, become ?."""
    if token is None:
        return None
    if isinstance(token, Number):
        return _number_text(token)
    if isinstance(token, str):
        return _SURROGATE.sub("?", token)
    if isinstance(token, bool):
        return "true" if token else "false"
    with room_to_recurse():
        return "".join(_printed(token))


def _printed(token: Any) -> Iterator[str]:
    if token is None:
        yield "null"
    elif isinstance(token, Number):
        yield _number_text(token)
    elif isinstance(token, str):
        yield _quoted(token)
    elif isinstance(token, bool):
        yield "true" if token else "false"
    elif isinstance(token, Members):
        for place, (name, value) in enumerate(token.every):
            yield f"{',' if place else '{'}{_quoted(name)}:"
            yield from _printed(value)
        yield "}" if token.every else "{}"
    else:
        for place, value in enumerate(token):
            yield "," if place else "["
            yield from _printed(value)
        yield "]" if token else "[]"


def _quoted(text: str) -> str:
    return f'"{_ESCAPED.sub(_escaped, text)}"'


def _escaped(found: re.Match[str]) -> str:
    mark = ord(found[0])
    if mark < 0x10000:
        return _ESCAPES.get(found[0]) or f"\\u{mark:04X}"
    return f"\\u{0xD7C0 + (mark >> 10):04X}\\u{0xDC00 + (mark & 0x3FF):04X}"


def _number_text(number: Number) -> str:
    """Print a number: a whole one in canonical form, another as ``Double.toString`` of Java 19 and later."""
    if number.is_whole:
        return "-" * (number[0] == "-" and number.strip("-0") != "") + (number.lstrip("-0") or "0")
    value = float(number)
    if value in (float("inf"), float("-inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    return java_double(value)


def java_double(value: float) -> str:
    """Print a finite float as ``Double.toString`` does: 1.0, 0.001, 1.0E7, 1.0E-4."""
    digits, _, power = repr(value).partition("e")
    size = abs(value)
    if size == 0.0 or 1e-3 <= size < 1e7:
        return digits
    sign = "-" if digits[0] == "-" else ""
    whole, _, part = digits.lstrip("-").partition(".")
    every = whole + part
    significant = every.lstrip("0")
    exponent = len(whole) - 1 - (len(every) - len(significant)) + int(power or 0)
    rest = significant[1:].rstrip("0") or "0"
    return f"{sign}{significant[0]}.{rest}E{exponent}"
