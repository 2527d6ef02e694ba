"""Ranges of partitions are united as Hudi merges its records: against a merge of one record at a time."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.metadata.column_stats import RANGES, empty_row, range_row
from streaming_lsm.metadata.partition_ranges import united_ranges

KINDS = {
    "int": (pa.int32(), [-5, 0, 3, 2**31 - 1]),
    "text": (pa.string(), ["", "a", "aé", "b"]),
    "price": (pa.decimal128(9, 2), [-1, 0, 1, 300]),
    "real": (pa.float64(), [1.0, 2.0]),
    "flag": (pa.bool_(), [False, True]),
    "day": (pa.date32(), [-400, 0, 400]),
}


def _row(draw: random.Random, column: str) -> dict[str, Any]:
    kind, values = KINDS[column]
    chance = draw.random()
    if chance < 0.15:
        return empty_row("p", column, is_deleted=chance < 0.1)
    low, high = sorted(draw.choices(values, k=2))
    nulls = draw.randrange(3)
    bounds = (pa.scalar(None, kind),) * 2 if chance < 0.25 else (pa.scalar(low, kind), pa.scalar(high, kind))
    counts = (nulls, nulls) if chance < 0.25 else (5 + nulls, nulls)
    return range_row("p", column, bounds, *counts) | {"isTightBound": draw.random() < 0.15}  # type: ignore[arg-type]


def _value(bound: Any, column: str) -> Any:
    (value,) = (found["value"] for found in bound.values() if found is not None)
    return int.from_bytes(value, "big", signed=True) if column == "price" else value


def _merged(older: dict[str, Any], newer: dict[str, Any], column: str) -> dict[str, Any]:
    """What `HoodieTableMetadataUtil.mergeColumnStatsRecords` says."""
    if newer["isDeleted"] or older["isDeleted"] or newer["isTightBound"]:
        return newer
    found = dict(newer)
    for name, end in (("minValue", min), ("maxValue", max)):
        bounds = [row[name] for row in (older, newer) if row[name]]
        found[name] = end(bounds, key=lambda bound: _value(bound, column), default=None)
    for name in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize"):
        found[name] = older[name] + newer[name]
    return found


@pytest.mark.parametrize("seed", range(20))
def test_they_are_united_as_hudi_merges_them(seed: int) -> None:
    draw = random.Random(seed)
    rows = [(f"{column}{number}".encode(), column) for column in KINDS for number in range(4)]
    listed = sorted((key, column) for key, column in rows for _ in range(draw.randrange(1, 6)))
    given = [(key, column, _row(draw, column)) for key, column in listed]
    expected: dict[bytes, tuple[str, dict[str, Any]]] = {}
    for key, column, row in given:
        expected[key] = (column, row if key not in expected else _merged(expected[key][1], row, column))
    live = {key: one for key, one in expected.items() if not one[1]["isDeleted"]}
    keys, ranges = united_ranges(
        pa.array([key for key, _, _ in given], pa.binary()), pa.array([row for _, _, row in given], RANGES)
    )
    assert keys.to_pylist() == sorted(live)
    for key, found in zip(keys.to_pylist(), ranges.to_pylist(), strict=True):
        column, row = live[key]
        for name in ("minValue", "maxValue"):
            assert bool(found[name]) is bool(row[name]), (key, name)
            if row[name]:
                assert _value(found[name], column) == _value(row[name], column), (key, name)
        for name in ("columnName", "valueCount", "nullCount", "isDeleted"):
            assert found[name] == row[name], (key, name)


def test_bounds_of_an_unknown_range_leave_none() -> None:
    known = range_row("p", "int", (pa.scalar(1, pa.int32()), pa.scalar(2, pa.int32())), 5, 0)
    _, found = united_ranges(
        pa.array([b"k", b"k"], pa.binary()), pa.array([known, {**known, "minValue": None, "maxValue": None}], RANGES)
    )
    assert found.to_pylist()[0]["minValue"] is found.to_pylist()[0]["maxValue"] is None


def test_bounds_of_two_types_are_not_compared() -> None:
    rows = [range_row("p", "n", (pa.scalar(1, kind),) * 2, 1, 0) for kind in (pa.int32(), pa.int64())]
    with pytest.raises(UnsupportedTable, match="column n has ranges of different types"):
        united_ranges(pa.array([b"k", b"k"], pa.binary()), pa.array(rows, RANGES))
