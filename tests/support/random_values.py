"""Draw values of JSON documents as text, for columns of events.

*Style*: one of the ways in which a sender writes the values of a type, such as numbers or strings of digits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa

from streaming_lsm.decode.column_types import TimeUnit, is_nested, is_timestamp

Style = Sequence[str]
"""Values, of which one is drawn for each document."""

_STRINGS = (
    "", "x", "7", "-3", "1.5", "true", "false", "TRUE", "2024-02-29", "2024-02-30", "2026-01-02T03:04:05Z",
    "2026-01-02 03:04:05.123456789+01:00", "2026-01-02T03:04", "2026-01-02T03:04:05 Europe/Berlin",
    "2026-01-02T03:04:05 GMT+2", "2026-03-29T02:30:00", "2026-10-25 02:30:00", "1890-05-01T00:00:00", "null", "aGk=",
    "aGk", "a b", "19000", "1e3", "1,5", "NaN", "-Infinity", "ž🎁\\u00e9", "\\ud800", "\\udc00x", "\\ud83c\\udf81",
    "\\n", "7\\n", "7\\r\\n", "\\u0000", "__debezium_unavailable_value", '{\\"id\\":1}', '{\\"id\\":1}}x', "[1]", "+5",
    "9223372036854775807", "9223372036854775808", " 7", "7 ", "00012", "a" * 70, "ſ", "\\u2028", "٧",
)  # fmt: skip
_NUMBERS = (
    "0", "1", "-1", "7", "-0", "1.0", "1.5", "1e3", "1E-2", "0.1", "1.005", "123456789", "99999999.99", "99999999.995",
    "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "1700000000123456", "19000", "1e39",
    "1e400", "-1E400", "1e-400", "0.1234567890123456789", "16777217", "123456789012345678901234567890", "-0.0",
    "3.4028236e38", "-129", "40000", "1e22", "9007199254740993",
)  # fmt: skip
_NAMES = ("a", "s", "x", "id", "zz", "\\u0061", "")
_DEEPEST = 3

_TEXTS = (
    '"DE"', '"FR"', '"x"', '""', '"ž🎁"', '"\\u00e9\\n\\"q"', '"a}b{"', '"NaN"', '"{\\"id\\":1}"', '"-0 "', '"\\/\\b"',
    '"__debezium_unavailable_value"', "null",
)  # fmt: skip
_LOCAL_TIMES = (
    '"2026-01-02T03:04:05"', '"2026-01-02 03:04:05.5"', '"1970-01-01T00:00:00"', '"2026-10-25T02:30:00"',
    '"1945-07-01 12:00:00"', '"2026-03-29T02:30:00"', '"1890-01-01T00:00:00"', '"0001-01-01T00:00:00"',
    '"9999-12-31T23:59:59.999999"', "null",
)  # fmt: skip
_TIMES = (
    '"2026-01-02T03:04:05Z"', '"2026-01-02 03:04:05.123456+05:30"', '"2026-01-02T03:04:05"', '"0001-01-01T00:00:00Z"',
    '"1969-12-31T23:59:59.999999-17:59"', '"9999-12-31T23:59:59.999999Z"', "null",
)  # fmt: skip
_SINCE_EPOCH: Mapping[TimeUnit, Style] = {
    TimeUnit.MILLIS: ("1700000000123", "-1", "0", "-62135596800000", "253402300799999", "null"),
    TimeUnit.MICROS: ("1700000000123456", "-1", "0", "-62135596800000000", "253402300799999999", "null"),
    TimeUnit.NANOS: ("1700000000123456789", "-1", "-999", "-9223372036854000000", "9223372036854775807"),
}
_REALS = (
    "1", "1.5", "1e3", "-0.0", "0.1", "0.3", "1E+2", "-7", "123456789012345678901234567890", "1e-320", "16777217",
    "16777217.0000001", "3.4028234e38", "1e-40", "33554433", "1e10",
)  # fmt: skip
_STYLES: Mapping[pa.DataType, Sequence[Style]] = {
    pa.string(): (_TEXTS, ("5", "-17", "0", "-0", "null"), ("true", "false"), ('{"a":[1,2.0]}', "[]", "1.5", "2e23", "5e-324")),
    pa.bool_(): (("true", "false", "null"), ('"true"', '"false"')),
    pa.float32(): (_REALS, ('"3.5"', '"0.1"', '"16777217"', '"1e5"')),
    pa.float64(): ((*_REALS, "1.7976931348623157e308"), ('"2.5"', '"1e5"', '"0.1"', '"-0.0"')),
    pa.date32(): (
        ('"2024-02-29"', '"0001-01-01"', '"9999-12-31"', '"1969-12-31"', "null"),
        ("19000", "-1", "2932896", "-719162"),
        ('"19000"', '"-1"'),
    ),
    pa.timestamp("us"): (_LOCAL_TIMES, _TIMES),
    pa.timestamp("us", "UTC"): (_TIMES, _LOCAL_TIMES),
    pa.binary(): (
        ('"aGk="', '"YWJj"', '""', '"ab=="', "null", '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="'),
        ('"aGk"', '"a b c d"', '"YWJj"'),
    ),
}


def styles(kind: pa.DataType, unit: TimeUnit | None = None) -> Sequence[Style]:
    """Return the styles of a type other than a nested one; those of a TIMESTAMP in a known unit have whole numbers."""
    if pa.types.is_integer(kind):
        most = (1 << kind.bit_width - 1) - 1
        numbers = ["1", "7", "-5", "0", str(most), str(-most - 1)]
        return (*numbers, "null"), [f'"{number}"' for number in (*numbers, "00012")]
    if pa.types.is_decimal128(kind):
        numbers = _decimals(kind)
        return (*numbers, "null"), [f'"{number}"' for number in (*numbers, "00")]
    return (_SINCE_EPOCH[unit], *_STYLES[kind]) if unit and is_timestamp(kind) else _STYLES[kind]


def _decimals(kind: Any) -> list[str]:
    whole, part = "9" * (kind.precision - kind.scale) or "0", "9" * kind.scale
    point = "." if part else ""
    most, few, least = f"{whole}{point}{part}", f"{whole[:2]}{point}{part[:2]}", f"0.{part}0" if part else "-0"
    return [few, "0", most, f"-{most}", least]


def fitting_value(random: Random, kind: pa.DataType, *, inside: bool = False) -> str:
    """Draw a value of a type, in any style; a value `inside` a nested column has the JSON type of its own type."""
    if not is_nested(kind):
        every = styles(kind)
        return random.choice(every[0] if inside else random.choice(every))
    if random.random() < 0.1:
        return "null"
    if pa.types.is_list(kind):
        return f"[{','.join(fitting_value(random, kind.value_type, inside=True) for _ in range(random.randrange(4)))}]"
    if pa.types.is_map(kind):
        fields = [(name, kind.item_type) for name in random.sample(_NAMES, random.randrange(3))]
    else:
        fields = [(field.name, field.type) for field in kind.fields if random.random() < 0.8]
    return text_of_object([(name, fitting_value(random, one, inside=True)) for name, one in fields])


def any_value(random: Random, depth: int = 0) -> str:
    """Draw any JSON value, in an object or array `depth` levels deep."""
    chosen = random.random()
    if chosen < 0.3:
        return f'"{random.choice(_STRINGS)}"'
    if chosen < 0.6:
        return random.choice(_NUMBERS)
    if chosen < 0.7 or depth > _DEEPEST:
        return random.choice(("true", "false", "null", "{}"))
    if chosen < 0.85:
        return f"[{','.join(any_value(random, depth + 1) for _ in range(random.randrange(4)))}]"
    names = [name for name in _NAMES if random.random() < 0.5]
    return text_of_object([(name, any_value(random, depth + 1)) for name in names])


def extreme_value(random: Random) -> str:
    """Draw a value near a limit of parsers: its depth, its digits or its size."""
    depth = random.choice((98, 99, 100, 101, 995, 996, 997, 998, 999, 1000))
    digits = random.randrange(997, 1003)
    return random.choice(
        ("[" * depth + "]" * depth, "1" * digits, f"0.{'1' * digits}", f'"{"a" * 33_000}"', f'"{"ž" * 40_000}"')
    )


def text_of_object(members: Sequence[tuple[str, str]], space: str = "") -> str:
    """Write an object of names and values, with `space` before each value."""
    return "{" + ",".join(f'"{name}":{space}{value}' for name, value in members) + "}"


def text_in_string(document: str) -> str:
    """Write a document as a JSON string."""
    return json.dumps(document)
