"""What bounds of columns tell of a predicate."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm.query.prune.bounds import UNKNOWN, Bounds, may_be_true
from streaming_lsm.query.prune.expression import predicate_of

NAN = math.nan
UNITS = {
    "numbers": [[1, 2, 3], [3, 3], [None, 7], [None], [5, 9]],
    "reals": [[1.0, NAN], [2.0, 2.0], [None, 7.5], [None, None], [-0.0]],
    "texts": [["a", "abc"], ["b", None], ["abd"], [None], ["", "\U0001f600"]],
    "flags": [[True], [False, None], [True, False], [None], [False]],
}
COLUMNS = {"numbers": pa.int64(), "reals": pa.float64(), "texts": pa.string(), "flags": pa.bool_()}
N, R, T, F = (pc.field(name) for name in UNITS)
FILTERS = [
    *(op for value in (0, 3, 5, 9.5) for op in (value == N, value != N, value > N, value >= N, value < N, value <= N)),
    *(op for value in (0.0, 2.0, 7.5) for op in (value == R, value != R, value > R, value >= R, value < R, value <= R)),
    *(op for value in ("", "abc", "b", "c") for op in (value == T, value != T, value > T, value <= T)),
    N.isin([2, 8]),
    N.isin([None, 8]),
    N.isin([4]),
    R.isin([NAN]),
    R.isin([2.0, 3.0]),
    T.isin(["abb", "b"]),
    *(pc.starts_with(T, text) for text in ("a", "ab", "abc", "b", "c", "")),
    *(pc.match_like(T, text) for text in ("ab%", "a_c", "b")),
    N.is_null(),
    N.is_valid(),
    R.is_null(nan_is_null=True),
    F,
    F == False,  # noqa: E712
]


def bounds() -> dict[str, Bounds]:
    found = {}
    for name, units in UNITS.items():
        known = [[v for v in unit if v is not None and not (isinstance(v, float) and math.isnan(v))] for unit in units]
        nulls = [sum(v is None for v in unit) for unit in units]
        lows, highs = [min(v, default=None) for v in known], [max(v, default=None) for v in known]
        one = Bounds.of(COLUMNS[name], lows, highs, nulls, [len(unit) for unit in units])
        assert one is not None
        found[name] = one
    return found


def rows_of(unit: int) -> pa.Table:
    """Each combination of the values of a unit."""
    values = [UNITS[name][unit] for name in UNITS]
    combined = [[a, b, c, d] for a in values[0] for b in values[1] for c in values[2] for d in values[3]]
    columns = [[row[place] for row in combined] for place in range(len(values))]
    return pa.table([pa.array(column, COLUMNS[name]) for name, column in zip(UNITS, columns, strict=True)], list(UNITS))


def check(wanted: pc.Expression) -> np.ndarray:
    flags = may_be_true(predicate_of(wanted), bounds(), 5)
    for unit, flag in enumerate(flags):
        assert flag or not rows_of(unit).filter(wanted).num_rows, (unit, str(wanted))
    return flags


@pytest.mark.parametrize("wanted", FILTERS, ids=str)
def test_no_unit_with_a_row_of_the_filter_is_left_out(wanted: pc.Expression) -> None:
    check(wanted)
    check(~wanted)


def test_combined_filters_leave_out_no_row() -> None:
    draw = np.random.default_rng(0)
    for _ in range(1500):
        one, other = (FILTERS[place] for place in draw.integers(len(FILTERS), size=2))
        check(one & ~other if draw.random() < 0.5 else ~(one | other))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (N > 5, [False, False, True, False, True]),
        (N == 3, [True, True, False, False, False]),
        (N != 3, [True, False, True, False, True]),
        (~(N == 3), [True, False, True, False, True]),
        (N < 3.5, [True, True, False, False, False]),
        (N.isin([6, 8]), [False, False, False, False, True]),
        (R > 5.0, [False, False, True, False, False]),
        (~(R > 5.0), [True, True, True, False, True]),
        (pc.starts_with(T, "abc"), [True, False, False, False, True]),
        (T.is_null(), [False, True, False, True, False]),
        (T.is_valid(), [True, True, True, False, True]),
        (F, [True, False, True, False, False]),
        ((N > 5) & (T == "abd"), [False, False, True, False, True]),
        ((N > 8) | (T == "abd"), [False, False, True, False, True]),
        (pc.scalar(False), [False] * 5),
    ],
    ids=str,
)
def test_units_without_a_row_are_left_out(wanted: pc.Expression, expected: list[bool]) -> None:
    assert check(wanted).tolist() == expected


def test_what_is_not_known_leaves_out_nothing() -> None:
    unknown = Bounds.of(pa.int64(), [None, None], [None, None], [UNKNOWN, 0], [3, 3])
    assert unknown is not None
    for wanted in (N > 5, N == 5, N.is_null(), N.isin([3]), ~(N > 5)):
        assert may_be_true(predicate_of(wanted), {"numbers": unknown}, 2)[0]
    assert may_be_true(predicate_of(N.is_null()), {"numbers": unknown}, 2).tolist() == [True, False]
    assert may_be_true(predicate_of(N > 5), {}, 2).all()


def test_bounds_that_are_nan_or_of_another_type_are_not_known() -> None:
    nan = Bounds.of(pa.float64(), [NAN, 1.0], [2.0, NAN], [0, 0], [3, 3])
    assert nan is not None
    assert may_be_true(predicate_of(R > 5.0), {"reals": nan}, 2).all()
    assert Bounds.of(pa.int64(), ["a"], ["b"], [0], [1]) is None
    texts = Bounds.of(pa.string(), ["a"], ["b"], [0], [1])
    assert texts is not None
    assert may_be_true(predicate_of(T > 5), {"texts": texts}, 1).all()
