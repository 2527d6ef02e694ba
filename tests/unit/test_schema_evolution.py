"""Which columns a table has after a batch with other columns."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from streaming_lsm.errors import SchemaError
from streaming_lsm.schema_evolution import ADD, FAIL, IGNORE, SchemaRules

RULES = SchemaRules(ADD, keys=frozenset({"k"}), partitions=frozenset({"p"}), ordering=frozenset({"o"}))
INT, LONG, FLOAT, DOUBLE, TEXT, BYTES = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary()
ORDER = (INT, LONG, FLOAT, DOUBLE, TEXT)


def after(old: pa.DataType, new: pa.DataType, rules: SchemaRules = RULES, name: str = "c") -> pa.DataType:
    return rules.evolved(pa.schema([(name, old)]), pa.schema([(name, new)])).field(name).type


@pytest.mark.parametrize("one", ORDER, ids=str)
@pytest.mark.parametrize("other", ORDER, ids=str)
def test_of_two_numbers_or_a_text_the_wider_type_stays(one: pa.DataType, other: pa.DataType) -> None:
    assert after(one, other) == max(one, other, key=ORDER.index)


@pytest.mark.parametrize(
    ("old", "new", "stays"),
    [
        (TEXT, BYTES, BYTES),
        (BYTES, TEXT, BYTES),
        (INT, pa.int8(), INT),
        (LONG, pa.uint32(), LONG),
        (TEXT, pa.null(), TEXT),
        (pa.decimal128(9, 2), pa.decimal128(12, 3), pa.decimal128(12, 3)),
        (pa.decimal128(12, 3), pa.decimal128(9, 2), pa.decimal128(12, 3)),
        (pa.list_(INT), pa.list_(LONG), pa.list_(pa.field("element", LONG))),
        (pa.map_(TEXT, LONG), pa.map_(TEXT, INT), pa.map_(TEXT, pa.field("value", LONG))),
        (
            pa.struct([("a", INT), ("b", TEXT)]),
            pa.struct([("new", TEXT), ("b", TEXT), ("a", LONG)]),
            pa.struct([("a", LONG), ("b", TEXT), ("new", TEXT)]),
        ),
        (
            pa.list_(pa.struct([("a", INT)])),
            pa.large_list(pa.struct([("a", INT), ("b", pa.list_(INT))])),
            pa.list_(pa.field("element", pa.struct([("a", INT), ("b", pa.list_(pa.field("element", INT)))]))),
        ),
    ],
    ids=str,
)
def test_a_column_becomes_what_holds_both(old: pa.DataType, new: pa.DataType, stays: pa.DataType) -> None:
    assert after(old, new) == stays


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (INT, pa.bool_()),
        (pa.bool_(), INT),
        (INT, pa.date32()),
        (pa.date32(), TEXT),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (INT, pa.struct([("a", INT)])),
        (pa.struct([("a", INT)]), TEXT),
        (pa.list_(INT), INT),
        (pa.map_(TEXT, INT), pa.struct([("a", INT)])),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.decimal128(9, 2), DOUBLE),
        (BYTES, INT),
        (pa.uint64(), LONG),
    ],
    ids=str,
)
def test_types_of_which_none_becomes_the_other_are_refused_by_name(old: pa.DataType, new: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="column 'c'") as refused:
        after(old, new) if old != pa.uint64() else after(new, old)
    assert all(str(kind) in str(refused.value) for kind in (old, new))


@pytest.mark.parametrize(
    ("name", "old", "allowed"),
    [
        ("k", INT, {LONG, TEXT}),
        ("k", LONG, {TEXT}),
        ("k", FLOAT, set()),
        ("p", INT, {LONG}),
        ("p", LONG, set()),
        ("o", INT, {LONG, DOUBLE}),
        ("o", LONG, set()),
        ("o", FLOAT, {DOUBLE}),
        ("o", TEXT, set()),
    ],
    ids=str,
)
def test_keys_partitions_and_order_are_widened_only_so_that_stored_rows_stay_what_they_are(
    name: str, old: pa.DataType, allowed: set[pa.DataType]
) -> None:
    wider = (*ORDER, BYTES)[(*ORDER, BYTES).index(old) + 1 :]
    for new in wider[: 1 if old == TEXT else None]:
        if new in allowed:
            assert after(old, new, name=name) == new
        elif new != BYTES or old == TEXT:
            with pytest.raises(SchemaError, match=f"column '{name}' .*cannot be widened so"):
                after(old, new, name=name)


def test_decimals_of_keys_keep_their_scale_and_those_of_the_order_need_not() -> None:
    old, wider, finer = pa.decimal128(9, 2), pa.decimal128(12, 2), pa.decimal128(12, 3)
    assert after(old, wider, name="k") == wider
    assert after(old, finer, name="o") == finer
    with pytest.raises(SchemaError, match="record key"):
        after(old, finer, name="k")


def test_new_columns_come_last_and_are_nullable() -> None:
    table = pa.schema([("a", INT), ("b", TEXT)])
    batch = pa.schema([pa.field("z", LONG, nullable=False), ("b", TEXT), ("a", INT), ("y", pa.null())])
    found = RULES.evolved(table, batch)
    assert found.names == ["a", "b", "z"]  # of nulls alone no type is known
    assert found.field("z").nullable


def test_a_column_is_relaxed_by_a_nullable_one_except_keys_and_ordering_fields() -> None:
    names = ("k", "o", "p", "v")
    table = pa.schema([pa.field(name, INT, nullable=False) for name in names])
    batch = pa.schema([(name, INT) for name in names])
    relaxed = {field.name for field in RULES.evolved(table, batch) if field.nullable}
    assert relaxed == {"p", "v"}
    for strict in (replace(RULES, mode=FAIL), replace(RULES, relaxes=False)):
        assert strict.evolved(table, batch).equals(table)
    assert RULES.evolved(table, table).equals(table)


@pytest.mark.parametrize("name", ["_hoodie_operation", "_lsm_x", "1st", "a-b", "V", ""])
def test_a_column_under_a_reserved_unusable_or_nearly_equal_name_is_not_added(name: str) -> None:
    with pytest.raises(SchemaError, match=f"column '{name}'"):
        RULES.evolved(pa.schema([("v", INT)]), pa.schema([("v", INT), (name, INT)]))


def test_missing_columns_are_refused_unless_the_option_fills_them() -> None:
    table = pa.schema([("k", TEXT), ("o", INT), pa.field("v", INT, nullable=False)])
    fills = replace(RULES, fills_missing=True)
    with pytest.raises(SchemaError, match=r"'v' is missing.*hoodie\.write\.set\.null\.for\.missing\.columns=true"):
        RULES.evolved(table, table.remove(2))
    assert fills.evolved(table, table.remove(2)).field("v").nullable
    with pytest.raises(SchemaError, match="'v' is missing, but is not nullable"):
        replace(fills, mode=FAIL).evolved(table, table.remove(2))
    for place, name in enumerate("ko"):
        with pytest.raises(SchemaError, match=f"'{name}' is missing"):
            fills.evolved(table, table.remove(place))


def test_new_columns_are_left_out_where_they_are_ignored_and_wider_types_are_refused() -> None:
    ignores = replace(RULES, mode=IGNORE)
    table = pa.schema([("a", INT), ("s", pa.struct([("x", INT)]))])
    more = pa.schema([("s", pa.struct([("y", TEXT), ("x", INT)])), ("b", pa.month_day_nano_interval()), ("a", INT)])
    assert ignores.evolved(table, more).equals(table)
    with pytest.raises(SchemaError, match=r"'a' has type int64.*lsm\.schema\.evolution=add"):
        ignores.evolved(table, table.set(0, pa.field("a", LONG)))
