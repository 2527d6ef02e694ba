"""Columns of tables by the schemas of messages: types of new columns, and how columns follow later schemas."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm.decode.avro.followed_schemas import columns_after
from streaming_lsm.decode.avro.schema_columns import followed, new_columns
from streaming_lsm.decode.avro.written_types import WrittenType, written_type
from streaming_lsm.decode.column_types import CONNECT_DECIMAL, sql_name
from streaming_lsm.decode.decoder import Decoder, Messages
from streaming_lsm.decode.envelope import Envelope, EventFormat
from streaming_lsm.errors import ConfigError, RegistryError, SchemaError
from streaming_lsm.schema_evolution import ADD, FAIL, IGNORE, SchemaRules
from streaming_lsm.schema_registry.sources import WriterSchema
from tests.support.avro_messages import MemorySchemas, debezium, framed, nullable, record
from tests.support.event_columns import JSON_FORMATS, event_columns, kafka_messages


def written(avro: Any) -> WrittenType:
    return written_type(WriterSchema(1, json.dumps(avro), (), "memory/1"))


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def connect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


def decimal(precision: int | None, scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", scale=scale, **({} if precision is None else {"precision": precision}))


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


SCALED = record(("scale", "int"), ("value", "bytes"), name="VariableScaleDecimal", namespace="io.debezium.data")
UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
SYMBOLS = {"type": "enum", "name": "E", "symbols": ["A"]}
INSIDE = record(
    ("a", nullable("int")), ("gone", "null"), ("at", logical("long", "timestamp-millis")), ("d", decimal(5, 2)),
    name="Inside",
)  # fmt: skip

COLUMN_TYPES: list[tuple[Any, str]] = [
    ("boolean", "BOOLEAN"),
    ("int", "INT"),
    ("long", "BIGINT"),
    ("float", "FLOAT"),
    ("double", "DOUBLE"),
    ("string", "STRING"),
    ("bytes", "BINARY"),
    ({"type": "fixed", "name": "F", "size": 3}, "BINARY"),
    (SYMBOLS, "STRING"),
    (UUID, "STRING"),
    (decimal(10, 2), "DECIMAL(10,2)"),
    (decimal(64, 2), "DECIMAL(38,2)"),
    (decimal(None, 4), "DECIMAL(38,4)"),
    ({"type": "bytes", "connect.name": CONNECT_DECIMAL, "connect.parameters": {"scale": "3"}}, "DECIMAL(38,3)"),
    (SCALED, "STRING"),
    (logical("int", "date"), "DATE"),
    (connect("int", "io.debezium.time.Date"), "DATE"),
    (logical("int", "time-millis"), "INT"),
    (connect("long", "io.debezium.time.MicroTime"), "BIGINT"),
    (logical("long", "timestamp-millis"), "TIMESTAMP"),
    (connect("long", "io.debezium.time.NanoTimestamp"), "TIMESTAMP"),
    (connect("string", "io.debezium.time.ZonedTimestamp"), "TIMESTAMP"),
    (connect("string", "io.debezium.data.Json"), "STRING"),
    (logical("long", "local-timestamp-micros"), "TIMESTAMP_NTZ"),
    (array(nullable("long")), "ARRAY<BIGINT>"),
    (array(logical("long", "timestamp-micros")), "ARRAY<BIGINT>"),
    ({"type": "map", "values": UUID}, "MAP<STRING,STRING>"),
    (INSIDE, "STRUCT<A:INT,AT:BIGINT,D:STRING>"),
]


@pytest.mark.parametrize("is_null", [False, True])
@pytest.mark.parametrize(("kind", "expected"), COLUMN_TYPES, ids=[name for _, name in COLUMN_TYPES])
def test_a_column_has_the_type_of_its_field_and_messages_of_the_schema_are_decoded_with_it(
    kind: Any, expected: str, is_null: bool
) -> None:
    schema = record(("id", "long"), ("v", nullable(kind) if is_null else kind))
    columns = new_columns(written(schema), "schema 1", ("id",), is_debezium=False)
    assert {one.name: sql_name(one.type) for one in columns} == {"id": "BIGINT", "v": expected}
    schemas = MemorySchemas()
    # Fits: no error about a type that never fits. The datum is cut off, which is the one reason.
    envelope = Envelope(columns, ("id",), format=EventFormat.AVRO, schemas=(schemas,), follows_schemas=True)
    decoder = Decoder(envelope, rules=SchemaRules(ADD))
    decoder.decode(kafka_messages([(None, framed(schemas.add(schema), b""))]))
    assert not decoder.changing_schemas


def test_columns_of_an_envelope_are_those_of_the_row_and_the_metadata_that_the_order_needs() -> None:
    row = record(("id", "long"), ("at", nullable("long")), ("none", "null"), name="Row")
    schema = written(debezium(row, ("lsn", nullable("long"))))
    columns = new_columns(schema, "schema 1", ("id", "_event_lsn"), is_debezium=True)
    assert columns == event_columns("id BIGINT, at BIGINT, _event_lsn BIGINT")
    assert followed(columns, SchemaRules(FAIL), schema, "s", is_debezium=True) == columns
    plain = new_columns(schema, "schema 1", ("id",), is_debezium=True)
    assert plain.names == ["id", "at"]


def test_marks_of_deletes_and_meta_columns_are_no_columns() -> None:
    schema = written(record(("_hoodie_commit_time", "string"), ("id", "long"), ("__deleted", nullable("string"))))
    assert new_columns(schema, "schema 1", ("id",), is_debezium=False).names == ["id"]
    for mode in (FAIL, ADD):
        columns = event_columns("id BIGINT")
        assert followed(columns, SchemaRules(mode), schema, "schema 1", is_debezium=False) == columns


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (["null", "int", "string"], "field 'v' is a union of int, string, for which there is no column type"),
        (array(["int", "string"]), r"field 'v\.element' is a union"),
        (array("null"), r"field 'v\.element' is null"),
        (record(("u", ["int", "string"]), name="R"), r"field 'v\.u' is a union"),
        (record(name="R"), "field 'v' is record R, for which"),
        (decimal(10, 50), "field 'v' is bytes .decimal of scale 50., for which"),
    ],
)
def test_a_field_without_a_column_type_is_named_with_its_schema(kind: Any, said: str) -> None:
    schema = written(record(("id", "long"), ("v", kind)))
    with pytest.raises(SchemaError, match=rf"^schema 7: {said}.*lsm\.kafka\.schema"):
        new_columns(schema, "schema 7", ("id",), is_debezium=False)
    known = event_columns("id BIGINT")
    with pytest.raises(SchemaError, match=f"^schema 7: {said}"):
        followed(known, SchemaRules(ADD), schema, "schema 7", is_debezium=False)
    assert followed(known, SchemaRules(IGNORE), schema, "schema 7", is_debezium=False) == known


def test_messages_that_are_no_rows_give_no_columns() -> None:
    for avro, is_debezium in (("bytes", False), (record(("id", "long")), True)):
        with pytest.raises(SchemaError, match=r"schema 7 is .*: correct lsm\.kafka\.format, or set"):
            new_columns(written(avro), "schema 7", ("id",), is_debezium=is_debezium)
        columns = event_columns("id BIGINT")
        assert followed(columns, SchemaRules(ADD), written(avro), "s", is_debezium=is_debezium) is columns


def after(columns: str, *fields: tuple[str, Any], mode: str = ADD, **rules: Any) -> pa.Schema:
    schema, known = written(record(("id", "long"), *fields)), event_columns(columns)
    rule = SchemaRules(mode, relaxes=False, **rules)
    found = followed(known, rule, schema, "schema 7", is_debezium=False)
    assert followed(found, rule, schema, "schema 7", is_debezium=False) == found, "a schema is followed once"
    return found


def test_new_fields_come_after_the_columns_of_the_table_and_missing_ones_stay() -> None:
    found = after("old STRING, id BIGINT", ("new", nullable("int")), ("gone", "null"), ("more", "string"))
    assert found == event_columns("old STRING, id BIGINT, new INT, more STRING")


@pytest.mark.parametrize(
    ("column", "field", "expected"),
    [
        ("INT", "long", "BIGINT"),
        ("INT", "string", "STRING"),
        ("BIGINT", "int", "BIGINT"),
        ("FLOAT", "double", "DOUBLE"),
        ("STRING", "int", "STRING"),
        ("DOUBLE", "float", "DOUBLE"),
        ("DECIMAL(10,2)", decimal(12, 3), "DECIMAL(12,3)"),
        ("DECIMAL(10,2)", decimal(64, 2), "DECIMAL(10,2)"),
        ("DECIMAL(10,2)", "string", "DECIMAL(10,2)"),
        ("DECIMAL(10,2)", "double", "DECIMAL(10,2)"),
        ("TIMESTAMP", "string", "TIMESTAMP"),
        ("BIGINT", logical("long", "timestamp-millis"), "BIGINT"),
        ("STRUCT<a: INT>", record(("a", "long"), ("b", "string"), name="R"), "STRUCT<A:BIGINT,B:STRING>"),
        ("STRUCT<a: INT, c: INT>", record(("a", "int"), name="R"), "STRUCT<A:INT,C:INT>"),
        ("ARRAY<INT>", array(nullable("long")), "ARRAY<BIGINT>"),
        ("MAP<STRING,INT>", {"type": "map", "values": "long"}, "MAP<STRING,BIGINT>"),
        ("STRING", array("int"), "STRING"),
    ],
)
def test_a_column_is_widened_and_keeps_a_type_that_the_field_fits(column: str, field: Any, expected: str) -> None:
    found = after(f"id BIGINT, v {column}", ("v", nullable(field)))
    assert sql_name(found.field("v").type) == expected
    wider = sql_name(event_columns(f"v {column}").field("v").type) != expected
    if wider:
        with pytest.raises(SchemaError, match=r"^schema 7: column 'v.*lsm\.schema\.evolution"):
            after(f"id BIGINT, v {column}", ("v", field), mode=FAIL)


@pytest.mark.parametrize(
    ("column", "field", "said"),
    [
        ("BINARY", "string", "field 'v' is string, and the table has BINARY"),
        ("STRING", "bytes", "field 'v' is bytes, which never fits column 'v' of type STRING"),
        ("INT", "boolean", "field 'v' is boolean, which never fits column 'v' of type INT"),
        ("INT", ["int", "string"], "field 'v' is a union of int, string, which never fits"),
        ("BIGINT", array("int"), "field 'v' is array of int, which never fits"),
    ],
)
def test_a_field_that_never_fits_its_column_is_refused_by_name(column: str, field: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=f"^schema 7: {said}"):
        after(f"id BIGINT, v {column}", ("v", field))


def test_rules_of_the_table_hold_for_new_and_wider_fields() -> None:
    with pytest.raises(SchemaError, match="schema 7: column 'new' is not in the table"):
        after("id BIGINT", ("new", "int"), mode=FAIL)
    assert after("id BIGINT", ("new", "int"), mode=IGNORE) == event_columns("id BIGINT")
    place = record(("a", "int"), ("b", "int"), name="R")
    assert after("id BIGINT, v STRUCT<a: INT>", ("v", place), mode=IGNORE).field("v").type.num_fields == 1
    with pytest.raises(SchemaError, match=r"column 'v\.b' is not in the table"):
        after("id BIGINT, v STRUCT<a: INT>", ("v", place), mode=FAIL)
    with pytest.raises(SchemaError, match="column 'new' was dropped"):
        after("id BIGINT", ("new", "int"), dropped=frozenset({"new"}))
    with pytest.raises(SchemaError, match="differs from the table's 'id' by case only"):
        after("id BIGINT", ("ID", "int"))
    with pytest.raises(SchemaError, match=r"column 'at' has type string.*of the ordering"):
        after("id BIGINT, at BIGINT", ("at", "string"), ordering=frozenset({"at"}))


def test_numbers_keep_their_digits() -> None:
    assert after("id BIGINT, v INT", ("v", "float")) == event_columns("id BIGINT, v DOUBLE")
    assert after("id BIGINT, v INT", ("v", logical("long", "timestamp-millis"))) == event_columns("id BIGINT, v BIGINT")
    for kind in ("float", "double"):
        with pytest.raises(SchemaError, match=f"schema 7: field 'v' is {kind}, and the table has BIGINT"):
            after("id BIGINT, v BIGINT", ("v", kind))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([("a", "int"), ("A", "int")], "column 'A' differs from the table's 'a' by case only"),
        ([("_hoodie_y", "int")], "column '_hoodie_y' cannot be added"),
        ([("v", record(("x", "int"), ("X", "int"), name="R"))], r"column 'v\.X' differs from the table's 'x'"),
        ([("v", array(record(("_lsm_x", "int"), name="R")))], r"column 'v\.element\._lsm_x' cannot be added"),
    ],
)
def test_names_of_a_new_table_are_checked_with_the_schema_in_the_message(fields: list[Any], said: str) -> None:
    with pytest.raises(SchemaError, match=f"schema 7: {said}"):
        new_columns(written(record(("id", "long"), *fields)), "schema 7", ["id"], is_debezium=False)


def test_messages_of_a_changing_schema_are_left_out_until_the_columns_have_its_fields() -> None:
    schemas = MemorySchemas()
    one, two, three = (
        schemas.add(record(("id", "long"), *fields)) for fields in ((), (("b", "int"),), (("a", nullable("string")),))
    )
    envelope = Envelope(
        event_columns("id BIGINT"), ("id",), format=EventFormat.AVRO, schemas=(schemas,), follows_schemas=True
    )
    messages = Messages(envelope, "UTC", SchemaRules(ADD))
    decoder = messages.decoder()
    assert decoder.decode(kafka_messages([(None, schemas.message(one, {"id": 1}))])).num_rows == 1
    assert decoder.changing_schemas == set()
    later = kafka_messages([
        (None, schemas.message(three, {"id": 2, "a": "x"})), (b"{}", None), (None, b"no Avro"),
        (None, schemas.message(one, {"id": 3})), (None, schemas.message(two, {"id": 4, "b": 5})),
    ])  # fmt: skip
    assert decoder.decode(later).num_rows == 0
    assert decoder.changing_schemas == {two, three}
    assert decoder.decode(kafka_messages([(None, schemas.message(one, {"id": 1}))])).num_rows == 0
    again = messages.after(decoder.changing_schemas).decoder()
    found = again.decode(later)
    assert again.changing_schemas == set()
    assert [(row["id"], row["b"], row["a"]) for row in found.to_pylist() if row["_lsm_bad"] is None] == [
        (2, None, "x"), (3, None, None), (4, 5, None),
    ]  # fmt: skip
    assert found.schema.names[:3] == ["id", "b", "a"], "in the order of the ids"


def test_a_schema_that_the_rules_refuse_is_told_with_the_place_of_its_message() -> None:
    schemas = MemorySchemas()
    wider = schemas.add(record(("id", "long"), ("b", "int")))
    envelope = Envelope(
        event_columns("id BIGINT"), ("id",), format=EventFormat.AVRO, schemas=(schemas,), follows_schemas=True
    )
    messages = kafka_messages([(b"k", None), (None, schemas.message(wider, {"id": 1, "b": 2}))])
    said = rf"topic 't', partition 2, offset 101: schema {wider} \(memory/{wider}\): column 'b' is not in the table"
    with pytest.raises(SchemaError, match=said):
        Decoder(envelope, rules=SchemaRules(FAIL)).decode(messages)
    ignoring = Decoder(envelope, rules=SchemaRules(IGNORE))
    assert ignoring.decode(messages.slice(1)).num_rows == 1
    assert ignoring.unknown_fields == {"b": 1}
    with pytest.raises(RegistryError, match="offset 100: schema 99 is not known to memory"):
        ignoring.decode(kafka_messages([(None, framed(99, b""))]))
    with pytest.raises(RegistryError, match="schema 99 is not known"):
        columns_after(envelope, SchemaRules(ADD), {99})


@pytest.mark.parametrize("kind", JSON_FORMATS)
def test_columns_follow_the_schemas_of_avro_only(kind: EventFormat) -> None:
    with pytest.raises(ConfigError, match="only Avro messages have schemas"):
        Envelope(event_columns("id BIGINT"), ("id",), format=kind, follows_schemas=True)
