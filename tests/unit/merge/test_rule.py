"""Ordering values as numbers, and what makes a row a delete."""

from __future__ import annotations

import datetime
import decimal
import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm.format.table.merge_mode import COMMIT_TIME_ORDERING, EVENT_TIME_ORDERING
from streaming_lsm.merge.rule import MergeRule

D = decimal.Decimal
UTC_US = pa.timestamp("us", "UTC")


def ranks(columns: dict[str, pa.Array]) -> list[int]:
    found = MergeRule(True, tuple(columns)).ranks(pa.table(columns))
    assert found is not None
    assert found.dtype == np.int64
    return found.tolist()


def moment(seconds: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("kind", "ascending"),
    [
        (pa.int8(), [-128, -1, 0, 127]),
        (pa.int32(), [-(2**31), -1, 0, 1, 2**31 - 1]),
        (pa.int64(), [-(2**63), -(2**53) - 1, -(2**53), 0, 2**53, 2**53 + 1, 2**63 - 1]),
        (pa.float32(), [-math.inf, -1.5, -0.0, 0.0, 1e-40, 1.5, math.inf, math.nan]),
        (pa.float64(), [-math.inf, -1e308, -5e-324, -0.0, 0.0, 5e-324, 1e308, math.inf, math.nan]),
        (pa.decimal128(38, 2), [D("-1e30"), D("-0.02"), D("-0.01"), D("0.00"), D("0.01"), D("1e30")]),
        (pa.string(), [None, "", "a", "a\0", "ab", "é", "\ue000", "\U00020000"]),
        (UTC_US, [None, moment(-5), moment(0), moment(1)]),
        (pa.timestamp("ms"), [None, moment(-5).replace(tzinfo=None), moment(1).replace(tzinfo=None)]),
        (pa.date32(), [None, datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date(9999, 12, 31)]),
        (pa.bool_(), [None, False, True]),
        (pa.binary(), [None, b"", b"A", b"\x7f", b"\x80"]),
    ],
    ids=str,
)
def test_ranks_ascend_as_the_values_do(kind: pa.DataType, ascending: list[object]) -> None:
    values = pa.array(ascending, kind)
    found = ranks({"ts": values})
    assert all(one < other for one, other in itertools.pairwise(found))
    twice = ranks({"ts": pa.concat_arrays([values, values])})
    assert twice[: len(values)] == twice[len(values) :]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.float64(), pa.decimal128(12, 1)], ids=str)
def test_a_null_number_counts_as_zero(kind: pa.DataType) -> None:
    lower, null, same, higher = ranks({"ts": pa.array([-1, None, 0, 1], pa.int32()).cast(kind)})
    assert lower < null == same < higher


def test_every_nan_is_equal_and_above_infinity() -> None:
    odd = np.array([0xFFF8000000000001, 0x7FF8000000000002], np.uint64).view(np.float64)
    one, other, infinity = ranks({"ts": pa.array([*odd, math.inf])})
    assert one == other > infinity


def test_several_fields_compare_from_left_to_right() -> None:
    rows = [(1, "b"), (1, "a"), (0, "z"), (2, ""), (1, "b")]
    found = ranks({"first": pa.array([a for a, _ in rows]), "second": pa.array([b for _, b in rows])})
    assert [rows[place] for place in np.argsort(found, kind="stable")] == sorted(rows)
    assert found[0] == found[4]


def test_three_fields_with_extreme_values_do_not_overflow() -> None:
    extremes = [-(2**63), -1, 0, 2**63 - 1]
    rows = [(a, b, c) for a in extremes for b in extremes for c in extremes]
    found = ranks({name: pa.array([row[place] for row in rows]) for place, name in enumerate("abc")})
    assert found == sorted(found)
    assert len(set(found)) == len(rows)


def test_ranks_of_chunked_columns_compare_over_the_chunks() -> None:
    chunked = pa.chunked_array([pa.array(["b", "a"]), pa.array(["c", "a"])])
    found = MergeRule(True, ("ts",)).ranks(pa.table({"ts": chunked}))
    assert found is not None
    assert found.tolist() == [2, 1, 3, 1]


def test_commit_time_has_no_ranks() -> None:
    rule = MergeRule.of(COMMIT_TIME_ORDERING, ("ts",), None, None)
    assert rule.ranks(pa.table({"ts": [1]})) is None
    assert rule.ordering_fields == ()
    assert MergeRule.of(EVENT_TIME_ORDERING, ("ts",), None, None).event_time


def unordered_deletes(rule: MergeRule, columns: dict[str, pa.Array], deleted: list[bool]) -> list[bool]:
    return rule.unordered_deletes(pa.table(columns), np.array(deleted)).tolist()


def test_a_delete_without_ordering_value_unordered_deletes() -> None:
    rule = MergeRule(True, ("ts",))
    assert unordered_deletes(rule, {"ts": pa.array([None, 1, None], pa.int64())}, [True, True, False]) == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("kind", "unordered_delete"), [(pa.int32(), True), (pa.int64(), False), (pa.float64(), False)], ids=str
)
def test_a_deletes_zero_unordered_deletes_in_int_columns_only(kind: pa.DataType, unordered_delete: bool) -> None:
    zeros = pa.array([0, 0], pa.int32()).cast(kind)
    assert unordered_deletes(MergeRule(True, ("ts",)), {"ts": zeros}, [True, False]) == [unordered_delete, False]


def test_several_fields_unordered_delete_when_all_are_null() -> None:
    columns = {"a": pa.array([None, None, 0], pa.int32()), "b": pa.array([None, 1, 0], pa.int32())}
    assert unordered_deletes(MergeRule(True, ("a", "b")), columns, [True] * 3) == [True, False, False]


def test_every_delete_unordered_deletes_in_commit_time() -> None:
    assert unordered_deletes(MergeRule(False), {"ts": pa.array([1, 2])}, [True, False]) == [True, False]


def test_rows_are_deletes_by_flag_operation_or_marker() -> None:
    rows = pa.table(
        {
            "_hoodie_is_deleted": [True, False, None, False, False, False],
            "_hoodie_operation": ["I", "D", "-U", "+U", "U", None],
            "status": [0, 0, 0, 9, 99, None],
        }
    )
    marked = MergeRule(False, (), "status", "9")
    assert marked.deletes(rows).tolist() == [True, True, True, True, False, False]
    assert MergeRule(False).deletes(rows).tolist() == [True, True, True, False, False, False]
    assert MergeRule(False).deletes(pa.table({"id": ["a", "b"]})).tolist() == [False, False]


def test_a_marker_is_compared_as_java_prints_the_value() -> None:
    rule = MergeRule(False, (), "gone", "1.0E-5")
    rows = pa.table({"gone": pa.chunked_array([pa.array([1e-5]), pa.array([1.0])])})
    assert rule.deletes(rows).tolist() == [True, False]


def test_the_columns_that_decide_are_named_once() -> None:
    schema = pa.schema([("ts", pa.int64()), ("_hoodie_is_deleted", pa.bool_()), ("id", pa.string())])
    rule = MergeRule(True, ("ts",), "ts", "0")
    assert rule.columns(schema) == ("ts", "_hoodie_is_deleted")
