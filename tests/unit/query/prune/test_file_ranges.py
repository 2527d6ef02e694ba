"""Ranges of columns in files: which slices they skip, and where they tell nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm.file_group.file_system_view import BaseFile, FileSlice, LogFile
from streaming_lsm.format.metadata.column_stats import RANGES
from streaming_lsm.format.table.file_names import BaseFileName, LogFileName, parse_file_name
from streaming_lsm.metadata.column_ranges import FoundRanges
from streaming_lsm.query.prune.expression import predicate_of
from streaming_lsm.query.prune.file_ranges import ranged_files, read_slices

SCHEMA = pa.schema([("n", pa.int64()), ("m", pa.int64())])
N, M = pc.field("n"), pc.field("m")


def slice_of(*kinds: str) -> FileSlice:
    """A slice of a base file and logs."""
    base, logs = None, []
    for number, kind in enumerate(kinds):
        instant = f"2026112712000{number:04d}"
        ending = "parquet" if kind == "base" else f"{kind}.parquet"
        text = f"g-0_0-0-0_{instant}.parquet" if kind == "base" else f"g-0_0-0-0_{instant}_1.{ending}"
        name = parse_file_name(text)
        if isinstance(name, BaseFileName):
            base = BaseFile(f"p/{text}", name, 1)
        else:
            assert isinstance(name, LogFileName), text
            logs.append(LogFile(f"p/{text}", name, 1))
    return FileSlice("p", "g-0", base, tuple(logs))


def found(*rows: tuple[int, int | None, int | None, int, int]) -> FoundRanges:
    """Ranges: index of the file, bounds, number of values and of nulls."""
    values = [
        {
            "fileName": "f",
            "columnName": "c",
            "minValue": None if low is None else {"LongWrapper": {"value": low}},
            "maxValue": None if high is None else {"LongWrapper": {"value": high}},
            "valueCount": count,
            "nullCount": nulls,
            "isDeleted": False,
            "valueType": {"typeOrdinal": 4},
        }
        for _, low, high, count, nulls in rows
    ]
    ranges: Any = pa.array(values, RANGES)
    return FoundRanges(np.array([row[0] for row in rows], np.int64), ranges)


def read(
    slices: list[FileSlice], wanted: pc.Expression, ranges: dict[str, FoundRanges], *, takes_winner: bool = True
) -> list[bool]:
    flags = read_slices(slices, predicate_of(wanted), SCHEMA, ranges, takes_winner=takes_winner)
    return [bool(flag) for flag in flags]


SLICES = [slice_of("base", "log"), slice_of("base"), slice_of("base", "deletes")]
ONE = {"n": found((0, 1, 5, 9, 0), (1, 20, 30, 9, 0), (2, 1, 5, 9, 0), (3, None, None, 4, 4))}


def test_files_with_rows_are_listed() -> None:
    assert [name.rpartition("_")[2].partition(".")[2] for _, name in ranged_files(SLICES)] == [
        "parquet", "log.parquet", "parquet", "parquet",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (N == 3, [True, True, False]),
        (N == 25, [True, False, False]),
        (N == 10, [False, False, False]),
        (N.is_null(), [False, False, True]),
        (N.is_valid(), [True, True, False]),
        (M == 1, [True, True, True]),
        ((N == 25) | (M == 1), [True, True, True]),
        ((N == 25) & (M == 1), [True, False, False]),
    ],
    ids=str,
)
def test_a_slice_is_read_if_a_file_of_it_may_have_a_row(wanted: pc.Expression, expected: list[bool]) -> None:
    assert read(SLICES, wanted, ONE) == expected


def test_rows_of_several_files_may_have_values_that_no_file_has() -> None:
    both = {**ONE, "m": found((0, 7, 7, 9, 0), (1, 8, 8, 9, 0), (2, 7, 7, 9, 0), (3, 7, 7, 9, 0))}
    wanted = (N == 3) & (M == 8)
    assert read(SLICES, wanted, both) == [False, False, False]
    assert read(SLICES, wanted, both, takes_winner=False) == [True, False, False]


def test_a_file_without_a_range_or_with_several_is_read() -> None:
    assert read(SLICES, N == 10, {"n": found((0, 1, 5, 9, 0), (2, 1, 5, 9, 0))}) == [True, False, True]
    twice = found((0, 1, 5, 9, 0), (1, 1, 5, 9, 0), (2, 1, 5, 9, 0), (2, 1, 5, 9, 0), (3, 1, 5, 9, 0))
    assert read(SLICES, N == 10, {"n": twice}) == [False, True, False]
    assert read(SLICES, N == 10, {"n": found()}) == [True, True, True]


def test_a_column_with_bounds_does_not_have_nulls_only() -> None:
    """Releases before 0.14 count no nulls among the values."""
    halves = found((0, 1, 5, 4, 4), (1, 1, 5, 4, 4), (2, 1, 5, 4, 4), (3, 1, 5, 4, 4))
    assert read(SLICES, N == 3, {"n": halves}) == [True, True, True]
