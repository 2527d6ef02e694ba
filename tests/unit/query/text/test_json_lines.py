"""The JSON of a row, type by type, as the notes on the fixtures define it."""

from __future__ import annotations

import datetime
import decimal
import json
import math

import pyarrow as pa
import pytest

from streaming_lsm.query.text.json_lines import json_lines, json_text

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


def test_lines_are_the_same_whatever_the_values_beside_them_and_slices() -> None:
    kinds = {"s": pa.string(), "f": pa.float64(), "i": pa.int16(), "d": pa.date32(), "t": pa.timestamp("ms", "UTC")}
    values = {
        "s": ["plain", None, 'a "quote"', "tab\t", "é", ""],
        "f": [1.5, None, math.nan, 1e300, -0.0, 2.0],
        "i": [1, None, -3, 4, 5, 6],
        "d": [1, None, 3, 40_000, -1, 6],
        "t": [0, None, 1, 1_700_000_000_000, -1, 5],
    }
    rows = pa.table({name: pa.array(values[name], kind) for name, kind in kinds.items()})
    alone = [line for place in range(6) for line in json_lines(rows.slice(place, 1))]
    assert list(json_lines(rows)) == alone
    (batch,) = rows.to_batches()
    for place in range(7):
        expected = "".join(f"{line}\n" for line in alone[place:])
        assert bytes(json_text(batch.slice(place))).decode() == expected
    assert json.loads(bytes(json_text(batch.slice(0, 1), zone=True)))["t"] == "1970-01-01T00:00:00.000000Z"


PLACE = pa.struct(
    [
        ("when", pa.timestamp("ms", "UTC")),
        ("cost", pa.decimal128(20, 10)),
        ("deep", pa.struct([("b", pa.string()), ("a", pa.list_(pa.timestamp("us", "UTC")))])),
        ("by", pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
    ]
)


def test_structs_are_objects_whatever_is_null_in_them() -> None:
    noon = NOON.replace(tzinfo=datetime.UTC)
    places = [
        {
            "when": noon,
            "cost": decimal.Decimal("0.0000001"),
            "deep": {"b": 'a"', "a": [noon, None]},
            "by": [("k", noon)],
        },
        None,
        {"when": None, "cost": None, "deep": None, "by": None},
        {"when": noon, "cost": decimal.Decimal(2), "deep": {"b": None, "a": None}, "by": []},
    ]
    rows = pa.table({"v": pa.array(places, PLACE)})
    ms, us = "2026-11-20T12:00:00.000000", "2026-11-20T12:00:00.000005"
    expected = [
        f'{{"by": {{"k": "{us}"}}, "cost": "0.0000001000", '
        f'"deep": {{"a": ["{us}", null], "b": "a\\""}}, "when": "{ms}"}}',
        "null",
        '{"by": null, "cost": null, "deep": null, "when": null}',
        f'{{"by": {{}}, "cost": "2.0000000000", "deep": {{"a": null, "b": null}}, "when": "{ms}"}}',
    ]
    lines = [f'{{"v": {text}}}' for text in expected]
    assert list(json_lines(rows)) == lines
    assert [line for place in range(4) for line in json_lines(rows.slice(place, 1))] == lines
    zoned = [line.replace(f'{ms}"', f'{ms}Z"').replace(f'{us}"', f'{us}Z"') for line in lines]
    assert list(json_lines(rows, zone=True)) == zoned
