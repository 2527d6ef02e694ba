"""Convert filters to conditions of Spark, where both give the same result for every value."""

from __future__ import annotations

from functools import reduce
from operator import and_, eq, ge, gt, invert, le, lt, ne, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming_lsm.query.prune.expression import predicate_of
from streaming_lsm.query.prune.predicate import (
    EQUAL,
    GREATER,
    GREATER_EQUAL,
    LESS,
    LESS_EQUAL,
    NOT_EQUAL,
    Comparison,
    Every,
    IsNull,
    Membership,
    Negation,
    Predicate,
    Some,
    StartsWith,
)

_OPERATORS = {EQUAL: eq, NOT_EQUAL: ne, LESS: lt, LESS_EQUAL: le, GREATER: gt, GREATER_EQUAL: ge}
_SAME_ORDER = (pa.types.is_signed_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_date32)
"""Types that Spark and Arrow compare alike; NaN, for one, is greater than all numbers in Spark, and in Arrow not."""


def condition_of(filter: pc.Expression, schema: pa.Schema) -> Column | None:
    """Return the condition that is true in Spark for the rows for which a filter is; None if there is none.

    Args:
        filter: an expression on columns of `schema`.
        schema: columns as Arrow has them.
    """
    return _converted(predicate_of(filter), schema)


def _converted(predicate: Predicate, schema: pa.Schema) -> Column | None:
    if isinstance(predicate, Every | Some):
        parts = [_converted(part, schema) for part in predicate.parts]
        whole = isinstance(predicate, Every)
        join = and_ if whole else or_
        return reduce(join, parts, F.lit(whole)) if all(part is not None for part in parts) else None
    if isinstance(predicate, Negation):
        part = _converted(predicate.part, schema)
        return None if part is None else invert(part)
    if not isinstance(predicate, Comparison | Membership | StartsWith | IsNull) or predicate.column not in schema.names:
        return None
    column = F.col(f"`{predicate.column.replace('`', '``')}`")
    if isinstance(predicate, IsNull):
        return column.isNull()
    kind = schema.field(predicate.column).type
    if isinstance(predicate, StartsWith):
        return column.startswith(predicate.prefix) if pa.types.is_string(kind) else None
    value = predicate.value if isinstance(predicate, Comparison) else predicate.values
    if not any(same(kind) and same(value.type) for same in _SAME_ORDER):
        return None
    if isinstance(predicate, Comparison):
        compared: Column = _OPERATORS[predicate.operator](column, F.lit(predicate.value.as_py()))
        return compared
    return _membership(column, predicate)


def _membership(column: Column, predicate: Membership) -> Column:
    """Convert a test for membership, which is never null in Arrow; in Spark that of a null is null."""
    values: list[Any] = predicate.values.to_pylist()
    found = F.coalesce(column.isin(values), F.lit(False)) if values else F.lit(False)
    return found | column.isNull() if predicate.nulls else found
