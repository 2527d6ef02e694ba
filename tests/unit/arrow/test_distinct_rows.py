"""Rows in which two tables differ."""

from __future__ import annotations

import random

import pyarrow as pa

from streaming_lsm.arrow.distinct_rows import distinct_rows
from tests.support.histories_model.columns import VALUES

SCHEMA = pa.schema([column.field for column in VALUES.values()])


def test_rows_differ_where_a_value_does() -> None:
    chance = random.Random(5)
    pool = [{name: column.draw(chance) for name, column in VALUES.items()} for _ in range(400)]
    others = [
        {name: column.draw(chance) if chance.random() < 0.04 else row[name] for name, column in VALUES.items()}
        for row in pool
    ]
    ours, theirs = (pa.Table.from_pylist(rows, SCHEMA) for rows in (pool, others))
    wanted = [_text(one) != _text(other) for one, other in zip(ours.to_pylist(), theirs.to_pylist(), strict=True)]
    assert 20 < sum(wanted) < 380
    assert distinct_rows(ours, theirs).tolist() == wanted
    assert distinct_rows(ours.slice(7, 100), theirs.slice(7, 100)).tolist() == wanted[7:107]
    assert not distinct_rows(ours, ours).any()


def _text(row: dict[str, object]) -> str:
    return repr({name: 0.0 if value == 0 else value for name, value in row.items()})  # -0.0 equals 0.0


def test_nested_values_are_compared_element_by_element() -> None:
    kind = pa.list_(pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int64()))]))
    one = pa.array([[{"x": 1, "y": [1, 2]}], [{"x": 1, "y": None}], [None], [], None, [{"x": 1, "y": []}]], kind)
    other = pa.array([[{"x": 1, "y": [1, 3]}], [{"x": 1, "y": []}], [None], None, None, [{"x": 1, "y": []}]], kind)
    found = distinct_rows(pa.table({"v": one}), pa.table({"v": other}))
    assert found.tolist() == [True, True, False, True, False, False]
