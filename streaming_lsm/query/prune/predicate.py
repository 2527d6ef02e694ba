"""Define predicates: the structure of a filter, as far as bounds of columns can decide it.

A predicate is *undecided* where bounds tell nothing about it; then it may be true and may be false. Columns are named
by their Parquet path: fields of structs follow their column after a dot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

EQUAL, NOT_EQUAL = "==", "!="
LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = "<", "<=", ">", ">="

INVERSE = {
    EQUAL: NOT_EQUAL,
    NOT_EQUAL: EQUAL,
    LESS: GREATER_EQUAL,
    GREATER_EQUAL: LESS,
    GREATER: LESS_EQUAL,
    LESS_EQUAL: GREATER,
}
"""The comparison that is true where another one is false, but for nulls and NaN."""


class Predicate:
    """A condition on the columns of a row; picklable."""


@dataclass(frozen=True)
class Undecided(Predicate):
    """A condition whose structure is not known; it may be true and may be false."""


@dataclass(frozen=True)
class Comparison(Predicate):
    """Compares a column with a value, by one of `INVERSE`; null if either is null."""

    column: str
    operator: str
    value: pa.Scalar[Any]


@dataclass(frozen=True)
class Membership(Predicate):
    """Tests whether a column has one of some values; never null.

    Attributes:
        column: the column.
        values: the values, without null.
        nulls: whether null is one of them.
    """

    column: str
    values: pa.Array[Any]
    nulls: bool = False


@dataclass(frozen=True)
class StartsWith(Predicate):
    """Tests whether a text begins with a prefix; null if it is null."""

    column: str
    prefix: str


@dataclass(frozen=True)
class IsNull(Predicate):
    """Tests whether a column is null."""

    column: str


@dataclass(frozen=True)
class Every(Predicate):
    """Is true where all parts are true; without parts it is true."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Some(Predicate):
    """Is true where one part is true; without parts it is never true."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Negation(Predicate):
    """Is true where its part is false."""

    part: Predicate


@dataclass(frozen=True)
class Implied(Predicate):
    """A condition that holds wherever the filter does; it may hold elsewhere, too, so that it is never known false."""

    part: Predicate


def is_shallow(predicate: Predicate, levels: int) -> bool:
    """Return whether a predicate has at most so many levels."""
    level: list[Predicate] = [predicate]
    for _ in range(levels):
        level = [inner for part in level for inner in _parts(part)]
        if not level:
            return True
    return False


def _parts(predicate: Predicate) -> tuple[Predicate, ...]:
    if isinstance(predicate, Every | Some):
        return predicate.parts
    return (predicate.part,) if isinstance(predicate, Negation | Implied) else ()


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Return the columns of a predicate."""
    return frozenset(part.column for part in _leaves(predicate) if not isinstance(part, Undecided))


def _leaves(predicate: Predicate) -> Iterator[Comparison | Membership | StartsWith | IsNull | Undecided]:
    if isinstance(predicate, Comparison | Membership | StartsWith | IsNull | Undecided):
        yield predicate
    for part in _parts(predicate):
        yield from _leaves(part)


def possible_values(predicate: Predicate, column: str) -> list[pa.Scalar[Any]] | None:
    """List the values that a column may have where a predicate is true; None if they are not known."""
    if isinstance(predicate, Comparison) and predicate.column == column and predicate.operator == EQUAL:
        return [predicate.value]
    if isinstance(predicate, Membership) and predicate.column == column and not predicate.nulls:
        return list(predicate.values)
    if isinstance(predicate, Implied):
        return possible_values(predicate.part, column)
    if isinstance(predicate, Every):
        found = [values for part in predicate.parts if (values := possible_values(part, column)) is not None]
        return min(found, key=len, default=None)
    if isinstance(predicate, Some):
        each = [possible_values(part, column) for part in predicate.parts]
        return None if any(values is None for values in each) else [value for values in each for value in values or ()]
    return None
