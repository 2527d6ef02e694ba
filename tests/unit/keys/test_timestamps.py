"""The cases of Hudi's own tests of its timestamp key generator, and what we refuse."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from streaming_lsm.errors import ConfigError, RecordError, SchemaError
from streaming_lsm.keys.timestamps import (
    DELIMITER,
    INPUT,
    INPUT_ZONE,
    OUTPUT,
    OUTPUT_ZONE,
    TYPE,
    UNIT,
    ZONE,
    TimestampFormat,
)

HOUR = "yyyy-MM-dd hh"


def values(column: pa.Array, logical: bool = False, **options: str) -> list[str]:
    keys = {"kind": TYPE, "unit": UNIT, "input": INPUT, "output": OUTPUT, "zone": ZONE, "delimiter": DELIMITER}
    keys |= {"input_zone": INPUT_ZONE, "output_zone": OUTPUT_ZONE}
    named = {keys[name]: value for name, value in options.items()}
    return TimestampFormat.from_options(named, logical_timestamp=logical).partition_values(column, "ts").to_pylist()


@pytest.mark.parametrize(
    ("kind", "unit", "value", "zone", "expected"),
    [
        ("EPOCHMILLISECONDS", "", 1578283932000, "GMT+8:00", "2020-01-06 12"),
        ("EPOCHMILLISECONDS", "", 1578283932000, "GMT", "2020-01-06 04"),
        ("EPOCHMILLISECONDS", "", None, "GMT+8:00", "1970-01-01 08"),
        ("EPOCHMICROSECONDS", "", 1578283932123456, "GMT+8:00", "2020-01-06 12"),
        ("UNIX_TIMESTAMP", "", 1578283932, "GMT", "2020-01-06 04"),
        ("SCALAR", "days", 20000, "GMT", "2024-10-04 12"),
        ("SCALAR", "days", None, "GMT", "1970-01-02 12"),
        ("SCALAR", "DAYS", 18736, "GMT", "2021-04-19 12"),
    ],
)
def test_numbers_print_as_in_hudi(kind: str, unit: str, value: int | None, zone: str, expected: str) -> None:
    scalar = {"unit": unit} if unit else {}
    assert values(pa.array([value], pa.int64()), kind=kind, zone=zone, output=HOUR, **scalar) == [expected]


def test_decimals_and_floats_are_cut_to_whole_numbers() -> None:
    column = pa.array([Decimal("1578283932000.9999")], pa.decimal128(20, 4))
    assert values(column, kind="EPOCHMILLISECONDS", zone="GMT+8:00", output=HOUR) == ["2020-01-06 12"]
    reals = pa.array([1.9, -0.9, float("nan"), None])
    assert values(reals, kind="SCALAR", unit="DAYS", output="DDD") == ["002", "001", "001", "002"]


def test_microseconds_are_cut_towards_zero() -> None:
    assert values(pa.array([-1, -1000]), kind="EPOCHMICROSECONDS", output="yyyy") == ["1970", "1969"]


def test_dates_count_as_days_of_the_unit() -> None:
    column = pa.array([date(2021, 4, 19)], pa.date32())
    assert values(column, kind="SCALAR", unit="DAYS", output="yyyyMMdd") == ["20210419"]


def test_logical_timestamps_are_points_in_time_whatever_the_unit() -> None:
    column = pa.array([1638513806000000, None], pa.timestamp("us", "UTC"))
    options = {"kind": "SCALAR", "unit": "MICROSECONDS", "output": "yyyy/MM/dd"}
    assert values(column, logical=True, **options) == ["2021/12/03", "1970/01/01"]
    assert values(column, logical=False, **options) == ["2021/12/03", "1970/01/01"]
    assert values(column[:1], logical=True, kind="UNIX_TIMESTAMP", output="yyyy") == ["2021"]


def test_date_strings_and_their_null_default_print_as_in_hudi() -> None:
    column = pa.array(["2020-01-06 12:12:12", None])
    options = {"kind": "DATE_STRING", "input": "yyyy-MM-dd hh:mm:ss", "output": HOUR}
    assert values(column, zone="GMT+8:00", **options) == ["2020-01-06 12", "1970-01-01 08"]
    assert values(column, zone="GMT", **options) == ["2020-01-06 12", "1970-01-01 12"]


def test_several_input_patterns_are_split_by_the_delimiter() -> None:
    column = pa.array(["2020-04-01T13:01:33.428Z", "20200401", "2020-04-01T13:01:33-05:00"])
    patterns = "yyyy-MM-dd'T'HH:mm:ssZ; yyyy-MM-dd'T'HH:mm:ss.SSSZ ;yyyyMMdd"
    printed = values(column, kind="MIXED", input=patterns, delimiter=";", output="yyyyMMddHH", output_zone="GMT")
    assert printed == ["2020040113", "2020040100", "2020040118"]


def test_equal_texts_of_different_times_share_one_entry() -> None:
    printer = TimestampFormat.from_options({TYPE: "UNIX_TIMESTAMP", OUTPUT: "MMM"})
    array = printer.partition_values(pa.array([0, 1, 31 * 86_400, 365 * 86_400]), "ts")
    assert array.to_pylist() == ["Jan", "Jan", "Feb", "Jan"]
    assert len(array.dictionary) == 2


def test_offset_is_printed_on_both_sides_of_a_clock_change() -> None:
    column = pa.array([1711846800 - 1, 1711846800])
    assert values(column, kind="UNIX_TIMESTAMP", zone="Europe/Paris", output="yyyyMMdd ZZ") == [
        "20240331 +01:00",
        "20240331 +02:00",
    ]


@pytest.mark.parametrize("text", ["2024-03-31 02:30", "2024-02-30 00:00", "soon", ""])
def test_texts_that_are_no_time_are_refused_with_row_and_value(text: str) -> None:
    with pytest.raises(RecordError) as caught:
        values(
            pa.array(["2024-01-01 00:00", text]),
            kind="DATE_STRING",
            input="yyyy-MM-dd HH:mm",
            output="yyyy",
            zone="Europe/Paris",
        )
    assert "row 1" in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("number", [2**62, -(2**62), 253_402_300_800_000])
def test_numbers_outside_the_calendar_are_refused(number: int) -> None:
    with pytest.raises(RecordError, match="row 1"):
        values(pa.array([0, number]), kind="EPOCHMILLISECONDS", output="yyyy")


def test_column_types_must_fit_the_timestamp_type() -> None:
    with pytest.raises(SchemaError, match="'ts' holds texts"):
        values(pa.array(["x"]), kind="UNIX_TIMESTAMP", output="yyyy")
    with pytest.raises(SchemaError, match="'ts' of type int64"):
        values(pa.array([1]), kind="DATE_STRING", input="yyyy", output="yyyy")
    with pytest.raises(SchemaError, match="bool"):
        values(pa.array([True]), kind="UNIX_TIMESTAMP", output="yyyy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "timestamp.type is not set"),
        ({TYPE: "EPOCH", OUTPUT: "yyyy"}, "'EPOCH'"),
        ({TYPE: "UNIX_TIMESTAMP"}, "output.dateformat is not set"),
        ({TYPE: "UNIX_TIMESTAMP", OUTPUT: "yyyy-QQ"}, "letter 'Q'"),
        ({TYPE: "UNIX_TIMESTAMP", OUTPUT: "yyyy z"}, "letter 'z'"),
        ({TYPE: "UNIX_TIMESTAMP", OUTPUT: "yyyy ZZZ"}, "zone names"),
        ({TYPE: "UNIX_TIMESTAMP", OUTPUT: "yyyy'T"}, "not closed"),
        ({TYPE: "SCALAR", UNIT: "WEEKS", OUTPUT: "yyyy"}, "'WEEKS'"),
        ({TYPE: "DATE_STRING", OUTPUT: "yyyy"}, "input.dateformat is not set"),
        ({TYPE: "DATE_STRING", OUTPUT: "yyyy", INPUT: "yy-MM"}, "two-digit year"),
        ({TYPE: "DATE_STRING", OUTPUT: "yyyy", INPUT: "HH:mm"}, "no year"),
        ({TYPE: "DATE_STRING", OUTPUT: "yyyy", INPUT: "yyyy a"}, "needs an hour"),
        ({TYPE: "DATE_STRING", OUTPUT: "yyyy", INPUT: "yyyy HH hh"}, "two letters"),
        ({TYPE: "DATE_STRING", OUTPUT: "yyyy", INPUT: "yyyy MM YYYY"}, "twice"),
        ({TYPE: "DATE_STRING", OUTPUT: "yyyy", INPUT: "yyyy", DELIMITER: "("}, "regular expression"),
        ({TYPE: "UNIX_TIMESTAMP", OUTPUT: "yyyy", ZONE: "Mars/Base"}, "Mars/Base"),
        ({TYPE: "UNIX_TIMESTAMP", OUTPUT: "yyyy", OUTPUT_ZONE: "+08:00"}, "GMT\\+08:00"),
        ({TYPE: "UNIX_TIMESTAMP", OUTPUT: "yyyy", ZONE: "UTC", OUTPUT_ZONE: "Asia/Tokyo"}, "contradicts"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TimestampFormat.from_options(options)
