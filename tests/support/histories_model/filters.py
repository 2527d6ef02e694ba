"""Filters as trees: as an expression of Arrow, and as what they say of a row.

A comparison with null is null, `&`, `|` and `~` are those of SQL's three values. As in Arrow, null is in no set.
"""

from __future__ import annotations

import operator
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tests.support.histories_model.columns import Column, Names, Row, renamed

Path = tuple[str, ...]
"""A column, or a column and a field of its structs."""
Truth = bool | None
NO_NAMES: Names = {}
"""Columns have the names that they have at first."""

COMPARISONS: Mapping[str, Callable[[object, object], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


class Filter(ABC):
    """A condition."""

    @abstractmethod
    def holds(self, row: Row) -> Truth:
        """Whether it is true of a row; None if it is null."""

    @abstractmethod
    def expression(self, names: Names = NO_NAMES) -> pc.Expression:
        """The condition in Arrow, of columns that have these names."""


@dataclass(frozen=True)
class Compared(Filter):
    """A column compared with a value."""

    path: Path
    sign: str
    value: object
    type: pa.DataType

    def holds(self, row: Row) -> Truth:
        found = _at(row, self.path)
        return None if found is None else COMPARISONS[self.sign](found, self.value)

    def expression(self, names: Names = NO_NAMES) -> pc.Expression:
        return _in_arrow(self.sign, _field(self.path, names), pa.scalar(self.value, self.type))


@dataclass(frozen=True)
class ComparedColumns(Filter):
    """Two columns compared with each other."""

    left: str
    sign: str
    right: str

    def holds(self, row: Row) -> Truth:
        left, right = row[self.left], row[self.right]
        return None if left is None or right is None else COMPARISONS[self.sign](left, right)

    def expression(self, names: Names = NO_NAMES) -> pc.Expression:
        return _in_arrow(self.sign, _field((self.left,), names), _field((self.right,), names))


@dataclass(frozen=True)
class OneOf(Filter):
    """A column whose value is in a set."""

    path: Path
    values: tuple[object, ...]
    type: pa.DataType

    def holds(self, row: Row) -> Truth:
        return _at(row, self.path) in self.values

    def expression(self, names: Names = NO_NAMES) -> pc.Expression:
        return _field(self.path, names).isin(pa.array(self.values, self.type))


@dataclass(frozen=True)
class IsNull(Filter):
    """A column that is null."""

    path: Path

    def holds(self, row: Row) -> Truth:
        return _at(row, self.path) is None

    def expression(self, names: Names = NO_NAMES) -> pc.Expression:
        return _field(self.path, names).is_null()


@dataclass(frozen=True)
class Prefixed(Filter):
    """A text that begins with another one."""

    path: Path
    prefix: str

    def holds(self, row: Row) -> Truth:
        found = _at(row, self.path)
        return None if found is None else str(found).startswith(self.prefix)

    def expression(self, names: Names = NO_NAMES) -> pc.Expression:
        return pc.starts_with(_field(self.path, names), self.prefix)


@dataclass(frozen=True)
class Not(Filter):
    """The opposite."""

    part: Filter

    def holds(self, row: Row) -> Truth:
        found = self.part.holds(row)
        return None if found is None else not found

    def expression(self, names: Names = NO_NAMES) -> pc.Expression:
        return ~self.part.expression(names)


@dataclass(frozen=True)
class And(Filter):
    """Both."""

    left: Filter
    right: Filter

    def holds(self, row: Row) -> Truth:
        found = {self.left.holds(row), self.right.holds(row)}
        return False if False in found else None if None in found else True

    def expression(self, names: Names = NO_NAMES) -> pc.Expression:
        return self.left.expression(names) & self.right.expression(names)


@dataclass(frozen=True)
class Or(Filter):
    """Either."""

    left: Filter
    right: Filter

    def holds(self, row: Row) -> Truth:
        found = {self.left.holds(row), self.right.holds(row)}
        return True if True in found else None if None in found else False

    def expression(self, names: Names = NO_NAMES) -> pc.Expression:
        return self.left.expression(names) | self.right.expression(names)


def kept(condition: Filter | None, rows: Sequence[Row]) -> list[Row]:
    """The rows of which a filter is true."""
    return [row for row in rows if condition is None or condition.holds(row)]


def draw_filter(chance: random.Random, columns: Sequence[Column], keys: Sequence[str], depth: int = 2) -> Filter:
    """Draw a filter.

    Args:
        columns: of the table.
        keys: names of columns that are drawn as often as all others.
        depth: how many conditions may be joined.
    """
    if depth and chance.random() < 0.55:
        left, right = (draw_filter(chance, columns, keys, depth - 1) for _ in range(2))
        return chance.choice([And(left, right), And(left, right), Or(left, right), Not(left)])
    named = {column.name: column for column in columns}
    column = named[chance.choice(keys)] if chance.random() < 0.5 else chance.choice(columns)
    integers = [found.name for found in columns if pa.types.is_int64(found.type)]
    if len(integers) > 1 and chance.random() < 0.05:
        left_name, right_name = chance.sample(integers, 2)
        return ComparedColumns(left_name, chance.choice(list(COMPARISONS)), right_name)
    return _condition(chance, column)


def _condition(chance: random.Random, column: Column) -> Filter:
    path = (column.name,)
    if not column.is_scalar:
        inner = [Compared(("inner", "x"), ">=", chance.randrange(6), pa.int64()), IsNull(("inner", "y"))]
        return chance.choice([IsNull(path), *(inner if column.name == "inner" else [])])
    drawn = [value for _ in range(8) if (value := column.draw(chance)) is not None]
    if not drawn or chance.random() < 0.1:
        return chance.choice([IsNull(path), Not(IsNull(path))])
    # Arrow looks NaN and zeros of both signs up by their bytes.
    listed = tuple(value for value in drawn if not (isinstance(value, float) and (value == 0 or value != value)))
    if listed and chance.random() < 0.25:
        return OneOf(path, listed[: chance.randint(1, 4)], column.type)
    if pa.types.is_string(column.type) and chance.random() < 0.2:
        return Prefixed(path, str(drawn[0])[:2])
    signs = ["==", "!="] if pa.types.is_boolean(column.type) else ["==", *COMPARISONS]
    return Compared(path, chance.choice(signs), drawn[0], column.type)


def _at(row: Row, path: Path) -> object:
    found = row[path[0]]
    for name in path[1:]:
        found = found[name] if isinstance(found, Mapping) else None
    return found


def _field(path: Path, names: Names) -> pc.Expression:
    return pc.field(*renamed(path[:1], names), *path[1:])


def _in_arrow(sign: str, left: pc.Expression, right: object) -> pc.Expression:
    compared: pc.Expression = COMPARISONS[sign](left, right)  # type: ignore[assignment]
    return compared
