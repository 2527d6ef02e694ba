"""Rows without a place in the table are found by the key generator's own rules."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streaming_lsm.keys.generator import KeyGenerator
from streaming_lsm.write.intake.screening import invalid_rows

SIMPLE = KeyGenerator("SIMPLE", ("id",), (("part", "SIMPLE"),))
DAYS = KeyGenerator.from_config(
    "CUSTOM",
    ("id",),
    [("day", "TIMESTAMP"), ("part", "SIMPLE")],
    timestamp_options={
        "hoodie.keygen.timebased.timestamp.type": "DATE_STRING",
        "hoodie.keygen.timebased.input.dateformat": "yyyy-MM-dd",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM",
    },
)


def batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values) for name, values in columns.items()})


def reasons(keys: KeyGenerator, rows: pa.RecordBatch) -> list[str | None]:
    found = invalid_rows(keys, rows)
    return [None] * rows.num_rows if found is None else found.to_pylist()


def test_rows_that_have_a_place_have_no_reasons() -> None:
    assert invalid_rows(SIMPLE, batch(id=["a", "b"], part=["x", "y"])) is None
    assert invalid_rows(SIMPLE, batch(id=["a", "b"], part=["x", "y"]).slice(0, 0)) is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("../x", "its segment '..' leaves"),
        ("a//b", "an empty segment"),
        ("a\0b", "a NUL character"),
        (".hoodie", ".hoodie is the table's own"),
        ("a\r\nb", "a line break"),
        ("é" * 128, "a segment of more than 255 bytes"),
    ],
)
def test_a_partition_value_without_a_place_is_named(value: str, reason: str) -> None:
    rows = batch(id=["a", "b", "c", "d"], part=["x", value, None, value])
    first, second, third, fourth = reasons(SIMPLE, rows)
    assert first is third is None
    assert second == fourth
    assert second is not None
    assert second.startswith("partition column 'part': ")
    assert reason in second


def test_values_that_url_encoding_makes_harmless_have_a_place() -> None:
    encoding = KeyGenerator("SIMPLE", ("id",), (("part", "SIMPLE"),), url_encode=True)
    rows = batch(id=["a", "b", "c"], part=["a//b", "..", "/" * 100])
    assert [reason is None for reason in reasons(encoding, rows)] == [True, False, False]
    hive = KeyGenerator("SIMPLE", ("id",), (("part", "SIMPLE"),), hive_style=True, url_encode=True)
    assert [reason is None for reason in reasons(hive, rows)] == [True, True, False]


def test_a_text_that_is_no_time_is_named_and_so_is_the_level_below() -> None:
    rows = batch(id=["a", "b", "c"], day=["2026-01-02", "soon", "2026-01-03"], part=["x", "x", ".."])
    first, second, third = reasons(DAYS, rows)
    assert first is None
    assert second == "column 'day': 'soon' fits none of the patterns yyyy-MM-dd of " + (
        "hoodie.keygen.timebased.input.dateformat"
    )
    assert third is not None
    assert third.startswith("partition column 'part': '..'")


def test_a_missing_key_is_the_reason_before_the_partition() -> None:
    rows = batch(id=["a", None, ""], part=["..", "..", "x"])
    assert [reason and reason[:13] for reason in reasons(SIMPLE, rows)] == [
        "partition col",
        "no record key",
        "no record key",
    ]


def test_a_composite_key_is_missing_only_when_every_part_is() -> None:
    keys = KeyGenerator("COMPLEX", ("a", "b"))
    rows = batch(a=["x", None, "", None], b=[None, "y", "", None])
    assert [reason is None for reason in reasons(keys, rows)] == [True, True, False, False]


def test_nested_key_and_partition_fields_are_found() -> None:
    nested = KeyGenerator("SIMPLE", ("at.id",), (("at.part", "SIMPLE"),))
    rows = batch(at=[{"id": "a", "part": "x"}, {"id": "b", "part": ".."}, None])
    assert [reason is None for reason in reasons(nested, rows)] == [True, False, False]


def test_every_bad_value_among_many_good_ones_is_found() -> None:
    parts = [f"p{n % 50}" if n % 7 else f"../{n % 3}" for n in range(1000)]
    found = reasons(SIMPLE, batch(id=[str(n) for n in range(1000)], part=parts))
    assert [reason is not None for reason in found] == [part.startswith("..") for part in parts]
