"""Texts, hashes and dates that a JVM printed (OpenJDK 17, Joda-Time 2.14: ``data/keys/j*.jsonl``)."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm.errors import RecordError
from streaming_lsm.keys.bucket import java_string_hash
from streaming_lsm.keys.java_text import to_java_text
from streaming_lsm.keys.timestamps import INPUT, INPUT_ZONE, OUTPUT, OUTPUT_ZONE, TYPE, TimestampFormat

DATA = Path(__file__).parent / "data" / "keys"
# The points in time of joda_print.jsonl, milliseconds since 1970.
MILLIS = [
    0, 1, -1, 1578283932000, 1700000000123, -86400001, 951782399999, 951782400000, 1711846799999, 1711846800000,
    1730595600000, 1730592000000, 4102444800000, -2208988800000, 1609459199999, 1609459200000, 1325289600000,
    1230768000000,
]  # fmt: skip


def lines(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def java_texts(kind: str) -> list[dict]:
    return [line for line in lines("java_text.jsonl") if line["type"] == kind]


def reals(kind: str, unsigned: str, real: str) -> tuple[pa.Array, list[str]]:
    rows = java_texts(kind)
    bits = np.array([int(row["bits"], 16) for row in rows], unsigned)
    return pa.array(bits.view(real)), [row["text"] for row in rows]


def test_doubles_print_as_java_prints_them() -> None:
    values, texts = reals("double", "u8", "f8")
    # Java 17 prints 2 * 4.9E-324 as 1.0E-323; Java 19 and later, and we, as 9.9E-324.
    assert to_java_text(values).to_pylist() == ["9.9E-324" if text == "1.0E-323" else text for text in texts]


def test_floats_print_as_java_prints_them() -> None:
    values, texts = reals("float", "u4", "f4")
    # Java 17 prints a digit too many for the smallest normal float; Java 19 and later do not.
    assert to_java_text(values).to_pylist() == [text.replace("1.17549435E", "1.1754944E") for text in texts]


def test_decimals_keep_their_scale_as_in_big_decimal() -> None:
    for row in java_texts("decimal"):
        array = pa.array([Decimal(row["value"])], pa.decimal128(38, row["scale"]))
        assert to_java_text(array).to_pylist() == [row["text"]]


def test_dates_print_as_local_date() -> None:
    rows = java_texts("date")
    array = pa.array([row["days"] for row in rows], pa.int32()).cast(pa.date32())
    assert to_java_text(array).to_pylist() == [row["text"] for row in rows]


def test_logical_timestamps_print_as_sql_timestamps() -> None:
    rows = java_texts("timestamp")
    array = pa.array([row["micros"] for row in rows], pa.timestamp("us", "UTC"))
    assert to_java_text(array, logical_timestamp=True).to_pylist() == [row["text"] for row in rows]


def test_hashes_are_those_of_java_strings() -> None:
    rows = java_texts("hash")
    assert java_string_hash(pa.array([row["value"] for row in rows])).tolist() == [row["hash"] for row in rows]


@pytest.mark.parametrize("case", lines("joda_print.jsonl"), ids=lambda case: f"{case['zone']} {case['pattern']}")
def test_output_patterns_print_as_joda_prints_them(case: dict) -> None:
    options = {TYPE: "EPOCHMILLISECONDS", OUTPUT: case["pattern"], OUTPUT_ZONE: case["zone"]}
    values = TimestampFormat.from_options(options).partition_values(pa.array(MILLIS), "ts")
    assert values.to_pylist() == case["texts"]


@pytest.mark.parametrize(
    "case", lines("joda_parse.jsonl"), ids=lambda case: f"{case['patterns']} {case['text']} {case['output_zone']}"
)
def test_input_patterns_read_what_joda_reads(case: dict) -> None:
    options = {TYPE: "DATE_STRING", INPUT: case["patterns"], OUTPUT: case["output"]}
    options |= {INPUT_ZONE: case["input_zone"]} if case["input_zone"] else {}
    options |= {OUTPUT_ZONE: case["output_zone"]} if case["output_zone"] else {}
    formatter = TimestampFormat.from_options(options)
    column = pa.array([case["text"]])
    if case["result"] is None:
        with pytest.raises(RecordError, match="column 'ts', row 0"):
            formatter.partition_values(column, "ts")
    else:
        assert formatter.partition_values(column, "ts").to_pylist() == [case["result"]]
