"""Decide from bounds of columns whether a predicate may be true or false in any row of a unit.

A *unit* is a set of rows whose bounds are known: a row group, a file, a partition. All units are decided at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, flags, pc
from streaming_lsm.query.prune.predicate import (
    EQUAL,
    GREATER,
    GREATER_EQUAL,
    INVERSE,
    LESS,
    LESS_EQUAL,
    NOT_EQUAL,
    Comparison,
    Every,
    Implied,
    IsNull,
    Membership,
    Negation,
    Predicate,
    Some,
    StartsWith,
)

UNKNOWN = -1
"""The number of nulls of a unit, if it is not known."""


@dataclass(frozen=True)
class Bounds:
    """Bounds of one column in some units.

    Attributes:
        low: (units,) not larger than any value of the column; null where it is not known.
        high: (units,) not smaller than any value; null where it is not known.
        nulls: int64 (units,), number of nulls, or `UNKNOWN`.
        rows: int64 (units,), number of rows.
    """

    low: pa.Array[Any]
    high: pa.Array[Any]
    nulls: Int64s
    rows: Int64s

    @staticmethod
    def of(
        kind: pa.DataType, lows: Sequence[object], highs: Sequence[object], nulls: Sequence[int], rows: Sequence[int]
    ) -> Bounds | None:
        """Build bounds from Python values; None if the values are not of the type `kind`."""
        try:
            low, high = pa.array(lows, kind), pa.array(highs, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None
        if pa.types.is_floating(kind):
            # Bounds that are NaN tell nothing; a writer may have compared by them.
            unknown = pc.or_kleene(pc.is_nan(low), pc.is_nan(high))
            low, high = (pc.if_else(unknown, pa.scalar(None, kind), bound) for bound in (low, high))
        return Bounds(low, high, np.asarray(nulls, np.int64), np.asarray(rows, np.int64))

    @property
    def has_nan(self) -> bool:
        """Whether a value may be NaN, which bounds do not count."""
        return pa.types.is_floating(self.low.type)

    @property
    def all_null(self) -> Flags:
        """Units without a value."""
        return np.asarray(self.nulls == self.rows)

    @property
    def some_null(self) -> Flags:
        """Units that may have nulls."""
        return np.asarray(self.nulls != 0)


Outcome = tuple[Flags, Flags]
"""Whether a predicate may be true, and whether it may be false, in any row of each unit."""


def may_be_true(predicate: Predicate, bounds: Mapping[str, Bounds], count: int) -> Flags:
    """Flag the units with rows in which a predicate may be true.

    Args:
        predicate: the predicate.
        bounds: bounds of columns in `count` units; predicates on other columns are undecided.
        count: number of units.
    """
    return _outcome(predicate, bounds, count)[0]


def _outcome(predicate: Predicate, bounds: Mapping[str, Bounds], count: int) -> Outcome:
    either = np.ones(count, np.bool_)
    if isinstance(predicate, Every | Some):
        outcomes = [_outcome(part, bounds, count) for part in predicate.parts]
        trues, falses = [one for one, _ in outcomes], [other for _, other in outcomes]
        none = np.zeros(count, np.bool_)
        if isinstance(predicate, Every):
            return np.logical_and.reduce([either, *trues]), np.logical_or.reduce([none, *falses])
        return np.logical_or.reduce([none, *trues]), np.logical_and.reduce([either, *falses])
    if isinstance(predicate, Negation):
        true, false = _outcome(predicate.part, bounds, count)
        return false, true
    if isinstance(predicate, Implied):
        return _outcome(predicate.part, bounds, count)[0], either
    if isinstance(predicate, Comparison | Membership | StartsWith | IsNull):
        found = bounds.get(predicate.column)
        if found is not None:
            try:
                return _decided(predicate, found)
            except (
                pa.ArrowException,
                OverflowError,
                TypeError,
            ):  # values of another type, which Arrow compares by a cast, or not
                return either, either
    return either, either


def _decided(predicate: Comparison | Membership | StartsWith | IsNull, bounds: Bounds) -> Outcome:
    if isinstance(predicate, IsNull):
        return bounds.some_null, ~bounds.all_null
    if isinstance(predicate, Membership):
        found = ~bounds.all_null & _has_member(predicate.values, bounds)
        return found | bounds.some_null if predicate.nulls else found, np.ones(len(found), np.bool_)
    valued = ~bounds.all_null
    if isinstance(predicate, StartsWith):
        return valued & _has_prefix(predicate.prefix, bounds), valued
    true = _compares(predicate.operator, predicate.value, bounds)
    if bounds.has_nan:  # it differs from each value, and is neither smaller nor larger
        false = true if predicate.operator == NOT_EQUAL else np.ones(len(true), np.bool_)
        if predicate.operator == NOT_EQUAL:
            true, false = np.ones(len(true), np.bool_), _compares(EQUAL, predicate.value, bounds)
    else:
        false = _compares(INVERSE[predicate.operator], predicate.value, bounds)
    return valued & true, valued & false


def _compares(operator: str, value: pa.Scalar[Any], bounds: Bounds) -> Flags:
    """Flag the units in which the comparison may be true for a value between the bounds."""
    low, high = bounds.low, bounds.high
    if operator == EQUAL:
        return _unless_known(pc.less_equal(low, value)) & _unless_known(pc.greater_equal(high, value))
    if operator == NOT_EQUAL:
        return ~flags(pc.and_(pc.equal(low, value), pc.equal(high, value)))
    compare, bound = {
        LESS: (pc.less, low),
        LESS_EQUAL: (pc.less_equal, low),
        GREATER: (pc.greater, high),
        GREATER_EQUAL: (pc.greater_equal, high),
    }[operator]
    return _unless_known(compare(bound, value))


def _unless_known(compared: pa.BooleanArray) -> Flags:
    return np.asarray(pc.fill_null(compared, True), np.bool_)


def _has_member(values: pa.Array[Any], bounds: Bounds) -> Flags:
    """Flag the units with one of the values between their bounds."""
    kind = bounds.low.type
    if not values.type.equals(kind):
        values = values.cast(kind)  # raises if a value is of another type, or would be rounded
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(values)).as_py():
        return np.ones(len(bounds.low), np.bool_)  # bounds do not count NaN
    ascending = _comparable(values.unique().sort())
    found = np.ones(len(bounds.low), np.bool_)
    for unit, (low, high) in enumerate(zip(_comparable(bounds.low), _comparable(bounds.high), strict=True)):
        place = 0 if low is None else bisect_left(ascending, low)
        found[unit] = place < len(ascending) and (high is None or ascending[place] <= high)
    return found


def _comparable(values: pa.Array[Any]) -> list[Any]:
    """Return values of one order in Python; times as numbers, as Python's end with year 9999."""
    if pa.types.is_timestamp(values.type) or pa.types.is_date64(values.type):
        values = values.cast(pa.int64())
    elif pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    found: list[Any] = values.to_pylist()
    return found


def _has_prefix(prefix: str, bounds: Bounds) -> Flags:
    """Flag the units that may have a text with the prefix between their bounds."""
    below = pc.or_(pc.less(bounds.low, prefix), pc.starts_with(bounds.low, prefix))
    return _unless_known(below) & _unless_known(pc.greater_equal(bounds.high, prefix))
