"""Messages in Avro, encoded by fastavro, and the rows they become: types, reasons, keys, envelopes and schemas."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm.decode.avro.avro_rows import AvroRows
from streaming_lsm.decode.avro.exact_events import ExactAvroReader
from streaming_lsm.decode.column_types import CONNECT_DECIMAL
from streaming_lsm.decode.decoder import PAYLOAD_BYTES, Decoder
from streaming_lsm.decode.envelope import Envelope, EventFormat
from streaming_lsm.errors import ConfigError, RegistryError, SchemaError
from streaming_lsm.schema_registry.sources import SchemaFolder
from tests.support.avro_messages import MemorySchemas, debezium, encoded, framed, nullable, record
from tests.support.event_columns import Message, event_columns, kafka_messages

Row = dict[str, Any]


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def connect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """A type as Kafka Connect's converter writes it."""
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapped(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


MILLIS, MICROS = (logical("long", f"timestamp-{unit}") for unit in ("millis", "micros"))
LOCAL = logical("long", "local-timestamp-micros")
DAY = logical("int", "date")
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)
COLUMNS = (
    "id BIGINT, country STRING, name STRING, qty INT, small TINYINT, price DECIMAL(10,2), ratio DOUBLE, ok BOOLEAN, "
    "day DATE, at TIMESTAMP COMMENT 'micros', plain TIMESTAMP, local TIMESTAMP_NTZ, blob BINARY, tags ARRAY<INT>, "
    "place STRUCT<lat: DOUBLE, name: STRING>, counts MAP<STRING,BIGINT>"
)
DECIMAL = decimal(10, 2)
VALUE = record(
    ("id", "long"),
    ("country", {"type": "enum", "name": "Country", "symbols": ["DE", "FR"]}),
    ("name", nullable("string")),
    ("unknown", nullable({"type": "array", "items": ["null", "int", mapped("double")]})),
    ("qty", nullable("int")),
    ("small", ["int", "null"]),
    ("price", nullable(DECIMAL)),
    ("ratio", nullable("double")),
    ("ok", nullable("boolean")),
    ("day", nullable(DAY)),
    ("at", MILLIS),
    ("plain", nullable(MICROS)),
    ("local", nullable(LOCAL)),
    ("blob", nullable("bytes")),
    ("tags", nullable(array(nullable("int")))),
    ("place", nullable(record(("skipped", "string"), ("lat", "double"), ("name", nullable("Country")), name="Place"))),
    ("counts", nullable(mapped("int"))),
    namespace="shop.orders",
)
GOOD: Row = {"id": 1, "country": "DE", "at": 1_700_000_000_123}
NULLS = dict.fromkeys(field["name"] for field in VALUE["fields"])


def envelope(
    schemas: MemorySchemas,
    ddl: str = COLUMNS,
    *,
    kind: EventFormat = EventFormat.AVRO,
    partition: tuple[str, ...] = ("country",),
    record_key: tuple[str, ...] = ("id",),
    ordering: tuple[str, ...] = ("at",),
) -> Envelope:
    return Envelope(event_columns(ddl), record_key, partition, ordering, kind, (schemas,))


def rows(reader: Envelope, messages: Sequence[Message], zone: str = "UTC") -> list[Row]:
    return Decoder(reader, zone).decode(kafka_messages(messages)).to_pylist()


def reasons(reader: Envelope, *values: bytes | None) -> list[str | None]:
    return [row["_lsm_bad"] for row in rows(reader, [(b"k", value) for value in values])]


def values_of(ddl: str, written: Any, *values: Any, zone: str = "UTC") -> list[Any]:
    """The values of a column ``v`` of a written type, or the reasons why they are bad."""
    schemas = MemorySchemas()
    schema = schemas.add(record(("id", "long"), ("v", written)))
    reader = envelope(schemas, f"id BIGINT, v {ddl}", partition=(), ordering=())
    found = rows(reader, [(None, schemas.message(schema, {"id": 1, "v": value})) for value in values], zone)
    return [row["v"] if row["_lsm_bad"] is None else row["_lsm_bad"] for row in found]


def test_flat_record_becomes_an_upsert_with_typed_values() -> None:
    schemas = MemorySchemas()
    schema = schemas.add(VALUE)
    value = NULLS | GOOD | {
        "name": "ž🎁", "unknown": [None, 5, {"x": 1.0}], "qty": -5, "small": -128, "price": Decimal("12.50"),
        "ratio": 1e-3, "ok": True, "day": date(2024, 2, 29), "plain": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        "local": datetime(1944, 5, 30, 23, 59, 58, 845908), "blob": b"\xff\x00", "tags": [1, None, -2],
        "place": {"skipped": "s", "lat": 1.5, "name": "FR"}, "counts": {"a": 1, "b": -1},
    }  # fmt: skip
    first, second = rows(envelope(schemas), [(b"k", schemas.message(schema, one)) for one in (value, NULLS | GOOD)])
    assert first == {
        "id": 1, "country": "DE", "name": "ž🎁", "qty": -5, "small": -128, "price": Decimal("12.50"), "ratio": 0.001,
        "ok": True, "day": date(2024, 2, 29), "at": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
        "plain": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "local": datetime(1944, 5, 30, 23, 59, 58, 845908),
        "blob": b"\xff\x00", "tags": [1, None, -2], "place": {"lat": 1.5, "name": "FR"},
        "counts": [("a", 1), ("b", -1)], "_lsm_delete": False, "_lsm_tombstone": False, "_lsm_bad": None,
        "_lsm_topic": "t", "_lsm_partition": 2, "_lsm_offset": 100, "_lsm_payload": None,
    }  # fmt: skip
    at = datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
    assert {name: value for name, value in second.items() if value is not None and name[0] != "_"} == GOOD | {"at": at}


CONVERTED: list[tuple[str, Any, Any, Any]] = [
    ("BIGINT", "int", 5, 5),
    ("SMALLINT", "long", -32768, -32768),
    ("INT", "string", "7", 7),
    ("BIGINT", DECIMAL | {"scale": 0}, Decimal(12), 12),
    ("BIGINT", MICROS, 5, 5),
    ("INT", connect("int", "io.debezium.time.Time"), 5, 5),
    ("DOUBLE", "int", 2**31 - 1, 2147483647.0),
    ("DOUBLE", "long", 2**53 + 2, 9007199254740994.0),
    ("DOUBLE", "float", 0.10000000149011612, 0.10000000149011612),
    ("FLOAT", "long", 2**30, 1073741824.0),
    ("DECIMAL(10,2)", "long", 12, Decimal("12.00")),
    ("DECIMAL(10,2)", "double", 12.5, Decimal("12.50")),
    ("DECIMAL(10,2)", "string", "1.5", Decimal("1.50")),
    ("DECIMAL(10,2)", {"type": "fixed", "name": "f", "size": 5, "logicalType": "decimal", "precision": 10, "scale": 4},
     Decimal("-1.2500"), Decimal("-1.25")),
    ("DECIMAL(38,10)", decimal(64, 4), Decimal("1.2500"), Decimal("1.25")),
    ("DECIMAL(10,2)", connect("bytes", CONNECT_DECIMAL, **{"connect.parameters": {"scale": "1"}}), b"\x7d",
     Decimal("12.5")),
    ("DECIMAL(10,2)", record(("scale", "int"), ("value", "bytes"), name="VariableScaleDecimal",
     namespace="io.debezium.data"), {"scale": 3, "value": b"\x04\xe2"}, Decimal("1.25")),
    ("STRING", record(("scale", "int"), ("value", "bytes"), name="n",
     **{"connect.name": "io.debezium.data.VariableScaleDecimal"}), {"scale": -2, "value": b"\xff"}, "-100"),
    ("STRING", DECIMAL, Decimal("-0.05"), "-0.05"),
    ("STRING", decimal(20, 12), Decimal("0.000000000001"), "0.000000000001"),
    ("STRING", "long", -5, "-5"),
    ("STRING", "boolean", True, "true"),
    ("STRING", "double", 1e7, "1.0E7"),
    ("STRING", {"type": "enum", "name": "e", "symbols": ["a", "b"]}, "b", "b"),
    ("STRING", logical("string", "uuid"), UUID, UUID),
    ("STRING", array(nullable("int")), [1, None], "[1,null]"),
    ("STRING", mapped(DECIMAL), {"ž": Decimal("1.50")}, '{"ž":"1.50"}'),
    ("STRING", record(("a", "bytes"), ("b", DAY), name="r"), {"a": b"hi", "b": date(1970, 1, 3)},
     '{"a":"aGk=","b":2}'),
    ("BOOLEAN", "string", "true", True),
    ("DATE", connect("int", "io.debezium.time.Date"), -1, date(1969, 12, 31)),
    ("DATE", DAY | {"connect.name": "org.apache.kafka.connect.data.Date"}, date(1, 1, 1), date(1, 1, 1)),
    ("DATE", "int", 19000, date(2022, 1, 8)),
    ("DATE", "string", "2022-01-08", date(2022, 1, 8)),
    ("TIMESTAMP", connect("long", "io.debezium.time.Timestamp"), 1500, datetime(1970, 1, 1, 0, 0, 1, 500000, UTC)),
    ("TIMESTAMP", connect("long", "io.debezium.time.MicroTimestamp"), -1, BEFORE_1970),
    ("TIMESTAMP", connect("long", "io.debezium.time.NanoTimestamp"), -1, BEFORE_1970),
    ("TIMESTAMP", connect("string", "io.debezium.time.ZonedTimestamp"), "2026-01-02T03:04:05.000006Z",
     datetime(2026, 1, 2, 3, 4, 5, 6, UTC)),
    ("TIMESTAMP COMMENT 'millis'", "long", 1500, datetime(1970, 1, 1, 0, 0, 1, 500000, UTC)),
    ("TIMESTAMP COMMENT 'millis'", MICROS, 1500, datetime(1970, 1, 1, 0, 0, 0, 1500, UTC)),
    ("TIMESTAMP_NTZ", MILLIS, 1, datetime(1970, 1, 1, 0, 0, 0, 1000)),
    ("TIMESTAMP_NTZ", "string", "2026-01-02 03:04:05", datetime(2026, 1, 2, 3, 4, 5)),
    ("BINARY", {"type": "fixed", "name": "f", "size": 3}, b"abc", b"abc"),
    ("BINARY", "string", "aGk=", b"hi"),
    ("ARRAY<BIGINT>", array("int"), [1, 2], [1, 2]),
    ("ARRAY<DATE>", array(DAY), [date(2000, 1, 1)], [date(2000, 1, 1)]),
    ("ARRAY<STRUCT<a: SMALLINT, c: STRING>>", array(record(("a", "int"), ("b", "string"), name="r")),
     [{"a": 5, "b": "x"}], [{"a": 5, "c": None}]),
    ("MAP<STRING,ARRAY<STRING>>", mapped(nullable(array("long"))),
     {"k": [5], "n": None}, [("k", ["5"]), ("n", None)]),
    ("ARRAY<STRING>", "null", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("ddl", "written", "value", "expected"), CONVERTED)
def test_values_that_lose_nothing_are_converted(ddl: str, written: Any, value: Any, expected: Any) -> None:
    assert values_of(ddl, written, value) == [expected]
    assert values_of(ddl, nullable(written), None, value, None) == [None, expected, None]


def test_uuid_in_bytes_is_printed() -> None:
    uuid = {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}
    schemas, datum = MemorySchemas(), bytes(range(16))
    schema = schemas.add(record(("id", "long"), ("v", nullable(uuid)), ("w", uuid)))
    reader = envelope(schemas, "id BIGINT, v STRING, w BINARY", partition=(), ordering=())
    found = rows(
        reader, [(None, framed(schema, b"\x02\x02" + datum + datum)), (None, framed(schema, b"\x02\x00" + datum))]
    )
    assert [(row["v"], row["w"]) for row in found] == [(UUID, datum), (None, datum)]


def test_a_local_time_is_one_of_the_sessions_zone() -> None:
    local = logical("long", "local-timestamp-millis")
    skipped, doubled, later = datetime(2026, 3, 29, 2, 30), datetime(2026, 10, 25, 2, 30), datetime(2050, 7, 1)
    assert values_of("TIMESTAMP", local, datetime(2026, 1, 1), skipped, doubled, later, zone="Europe/Berlin") == [
        datetime(2025, 12, 31, 23, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
        datetime(2050, 6, 30, 22, tzinfo=UTC),
    ]


def test_a_local_time_is_one_of_a_zone_that_only_spark_names_so() -> None:
    local = logical("long", "local-timestamp-micros")
    skipped, doubled, later = datetime(2026, 3, 8, 2, 30), datetime(2026, 11, 1, 1, 30), datetime(9999, 12, 30)
    assert values_of("TIMESTAMP", local, datetime(2026, 5, 5), skipped, doubled, zone="PST") == [
        datetime(2026, 5, 5, 7, tzinfo=UTC),
        datetime(2026, 3, 8, 10, 30, tzinfo=UTC),
        datetime(2026, 11, 1, 8, 30, tzinfo=UTC),
    ]
    assert values_of("TIMESTAMP", local, later, zone="GMT+8") == [datetime(9999, 12, 29, 16, tzinfo=UTC)]
    assert values_of("TIMESTAMP", local, later, zone="+01:30:15") == [datetime(9999, 12, 29, 22, 29, 45, tzinfo=UTC)]


MISFITS: list[tuple[str, Any, Any, str]] = [
    ("INT", "long", 2**31, "'2147483648', which is not INT"),
    ("TINYINT", "int", 128, "'128', which is not TINYINT"),
    ("INT", "string", "many", "'many', which is not INT"),
    ("FLOAT", "int", 2**24 + 1, "'16777217', which is not FLOAT"),
    ("DOUBLE", "long", 2**53 + 1, "'9007199254740993', which is not DOUBLE"),
    ("DOUBLE", "double", float("nan"), "'NaN', which is not DOUBLE"),
    ("FLOAT", "float", float("-inf"), "'-Infinity', which is not FLOAT"),
    ("DECIMAL(10,2)", decimal(10, 3), Decimal("1.005"),
     "'1.005', which is not DECIMAL(10,2)"),
    ("DECIMAL(10,2)", decimal(20, 2), Decimal("123456789.00"),
     "'123456789.00', which is not DECIMAL(10,2)"),
    ("DECIMAL(5,4)", "long", 12, "'12', which is not DECIMAL(5,4)"),
    ("DECIMAL(10,2)", "float", 0.10000000149011612, "'0.10000000149011612', which is not DECIMAL(10,2)"),
    ("BOOLEAN", "string", "1", "'1', which is not BOOLEAN"),
    ("DATE", DAY, 99_999_999, "'99999999', which is not DATE"),
    ("TIMESTAMP", MILLIS, 2**60, "'1152921504606846976', which is not TIMESTAMP"),
    ("TIMESTAMP COMMENT 'micros'", connect("long", "io.debezium.time.Timestamp"), 2**50,
     "'1125899906842624', which is not TIMESTAMP"),
    ("TIMESTAMP_NTZ", LOCAL, 2**62, "'4611686018427387904', which is not TIMESTAMP_NTZ"),
    ("ARRAY<SMALLINT>", array("int"), [1, 40000], "'[1,40000]', which is not ARRAY<SMALLINT>"),
    ("MAP<STRING,STRUCT<a: ARRAY<DOUBLE>>>", mapped(record(("a", array("double")), name="R")),
     {"k": {"a": [float("inf")]}}, '\'{"k":{"a":["Infinity"]}}\', which is not MAP<STRING,STRUCT<A:ARRAY<DOUBLE>>>'),
]  # fmt: skip


@pytest.mark.parametrize(("ddl", "written", "value", "reason"), MISFITS)
def test_value_that_does_not_fit_is_bad_and_named(ddl: str, written: Any, value: Any, reason: str) -> None:
    assert values_of(ddl, nullable(written), None, value) == [None, f"column 'v' holds {reason}"]


NEVER: list[tuple[str, Any, str]] = [
    ("INT", "double", "field 'v' is double, which never fits column 'v' of type INT"),
    ("FLOAT", "double", "is double, which never fits column 'v' of type FLOAT"),
    ("BIGINT", DECIMAL, r"is bytes \(decimal of scale 2\), which never fits column 'v' of type BIGINT"),
    ("STRING", "bytes", "is bytes, which never fits column 'v' of type STRING"),
    ("BOOLEAN", "int", "is int, which never fits column 'v' of type BOOLEAN"),
    ("DATE", MILLIS, r"is long \(timestamp-millis\), which never fits column 'v' of type DATE"),
    ("TIMESTAMP", DAY, r"is int \(date\), which never fits"),
    ("TIMESTAMP", "long", "is long, which never fits column 'v' of type TIMESTAMP: name the unit by COMMENT 'millis'"),
    ("TIMESTAMP", connect("long", "io.debezium.time.MicroTime"), r"is long \(io.debezium.time.MicroTime\), wh"),
    ("BINARY", "long", "is long, which never fits column 'v' of type BINARY"),
    ("STRING", ["null", "int", "string"], "is a union of int, string, which never fits column 'v' of type STRING"),
    ("ARRAY<INT>", array("string"), "is array of string, which never fits column 'v' of type ARRAY<INT>"),
    ("STRUCT<a: INT>", mapped("int"), "is map of int, which never fits column 'v' of type STRUCT<A:INT>"),
    ("STRUCT<a: BINARY>", record(("a", "string"), name="R"), "record R, which never fits column 'v' of type STRUCT<A"),
    ("DECIMAL(10,2)", decimal(64, 50), "decimal of scale 50"),
]  # fmt: skip


@pytest.mark.parametrize(("ddl", "written", "reason"), NEVER)
def test_type_that_never_fits_fails_and_names_message_schema_field_and_both_types(
    ddl: str, written: Any, reason: str
) -> None:
    schemas = MemorySchemas()
    known, schema = schemas.add(record(("id", "long"))), schemas.add(record(("id", "long"), ("v", nullable(written))))
    reader = envelope(schemas, f"id BIGINT, v {ddl}", partition=(), ordering=())
    messages = [(b"k", framed(known, b"\x02")), (b"k", framed(schema, b"\x02\x00"))]
    with pytest.raises(SchemaError, match=rf"topic 't', partition 2, offset 101: schema 2 \(memory/2\): .*{reason}"):
        rows(reader, messages)


# --- frames and datums ----------------------------------------------------------------------------------------------

SMALL = record(("id", "long"), ("name", nullable("string")), ("tags", array("int")), ("ok", "boolean"))
DATUM = encoded(SMALL, {"id": 7, "name": "abc", "tags": [1, 2, 3], "ok": True})

UNREAD: list[tuple[bytes, str]] = [
    (b"", "the value is empty"),
    (b"\0\0\0", "the value has 3 bytes, fewer than magic byte and schema id"),
    (b'{"id":1}', "the value begins with 0x7b, not with the magic byte 0x00 of Avro with a schema registry"),
    (framed(1, b""), "the value does not follow schema 1: field 'id' reaches past the record's end"),
    (framed(1, DATUM[:-1]), "the value does not follow schema 1: field 'ok' reaches past the record's end"),
    (framed(1, DATUM + b"x"), "the value does not follow schema 1: it has bytes behind its last field"),
    (framed(1, DATUM[:-1] + b"\2"), "the value does not follow schema 1: field 'ok' is neither true nor false"),
    (framed(1, b"\x0e\x02\x04\xff\xfe\x00\x01"), "the value does not follow schema 1: field 'name' is not UTF-8"),
    (framed(1, b"\x0e\x04"),
     "the value does not follow schema 1: field 'name' has a branch index beyond the 2 types of its union"),
    (framed(1, b"\x0e\x02\x7f"),
     "the value does not follow schema 1: field 'name' has a length that is negative or past the record's end"),
    (framed(1, b"\xff" * 11), "the value does not follow schema 1: field 'id' has a number of more than 64 bits"),
    (framed(1, b"\x0e\x00" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\x00\x01"),
     "the value does not follow schema 1: field 'tags' has more items than bytes for them"),
    (framed(1, b"\x0e\x00\x02" + b"\xff" * 5 + b"\x01\x00\x01"),
     "the value does not follow schema 1: field 'tags.element' has a number of more than 32 bits"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "reason"), UNREAD)
def test_message_that_is_no_avro_of_its_schema_is_bad_among_good_ones(value: bytes, reason: str) -> None:
    schemas = MemorySchemas()
    schemas.add(SMALL)
    reader = envelope(schemas, "id BIGINT, name STRING, tags ARRAY<INT>, ok BOOLEAN", partition=(), ordering=())
    good = framed(1, DATUM)
    found = rows(reader, [(b"k", good), (b"k", value), (b"k", good), *((b"k", one) for one, _ in UNREAD)])
    assert [row["_lsm_bad"] for row in found] == [None, reason, None, *(why for _, why in UNREAD)]
    assert bytes(found[1]["_lsm_payload"] or b"") == value
    assert [found[place]["tags"] for place in (0, 1, 2)] == [[1, 2, 3], None, [1, 2, 3]]


def test_a_fault_in_a_field_that_the_table_does_not_have_is_found() -> None:
    schemas = MemorySchemas()
    schemas.add(SMALL)
    reader = envelope(schemas, "id BIGINT", partition=(), ordering=())
    assert reasons(reader, framed(1, DATUM), framed(1, b"\x0e\x00\x0a\x01")) == [
        None,
        "the value does not follow schema 1: field 'tags' has more items than bytes for them",
    ]


def test_good_messages_are_read_many_at_a_time_beside_bad_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    schemas, read = MemorySchemas(), []
    schemas.add(SMALL)
    reader = envelope(schemas, "id BIGINT, name STRING, tags ARRAY<INT>, ok BOOLEAN", partition=(), ordering=())
    events = ExactAvroReader.events

    def noted(exact: ExactAvroReader, values: Any, keys: Any) -> Any:
        read.extend(values.to_pylist())
        return events(exact, values, keys)

    monkeypatch.setattr(ExactAvroReader, "events", noted)
    good = [framed(1, encoded(SMALL, {"id": n + 1, "name": "é" * (n % 4), "tags": [n] * (n % 30), "ok": n % 2 == 0}))
            for n in range(20_000)]  # fmt: skip
    bad = [value for value, _ in UNREAD]
    mixed = good[:5] + bad + good[5:] + bad
    found = rows(reader, [(b"k", value) for value in mixed])
    assert read == bad + bad
    assert sum(row["_lsm_bad"] is None for row in found) == len(good)


BOMBS = [
    b"\x0e\x00" + b"\xfe\xff\xff\xff\x0f" + b"\x00\x01",
    b"\x0e\x00" + (b"\x02\x02" * 200_000) + b"\x7f",
    b"\x0e\x02\xfe\xff\xff\xff\xff\x7f",
    b"\x0e\x00\x01\xfe\xff\xff\xff\xff\x7f\x00\x01",
    b"\x0e\x00\x80\x80\xf5\x02" + b"\x80" * 3_000_000,
]


@pytest.mark.parametrize("datum", BOMBS)
def test_a_bomb_is_bad_at_once(datum: bytes) -> None:
    schemas = MemorySchemas()
    schemas.add(SMALL)
    reader = envelope(schemas, "id BIGINT, name STRING, tags ARRAY<INT>, ok BOOLEAN", partition=(), ordering=())
    tracemalloc.start()
    begun = time.process_time()
    [reason, good] = reasons(reader, framed(1, datum), framed(1, DATUM))
    spent, (_, peak) = time.process_time() - begun, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (reason or "").startswith("the value does not follow schema 1: field ")
    assert good is None
    assert spent < 10
    assert peak < 60 * len(datum) + (8 << 20)


# --- flags, keys, required values ---------------------------------------------------------------------------------


def test_flag_makes_a_row_a_delete_with_key_partition_and_ordering_values() -> None:
    for name, kind, yes, no in (
        ("__deleted", "string", "TRUE", "false"),
        ("_hoodie_is_deleted", "boolean", True, False),
    ):
        schemas = MemorySchemas()
        schema = schemas.add(record(*((one["name"], one["type"]) for one in VALUE["fields"]), (name, nullable(kind))))
        row = NULLS | GOOD | {"name": "n"}
        found = rows(
            envelope(schemas), [(b"k", schemas.message(schema, row | {name: flag})) for flag in (yes, no, None)]
        )
        assert [(one["_lsm_delete"], one["name"]) for one in found] == [(True, None), (False, "n"), (False, "n")]
        assert [(one["id"], one["country"], one["at"] is None) for one in found] == [(1, "DE", False)] * 3


def test_flag_that_is_no_boolean_is_bad() -> None:
    schemas = MemorySchemas()
    schema = schemas.add(record(("id", "long"), ("__deleted", "string")))
    reader = envelope(schemas, "id BIGINT", partition=(), ordering=())
    assert reasons(reader, schemas.message(schema, {"id": 1, "__deleted": "maybe"})) == [
        "field '__deleted' holds 'maybe', which is not BOOLEAN"
    ]


def test_flag_that_is_a_column_is_kept() -> None:
    schemas = MemorySchemas()
    schema = schemas.add(record(("id", "long"), ("__deleted", "string")))
    reader = envelope(schemas, "id BIGINT, __deleted STRING NOT NULL", partition=(), ordering=())
    found = rows(reader, [(b"k", schemas.message(schema, {"id": 1, "__deleted": flag})) for flag in ("maybe", "True")])
    assert [(row["_lsm_bad"], row["_lsm_delete"], row["__deleted"]) for row in found] == [
        (None, False, "maybe"), (None, True, None)
    ]  # fmt: skip


def test_rows_without_key_ordering_value_or_required_value_are_bad() -> None:
    schemas = MemorySchemas()
    keyed, empty = schemas.add(record(("id", nullable("string")))), schemas.add(record(("other", "string")))
    known = schemas.add(record(("id", "string"), ("at", MICROS)))
    reader = envelope(schemas, "id STRING, at TIMESTAMP, v INT NOT NULL", partition=())
    keyless = (
        schemas.message(keyed, {"id": None}),
        schemas.message(keyed, {"id": ""}),
        schemas.message(empty, {"other": ""}),
    )
    assert reasons(reader, *keyless) == ["record key column 'id' is null or empty"] * 3
    row = {"id": "x", "at": datetime(2026, 1, 1, tzinfo=UTC)}
    assert reasons(reader, schemas.message(keyed, row), schemas.message(known, row)) == [
        "ordering column 'at' is null",
        "column 'v' is null, declared NOT NULL",
    ]


def test_schemas_of_one_topic_may_change() -> None:
    schemas = MemorySchemas()
    first = schemas.add(record(("id", "int"), ("old", "string")))
    second = schemas.add(record(("v", nullable("double")), ("id", "long"), ("new", array("long"))))
    third = schemas.add(record(("v", "float"), ("id", "string")))
    reader = envelope(schemas, "id BIGINT, v DOUBLE", partition=(), ordering=())
    values = [
        schemas.message(first, {"id": 1, "old": "x"}),
        schemas.message(second, {"v": 2.5, "id": 2, "new": [5]}),
        schemas.message(first, {"id": 3, "old": "x"}),
        schemas.message(third, {"v": 0.5, "id": "4"}),
        schemas.message(third, {"v": 0.5, "id": "four"}),
    ]
    found = rows(reader, [(b"k", value) for value in values])
    assert [(row["id"], row["v"], row["_lsm_bad"]) for row in found] == [
        (1, None, None), (2, 2.5, None), (3, None, None), (4, 0.5, None),
        (None, None, "column 'id' holds 'four', which is not BIGINT"),
    ]  # fmt: skip


def test_payload_of_a_bad_event_is_cut() -> None:
    schemas = MemorySchemas()
    schemas.add(SMALL)
    [row] = rows(
        envelope(schemas, "id BIGINT", partition=(), ordering=()), [(b"k", framed(1, DATUM + b"x" * PAYLOAD_BYTES))]
    )
    assert len(row["_lsm_payload"]) == PAYLOAD_BYTES


# --- schemas --------------------------------------------------------------------------------------------------------


def test_an_unknown_id_fails_and_names_message_and_remedy() -> None:
    schemas = MemorySchemas()
    schemas.add(SMALL)
    reader = envelope(schemas, "id BIGINT", partition=(), ordering=())
    with pytest.raises(
        RegistryError, match=r"topic 't', partition 2, offset 102: schema 9 is not known to memory: .*9\.avsc"
    ):
        reasons(reader, framed(1, DATUM), b"", framed(9, DATUM), framed(9, DATUM))


def test_messages_of_a_lost_schema_become_bad_events_by_a_file_of_its_id(tmp_path: Path) -> None:
    schemas = MemorySchemas()
    schemas.add(SMALL)
    (tmp_path / "9.avsc").write_text('"bytes"')
    folder = SchemaFolder(str(tmp_path))
    reader = Envelope(event_columns("id BIGINT"), ("id",), format=EventFormat.AVRO, schemas=(folder, schemas))
    assert reasons(reader, framed(1, DATUM), framed(9, DATUM)) == [
        None,
        f"the value is not an Avro record: schema 9 ({tmp_path.as_uri()}/9.avsc) is bytes",
    ]


def test_an_unknown_id_of_a_key_fails() -> None:
    schemas = MemorySchemas()
    reader = envelope(schemas, "id BIGINT", partition=(), ordering=())
    with pytest.raises(RegistryError, match=r"topic 't', partition 2, offset 101: schema 9 is not known"):
        rows(reader, [(None, None), (framed(9, b"\2"), None)])


SCHEMAS: list[tuple[Any, str]] = [
    (record(("id", "long"), ("child", nullable("T")), name="T"), "column 'child': Avro type 'T' is not read"),
    (record(("id", "no.such.Type")), "no.such.Type"),
    (record(("id", "long"), ("w", array("null"))), "items that take no bytes are not read"),
    (
        record(("id", "long"), ("w", {"type": "enum", "name": "e", "symbols": []})),
        "an enum without symbols is not read",
    ),
    (record(("id", "long"), ("w", record(("a", "int"), ("a", "string"), name="r"))), "names a field twice"),
    (record(("id", "long"), ("w", {"type": "fixed", "name": "f", "size": -1})), "'fixed' is not read"),
    ({"type": "record", "name": "T"}, "not an Avro schema"),
    ({"fields": []}, "not an Avro schema"),
]


@pytest.mark.parametrize(("avro", "reason"), SCHEMAS)
def test_schema_that_is_not_read_fails_and_is_named(avro: Any, reason: str) -> None:
    schemas = MemorySchemas()
    schemas.add(avro)
    with pytest.raises(SchemaError, match=rf"topic 't', partition 2, offset 100: .*memory/1.*({reason})"):
        reasons(envelope(schemas, "id BIGINT, v INT", partition=(), ordering=()), framed(1, DATUM))


def test_nested_schemas_are_limited() -> None:
    schemas = MemorySchemas()
    deep: Any = "int"
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    schemas.add(record(("id", "long"), ("v", deep)))
    doubled: list[tuple[str, Any]] = [("a0", record(("x", "int"), name="r0"))]
    for n in range(1, 30):
        doubled.append((f"a{n}", record(("x", f"r{n - 1}"), ("y", f"r{n - 1}"), name=f"r{n}")))
    schemas.add(record(*doubled))
    for schema_id, reason in ((1, "nested more than 32 levels deep"), (2, "expand to too many types")):
        with pytest.raises(SchemaError, match=reason):
            reasons(envelope(schemas, "id BIGINT", partition=(), ordering=()), framed(schema_id, DATUM))


def test_value_whose_schema_is_no_record_is_bad() -> None:
    schemas = MemorySchemas()
    schema = schemas.add("string")
    reader = envelope(schemas, "id BIGINT", partition=(), ordering=())
    assert reasons(reader, schemas.message(schema, "x")) == [
        "the value is not an Avro record: schema 1 (memory/1) is string"
    ]


def test_avro_without_a_source_of_schemas_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lsm\.kafka\.format=avro needs .*lsm\.kafka\.schema\.registry\.url"):
        Envelope(event_columns("id BIGINT"), ("id",), format=EventFormat.AVRO)


# --- tombstones and their keys ----------------------------------------------------------------------------------------


def test_tombstones_are_read_by_avro_keys_and_by_those_of_json() -> None:
    schemas = MemorySchemas()
    whole, single = schemas.add(record(("id", "int"), ("country", "string"), name="Key")), schemas.add("long")
    partitionless = schemas.add(record(("id", "long"), name="Key"))
    reader = envelope(schemas)
    keys = [
        schemas.message(whole, {"id": 1, "country": "DE"}), b'{"id":2,"country":"FR"}',
        schemas.message(whole, {"id": 3, "country": "DE"}), schemas.message(partitionless, {"id": 4}),
        schemas.message(single, 5), framed(whole, b"\x02"), b"\0\0", None,
    ]  # fmt: skip
    found = rows(reader, [(key, None) for key in keys])
    assert [(row["id"], row["country"], row["_lsm_tombstone"], row["_lsm_delete"]) for row in found[:3]] == [
        (1, "DE", True, True), (2, "FR", True, True), (3, "DE", True, True)
    ]  # fmt: skip
    unplaced = (
        "a delete without a value is placed by its key, and the key has no partition column 'country': only a table "
        "whose partition follows from the key, or without partitions, can take it"
    )
    assert [row["_lsm_bad"] for row in found] == [
        None, None, None, unplaced, unplaced,
        f"the key does not follow schema {whole}: field 'country' reaches past the record's end",
        "the key has 2 bytes, fewer than magic byte and schema id",
        "a delete without a value needs a key, and the key is null",
    ]  # fmt: skip


def test_key_of_one_column_may_be_its_value() -> None:
    schemas = MemorySchemas()
    text, number = schemas.add("string"), schemas.add(nullable("int"))
    reader = envelope(schemas, "id BIGINT", partition=(), ordering=())
    keys = [
        schemas.message(text, "7"),
        schemas.message(number, 8),
        b"9",
        schemas.message(text, "x"),
        schemas.message(number, None),
    ]
    found = rows(reader, [(key, None) for key in keys])
    assert [row["id"] for row in found] == [7, 8, 9, None, None]
    assert [row["_lsm_bad"] for row in found[3:]] == [
        "column 'id' holds 'x', which is not BIGINT", "record key column 'id' is null or empty"
    ]  # fmt: skip


def test_key_that_is_no_record_of_several_columns_is_bad() -> None:
    schemas = MemorySchemas()
    text = schemas.add("string")
    reader = envelope(schemas, "id BIGINT, n INT", partition=(), ordering=(), record_key=("id", "n"))
    [row] = rows(reader, [(schemas.message(text, "7"), None)])
    assert row["_lsm_bad"] == "the key is not a record of the record key columns: schema 1 (memory/1) is string"


# --- Debezium ---------------------------------------------------------------------------------------------------------

ENVELOPED = (
    "id BIGINT, country STRING, name STRING, price DECIMAL(10,2), at TIMESTAMP, _event_lsn BIGINT, "
    "_change_operation_type STRING, _upstream_event_processed_ts_ms BIGINT, _event_pos BIGINT"
)
AFTER = record(
    ("id", "int"), ("country", nullable("string")), ("extra", "bytes"), ("name", nullable("string")),
    ("price", nullable(DECIMAL)), ("at", nullable(connect("long", "io.debezium.time.MicroTimestamp"))),
    namespace="shop.public.orders",
)  # fmt: skip


class Topic:
    """A topic of Debezium, with its schemas."""

    def __init__(
        self, ddl: str = ENVELOPED, partition: tuple[str, ...] = ("country",), ordering: str = "_event_lsn"
    ) -> None:
        self.schemas = MemorySchemas()
        self.value = self.schemas.add(debezium(AFTER, ("lsn", nullable("long"))))
        self.key = self.schemas.add(record(("id", "int"), name="Key", namespace="shop.public.orders"))
        self.decoder = Decoder(
            envelope(self.schemas, ddl, kind=EventFormat.DEBEZIUM_AVRO, partition=partition, ordering=("_event_lsn",))
        )

    def row(self, number: int, **more: Any) -> Row:
        return {"id": number, "country": "DE", "extra": b"x", "name": "n", "price": Decimal("1.50"), "at": 5} | more

    def change(self, op: str, before: Row | None, after: Row | None, lsn: int | None = 7) -> bytes:
        source = {"version": "3.0", "lsn": lsn}
        return self.schemas.message(
            self.value, {"before": before, "after": after, "source": source, "op": op, "ts_ms": 9}
        )

    def key_of(self, number: int) -> bytes:
        return self.schemas.message(self.key, {"id": number})

    def rows(self, *messages: Message, first: int = 0) -> list[Row]:
        sources = [("t", 0, first + place) for place in range(len(messages))]
        return self.decoder.decode(kafka_messages(messages, sources=sources)).to_pylist()


def test_envelopes_upsert_the_row_after_and_delete_the_row_before() -> None:
    topic = Topic()
    found = topic.rows(
        (topic.key_of(1), topic.change("c", None, topic.row(1))),
        (topic.key_of(2), topic.change("u", topic.row(2, name="old"), topic.row(2, country="FR"), 8)),
        (topic.key_of(3), topic.change("d", topic.row(3), None, 9)),
        (topic.key_of(4), topic.change("r", None, topic.row(4, name=None, price=None, at=None), 10)),
    )
    assert [row["_lsm_bad"] for row in found] == [None] * 4
    assert {name: value for name, value in found[0].items() if not name.startswith("_lsm")} == {
        "id": 1, "country": "DE", "name": "n", "price": Decimal("1.50"), "at": datetime(1970, 1, 1, 0, 0, 0, 5, UTC),
        "_event_lsn": 7, "_change_operation_type": "c", "_upstream_event_processed_ts_ms": 9, "_event_pos": None,
    }  # fmt: skip
    assert [(row["id"], row["country"], row["name"], row["_event_lsn"], row["_lsm_delete"]) for row in found[1:]] == [
        (2, "FR", "n", 8, False), (3, "DE", None, 9, True), (4, "DE", None, 10, False)
    ]  # fmt: skip
    assert found[2]["_change_operation_type"] is None


def test_tombstone_right_after_the_delete_of_its_key_is_dropped_and_another_is_bad() -> None:
    topic = Topic()
    first = topic.rows((topic.key_of(1), topic.change("d", topic.row(1), None)))
    second = topic.rows((topic.key_of(1), None), (topic.key_of(1), None), first=1)
    assert [row["_lsm_offset"] for row in first + second] == [0, 2]
    assert "the key has no partition column 'country'" in second[0]["_lsm_bad"]


def test_tombstone_of_an_unpartitioned_table_deletes_the_key_in_its_avro_key() -> None:
    topic = Topic(partition=())
    [row] = topic.rows((topic.key_of(5), None))
    assert (row["id"], row["_lsm_tombstone"], row["_lsm_bad"]) == (5, True, None)


def test_delete_without_a_row_is_read_by_its_avro_key() -> None:
    topic = Topic(partition=())
    found = topic.rows((topic.key_of(5), topic.change("d", None, None)), (b'{"id":6}', topic.change("d", None, None)))
    assert [(row["id"], row["_lsm_delete"], row["_lsm_tombstone"], row["_event_lsn"]) for row in found] == [
        (5, True, False, 7), (6, True, False, 7)
    ]  # fmt: skip


REFUSED: list[tuple[str, bool, bool, str]] = [
    ("t", False, False, "a truncate (op 't') is not applied to the table"),
    ("m", False, True, "op 'm' is not known"),
    ("u", True, False, "op 'u' without a row in 'after'"),
]


@pytest.mark.parametrize(("op", "before", "after", "reason"), REFUSED)
def test_envelope_that_is_no_change_is_bad(op: str, before: bool, after: bool, reason: str) -> None:
    topic = Topic()
    [row] = topic.rows((b"k", topic.change(op, topic.row(1) if before else None, topic.row(1) if after else None)))
    assert row["_lsm_bad"] == reason


def test_envelope_without_an_operation_or_of_another_form_is_told_from_one() -> None:
    topic = Topic()
    flat = topic.schemas.add(AFTER)
    [row] = topic.rows((b"k", topic.schemas.message(flat, topic.row(1))))
    assert row["_lsm_bad"] == "the value is no Debezium envelope: it has no 'op'"
    for fields, reason in (
        ((("op", "int"), ("after", "string")), "field 'op' is int, and in a Debezium envelope it is text"),
        ((("op", "string"), ("after", "string")), "field 'after' is string, and in a Debezium envelope it is a record"),
    ):
        other = topic.schemas.add(record(*fields, name="Envelope"))
        with pytest.raises(SchemaError, match=reason):
            topic.rows((b"k", framed(other, b"")))


def test_only_identity_columns_of_a_deleted_row_are_judged() -> None:
    topic = Topic("id BIGINT, country STRING, name INT, _event_lsn BIGINT")
    found = topic.rows(
        (b"k", topic.change("d", topic.row(1), None)),
        (b"k", topic.change("c", None, topic.row(1))),
        (b"k", topic.change("d", topic.row(1, country=None), None)),
        (b"k", topic.change("d", topic.row(1, country=None, name=None), None)),
    )
    assert [row["_lsm_bad"] for row in found] == [
        None, "column 'name' holds 'n', which is not INT", None,
        "the deleted row ('before') has nothing but its key, so partition column 'country' is not known: "
        "set REPLICA IDENTITY FULL",
    ]  # fmt: skip
    assert found[2]["country"] is None


def test_unchanged_large_values_are_bad_as_text_and_as_bytes() -> None:
    topic = Topic("id BIGINT, country STRING, name STRING, extra BINARY, _event_lsn BIGINT")
    unavailable = "__debezium_unavailable_value"
    found = topic.rows(
        (b"k", topic.change("u", None, topic.row(1, name=unavailable))),
        (b"k", topic.change("u", None, topic.row(1, extra=unavailable.encode()))),
        (b"k", topic.change("u", None, topic.row(1))),
    )
    assert [row["_lsm_bad"] for row in found] == [
        f"column '{name}' was not sent (unchanged large value): set REPLICA IDENTITY FULL" for name in ("name", "extra")
    ] + [None]


def test_a_fault_in_the_row_before_is_found_though_it_is_not_read() -> None:
    topic = Topic()
    good = topic.change("u", topic.row(1), topic.row(2))
    [bad, kept] = topic.rows((b"k", good[:9] + b"\xff" * 11 + good[9:]), (b"k", good))
    assert bad["_lsm_bad"].startswith("the value does not follow schema 1: field 'before.")
    assert kept["id"] == 2


# --- fields that the table does not have ------------------------------------------------------------------------------

INSIDE = record(("a", "int"), ("b", nullable("string")), ("c", ["null", "int", "string"]), ("d", "long"), name="Inside")
WIDER = record(
    ("id", "long"), ("sure", "string"), ("maybe", ["int", "null"]), ("none", "null"),
    ("many", ["int", "string", "null"]), ("st", nullable(INSIDE)),
    ("late", nullable(array("int"))), namespace="shop",
)  # fmt: skip
FULL: Row = {"a": 1, "b": "x", "c": 5, "d": 6}
ROWS: list[tuple[Row, set[str]]] = [
    ({"maybe": 1, "many": "x", "st": FULL, "late": [1]}, {"maybe", "many", "late", "st.b", "st.c", "st.d"}),
    ({"maybe": None, "many": None, "st": FULL | {"b": None, "c": None}, "late": []}, {"late", "st.c", "st.d"}),
    ({"maybe": None, "many": 7, "st": None, "late": None}, {"many"}),
]


@pytest.mark.parametrize("kind", [EventFormat.AVRO, EventFormat.DEBEZIUM_AVRO])
def test_fields_that_the_table_does_not_have_are_counted_where_they_are_not_null(kind: EventFormat) -> None:
    schemas, counts = MemorySchemas(), Counter[str]()
    debezium_form = kind.is_debezium
    schema = schemas.add(debezium(WIDER) if debezium_form else WIDER)
    reader = envelope(schemas, "id BIGINT, st STRUCT<a: INT, z: STRING>", kind=kind, partition=(), ordering=())
    values = [{"id": 1, "sure": "s", "none": None} | row for row, _ in ROWS]
    source = {"source": {"version": "3.0"}, "ts_ms": None}
    sent: list[Any] = [{"before": values[0], "after": row, "op": "u"} | source for row in values]
    sent.append({"before": values[0], "after": None, "op": "d"} | source)
    messages = [schemas.message(schema, one) for one in (sent if debezium_form else values)]
    messages.append(b"no event")
    found = AvroRows(reader, count=counts.update)
    assert sum(len(rows.places) for rows in found.read(pa.array(messages, pa.binary()))) == len(messages) - 1
    assert counts == Counter(name for _, names in ROWS for name in (*names, "sure"))
    keys = pa.nulls(len(messages), pa.binary())
    exact = ExactAvroReader(reader).events(pa.array(messages, pa.binary()), keys)
    assert [event.unknown for event in exact[:3]] == [names | {"sure"} for _, names in ROWS]
    assert all(event.unknown == frozenset() for event in exact[3:])
    # An array in a text is read exactly.
    for ddl in ("id BIGINT, st STRUCT<a: INT>", "id BIGINT, st STRUCT<a: INT>, late STRING"):
        decoder = Decoder(envelope(schemas, ddl, kind=kind, partition=(), ordering=()))
        decoder.decode(kafka_messages([(None, message) for message in messages]))
        assert decoder.unknown_fields == Counter(
            name for _, names in ROWS for name in (*names, "sure") if f"{name} " not in ddl
        )
