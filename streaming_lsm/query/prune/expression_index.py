"""Derive conditions on expressions from a filter on their columns, for the expression indexes of the metadata table.

A condition on an expression holds wherever the filter does, so that a file whose range of the expression does not meet
it has no row of the filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.metadata.expression_index import LOWER, PREFIX, lowered, time_bounds
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.creation import PARTITIONS_KEY
from streaming_lsm.metadata.index_definitions import CheckedDefinition, check_definition, read_definitions
from streaming_lsm.metadata.partitions.expression_index import expression_of
from streaming_lsm.metadata.unread import warn_unread
from streaming_lsm.query.prune.predicate import (
    EQUAL,
    GREATER,
    GREATER_EQUAL,
    LESS,
    LESS_EQUAL,
    Comparison,
    Every,
    Implied,
    Membership,
    Predicate,
    Some,
    columns_of,
)
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.properties_file import load_properties

_MOST_VALUES = 200
"""Values of a membership that are looked at."""

_End: TypeAlias = Any
"""A value of the column; None for none."""
_Between = Callable[[_End, _End], Predicate | None]
"""Returns the condition on the expression between two values of the column, either of which may be None."""


@dataclass(frozen=True)
class Expressed:
    """An index whose expression a filter tells about.

    Attributes:
        name: partition of the metadata table.
        column: the column of the expression.
        predicate: the condition on the expression, as one on `column`.
        schema: the type of the expression, as that of `column`.
        checked: its definition, which holds for ranges that are read before it is found current.
    """

    name: str
    column: str
    predicate: Predicate
    schema: pa.Schema
    checked: CheckedDefinition


def expressed(storage: Storage, predicate: Predicate, schema: pa.Schema) -> Iterator[Expressed]:
    """Yield the expression indexes of a table that tell about a filter; those that cannot be read are left out.

    Args:
        storage: the table.
        predicate: the filter.
        schema: columns whose values files have as they are.
    """
    properties, columns = load_properties(storage), columns_of(predicate)
    names = [name for name in listed(properties.get(PARTITIONS_KEY, "")) if name.startswith(PREFIX)]
    if not names or not columns:
        return
    try:
        definitions = read_definitions(storage, properties)
    except (CorruptFileError, UnsupportedTable) as error:
        warn_unread(storage, ", ".join(names), "no file is skipped by it", error)
        return
    for name in names:
        with suppress(CorruptFileError, UnsupportedTable):  # an index of another kind
            function, column = expression_of(name, definitions)
            if column in columns and column in schema.names:
                found = implied(predicate, function, column, schema.field(column).type)
                checked = None if found is None else _checked(storage, name, definitions)
                if found is not None and checked is not None:
                    kind = pa.string() if function == LOWER else pa.int32()
                    yield Expressed(name, column, found, pa.schema([(column, kind)]), checked)


def _checked(storage: Storage, name: str, definitions: Mapping[str, Mapping[str, Any]]) -> CheckedDefinition | None:
    """Check that an index is defined as when it was made; None if it is not, which is logged."""
    try:
        return check_definition(storage, name, definitions)
    except CorruptFileError as error:
        warn_unread(storage, name, "no file is skipped by it", error)
        return None


def implied(predicate: Predicate, function: str, column: str, kind: pa.DataType) -> Predicate | None:
    """Return the condition on a function of a column that holds wherever a predicate does; None if there is none."""
    if function == LOWER:
        return _implied(predicate, column, _between_texts(column))
    if not (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        return None
    return _implied(predicate, column, _between_times(function, column, kind))


def _implied(predicate: Predicate, column: str, between: _Between) -> Predicate | None:
    if isinstance(predicate, Implied):
        return _implied(predicate.part, column, between)
    if isinstance(predicate, Comparison) and predicate.column == column:
        return _whole([predicate], between)
    if isinstance(predicate, Membership) and predicate.column == column and not predicate.nulls:
        values = list(predicate.values)
        each = [between(value, value) for value in values] if len(values) <= _MOST_VALUES else [None]
        return _one_of(each)
    if isinstance(predicate, Some):
        return _one_of([_implied(part, column, between) for part in predicate.parts])
    if isinstance(predicate, Every):
        compared = [part for part in predicate.parts if isinstance(part, Comparison) and part.column == column]
        others = [part for part in predicate.parts if part not in compared]
        found = [_whole(compared, between), *(_implied(part, column, between) for part in others)]
        known = tuple(part for part in found if part is not None)
        return Every(known) if known else None
    return None


def _one_of(parts: Sequence[Predicate | None]) -> Predicate | None:
    known = tuple(part for part in parts if part is not None)
    return Some(known) if len(known) == len(parts) else None


def _whole(compared: Sequence[Comparison], between: _Between) -> Predicate | None:
    """Return the condition that follows from all comparisons of the column with values."""
    low, high = _end_of(compared, (GREATER, GREATER_EQUAL)), _end_of(compared, (LESS, LESS_EQUAL))
    equal = [one.value for one in compared if one.operator == EQUAL]
    if equal:
        return between(equal[0], equal[0])
    return between(low, high) if low is not None or high is not None else None


def _end_of(compared: Sequence[Comparison], operators: Sequence[str]) -> _End:
    # Any of several is a bound; the first is as right as the tightest.
    return next((one.value for one in compared if one.operator in operators), None)


def _between_texts(column: str) -> _Between:
    def between(low: _End, high: _End) -> Predicate | None:
        text = low.as_py() if low is not None and high is not None and low.equals(high) else None
        found = lowered(text) if isinstance(text, str) else None
        return None if found is None else Comparison(column, EQUAL, pa.scalar(found))

    return between


def _between_times(function: str, column: str, kind: Any) -> _Between:
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    widest = time_bounds(function, None, None, zoned=zoned)

    def between(low: _End, high: _End) -> Predicate | None:
        try:
            ends = [None if end is None else _time(end, kind) for end in (low, high)]
            found = time_bounds(function, *ends, zoned=zoned)
        except (pa.ArrowException, ValueError, OverflowError):  # values of another type
            return None
        if found == widest or found[0] > found[1]:
            return None
        least, most = (pa.scalar(end, pa.int32()) for end in found)
        return Every((Comparison(column, GREATER_EQUAL, least), Comparison(column, LESS_EQUAL, most)))

    return between


def _time(value: Any, kind: Any) -> np.datetime64:
    cast: Any = pa.array([value]).cast(kind, safe=False)
    unit = "D" if pa.types.is_date32(kind) else kind.unit
    number = cast.view(pa.int32() if unit == "D" else pa.int64())[0].as_py()
    found: np.datetime64 = np.array([number], f"datetime64[{unit}]")[0]
    return found
