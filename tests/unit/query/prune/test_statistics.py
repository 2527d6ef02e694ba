"""Bounds in the types of the table, from files of any writer."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm.file_group.data_file import OpenFile
from streaming_lsm.query.prune.bounds import Bounds
from streaming_lsm.query.prune.statistics import file_bounds

DAY, TIME = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3, 4, 5, 678000)
UTC = TIME.replace(tzinfo=datetime.UTC)


def bounds(tmp_path: Path, column: pa.Array[Any], wanted: pa.DataType | None = None, **how: Any) -> Bounds | None:
    path = str(tmp_path / "file.parquet")
    pq.write_table(pa.table({"c": column}), path, **how)
    with pa.OSFile(path) as source, pq.ParquetFile(source) as parquet:
        found = file_bounds(OpenFile(parquet, source), path, pa.schema([("c", wanted or column.type)]), {"c", "none"})
    return found.get("c")


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array([3, None, -1], pa.int64()), None),
        (pa.array([3, None, -1], pa.int32()), None),
        (pa.array([3, None, -1], pa.int32()), pa.int64()),
        (pa.array([1.5, None, -2.0], pa.float64()), None),
        (pa.array([1.5, None, -2.0], pa.float32()), None),
        (pa.array(["b", None, "ü"]), None),
        (pa.array([True, None, False]), None),
        (pa.array([DAY, None, datetime.date(1969, 1, 1)]), None),
        (pa.array([TIME, None, datetime.datetime(1900, 1, 1)], pa.timestamp("us")), None),
        (pa.array([UTC, None], pa.timestamp("us", "UTC")), None),
        (pa.array([UTC, None], pa.timestamp("ms", "UTC")), None),
        (pa.array([Decimal("1.50"), None, Decimal("-99.99")], pa.decimal128(5, 2)), None),
        (pa.array([Decimal("1.50"), None, Decimal("-99.99")], pa.decimal128(20, 2)), None),
    ],
    ids=str,
)
@pytest.mark.parametrize("as_integer", [True, False])
def test_bounds_are_the_smallest_and_the_largest_value(
    column: pa.Array[Any], wanted: pa.DataType | None, as_integer: bool, tmp_path: Path
) -> None:
    found = bounds(tmp_path, column, wanted, store_decimal_as_integer=as_integer)
    assert found is not None
    values = [value for value in column.to_pylist() if value is not None]
    assert (found.low.to_pylist(), found.high.to_pylist()) == ([min(values)], [max(values)])
    assert found.low.type == (wanted or column.type)
    assert (found.nulls.tolist(), found.rows.tolist()) == ([1], [len(column)])


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array([1, 2]), pa.string()),
        (pa.array([1.5]), pa.string()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([b"a"]), pa.string()),
        (pa.array([1], pa.uint32()), pa.int64()),
        (pa.array([TIME], pa.timestamp("ms")), pa.timestamp("us")),
        (pa.array([TIME], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 1)), pa.decimal128(5, 2)),
        (pa.array([[1]]), pa.list_(pa.int64())),
        (pa.array([1]), pa.float64()),
        (pa.array([0.1], pa.float32()), pa.float64()),
    ],
    ids=str,
)
def test_a_column_of_another_type_has_no_bounds(column: pa.Array[Any], wanted: pa.DataType, tmp_path: Path) -> None:
    assert bounds(tmp_path, column, wanted) is None


def test_nan_and_nulls_alone_give_no_bounds(tmp_path: Path) -> None:
    for column in (pa.array([float("nan"), None]), pa.array([None, None], pa.float64())):
        found = bounds(tmp_path, column)
        assert found is not None
        assert found.low.to_pylist() == [None]


def test_a_field_of_a_struct_has_bounds(tmp_path: Path) -> None:
    path = str(tmp_path / "file.parquet")
    rows = pa.table({"s": [{"x": 1, "y": "a"}, {"x": None, "y": "b"}, None]})
    pq.write_table(rows, path)
    with pa.OSFile(path) as source, pq.ParquetFile(source) as parquet:
        found = file_bounds(OpenFile(parquet, source), path, rows.schema, {"s.x", "s.y", "s"})
    assert sorted(found) == ["s.x", "s.y"]
    assert (found["s.x"].low.to_pylist(), found["s.x"].nulls.tolist()) == ([1], [2])
