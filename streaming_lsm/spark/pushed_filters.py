"""Take over conditions of a query from Spark, where it pushes them down: PySpark 4.1 or later, if its switch is on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_, eq, ge, gt, le, lt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from streaming_lsm.query.scan import Scan
from streaming_lsm.spark.conditions import SAME_ORDER
from streaming_lsm.spark.readers import ScanReader
from streaming_lsm.spark.worker_errors import tells_in_one_line

Plan = Callable[[pc.Expression], Scan]
_COMPARED: dict[type[Filter], Callable[[Any, Any], pc.Expression]] = {
    EqualTo: eq,
    GreaterThan: gt,
    GreaterThanOrEqual: ge,
    LessThan: lt,
    LessThanOrEqual: le,
    StringStartsWith: pc.starts_with,
    StringEndsWith: pc.ends_with,
    StringContains: pc.match_substring,
}


class FilteringReader(ScanReader):
    """Reads with the conditions that Arrow decides as Spark does, and leaves the others to Spark."""

    def __init__(self, scan: Scan, plan: Plan) -> None:
        """Take the scan to run, and what plans it again with a filter."""
        super().__init__(scan)
        self._plan = plan

    @tells_in_one_line
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        found = [expression_of(condition, self._scan.schema) for condition in filters]
        taken = [expression for expression in found if expression is not None]
        if taken:
            self._scan = self._plan(reduce(and_, taken))
        return [condition for condition, expression in zip(filters, found, strict=True) if expression is None]


def expression_of(condition: Filter, schema: pa.Schema) -> pc.Expression | None:
    """Return the filter that keeps the rows for which a condition of Spark is true; None if there is none.

    Args:
        condition: on a column of `schema`.
        schema: columns as Arrow has them.
    """
    if isinstance(condition, Not):
        inner: Any = condition.child
        found = None if isinstance(inner, In) and None in inner.value else expression_of(inner, schema)
        if found is None or not isinstance(inner, In):
            return None if found is None else ~found
        # A test for membership is false for null in Arrow, and null in Spark.
        return ~found & pc.field(*inner.attribute).is_valid()
    return _of_column(condition, schema)


def _of_column(condition: Any, schema: pa.Schema) -> pc.Expression | None:
    name, *fields = condition.attribute
    if fields or name not in schema.names:
        return None
    column, kind = pc.field(name), schema.field(name).type
    if isinstance(condition, IsNull):
        return column.is_null()
    if isinstance(condition, IsNotNull):
        return ~column.is_null()
    values = condition.value if isinstance(condition, In) else [condition.value]
    known = [value for value in values if value is not None]
    if not any(same(kind) and all(same(pa.scalar(value).type) for value in known) for same in SAME_ORDER):
        return None
    if isinstance(condition, In):
        return column.isin(pa.array(known, kind)) if known else None
    if isinstance(condition, EqualNullSafe):
        return eq(column, known[0]) & column.is_valid() if known else column.is_null()
    compare = _COMPARED.get(type(condition))
    return None if compare is None or not known else compare(column, known[0])
