"""Filters as text: what is understood, and that nothing else gets through."""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm.errors import ConfigError, SchemaError
from streaming_lsm.query import columns as of_query
from streaming_lsm.query.columns import filter_columns
from streaming_lsm.query.prune.expression import predicate_of
from streaming_lsm.query.text.where import parse_where

SCHEMA = pa.schema(
    [
        ("qty", pa.int32()),
        ("country", pa.string()),
        ("paid", pa.bool_()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.struct([("x", pa.float64()), ("deep", pa.struct([("y", pa.string())]))])),
    ]
)
ROWS = pa.table(
    {
        "qty": [1, 5, 9, None],
        "country": ["DE", "FR", None, "it's"],
        "paid": [True, False, None, True],
        "price": pa.array([Decimal(number) for number in range(1, 5)], pa.decimal128(10, 2)),
        "at": [{"x": 0.5, "deep": {"y": "a"}}, {"x": -1.0, "deep": None}, None, {"x": 2.0, "deep": {"y": "b"}}],
    },
    schema=SCHEMA,
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("qty > 1", [1, 2]),
        ("qty >= 5 and country == 'FR'", [1]),
        ('qty < 5 or country == "it\'s"', [0, 3]),
        ("not qty > 1", [0]),
        ("not (qty > 1 and paid)", [0, 1]),
        ("country in ('DE', 'FR')", [0, 1]),
        ("country in ['DE']", [0]),
        ("country NOT IN ('DE', 'FR')", [3]),
        ("NOT country IN ('DE')", [1, 3]),
        ("country = 'it''s'", [3]),
        ("qty <> 1 AND `country` LIKE '_R'", [1]),
        ("country NOT LIKE 'D%'", [1, 3]),
        ("country ilike 'd%'", [0]),
        ("qty BETWEEN 2 AND 9", [1, 2]),
        ("qty NOT BETWEEN 2 AND 9 OR qty IS NULL", [0, 3]),
        ("country IS NOT NULL AND NOT paid", [1]),
        ("country = NULL", [2]),
        ("(qty = 1 OR qty = 5) AND (country = 'FR' OR paid)", [0, 1]),
        ("at.`x` > -1e0", [0, 3]),
        ("qty=+5", [1]),
        ("country in (None, 'DE')", [0, 2]),
        ("country == None", [2]),
        ("country != None", [0, 1, 3]),
        ("country != 'DE'", [1, 3]),
        ("paid", [0, 3]),
        ("paid == False", [1]),
        ("at.x <= -1", [1]),
        ("at.deep.y == 'b'", [3]),
        ("price > 2.5", [2, 3]),
        ("  qty == 9  ", [2]),
        ("qty == -1 or qty != -1", [0, 1, 2]),
        (" or ".join(["qty == 1"] * 5000), [0]),
        ("(" * 100 + "qty == 1" + ")" * 100, [0]),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_filter_keeps_its_rows(text: str, rows: list[int]) -> None:
    numbered = ROWS.append_column("row", pa.array(range(4)))
    assert numbered.filter(parse_where(text, SCHEMA))["row"].to_pylist() == rows


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "# qty",
        "qty >",
        "qty > 1; import os",
        "qty\ncountry",
        "qty := 3",
        "qty == 3 qty == 4",
        "qty NOT = 3",
        "qty NOT",
        "qty BETWEEN 1",
        "qty BETWEEN 1 OR 2",
        "country LIKE 5",
        "country IS 5",
        "FALSE = paid",
        "country = DATE 5",
        "`qty > 1",
        "country = 'DE",
        "qty = 1 AND",
        "(qty = 1",
        "qty = 1)",
        "country = '\ud800'",
        "__import__('os').system('touch /tmp/owned')",
        "open('/etc/passwd')",
        "qty > __import__('os').getpid()",
        "qty > [].__class__.__base__.__subclasses__()",
        "(lambda: 1)() == 1",
        "[n for n in (1,)] == 1",
        "f'{qty}' == 1",
        "qty == f'{qty}'",
        "qty[0] == 1",
        "qty() == 1",
        "5 < qty",
        "'a' == country",
        "1 < qty < 5",
        "qty == country",
        "qty + 1 > 2",
        "qty if paid else country",
        "country in 5",
        "country in ()",
        "country in 'DE'",
        "country in None",
        "country in {'DE': 1}",
        "qty == {[]: 1}",
        "qty == {[1]}",
        "qty == ...",
        "qty == 1j",
        "qty == 99999999999999999999999999",
        "qty == " + "9" * 5000,
        "qty in (1, 'x')",
        "qty == 1\0",
        "not " * 5000 + "paid",
        "(" * 5000 + "paid" + ")" * 5000,
        "qty == " + "-" * 5000 + "1",
        "qty == " + "+".join(["1"] * 5000),
        "at" + ".x" * 5000 + " == 1",
        "qty == " + "[" * 5000 + "]" * 5000,
        "*qty",
        "await qty",
        "...",
        "True",
        "1",
        "'qty'",
    ],
    ids=lambda value: value[:40].encode("unicode_escape").decode() or "empty",
)
def test_anything_else_is_refused_in_a_short_message(text: str) -> None:
    with pytest.raises(ConfigError, match="filter") as refused:
        parse_where(text, SCHEMA)
    assert len(str(refused.value)) < 2000


def test_a_dunder_name_is_a_column_name_and_nothing_more() -> None:
    with pytest.raises(SchemaError, match="__class__"):
        filter_columns(parse_where("qty.__class__ == 1", SCHEMA), SCHEMA)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("qty > 1", ("qty",)),
        ("at.deep.y == 'b'", ("at",)),
        ("country == 'a' or (qty > 1 and not paid)", ("qty", "country", "paid")),
        ("qty > 1 and qty < 5", ("qty",)),
        ("price in (1.5)", ("price",)),
    ],
)
def test_filter_columns_are_those_that_are_mentioned(text: str, columns: tuple[str, ...]) -> None:
    assert filter_columns(parse_where(text, SCHEMA), SCHEMA) == columns


ODD = pa.schema(
    [
        *[(name, pa.int64()) for name in ("a", "x", "a) in b", "a) b", "a\nb", "a.b", "", "FieldPath(0)")],
        ("n", pa.struct([("x", pa.int64()), ("y.z", pa.string())])),
        ("m) b", pa.struct([("x", pa.int64())])),
        ("bytes", pa.binary()),
        ("text", pa.string()),
    ]
)


@pytest.mark.parametrize(
    ("expression", "columns"),
    [
        (pc.field("a) in b") > pc.field("x"), ("x", "a) in b")),
        ((pc.field("x") > 1) & (pc.field("a") > 1), ("a", "x")),
        (pc.field("a\nb") > pc.field("a.b"), ("a\nb", "a.b")),
        (pc.field("") > 1, ("",)),
        (pc.field("FieldPath(0)") > 1, ("FieldPath(0)",)),
        (pc.field("n", "y.z") == "FieldPath(0)", ("n",)),
        (pc.field("m) b", "x") == 1, ("m) b",)),
        (pc.struct_field(pc.field("n"), [0]) > 1, ("n",)),
        (pc.scalar(True), ()),
        ((pc.field("a) in b") > 1) & (pc.field("n", "y.z") == "") & (pc.field("x") > 1), ("x", "a) in b", "n")),
        (pc.starts_with(pc.field("bytes"), b"\xff"), ("bytes",)),
        (pc.is_in(pc.field("text"), value_set=pa.chunked_array([["FieldPath(0)"]])), ("text",)),
    ],
)
def test_filter_columns_may_have_any_names(expression: pc.Expression, columns: tuple[str, ...]) -> None:
    assert filter_columns(expression, ODD) == columns


@pytest.mark.parametrize(
    "expression",
    [
        pc.field(1) == 5,
        (pc.field("a") > 1) & (pc.field(7, 0) > 1),
        pc.field("n", 0) == 1,
        (pc.field(1) == 5) & pc.starts_with(pc.field("bytes"), b"\xff"),
    ],
)
def test_a_column_that_a_filter_has_by_its_number_is_refused(expression: pc.Expression) -> None:
    with pytest.raises(SchemaError, match="references a column, or a field inside one, by its number: give its name"):
        filter_columns(expression, ODD)


def test_columns_that_a_filter_does_not_mention_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    binding_error = of_query._binding_error

    def counted(expression: pc.Expression, schema: pa.Schema) -> Exception | None:
        looks.append(len(schema))
        return binding_error(expression, schema)

    monkeypatch.setattr(of_query, "_binding_error", counted)
    wide = pa.schema([(f"c{number}", pa.int64()) for number in range(10_000)])
    assert filter_columns((pc.field("c9999") > 1) & (pc.field("c7") < 3), wide) == ("c7", "c9999")
    assert looks == [0, 1, 2]


def test_no_filter_mentions_nothing() -> None:
    assert filter_columns(None, SCHEMA) == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("missing > 1", "missing"),
        ("at.missing > 1", "missing"),
        ("qty > 'x'", "qty"),
        ("country in (1, 2)", "country"),
        ("qty", "qty"),
        ("at == 1", "at"),
    ],
)
def test_a_filter_that_does_not_fit_the_columns_is_refused(text: str, named: str) -> None:
    with pytest.raises(SchemaError, match=named):
        filter_columns(parse_where(text, SCHEMA), SCHEMA)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("day == '2026-01-02'", [1]),
        ("day in ('2026-01-01', '2026-01-02')", [0, 1]),
        ("day = DATE '2026-01-02'", [1]),
        ("at BETWEEN timestamp '2026-01-02' AND '2026-01-03'", [1]),
        ("at >= '2026-01-02 10:00'", [1]),
        ("at < '2026-01-02T12:00:00+02:00'", [0]),
        ("naive == '2026-01-01 10:00:00'", [0]),
        ("price == '1.50'", [0]),
        ("price > 1.555", [1]),
    ],
    ids=str,
)
def test_a_text_in_quotes_means_a_value_of_the_column(text: str, rows: list[int]) -> None:
    table = pa.table(
        {
            "day": pa.array(["2026-01-01", "2026-01-02"]).cast(pa.date32()),
            "at": pa.array(["2026-01-01T10:00:00Z", "2026-01-02T10:00:00Z"]).cast(pa.timestamp("us", "UTC")),
            "naive": pa.array(["2026-01-01T10:00:00", "2026-01-02T10:00:00"]).cast(pa.timestamp("us")),
            "price": pa.array([Decimal("1.50"), Decimal("2.50")], pa.decimal128(10, 2)),
            "row": [0, 1],
        }
    )
    assert table.filter(parse_where(text, table.schema))["row"].to_pylist() == rows


def test_a_text_that_is_no_value_of_the_column_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"column 'day' has type date32.* 'yesterday'"):
        parse_where("day == 'yesterday'", pa.schema([("day", pa.date32())]))


AMOUNTS = pa.table(
    {
        "big": pa.array([Decimal("0.5"), Decimal("1"), Decimal("1.5"), None], pa.decimal128(30, 10)),
        "widest": pa.array([Decimal("0.5"), Decimal("1"), Decimal("1.5"), None], pa.decimal128(38, 10)),
        "of": pa.array(
            [{"big": Decimal(text)} for text in ("0.5", "1", "1.5")] + [None],
            pa.struct([("big", pa.decimal128(30, 10))]),
        ),
        "row": [0, 1, 2, 3],
    }
)


@pytest.mark.parametrize("column", ["big", "widest", "of.big"])
@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("> 1", [2]),
        ("= 1", [1]),
        ("= +1", [1]),
        ("!= 1", [0, 2]),
        ("BETWEEN 1 AND 2", [1, 2]),
        ("NOT BETWEEN 1 AND 2", [0]),
        ("IN (1, 1.5)", [1, 2]),
        ("IN (1, '1.5', NULL)", [1, 2, 3]),
        ("IN (1.12345678901, 1)", [1]),
        ("IN (1e30)", []),
        ("IN (1e300, 1)", [1]),
        ("NOT IN (1.12345678901)", [0, 1, 2]),
        ("= 1.5", [2]),
        ("> 1.00000000001", [2]),
        ("< 1.000000000000000000000000000001", [0, 1]),
        ("< 1e30", [0, 1, 2]),
        ("> -1e300", [0, 1, 2]),
        ("< 1e999999999", [0, 1, 2]),
        ("> 1e-999999999", [0, 1, 2]),
        ("< " + "9" * 60, [0, 1, 2]),
        ("> 0", [0, 1, 2]),
        ("> '1'", [2]),
    ],
)
def test_numbers_are_compared_exactly_with_decimals(column: str, condition: str, rows: list[int]) -> None:
    found = parse_where(f"{column} {condition}", AMOUNTS.schema)
    assert AMOUNTS.filter(found)["row"].to_pylist() == rows
    assert filter_columns(found, AMOUNTS.schema) == (column.partition(".")[0],)
    predicate_of(found)


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("qty > '5'", "column 'qty' has type int32, which does not fit '5': write numbers without quotes"),
        ("qty = TRUE", "column 'qty' has type int32, which does not fit TRUE"),
        ("country > 5", "column 'country' has type string, which does not fit 5: write texts in quotes"),
        ("country IN (1, 2)", "column 'country' has type string, which does not fit IN (1, 2)"),
        ("country BETWEEN 1 AND 2 OR paid", "column 'country' has type string, which does not fit BETWEEN 1 AND 2"),
        ("qty LIKE '1%'", "column 'qty' has type int32, which does not fit LIKE '1%': LIKE is for texts"),
        ("qty NOT ILIKE '1%'", "which does not fit ILIKE '1%': LIKE is for texts"),
        ("price = 'x'", "column 'price' has type decimal128(10, 2), which does not fit 'x'"),
        ("paid = 1", "column 'paid' has type bool, which does not fit 1: write TRUE or FALSE"),
        ("at.x = 'y'", "column 'at.x' has type double, which does not fit 'y'"),
        ("at = 1", "column 'at' has type struct<"),
    ],
)
def test_a_value_of_another_type_is_refused_by_column_and_type(condition: str, named: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(named)):
        parse_where(condition, SCHEMA)
