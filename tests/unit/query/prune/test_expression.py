"""The structure of filters, read from Arrow expressions."""

from __future__ import annotations

import logging
import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm.query.prune import expression
from streaming_lsm.query.prune.expression import predicate_of
from streaming_lsm.query.prune.predicate import (
    Comparison,
    Every,
    IsNull,
    Membership,
    Negation,
    Predicate,
    Some,
    StartsWith,
    Undecided,
    columns_of,
    possible_values,
)

QTY, ID = pc.field("qty"), pc.field("id")


def five(operator: str) -> Comparison:
    return Comparison("qty", operator, pa.scalar(5))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (QTY == 5, five("==")),
        (QTY != 5, five("!=")),
        (QTY < 5, five("<")),
        (QTY <= 5, five("<=")),
        (QTY > 5, five(">")),
        (QTY >= 5, five(">=")),
        (pc.scalar(5) < QTY, five(">")),
        (pc.scalar(5) >= QTY, five("<=")),
        (pc.scalar(5) == QTY, five("==")),
        (pc.field("inner", "x", "y") == 5, Comparison("inner.x.y", "==", pa.scalar(5))),
        (ID.is_null(), IsNull("id")),
        (ID.is_valid(), Negation(IsNull("id"))),
        (pc.field("flag"), Comparison("flag", "==", pa.scalar(True))),
        (~pc.field("flag"), Negation(Comparison("flag", "==", pa.scalar(True)))),
        (pc.starts_with(ID, "ab"), StartsWith("id", "ab")),
        (pc.match_like(ID, "ab%"), StartsWith("id", "ab")),
        (pc.match_like(ID, "ab_c%"), Every((StartsWith("id", "ab"), Undecided()))),
        (pc.match_like(ID, "ab"), Comparison("id", "==", pa.scalar("ab"))),
        (pc.scalar(True), Every(())),
        (pc.scalar(False), Some(())),
    ],
    ids=str,
)
def test_an_expression_is_read(given: pc.Expression, expected: Predicate) -> None:
    assert predicate_of(given) == expected


def test_a_membership_has_its_values_and_whether_null_is_one() -> None:
    found = predicate_of(ID.isin(["b", None, "a"]))
    assert isinstance(found, Membership)
    assert (found.column, found.values.to_pylist(), found.nulls) == ("id", ["b", "a"], True)
    assert possible_values(found, "id") is None
    named = predicate_of(ID.isin(["b", "a"]))
    assert possible_values(named, "id") == [pa.scalar("b"), pa.scalar("a")]


def test_the_values_of_a_column_follow_from_and_and_or() -> None:
    values = possible_values(predicate_of((ID == "a") & (QTY > 5) | (ID == "b") & (QTY < 3)), "id")
    assert values == [pa.scalar("a"), pa.scalar("b")]
    assert possible_values(predicate_of((ID == "a") | (QTY > 5)), "id") is None
    assert possible_values(predicate_of(~(ID == "a")), "id") is None


@pytest.mark.parametrize(
    "given",
    [
        QTY.cast(pa.float64()) > 5.5,
        QTY + 1 == 5,
        pc.field("other") == QTY,
        pc.starts_with(ID, "a", ignore_case=True),
        pc.match_like(ID, "a\\%%"),
        pc.field("real").is_null(nan_is_null=True),
        pa.scalar(None, pa.int64()) == QTY,
        pc.is_in(QTY, pa.array([1, None]), skip_nulls=True),
    ],
    ids=str,
)
def test_what_bounds_cannot_decide_is_undecided(given: pc.Expression) -> None:
    assert predicate_of(given) == Undecided()
    assert columns_of(predicate_of((ID == "a") & given)) == {"id"}


def test_a_long_chain_is_flat() -> None:
    chain = QTY == 0
    for number in range(1, 2000):
        chain = chain | (number == QTY)
    found = predicate_of(chain)
    assert isinstance(found, Some)
    assert len(found.parts) == 2000


def test_a_predicate_is_pickled() -> None:
    found = predicate_of((QTY > 5) & (pc.starts_with(ID, "a") | ~ID.is_null()))
    assert pickle.loads(pickle.dumps(found)) == found


def test_another_serialised_form_prunes_nothing_and_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(expression, "_serialised", lambda _: ([("begin", "equal")], []))
    with caplog.at_level(logging.WARNING):
        assert predicate_of(QTY > 5) == Undecided()
    assert "nothing is pruned by it" in caplog.text
