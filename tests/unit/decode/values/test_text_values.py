"""Texts as values of their columns; times, base64 and zones as Spark 4.2 reads them."""

from __future__ import annotations

import math
import random
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm.decode.column_types import CONNECT_DECIMAL
from streaming_lsm.decode.values.text_values import (
    base64_bytes,
    days_from_civil,
    fitting_decimal,
    float32,
    local_micros,
    micros,
    raw_decimal,
)

DAY = "2026-01-02"
SECOND = DAY + "T03:04:05"
AT = 1_767_323_045_000_000
MONEY = pa.decimal128(10, 2)

TIMES: list[tuple[str, int | None]] = [
    (DAY, 1_767_312_000_000_000),
    (f"{DAY}T03:04", 1_767_323_040_000_000),
    (f"{DAY} 03:04", 1_767_323_040_000_000),
    (f"{DAY}T03:04Z", None),
    (f"{DAY}T03:04:5", AT),
    (SECOND, AT),
    (f"{SECOND}.", AT),
    (f"{SECOND}.1234567899999", AT + 123_456),
    (f"{SECOND}Z", AT),
    (f"{SECOND} Z", AT),
    (f"{SECOND}z", None),
    (f"{SECOND}+18:01", None),
    (f"{SECOND} Europe/Atlantis", None),
    (f"{DAY}T24:00:00", None),
    (f"{DAY}T23:59:60", None),
    (f"{SECOND}Z\n", AT),
    (f"{DAY} ", None),
    (f"{SECOND} ", AT),
    (f"{SECOND}Z Z", None),
    ("2026-02-29", None),
    ("2026-13-01", None),
    ("T03:04:05", None),
    ("1767323045", None),
    ("yesterday", None),
    ("", None),
]
ZONED: list[tuple[str, int, int]] = [
    (f"{SECOND}+01:30", 1_767_317_645_000_000, 5400),
    (f"{SECOND}+1:30", 1_767_317_645_000_000, 5400),
    (f"{SECOND}+0130", 1_767_317_645_000_000, 5400),
    (f"{SECOND}+01:3", 1_767_319_265_000_000, 3780),
    (f"{SECOND}+01:30:15", 1_767_317_630_000_000, 5415),
    (f"{SECOND}UTC+2", 1_767_315_845_000_000, 7200),
    ("2026-07-02T03:04:05.5 Europe/Berlin", 1_782_954_245_500_000, 7200),
    (f"{SECOND}EST", 1_767_341_045_000_000, -18_000),
]
"""Text, microseconds since 1970-01-01 UTC, and the seconds that its zone is ahead of UTC."""


@pytest.mark.parametrize(("text", "expected"), TIMES)
def test_time_as_text_is_a_number_of_microseconds(text: str, expected: int | None) -> None:
    assert micros(text, "UTC") == expected
    assert local_micros(text) == expected


@pytest.mark.parametrize(("text", "instant", "ahead"), ZONED)
def test_time_of_the_zone_that_a_text_names_is_shifted_unless_it_is_local(text: str, instant: int, ahead: int) -> None:
    assert micros(text, "UTC") == micros(text, "Asia/Tokyo") == instant
    assert local_micros(text) == instant + ahead * 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-29T01:59:59", 1_774_745_999_000_000),
        ("2026-03-29T02:30:00", 1_774_747_800_000_000),
        ("2026-10-25T02:30:00", 1_792_888_200_000_000),
        ("1800-01-01T00:00:00", -5_364_665_608_000_000),
        ("0001-01-01", -62_135_600_008_000_000),
        (f"{SECOND}Z", AT),
    ],
    ids=["before-a-gap", "in-a-gap", "twice", "local-mean-time", "year-1", "named"],
)
def test_time_that_names_no_zone_is_one_of_the_given_zone(text: str, expected: int) -> None:
    assert micros(text, "Europe/Berlin") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aGk=", b"hi"),
        ("aGk", b"hi"),
        (" ", b""),
        ("", b""),
        ("aGk =", b"hi"),
        ("aGkx aGk=", b"hi1hi"),
        *((text, None) for text in ("aGk==", "aG=k", "a", "aa=", "=", "==", " aGk= ", "aa = =", "aaaa=")),
        *((text, None) for text in ("aGkx=aGk", "a-_b", "**")),
    ],
)
def test_base64_is_read_with_and_without_padding(text: str, expected: bytes | None) -> None:
    assert base64_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12.5", "12.5"),
        ("-12.50", "-12.50"),
        ("+7", "7"),
        ("1,234.5", "1234.5"),
        ("1.", "1"),
        (".5", "0.5"),
        ("1e3", "1000"),
        ("12345678e-2", "123456.78"),
        ("1.005", "1.005"),
        ("0e99999", "0"),
        ("-0.00", "0"),
        ("99999999", "99999999"),
        ("123456789", None),
        ("99999999." + "9" * 31, "99999999." + "9" * 31),
        ("0." + "1" * 30 + "5", "0." + "1" * 30 + "5"),
        ("1e-31", "1e-31"),
        ("1e40", None),
        ("1e999999999", None),
        ("1e-999999999", "1e-999999999"),
        ("1e99999999999999999999", None),
        ("", None),
        (".", None),
        ("-", None),
        ("e5", None),
        ("1 ", None),
        ("NaN", None),
        ("Infinity", None),
        ("0x10", None),
    ],
)
def test_decimal_keeps_its_digits_and_those_before_the_point_fit(text: str, expected: str | None) -> None:
    assert raw_decimal(text, MONEY) == (None if expected is None else Decimal(expected))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("12.34", "12.34"),
        ("12.3400000", "12.34"),
        ("7", "7.00"),
        ("-99999999.99", "-99999999.99"),
        ("100000000", None),
        ("1.005", None),
        ("0.001", None),
        ("1e-40", None),
        ("1e-999999999", None),
        ("1." + "0" * 60 + "1", None),
        ("1." + "0" * 60, "1.00"),
        ("-0.00", "0.00"),
    ],
)
def test_decimal_fits_its_column_without_rounding(raw: str, expected: str | None) -> None:
    found = fitting_decimal(Decimal(raw), MONEY, None)
    assert (None if found is None else str(found)) == expected
    assert fitting_decimal(Decimal(raw), MONEY, CONNECT_DECIMAL) is None


def nearest(text: str) -> float:
    """The 32-bit float nearest to a number below the largest, by exact arithmetic; of two the even one."""
    exact, begin = Fraction(text), np.float32(float(text))
    near = [np.nextafter(begin, np.float32(-math.inf)), begin, np.nextafter(begin, np.float32(math.inf))]
    finite = [one for one in near if np.isfinite(one)]
    return float(min(finite, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.int32)) & 1)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1", 0.10000000149011612),
        ("+1.5", 1.5),
        ("16777217", 16777216.0),
        ("16777217.000000001", 16777218.0),
        ("16777216.999999999", 16777216.0),
        ("1.000000178813934326171874999999999999999", 1.0000001192092896),
        ("1.000000178813934326171875000000000000001", 1.000000238418579),
        ("7.006492321624085e-46", 0.0),
        ("7.0064923216240853546186479164495807e-46", 1.401298464324817e-45),
        ("1e-400", 0.0),
        ("3.4028235677973365e38", 3.4028234663852886e38),
        ("3.4028235677973366e38", 3.4028234663852886e38),
        ("340282356779733661637539395458142568447", 3.4028234663852886e38),
        ("340282356779733661637539395458142568448", math.inf),
        ("-1e39", -math.inf),
        ("1e999", math.inf),
    ],
)
def test_32_bit_float_is_the_nearest_to_a_number(text: str, expected: float) -> None:
    assert float32(text) == expected


def test_32_bit_float_is_the_nearest_to_numbers_beside_the_middle_of_two() -> None:
    chance = random.Random(1)
    for _ in range(500):
        low = np.float32(chance.uniform(0.5, 2) * 10.0 ** chance.randint(-44, 37))
        middle = (Fraction(float(low)) + Fraction(float(np.nextafter(low, np.float32(math.inf))))) / 2
        # A fraction of a power of two has as many decimal digits as that power.
        text = f"{middle.numerator * 10**200 // middle.denominator + chance.choice((-1, 0, 1))}e-200"
        assert float32(text) == nearest(text)


def test_32_bit_zero_keeps_its_sign() -> None:
    assert math.copysign(1, float32("-0.0")) == -1


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        ((1970, 1, 1), 0),
        ((1969, 12, 31), -1),
        ((2000, 2, 29), 11_016),
        ((1, 1, 1), -719_162),
        ((0, 12, 31), -719_163),
        ((0, 2, 29), -719_469),
        ((-400, 1, 1), -865_625),
        ((9999, 12, 31), 2_932_896),
        ((10_000, 1, 1), 2_932_897),
        ((2023, 2, 29), None),
        ((1900, 2, 29), None),
        ((2026, 13, 1), None),
        ((2026, 0, 1), None),
        ((2026, 4, 31), None),
        ((2026, 1, 0), None),
    ],
)
def test_days_are_counted_in_the_gregorian_calendar_also_before_it(
    day: tuple[int, int, int], expected: int | None
) -> None:
    assert days_from_civil(*day) == expected


def test_days_are_those_of_pythons_calendar_where_it_has_them() -> None:
    chance = random.Random(2)
    for _ in range(1000):
        day = date(1, 1, 1) + timedelta(days=chance.randrange(3_652_059))
        assert days_from_civil(day.year, day.month, day.day) == (day - date(1970, 1, 1)).days
