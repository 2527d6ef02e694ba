"""The JSON form of rows, for what no fixture holds; the fixtures show the rest."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa

from tests.conformance.row_json import to_lines


def test_numbers_that_json_lacks_are_strings() -> None:
    table = pa.table({"f": pa.array([float("nan"), float("inf"), float("-inf"), -0.0, 0.1, None], pa.float64())})
    assert to_lines(table) == [
        '{"f": "-Infinity"}', '{"f": "Infinity"}', '{"f": "NaN"}', '{"f": -0.0}', '{"f": 0.1}', '{"f": null}',
    ]  # fmt: skip
    assert to_lines(pa.table({"f": pa.array([0.1], pa.float32())})) == ['{"f": 0.10000000149011612}']


def test_small_decimals_keep_all_digits() -> None:
    table = pa.table({"d": pa.array([decimal.Decimal("0.0000000001")], pa.decimal128(20, 10))})
    assert to_lines(table) == ['{"d": "0.0000000001"}']


def test_values_inside_of_others_are_converted_too() -> None:
    moment = datetime.datetime(1, 2, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)
    inner = pa.struct([("z", pa.timestamp("us", tz="UTC")), ("a", pa.list_(pa.date32()))])
    rows = [{"z": moment, "a": [datetime.date(2024, 2, 29), None]}, {"z": None, "a": None}, None]
    table = pa.table({"m": pa.array([[("k", row)] for row in rows], pa.map_(pa.string(), inner))})
    assert to_lines(table) == [
        '{"m": {"k": null}}',
        '{"m": {"k": {"a": ["2024-02-29", null], "z": "0001-02-03T04:05:06.000007"}}}',
        '{"m": {"k": {"a": null, "z": null}}}',
    ]


def test_lines_are_sorted_by_partition_then_key_then_text() -> None:
    table = pa.table(
        {
            "_hoodie_partition_path": ["b", "a", "a", "a", None],
            "_hoodie_record_key": ["1", "2", "10", "10", "9"],
            "v": [1, 2, 4, 3, 5],
        }
    )
    assert [line[-2] for line in to_lines(table)] == ["5", "3", "4", "2", "1"]
