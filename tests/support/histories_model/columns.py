"""The columns of the tables, and values of them."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa

Draw = Callable[[random.Random], object]
Row = Mapping[str, object]
Names = Mapping[str, str]
"""Names that columns of a table have, by those that they have at first and everywhere in the model, if they differ."""

_DAY = datetime.date(2026, 1, 1)
_FIRST_SECOND = 1_767_225_600
_TEXTS = ["", "a", "ab", "b", "b:c", "ü", "\U0001f600", "é,b:x", "\ue000", "z" * 40, "__HIVE_DEFAULT_PARTITION__"]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        draw: draws a value, which may be None.
        is_scalar: whether filters compare it with values.
    """

    name: str
    type: pa.DataType
    draw: Draw
    is_scalar: bool = True

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.type)


def renamed(columns: Iterable[str], names: Names) -> list[str]:
    """The names that columns have."""
    return [names.get(name, name) for name in columns]


def at_first(columns: Iterable[str], names: Names) -> list[str]:
    """The names that columns have at first, by those that they have; names that they have no more get no column's."""
    before = {**{old: f"{old}, renamed" for old in names}, **{new: old for old, new in names.items()}}
    return renamed(columns, before)


def _one_of(*values: object) -> Draw:
    return lambda chance: chance.choice(values)


def _below(end: int, begin: int = 0, step: int = 1) -> Draw:
    return lambda chance: chance.randrange(begin, end, step)


def _maybe(draw: Draw) -> Draw:
    return lambda chance: None if chance.random() < 0.2 else draw(chance)


KEYS: Mapping[str, Column] = {
    "id": Column("id", pa.string(), lambda chance: f"k{chance.randrange(40):03d}"),
    "number": Column("number", pa.int32(), _below(30, -10)),
    "day_key": Column("day_key", pa.date32(), lambda chance: _DAY + datetime.timedelta(chance.randrange(30))),
}
"""Columns of record keys."""

PARTITIONS: Mapping[str, Column] = {
    "part": Column("part", pa.string(), _one_of(None, "DE", "FR", "N L", "ä/ö")),
    "city": Column("city", pa.string(), _one_of(None, "", "__HIVE_DEFAULT_PARTITION__", "Ulm")),
    "code": Column("code", pa.string(), _one_of(None, "x=y", "a%2Fb", "a/b", "DE")),
    "day": Column("day", pa.date32(), _one_of(None, _DAY, _DAY + datetime.timedelta(1))),
    "at": Column("at", pa.int64(), _below(_FIRST_SECOND + 3 * 86_400, _FIRST_SECOND, 7200)),
}
"""Columns of partition paths."""

ORDERINGS: Mapping[str, Column] = {
    "ts": Column("ts", pa.int64(), _below(6)),
    "small_ts": Column("small_ts", pa.int32(), _below(4, -2)),
    "text_ts": Column("text_ts", pa.string(), _one_of("a", "b", "é", "\ue000", "\U0001f600")),
    "time_ts": Column(
        "time_ts",
        pa.timestamp("us", "UTC"),
        lambda chance: datetime.datetime(2026, 1, 1, 0, 0, chance.randrange(5), tzinfo=datetime.UTC),
    ),
    "minor_ts": Column("minor_ts", pa.int64(), _below(2)),
}
"""Columns of ordering fields, without nulls."""

VALUES: Mapping[str, Column] = {
    column.name: column
    for column in (
        Column("text", pa.string(), _maybe(_one_of(*_TEXTS))),
        Column("count", pa.int64(), _maybe(_below(50, -50))),
        Column("other", pa.int64(), _maybe(_below(50, -50))),
        Column("real", pa.float64(), _one_of(None, 0.0, -0.0, 1.5, float("nan"), float("inf"), -3.0)),
        Column("narrow", pa.float32(), _one_of(None, 0.5, -2.0, float("nan"))),
        Column("flag", pa.bool_(), _one_of(None, True, False)),
        Column("price", pa.decimal128(9, 2), _one_of(None, Decimal("1.50"), Decimal("-2.00"), Decimal("99.99"))),
        Column("date", pa.date32(), _maybe(lambda chance: _DAY + datetime.timedelta(chance.randrange(5)))),
        Column(
            "moment",
            pa.timestamp("us", "UTC"),
            _maybe(lambda chance: datetime.datetime(2026, 1, 1, chance.randrange(20), tzinfo=datetime.UTC)),
        ),
        Column("raw", pa.binary(), _one_of(None, b"", b"\0", b"\xff\xfe", b"ab")),
        Column(
            "inner",
            pa.struct([("x", pa.int64()), ("y", pa.string())]),
            lambda chance: chance.choice([None, {"x": chance.randrange(5), "y": None}, {"x": None, "y": "q"}]),
            is_scalar=False,
        ),
        Column("tags", pa.list_(pa.string()), _one_of(None, [], ["a"], ["ü", "b"]), is_scalar=False),
        Column("marks", pa.map_(pa.string(), pa.int64()), _one_of(None, [], [("a", 1)]), is_scalar=False),
    )
}
"""Columns that are neither keys nor of partitions or ordering."""
