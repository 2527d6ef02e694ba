"""Null structs with required fields can be cast and written; a null in a required field cannot."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm.arrow.required_fields import cast_table, fill_required_fields

FIELDS = {
    "int": (pa.int32(), 1),
    "double": (pa.float64(), 1.5),
    "text": (pa.string(), "a"),
    "bytes": (pa.binary(), b"a"),
    "fixed": (pa.binary(3), b"abc"),
    "date": (pa.date32(), datetime.date(2026, 1, 2)),
    "time": (pa.time64("us"), datetime.time(1)),
    "at": (pa.timestamp("us", "UTC"), datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)),
    "price": (pa.decimal128(9, 2), Decimal("1.00")),
    "flag": (pa.bool_(), True),
    "list": (pa.list_(pa.int32()), [1]),
    "map": (pa.map_(pa.string(), pa.int32()), [("a", 1)]),
    "inner": (pa.struct([pa.field("z", pa.int32(), nullable=False)]), {"z": 1}),
}
STRUCT = pa.struct([pa.field(name, kind, nullable=False) for name, (kind, _) in FIELDS.items()])
VALUE = {name: value for name, (_, value) in FIELDS.items()}
SCHEMA = pa.schema([("s", STRUCT), ("list", pa.list_(STRUCT)), ("map", pa.map_(pa.string(), STRUCT))])
ROWS = pa.Table.from_pylist(
    [
        {"s": VALUE, "list": [None, VALUE], "map": [("k", None)]},
        {"s": None, "list": None, "map": None},
        {"s": VALUE, "list": [], "map": [("k", VALUE)]},
        {"s": None, "list": [None], "map": []},
    ],
    SCHEMA,
)
PARTS = {
    "whole": ROWS,
    "a part": ROWS.slice(1),
    "a part of each array": pa.Table.from_batches([ROWS.to_batches()[0].slice(2)]),
    "taken": ROWS.take([0, None, 1, 3]),
    "no rows": ROWS.slice(0, 0),
}


@pytest.mark.parametrize("rows", PARTS.values(), ids=PARTS)
def test_rows_with_null_structs_are_cast_to_their_own_types_and_written(rows: pa.Table) -> None:
    found = cast_table(rows, SCHEMA)
    found.validate(full=True)
    assert found.to_pylist() == rows.to_pylist()
    file = io.BytesIO()
    pq.write_table(found, file)
    assert pq.read_table(file).to_pylist() == rows.to_pylist()


def test_a_null_in_a_required_field_of_a_struct_is_left_for_arrow_to_refuse() -> None:
    kind = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    column = pa.StructArray.from_arrays([pa.array([1, None], pa.int32())], fields=list(kind))
    found = fill_required_fields(column)
    assert found.to_pylist() == [{"a": 1}, {"a": None}]
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        pq.write_table(pa.table({"s": found}), io.BytesIO())


def test_a_required_column_with_nulls_is_named() -> None:
    with pytest.raises(ValueError, match="'a' is required"):
        cast_table(
            pa.table({"a": pa.array([None], pa.int32())}), pa.schema([pa.field("a", pa.int32(), nullable=False)])
        )
