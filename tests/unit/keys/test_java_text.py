from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_lsm.errors import SchemaError
from streaming_lsm.keys.java_text import to_java_text


def reference_real(value: float, shortest: str) -> str:
    """Double.toString's layout of the digits in `shortest` (Python's repr, or numpy's for float32)."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    text = "".join(map(str, digits))
    power = len(text) - 1 + int(exponent)
    if len(text) == 1 and power < -40:
        two, exponent_text = f"{abs(value):.1e}".split("e")
        return f"{'-' * sign}{two}E{int(exponent_text)}"
    if -3 <= power < 7:
        padded = text.ljust(max(power + 2, 1), "0")
        plain = f"{padded[: power + 1]}.{padded[power + 1 :]}" if power >= 0 else f"0.{'0' * (-power - 1)}{text}"
        return "-" * sign + plain
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{power}"


@settings(deadline=None)
@given(st.lists(st.none() | st.floats(), max_size=20))
def test_doubles_follow_the_reference(values: list[float | None]) -> None:
    expected = [None if value is None else reference_real(value, repr(value)) for value in values]
    assert to_java_text(pa.array(values, pa.float64())).to_pylist() == expected


@settings(deadline=None)
@given(st.lists(st.floats(width=32, allow_subnormal=False), max_size=20))
def test_floats_follow_the_reference(values: list[float]) -> None:
    singles = np.array(values, np.float32)
    expected = [reference_real(float(value), str(value)) for value in singles]
    assert to_java_text(pa.array(singles)).to_pylist() == expected


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), st.integers(0, 3))
def test_longs_are_decimal_and_slices_keep_their_rows(values: list[int | None], start: int) -> None:
    array = pa.array(values, pa.int64())[start:]
    assert to_java_text(array).to_pylist() == [None if value is None else str(value) for value in values[start:]]


@settings(deadline=None)
@given(st.lists(st.dates()))
def test_dates_are_iso(values: list[date]) -> None:
    assert to_java_text(pa.array(values, pa.date32())).to_pylist() == [value.isoformat() for value in values]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_timestamps_are_raw_epoch_numbers_of_their_unit(zone: str | None) -> None:
    assert to_java_text(pa.array([1500, None, -1], pa.timestamp("us", zone))).to_pylist() == ["1500", None, "-1"]
    assert to_java_text(pa.array([1500], pa.timestamp("ms", zone))).to_pylist() == ["1500"]


def test_logical_timestamps_leave_local_timestamps_raw() -> None:
    moment = datetime(2021, 12, 3, 6, 43, 26, 120_999, UTC)
    zoned = pa.array([moment, None], pa.timestamp("us", "UTC"))
    assert to_java_text(zoned, logical_timestamp=True).to_pylist() == ["2021-12-03 06:43:26.12", None]
    assert to_java_text(pa.array([7], pa.timestamp("us")), logical_timestamp=True).to_pylist() == ["7"]


def test_booleans_strings_decimals_and_dictionaries() -> None:
    assert to_java_text(pa.array([True, False, None])).to_pylist() == ["true", "false", None]
    assert to_java_text(pa.array(["", "é", None], pa.large_string())).to_pylist() == ["", "é", None]
    assert to_java_text(pa.array([Decimal("12.3400")], pa.decimal128(20, 4))).to_pylist() == ["12.3400"]
    assert to_java_text(pa.array([3, 3, None]).dictionary_encode()).to_pylist() == ["3", "3", None]


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.uint32(), pa.timestamp("ns"), pa.timestamp("s"), pa.time64("us"), pa.list_(pa.int32())],
    ids=str,
)
def test_types_without_a_text_are_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(SchemaError) as caught:
        to_java_text(pa.nulls(1, kind))
    assert str(kind) in str(caught.value)


def test_years_of_five_digits_and_more_have_texts() -> None:
    days = [3_000_000, 30_000_000, None, -30_000_000, 0]
    printed = to_java_text(pa.array(days, pa.int32()).cast(pa.date32())).to_pylist()
    assert printed == ["+10183-09-21", "+84107-03-19", None, "-80168-10-16", "1970-01-01"]
    times = pa.array([day and day * 86_400_000 + 3_600_500 for day in days], pa.timestamp("ms", "UTC"))
    assert to_java_text(times, logical_timestamp=True).to_pylist() == [
        "10183-09-21 01:00:00.5",
        "84107-03-19 01:00:00.5",
        None,
        "-80168-10-16 01:00:00.5",
        "1970-01-01 00:00:00.0",
    ]
