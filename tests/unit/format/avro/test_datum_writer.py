"""Values that are encoded one at a time: the bytes of the encoder of columns, and values that do not fit."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm.errors import SchemaError
from streaming_lsm.format.avro.datum_writer import record_writer
from streaming_lsm.format.avro.record_writer import encode_records
from streaming_lsm.format.avro.schema_tree import record_plan


def _of(kind: Any) -> list[Any]:
    return ["null", kind]


def _record(name: str, kind: Any) -> Any:
    return {"type": "record", "name": name, "fields": [{"name": "value", "type": kind}]}


TYPES: dict[str, Any] = {
    "flag": "boolean",
    "short": _of("int"),
    "long": "long",
    "real": _of("float"),
    "wide": "double",
    "text": _of("string"),
    "data": "bytes",
    "sizes": {"type": "map", "values": _record("Size", "long")},
    "last_null": ["int", "null"],
    "bound": ["null", _record("OfLong", "long"), _record("OfText", _of("string"))],
    "part": _of(_record("Part", _of("int"))),
}
SCHEMA = json.dumps(
    {"type": "record", "name": "Row", "fields": [{"name": name, "type": kind} for name, kind in TYPES.items()]}
)
PLAN = record_plan(SCHEMA, "test", unions=True)
NUMBERS = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31)]
ROWS: list[dict[str, Any]] = [
    {
        "flag": number > 0,
        "short": number or None,
        "long": number * 2**32 if number > -(2**31) else -(2**63),
        "real": float(number) if number % 2 else None,
        "wide": number / 7,
        "text": None if number == 1 else "ä" * (number % 70),
        "data": b"\x00\xff" * (number % 40),
        "sizes": {f"f{place}": {"value": number + place} for place in range(number % 3)},
        "last_null": number if number > 0 else None,
        "bound": [None, {"OfLong": {"value": number}}, {"OfText": {"value": "x"}}, {"OfText": {"value": None}}][
            number % 4
        ],
        "part": {"value": None if number < 0 else number} if number % 2 else None,
    }
    for number in NUMBERS
]


def _written(row: dict[str, Any]) -> bytes:
    out = bytearray()
    record_writer(dict(zip(TYPES, PLAN.fields, strict=True)))(row, out)
    return bytes(out)


def test_values_have_the_bytes_that_columns_have() -> None:
    columns = pa.Table.from_pylist(ROWS, PLAN.schema).combine_chunks().to_batches()[0]
    assert [_written(row) for row in ROWS] == encode_records(columns, SCHEMA, complete=False).to_pylist()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"flag": None}, "column 'flag' has nulls"),
        ({"long": None}, "column 'long': None is not of Avro type long"),
        ({"short": 2**31}, "column 'short': 2147483648 is not of Avro type int"),
        ({"sizes": None}, "column 'sizes' has nulls"),
        ({"bound": {"OfLong": {"value": 1}, "OfText": None}}, "column 'bound' has none or several of the records"),
    ],
    ids=str,
)
def test_values_that_do_not_fit_are_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        _written(ROWS[0] | change)


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "fixed", "name": "F", "size": 2},
        {"type": "array", "items": "int"},
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1},
    ],
    ids=str,
)
def test_types_without_a_writer_are_refused_when_a_value_comes(kind: Any) -> None:
    schema = json.dumps({"type": "record", "name": "Row", "fields": [{"name": "a", "type": ["null", kind]}]})
    write = record_writer({"a": record_plan(schema, "test", unions=True).fields[0]})
    write({}, bytearray())
    with pytest.raises(SchemaError, match="are not written one at a time"):
        write({"a": 1}, bytearray())
