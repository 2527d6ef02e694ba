"""The JSON of a row, type by type, as the notes on the fixtures define it."""

from __future__ import annotations

import datetime
import decimal
import json
import math

import pyarrow as pa
import pytest

from streaming_lsm.query.text.json_lines import json_lines

NOON = datetime.datetime(2026, 11, 20, 12, 0, 0, 5)


def line(value: object, kind: pa.DataType) -> str:
    (found,) = json_lines(pa.table({"v": pa.array([value], kind)}))
    return found


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (2**31 - 1, pa.int32(), "2147483647"),
        (2**63 - 1, pa.int64(), "9223372036854775807"),
        (True, pa.bool_(), "true"),
        ('é\u2028"\\\n\U00020000', pa.string(), '"é\u2028\\"\\\\\\n\U00020000"'),
        (0.1, pa.float64(), "0.1"),
        (0.1, pa.float32(), "0.10000000149011612"),
        (-0.0, pa.float64(), "-0.0"),
        (math.nan, pa.float64(), '"NaN"'),
        (math.inf, pa.float32(), '"Infinity"'),
        (-math.inf, pa.float64(), '"-Infinity"'),
        (decimal.Decimal("12.34"), pa.decimal128(10, 4), '"12.3400"'),
        (decimal.Decimal("-0.0000001"), pa.decimal128(20, 10), '"-0.0000001000"'),
        (decimal.Decimal("100"), pa.decimal128(3, 0), '"100"'),
        (decimal.Decimal("0"), pa.decimal128(20, 10), '"0.0000000000"'),
        (b"\xff\x00", pa.binary(), '"/wA="'),
        (datetime.date(2026, 1, 2), pa.date32(), '"2026-01-02"'),
        (datetime.date(1, 1, 1), pa.date32(), '"0001-01-01"'),
        (NOON, pa.timestamp("us"), '"2026-11-20T12:00:00.000005"'),
        (NOON.replace(tzinfo=datetime.UTC), pa.timestamp("us", "UTC"), '"2026-11-20T12:00:00.000005"'),
        (NOON.replace(microsecond=7000), pa.timestamp("ms"), '"2026-11-20T12:00:00.007000"'),
        (datetime.datetime(1, 1, 1), pa.timestamp("us"), '"0001-01-01T00:00:00.000000"'),
        (["a", None], pa.list_(pa.string()), '["a", null]'),
        ([], pa.list_(pa.string()), "[]"),
        ([[math.nan]], pa.list_(pa.list_(pa.float64())), '[["NaN"]]'),
        ([("b", b"\x01"), ("a", None)], pa.map_(pa.string(), pa.binary()), '{"a": null, "b": "AQ=="}'),
        ({"y": 1, "x": None}, pa.struct([("y", pa.int32()), ("x", pa.date32())]), '{"x": null, "y": 1}'),
    ],
    ids=str,
)
def test_a_value_is_printed_as_its_type_says(value: object, kind: pa.DataType, text: str) -> None:
    assert line(value, kind) == f'{{"v": {text}}}'
    assert line(None, kind) == '{"v": null}'


def test_keys_are_sorted_and_every_column_is_there() -> None:
    table = pa.table({"b": pa.array([None], pa.int32()), "a": ["x"], "C": [1]})
    assert list(json_lines(table)) == ['{"C": 1, "a": "x", "b": null}']


def test_each_row_of_every_chunk_is_one_line() -> None:
    table = pa.table({"a": pa.chunked_array([["1\n2"], ["3", "4"]])})
    lines = list(json_lines(table))
    assert [json.loads(found)["a"] for found in lines] == ["1\n2", "3", "4"]
    assert not any("\n" in found for found in lines)
    assert list(json_lines(table.slice(0, 0))) == []
