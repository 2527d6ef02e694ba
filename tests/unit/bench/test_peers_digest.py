"""Two readers' rows have one digest exactly when they are the same rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.bench.peers.columns import ROW_COLUMNS, Columns
from tests.bench.peers.digest import digest
from tests.bench.workload import KEY, ORDERING, orders

COLUMNS = Columns({KEY: "STRING", "a": "STRING", "b": "STRING", "n": "INT", "flag": "BOOLEAN"}, "n")
ROWS: list[dict[str, Any]] = [
    {KEY: "k1", "a": "ab", "b": "c", "n": 0, "flag": False},
    {KEY: "k2", "a": "", "b": "é", "n": 7, "flag": True},
    {KEY: "k3", "a": None, "b": "x", "n": None, "flag": None},
]


def of(rows: list[dict[str, Any]]) -> str:
    """Digest of rows."""
    schema = pa.schema([(name, COLUMNS.arrow.field(name).type) for name in COLUMNS.names])
    return digest(pa.Table.from_pylist(rows, schema), COLUMNS)


def test_order_and_meta_columns_do_not_matter() -> None:
    rows = orders(1_000, 1_000_000_000, seed=1)
    shuffled = rows.take(pc.sort_indices(rows.column("item"))).append_column("_meta", pa.nulls(1_000, pa.string()))
    assert digest(shuffled, ROW_COLUMNS) == digest(rows, ROW_COLUMNS)


def test_types_that_hold_the_same_values_do_not_matter() -> None:
    rows = orders(1_000, 1_000_000_000, seed=1)
    other = rows.cast(
        pa.schema(
            [
                pa.field(each.name, pa.large_string()) if pa.types.is_string(each.type) else each
                for each in rows.schema.set(10, pa.field(ORDERING, pa.timestamp("ns", "Europe/Berlin")))
            ]
        )
    )
    other = other.set_column(2, "country", other.column("country").dictionary_encode())
    assert digest(other, ROW_COLUMNS) == digest(rows, ROW_COLUMNS)


@pytest.mark.parametrize(
    "rows",
    [
        ROWS[:2],
        [*ROWS, ROWS[0]],
        [{**ROWS[0], "n": 1}, *ROWS[1:]],
        [{**ROWS[0], "n": None}, *ROWS[1:]],
        [{**ROWS[0], "a": "a", "b": "bc"}, *ROWS[1:]],
        [ROWS[0], {**ROWS[1], "a": None}, ROWS[2]],
        [*ROWS[:2], {**ROWS[2], "flag": False}],
        [],
    ],
    ids=["missing", "twice", "value", "null-for-zero", "moved-letter", "null-for-empty", "false-for-null", "none"],
)
def test_other_rows_have_another_digest(rows: list[dict[str, Any]]) -> None:
    assert of(rows) != of(ROWS)


def test_a_digest_begins_with_the_number_of_rows() -> None:
    assert of(ROWS).startswith("3:")
