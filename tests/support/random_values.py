"""Draw values of JSON documents as text, for columns of events.

*Style*: one of the ways in which a sender writes the values of a type, such as numbers or strings of digits.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Any

import pyarrow as pa

from streaming_lsm.decode.column_types import TimeUnit, is_nested, is_timestamp

_STRINGS = (
    "", "x", "7", "-3", "1.5", "true", "false", "TRUE", "2024-02-29", "2024-02-30", "2026-01-02T03:04:05Z",
    "2026-01-02 03:04:05.123456789+01:00", "2026-01-02T03:04", "2026-01-02T03:04:05 Europe/Berlin",
    "2026-01-02T03:04:05 GMT+2", "2026-03-29T02:30:00", "2026-10-25 02:30:00", "1890-05-01T00:00:00", "null", "aGk=",
    "aGk", "a b", "19000", "1e3", "1,5", "NaN", "-Infinity", "ž🎁\\u00e9", "\\ud800", "\\udc00x", "\\ud83c\\udf81",
    "\\n", "7\\n", "7\\r\\n", "\\u0000", "__debezium_unavailable_value", '{\\"id\\":1}', '{\\"id\\":1}}x', "[1]", "+5",
    "9223372036854775807", "9223372036854775808", " 7", "7 ", "00012", "a" * 70, "\\u017f", "\\u2028", "\u0667", "a}b{",
)  # fmt: skip
_NUMBERS = (
    "0", "1", "-1", "7", "-0", "1.0", "1.5", "1e3", "1E-2", "0.1", "1.005", "123456789", "99999999.99", "99999999.995",
    "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "1700000000123456", "19000", "1e39",
    "1e400", "-1E400", "1e-400", "0.1234567890123456789", "16777217", "123456789012345678901234567890", "-0.0",
    "3.4028236e38", "-129", "40000", "1e22", "9007199254740993", "1e28", "1e38",
)  # fmt: skip
_NAMES = ("a", "s", "x", "id", "zz", "\\u0061", "")
_DEEPEST = 3
_LETTERS = ("a", "b", "Z", "0", " ", ",", ":", "ž", "🎁", "\u2028", "\\u00e9", '\\"', "\\\\", "\\/", "\\n")
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Style:
    """Draws values of a type.

    Attributes:
        usual: draws most of them.
        rare: the others.
    """

    usual: Callable[[Random], str]
    rare: tuple[str, ...] = ("null",)

    def draw(self, random: Random, rarely: float) -> str:
        """Draw a value; `rarely` is the share of rare ones."""
        return random.choice(self.rare) if random.random() < rarely else self.usual(random)

    def quoted(self) -> Style:
        """Return the style of these values as strings."""
        return Style(lambda random: f'"{self.usual(random)}"', tuple(f'"{one}"' for one in self.rare))


def styles(kind: pa.DataType, unit: TimeUnit | None = None) -> Sequence[Style]:
    """Return the styles of a type that is not nested, the usual one first; `unit` is that of numbers of a TIMESTAMP."""
    if pa.types.is_integer(kind):
        most = (1 << kind.bit_width - 1) - 1
        whole = Style(lambda random: str(_whole(random, kind.bit_width - 1)), (str(most), str(-most - 1), "0", "null"))
        return whole, Style(whole.usual, (str(most), "00012", "-0")).quoted()
    if pa.types.is_decimal128(kind):
        number = Style(lambda random: _decimal(random, kind), _decimal_limits(kind))
        return number, number.quoted()
    if pa.types.is_floating(kind):
        real = Style(_real, _REALS)
        return real, real.quoted()
    if pa.types.is_boolean(kind):
        boolean = Style(_boolean)
        return boolean, Style(_boolean, ("TRUE",)).quoted()
    if pa.types.is_date(kind):
        days = Style(lambda random: str(_day(random) - _EPOCH), ("2932896", "-719162", "-1"))
        return Style(_date, _DATES), days, days.quoted()
    if pa.types.is_binary(kind):
        return Style(_base64, ('"ab=="', '""', '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="')), _LOOSE_BASE64
    if pa.types.is_timestamp(kind):
        texts = (_ZONED, _LOCAL) if is_timestamp(kind) else (_LOCAL, _ZONED)
        return (_since_epoch(unit), *texts) if unit else texts
    return _TEXT, Style(lambda random: str(_whole(random, 40)), ("-0", "null")), Style(_boolean), _OTHER


def fitting_value(random: Random, kind: Any, *, inside: bool = False, unit: TimeUnit | None = None) -> str:
    """Draw a value of a type, in any style; a value `inside` a nested column has the JSON type of its own type."""
    if not is_nested(kind):
        every = styles(kind, unit)
        return (every[0] if inside else random.choice(every)).draw(random, 0.2)
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
        return f'"{random.choice(_STRINGS)}"' if random.random() < 0.9 else f'"{_letters(random)}"'
    if chosen < 0.6:
        return random.choice(_NUMBERS) if random.random() < 0.9 else _real(random)
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


def _letters(random: Random) -> str:
    return "".join(random.choices(_LETTERS, k=random.randrange(6)))


def _text(random: Random) -> str:
    return random.choice(('"DE"', '"FR"', '"x"')) if random.random() < 0.6 else f'"{_letters(random)}"'


def _boolean(random: Random) -> str:
    return random.choice(("true", "false"))


def _whole(random: Random, bits: int) -> int:
    """Draw a whole number of any size; small ones often, so that keys meet again."""
    if random.random() < 0.5:
        return random.randrange(1, 9)
    size = random.randrange(1, bits + 1)
    return random.randrange(-(1 << size) + 1, 1 << size)


def _digits(random: Random, most: int) -> str:
    return "".join(random.choices("0123456789", k=random.randrange(most + 1)))


def _real(random: Random) -> str:
    whole = random.choice(("0", f"{random.choice(('', '', '-'))}{random.randrange(1, 10)}{_digits(random, 7)}"))
    part = random.choice(("", "", f".{_digits(random, 3)}5", f".{_digits(random, 19)}7"))
    if random.random() < 0.7:
        return whole + part
    return f"{whole}{part}{random.choice('eE')}{random.choice(('', '+', '-'))}{random.randrange(30)}"


def _decimal(random: Random, kind: Any) -> str:
    few = 4 if random.random() < 0.9 else 38
    whole = _digits(random, min(few, kind.precision - kind.scale)).lstrip("0") or "0"
    part = _digits(random, min(few, kind.scale))
    sign = random.choice(("", "", "-")) if whole != "0" else ""
    return f"{sign}{whole}.{part}" if part else f"{sign}{whole}"


def _decimal_limits(kind: Any) -> tuple[str, ...]:
    whole, part = "9" * (kind.precision - kind.scale) or "0", "9" * kind.scale
    most = f"{whole}.{part}" if part else whole
    return most, f"-{most}", "0", "-0", f"0.{part}0" if part else "1e1", "null"


def _day(random: Random) -> int:
    return random.randrange(1, 3_652_060) if random.random() < 0.1 else _EPOCH + random.randrange(-9_000, 30_000)


def _date(random: Random) -> str:
    return f'"{date.fromordinal(_day(random)).isoformat()}"'


def _moment(random: Random) -> str:
    second = timedelta(seconds=random.randrange(86_400) if random.random() < 0.9 else random.randrange(24) * 3600)
    part = random.choice(("", "", f".{random.randrange(1000):03}", f".{random.randrange(10**6):06}"))
    day = date.fromordinal(_day(random)).isoformat()
    return f"{day}{random.choice('T ')}{second!s:0>8}{part}"


def _offset(random: Random) -> str:
    return random.choice(("Z", "Z", "Z", f"{random.choice('+-')}{random.randrange(18):02}:{random.randrange(60):02}"))


def _base64(random: Random) -> str:
    return f'"{base64.b64encode(random.randbytes(random.randrange(9))).decode()}"'


def _since_epoch(unit: TimeUnit) -> Style:
    step, first, last = unit.per_second, -62_135_596_800, 253_402_300_799
    if unit is TimeUnit.NANOS:
        # The oracle cannot tell the microsecond of the first ones.
        first, last = -(2**63) // step + 1, 2**63 // step - 1
    rare = (str(first * step), str(last * step + step - 1), "-1", "0", "-999", "null")
    return Style(lambda random: str(random.randrange(-(10**9) * step, 4 * 10**9 * step)), rare)


_REALS = (
    "-0.0", "-0", "0.0", "123456789012345678901234567890", "1e-320", "16777217", "16777217.0000001", "3.4028234e38",
    "1e-40", "33554433", "1e10", "1.17549435e-38", "7.006492321624085e-46",
)  # fmt: skip
_DATES = ('"2024-02-29"', '"0001-01-01"', '"9999-12-31"', '"1969-12-31"', "null")
_ZONED = Style(
    lambda random: f'"{_moment(random)}{_offset(random)}"',
    (
        '"2026-01-02"', '"0001-01-01T00:00:00Z"', '"1969-12-31T23:59:59.999999-17:59"', '"2026-01-02T03:04Z"',
        '"9999-12-31T23:59:59.999999Z"', '"2026-01-02T03:04:05.123456789Z"', '"2026-01-02T03:04:05"', "null",
    ),
)  # fmt: skip
_LOCAL = Style(
    lambda random: f'"{_moment(random)}"',
    (
        '"2026-03-29T02:30:00"', '"2026-10-25T02:30:00"', '"1945-07-01 12:00:00"', '"1890-01-01T00:00:00"',
        '"0001-01-01T00:00:00"', '"9999-12-31T23:59:59.999999"', '"2026-01-02T03:04"', "null",
    ),
)  # fmt: skip
_LOOSE_BASE64 = Style(lambda random: _base64(random).replace("=", ""), ('"a b c d"', '"YW Jj"', "null"))
_TEXT = Style(
    _text,
    (
        '""', '"\\u00e9\\n\\"q"', '"a}b{"', '"NaN"', '"{\\"id\\":1}"', '"-0 "', '"\\/\\b"', '"\\ud83c\\udf81"', "null",
        '"__debezium_unavailable_value"',
    ),
)  # fmt: skip
_OTHER = Style(_real, ('{"a":[1,2.0]}', "[]", "1.5", "2e23", "5e-324"))
