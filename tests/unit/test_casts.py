"""Columns of files with narrower types, read as the table's columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm.casts import cast_array

OLD = pa.struct([("a", pa.int32()), ("b", pa.float32())])
NEW = pa.struct([("b", pa.float64()), ("c", pa.string()), ("a", pa.string())])
ONE, OTHER = {"a": 1, "b": 0.1}, {"a": None, "b": None}
NEW_ONE, NEW_OTHER = {"b": 0.1, "c": None, "a": "1"}, {"b": None, "c": None, "a": None}


@pytest.mark.parametrize(
    ("column", "kind", "values"),
    [
        (pa.array([0.1, None, float("inf"), -0.0], pa.float32()), pa.float64(), [0.1, None, float("inf"), -0.0]),
        (pa.array([1e7, 0.1, None], pa.float32()), pa.string(), ["1.0E7", "0.1", None]),
        (pa.array([2**53 + 1, None]), pa.float64(), [2.0**53, None]),
        (pa.array(["ä", None]), pa.binary(), ["ä".encode(), None]),
        (pa.array([None, ONE, None, OTHER], OLD), NEW, [None, NEW_ONE, None, NEW_OTHER]),
        (pa.array([[ONE], None, [], [OTHER, None, ONE]], pa.list_(OLD)), pa.list_(pa.field("element", NEW)),
         [[NEW_ONE], None, [], [NEW_OTHER, None, NEW_ONE]]),
        (pa.array([[ONE], None, [OTHER]], pa.large_list(OLD)), pa.list_(pa.field("element", NEW)),
         [[NEW_ONE], None, [NEW_OTHER]]),
        (pa.array([[("x", ONE)], None, [("y", None), ("z", OTHER)]], pa.map_(pa.string(), OLD)),
         pa.map_(pa.string(), pa.field("value", NEW)), [[("x", NEW_ONE)], None, [("y", None), ("z", NEW_OTHER)]]),
    ],
    ids=lambda value: "" if isinstance(value, list) else str(getattr(value, "type", value)),
)  # fmt: skip
def test_a_narrower_column_is_cast_whole_and_in_part(column: pa.Array, kind: pa.DataType, values: list[Any]) -> None:
    for begin in range(len(values)):
        found = cast_array(column[begin:], kind)
        found.validate(full=True)
        assert found.type == kind
        assert found.to_pylist() == values[begin:]


def test_a_value_that_a_narrower_column_cannot_hold_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        cast_array(pa.array([2**40]), pa.int32())
