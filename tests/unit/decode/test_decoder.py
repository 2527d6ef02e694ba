"""Messages as Kafka holds them, and the rows they become: what is an event, and the reasons against what is none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm.decode.decoder import PAYLOAD_BYTES, Decoder
from streaming_lsm.decode.envelope import Envelope, EventFormat
from streaming_lsm.errors import ConfigError
from tests.support.event_columns import JSON_FORMATS, Message, event_columns, kafka_messages

COLUMNS = (
    "id BIGINT, country STRING, name STRING, qty INT, small TINYINT, price DECIMAL(10,2), ratio DOUBLE, ok BOOLEAN, "
    "day DATE, at TIMESTAMP COMMENT 'micros', plain TIMESTAMP, blob BINARY, tags ARRAY<INT>"
)
Row = dict[str, Any]


def envelope(kind: EventFormat = EventFormat.JSON, *, partition: tuple[str, ...] = ("country",)) -> Envelope:
    return Envelope(event_columns(COLUMNS), ("id",), partition, ("at",), kind)


def rows(reader: Envelope, messages: Sequence[Message]) -> list[Row]:
    return Decoder(reader).decode(kafka_messages(messages)).to_pylist()


@cache
def together(kind: EventFormat, messages: tuple[Message, ...]) -> dict[Message, Row]:
    """The row of each of many messages of one batch."""
    return dict(zip(messages, rows(envelope(kind), messages), strict=True))


def dump(**document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


GOOD: dict[str, Any] = {"id": 1, "country": "DE", "at": "2026-01-02T03:04:05.000006Z"}


def test_flat_row_becomes_an_upsert_with_typed_values() -> None:
    value = dump(
        **GOOD, name="ž🎁", qty=-5, small=-128, price=12.5, ratio=1e-3, ok=True, day="2024-02-29",
        plain="2026-01-02 03:04:05+02:00", blob="aGk=", tags=[1, 2], unknown={"x": 1},
    )  # fmt: skip
    [row] = rows(envelope(), [(b"k", value)])
    assert row == {
        "id": 1, "country": "DE", "name": "ž🎁", "qty": -5, "small": -128, "price": Decimal("12.50"), "ratio": 0.001,
        "ok": True, "day": date(2024, 2, 29), "at": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "plain": datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC), "blob": b"hi", "tags": [1, 2], "_lsm_delete": False,
        "_lsm_tombstone": False, "_lsm_bad": None, "_lsm_topic": "t", "_lsm_partition": 2, "_lsm_offset": 100,
        "_lsm_payload": None,
    }  # fmt: skip


CONVERTED: list[tuple[str, Any, object]] = [
    ("qty", "7", 7),
    ("price", "99999999.99", Decimal("99999999.99")),
    ("price", "12.3400000", Decimal("12.34")),
    ("price", 7, Decimal("7.00")),
    ("day", 19000, date(2022, 1, 8)),
    ("day", -1, date(1969, 12, 31)),
    ("at", 1_700_000_000_123_456, datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)),
    ("at", -1, datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("at", "2026-01-02", datetime(2026, 1, 2, tzinfo=UTC)),
    ("name", 5, "5"),
    ("name", True, "true"),
    ("name", "", ""),
]


@pytest.mark.parametrize(("field", "value", "expected"), CONVERTED)
def test_values_that_lose_nothing_are_converted(field: str, value: Any, expected: object) -> None:
    every = tuple((b"k", dump(**{**GOOD, name: one})) for name, one, _ in CONVERTED)
    row = together(EventFormat.JSON, every)[b"k", dump(**{**GOOD, field: value})]
    assert row["_lsm_bad"] is None
    assert row[field] == expected


MISFITS: list[tuple[str, Any, str]] = [
    ("qty", 2**31, "column 'qty' holds '2147483648', which is not INT"),
    ("qty", 1.5, "column 'qty' holds '1.5', which is not INT"),
    ("qty", "many", "column 'qty' holds 'many', which is not INT"),
    ("qty", {"a": 1}, "column 'qty' holds '{\"a\":1}', which is not INT"),
    ("small", 200, "column 'small' holds '200', which is not TINYINT"),
    ("price", "1.005", "column 'price' holds '1.005', which is not DECIMAL(10,2)"),
    ("price", 123456789, "column 'price' holds '123456789', which is not DECIMAL(10,2)"),
    ("price", "AeJA", "column 'price' holds 'AeJA', which is not DECIMAL(10,2)"),
    ("ratio", "NaN", "column 'ratio' holds 'NaN', which is not DOUBLE"),
    ("ok", 1, "column 'ok' holds '1', which is not BOOLEAN"),
    ("day", "2024-02-30", "column 'day' holds '2024-02-30', which is not DATE"),
    ("day", 99_999_999, "column 'day' holds '99999999', which is not DATE"),
    ("at", "yesterday", "column 'at' holds 'yesterday', which is not TIMESTAMP"),
    ("at", "T12:00:00", "column 'at' holds 'T12:00:00', which is not TIMESTAMP"),
    ("at", 2**62, "column 'at' holds '4611686018427387904', which is not TIMESTAMP"),
    ("plain", 1_700_000_000, "column 'plain' holds '1700000000', which is not TIMESTAMP"),
    ("blob", "**", "column 'blob' holds '**', which is not BINARY"),
    ("tags", "x", "column 'tags' holds 'x', which is not ARRAY<INT>"),
    ("tags", [1, "x"], "column 'tags' holds '[1,\"x\"]', which is not ARRAY<INT>"),
    ("id", "one", "column 'id' holds 'one', which is not BIGINT"),
    ("id", None, "record key column 'id' is null or empty"),
    ("at", None, "ordering column 'at' is null"),
    ("_hoodie_is_deleted", "maybe", "field '_hoodie_is_deleted' holds 'maybe', which is not BOOLEAN"),
]


@pytest.mark.parametrize(("field", "value", "reason"), MISFITS)
def test_value_of_another_type_is_bad_and_named(field: str, value: Any, reason: str) -> None:
    every = tuple((b"k", dump(**{**GOOD, name: one})) for name, one, _ in MISFITS)
    payload = dump(**{**GOOD, field: value})
    row = together(EventFormat.JSON, every)[b"k", payload]
    assert row["_lsm_bad"] == reason
    assert bytes(row["_lsm_payload"]) == payload
    assert row["id"] is None
    assert row["_lsm_delete"] is False


NO_OBJECTS: list[tuple[bytes, str]] = [
    (b"", "the value is empty"),
    (b"  ", "the value is empty"),
    (b"\xff\xfe", "the value is not UTF-8"),
    (b"null", "the value is the JSON null"),
    (b"5", "the value is not a JSON object: 5"),
    (b"[{}]", "the value is not a JSON object: [{}]"),
    (b'{"id":1', 'the value is not a JSON object: {"id":1'),
    (b"{'id':1}", "the value is not a JSON object: {'id':1}"),
    (b'{"id":1}{"id":2}', 'the value is not a JSON object: {"id":1}{"id":2}'),
    (b'{"id":1} more', 'the value is not a JSON object: {"id":1} more'),
]


@pytest.mark.parametrize(("value", "reason"), NO_OBJECTS)
@pytest.mark.parametrize("kind", list(JSON_FORMATS))
def test_payload_that_is_no_json_object_is_bad(kind: EventFormat, value: bytes, reason: str) -> None:
    row = together(kind, tuple((b"k", one) for one, _ in NO_OBJECTS))[b"k", value]
    assert row["_lsm_bad"] == reason


def test_payload_of_a_bad_event_is_cut() -> None:
    [row] = rows(envelope(), [(b"k", b"x" * (PAYLOAD_BYTES + 5))])
    assert len(row["_lsm_payload"]) == PAYLOAD_BYTES
    assert len(row["_lsm_bad"]) < 200


@pytest.mark.parametrize("flag", ["_hoodie_is_deleted", "__deleted"])
def test_flag_makes_a_flat_row_a_delete_with_key_partition_and_order_only(flag: str) -> None:
    marked = dump(**GOOD, **{flag: True}, name="x", qty="ignored, as it is deleted")
    unordered = dump(id=2, country="DE", **{flag: "true"})
    kept = dump(**GOOD, **{flag: False})
    deleted, bare, upsert = rows(envelope(), [(b"k", marked), (b"k", unordered), (b"k", kept)])
    assert (deleted["id"], deleted["country"], deleted["name"], deleted["qty"]) == (1, "DE", None, None)
    assert deleted["at"] == datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert (bare["_lsm_delete"], bare["at"], bare["_lsm_bad"]) == (True, None, None)
    assert upsert["_lsm_delete"] is False
    assert not deleted["_lsm_tombstone"]


def test_delete_flag_that_is_a_column_of_the_table_is_kept() -> None:
    reader = Envelope(event_columns("id BIGINT, v INT, _hoodie_is_deleted BOOLEAN"), ("id",))
    deleted, upsert = rows(reader, [(b"k", dump(id=1, v=1, _hoodie_is_deleted=True)), (b"k", dump(id=1, v=2))])
    assert (deleted["_lsm_delete"], deleted["_hoodie_is_deleted"]) == (True, True)
    assert (upsert["_lsm_delete"], upsert["_hoodie_is_deleted"], upsert["v"]) == (False, None, 2)


def test_flat_row_in_connects_schema_wrapper_uses_its_time_unit() -> None:
    schema = {"type": "struct", "fields": [{"field": "plain", "name": "org.apache.kafka.connect.data.Timestamp"}]}
    value = dump(schema=schema, payload={**GOOD, "plain": 1_700_000_000_123})
    [row] = rows(envelope(), [(b"k", value)])
    assert (row["_lsm_bad"], row["id"]) == (None, 1)
    assert row["plain"] == datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)


@pytest.mark.parametrize("kind", list(JSON_FORMATS))
def test_tombstone_is_placed_by_its_key(kind: EventFormat) -> None:
    keys = (b'{"id": 7, "country": "DE"}', b'{"schema": {"type": "struct"}, "payload": {"id": 7, "country": "DE"}}')
    for row in rows(envelope(kind), [(key, None) for key in keys]):
        assert (row["_lsm_bad"], row["_lsm_delete"], row["_lsm_tombstone"]) == (None, True, True)
        assert (row["id"], row["country"], row["at"]) == (7, "DE", None)


def test_tombstone_of_an_unpartitioned_table_needs_the_key_column_only() -> None:
    keys = (b"7", b'"7"', b'{"id":7}', b'{"id":"7"}', b'{"schema":{"type":"int64"},"payload":7}')
    found = rows(envelope(partition=()), [(key, None) for key in keys])
    assert [(row["_lsm_bad"], row["id"], row["_lsm_tombstone"]) for row in found] == [(None, 7, True)] * len(keys)


UNPLACED: list[tuple[bytes | None, str]] = [
    (None, "a delete without a value needs a key, and the key is null"),
    (b"\xff", "the key is not UTF-8"),
    (b"{7", "the key is not a JSON object: {7"),
    (b"seven", "column 'id' holds 'seven', which is not BIGINT"),
    (b'{"country": "DE"}', "record key column 'id' is null or empty"),
    (b"7", "a delete without a value is placed by its key, and the key has no partition column 'country'"),
    (b'{"id": 7}', "a delete without a value is placed by its key, and the key has no partition column 'country'"),
]


@pytest.mark.parametrize(("key", "reason"), UNPLACED)
def test_tombstone_whose_key_does_not_place_it_is_bad(key: bytes | None, reason: str) -> None:
    row = together(EventFormat.JSON, tuple((one, None) for one, _ in UNPLACED))[key, None]
    assert row["_lsm_bad"].startswith(reason)
    assert row["_lsm_tombstone"] is False


def test_composite_key_may_be_partly_but_not_wholly_null() -> None:
    reader = Envelope(event_columns("a STRING, b STRING, v INT"), ("a", "b"))
    messages: list[Message] = [
        (b"k", dump(a="x", v=1)),
        (b"k", dump(v=1)),
        (b"plain", None),
        (b'{"a":"x","b":"y"}', None),
    ]
    partly, wholly, plain, tombstone = rows(reader, messages)
    assert (partly["_lsm_bad"], partly["a"], partly["b"]) == (None, "x", None)
    assert wholly["_lsm_bad"] == "record key columns a, b are all null or empty"
    assert plain["_lsm_bad"] == "the key is not a JSON object of the record key columns: plain"
    assert (tombstone["_lsm_bad"], tombstone["a"], tombstone["b"]) == (None, "x", "y")


def test_column_declared_not_null_must_be_there() -> None:
    reader = Envelope(event_columns("id BIGINT, v INT NOT NULL"), ("id",))
    missing, deleted = rows(reader, [(b"k", dump(id=1)), (b"k", dump(id=1, _hoodie_is_deleted=True))])
    assert missing["_lsm_bad"] == "column 'v' is null, declared NOT NULL"
    assert deleted["_lsm_bad"] is None


def test_names_with_dots_and_quotes_are_plain_names() -> None:
    reader = Envelope(event_columns("`a.b` STRING, `it's` DECIMAL(4,1)"), ("a.b",))
    good, bad = rows(reader, [(b"k", dump(**{"a.b": "x", "it's": 1.5})), (b"k", dump(**{"a.b": "x", "it's": "y"}))])
    assert (good["a.b"], good["it's"]) == ("x", Decimal("1.5"))
    assert bad["_lsm_bad"] == "column 'it's' holds 'y', which is not DECIMAL(4,1)"


# --- Debezium ---------------------------------------------------------------------------------------------------


def wrapped(payload: dict[str, Any], **semantics: str) -> bytes:
    fields = [{"field": name, "name": semantic} for name, semantic in semantics.items()]
    sides = [{"field": "before", "fields": fields}, {"field": "after", "fields": fields}, {"field": "op"}]
    return dump(schema={"type": "struct", "fields": sides}, payload=payload)


@pytest.mark.parametrize("wrap", [False, True])
def test_debezium_upsert_takes_the_row_after(wrap: bool) -> None:
    event = {"before": {"id": 1, "name": "old"}, "after": {**GOOD, "name": "new"}, "source": {"lsn": 9}}
    events = [{"op": op, **event} for op in ("c", "r", "u")]
    messages = [(b"k", wrapped(one) if wrap else dump(**one)) for one in events]
    for row in rows(envelope(EventFormat.DEBEZIUM), messages):
        assert (row["_lsm_bad"], row["_lsm_delete"], row["id"], row["name"]) == (None, False, 1, "new")


def test_debezium_delete_takes_key_partition_and_order_from_the_row_before() -> None:
    event = dump(op="d", before={**GOOD, "name": "old", "price": "not read"}, after=None)
    [row] = rows(envelope(EventFormat.DEBEZIUM), [(b"k", event)])
    assert (row["_lsm_bad"], row["_lsm_delete"], row["_lsm_tombstone"]) == (None, True, False)
    assert (row["id"], row["country"], row["name"]) == (1, "DE", None)
    assert row["at"] == datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


def test_debezium_delete_can_be_ordered_by_the_position_in_the_log() -> None:
    reader = Envelope(event_columns("id BIGINT, v INT, _event_lsn BIGINT, _change_operation_type STRING"), ("id",), (),
                      ("_event_lsn",), EventFormat.DEBEZIUM)  # fmt: skip
    messages: list[Message] = [
        (b"k", dump(op="c", after={"id": 1, "v": 2}, source={"lsn": 70})),
        (b"k", dump(op="d", before={"id": 1}, source={"lsn": 71})),
        (b'{"id":1}', dump(op="d", before=None, source={"lsn": 72})),
        (b"k", dump(op="c", after={"id": 1, "v": 2}, source={})),
    ]
    created, deleted, by_key, unordered = rows(reader, messages)
    assert (created["_event_lsn"], created["_change_operation_type"], created["v"]) == (70, "c", 2)
    assert (deleted["_lsm_delete"], deleted["_event_lsn"]) == (True, 71)
    assert (by_key["id"], by_key["_lsm_delete"], by_key["_lsm_tombstone"], by_key["_event_lsn"]) == (1, True, False, 72)
    assert unordered["_lsm_bad"] == "ordering column '_event_lsn' is null"


def test_debezium_delete_with_nothing_but_the_key_is_bad_when_the_table_has_partitions() -> None:
    event = dump(op="d", before={"id": 1, "country": None, "name": None}, after=None, source={"lsn": 1})
    [row] = rows(envelope(EventFormat.DEBEZIUM), [(b"k", event)])
    assert row["_lsm_bad"].startswith(
        "the deleted row ('before') has nothing but its key, so partition column 'country'"
    )
    [whole] = rows(envelope(EventFormat.DEBEZIUM), [(b"k", dump(op="d", before={"id": 1, "name": "x"}))])
    assert (whole["_lsm_bad"], whole["country"]) == (None, None)


def test_partly_null_ordering_values_of_a_delete_are_all_null() -> None:
    reader = Envelope(event_columns("id BIGINT, a INT, b INT"), ("id",), (), ("a", "b"), EventFormat.DEBEZIUM)
    [row] = rows(reader, [(b"k", dump(op="d", before={"id": 1, "a": 5}))])
    assert (row["_lsm_bad"], row["a"], row["b"]) == (None, None, None)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"id": 1}, "the value is no Debezium envelope: it has no 'op'"),
    ({"op": "t"}, "a truncate (op 't') is not applied to the table"),
    ({"op": "m"}, "op 'm' is not known"),
    ({"op": "c", "after": None}, "op 'c' without a row in 'after'"),
    ({"op": "u", "after": 5}, "op 'u' without a row in 'after'"),
    ({"op": "d", "before": None}, "a delete without a value is placed by its key"),
    ({"op": "u", "after": {**GOOD, "name": "__debezium_unavailable_value"}}, "column 'name' was not sent"),
    ({"op": "c", "after": {**GOOD, "price": "x"}}, "column 'price' holds 'x', which is not DECIMAL(10,2)"),
    ({"op": "c", "after": {**GOOD, "plain": 5}}, "column 'plain' holds '5', which is not TIMESTAMP"),
]


@pytest.mark.parametrize(("event", "reason"), REFUSED)
def test_debezium_event_that_cannot_be_applied_is_bad(event: dict[str, Any], reason: str) -> None:
    every = tuple((b"1", dump(**one)) for one, _ in REFUSED)
    row = together(EventFormat.DEBEZIUM, every)[b"1", dump(**event)]
    assert row["_lsm_bad"].startswith(reason)


def test_debezium_schema_tells_the_unit_of_a_timestamp() -> None:
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    before_1970 = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    cases = [
        ("io.debezium.time.Timestamp", 1_700_000_000_123, at.replace(microsecond=123000)),
        ("io.debezium.time.MicroTimestamp", 1_700_000_000_123_456, at.replace(microsecond=123456)),
        ("io.debezium.time.NanoTimestamp", 1_700_000_000_123_456_789, at.replace(microsecond=123456)),
        ("io.debezium.time.NanoTimestamp", -1, before_1970),
    ]
    messages = [
        (b"k", wrapped({"op": "c", "after": {**GOOD, "plain": number}}, plain=name)) for name, number, _ in cases
    ]
    found = rows(envelope(EventFormat.DEBEZIUM), messages)
    assert [row["_lsm_bad"] for row in found] == [None] * len(cases)
    assert [row["plain"] for row in found] == [expected for _, _, expected in cases]


def test_decimal_sent_as_bytes_is_refused_even_when_it_looks_like_a_number() -> None:
    event = wrapped({"op": "c", "after": {**GOOD, "price": "1234"}}, price="org.apache.kafka.connect.data.Decimal")
    [row] = rows(envelope(EventFormat.DEBEZIUM), [(b"k", event)])
    assert row["_lsm_bad"] == "column 'price' holds '1234', which is not DECIMAL(10,2)"


def test_tombstone_behind_its_debezium_delete_is_dropped_where_the_key_does_not_place_it() -> None:
    messages: list[Message] = [
        (b'{"id":9}', None),  # the sink knows what was before it
        (b'{"id":1}', dump(op="d", before=GOOD)),
        (b'{"id":1}', None),
        (b'{"id":1}', dump(op="c", after=GOOD)),
        (b'{"id":1}', None),  # behind an upsert: nothing says where the row is
        (b'{"id":2}', dump(op="d", before={**GOOD, "id": 3})),
        (b'{"id":2}', None),  # of another key
    ]
    found = rows(envelope(EventFormat.DEBEZIUM), messages)
    assert [(row["_lsm_offset"], row["_lsm_bad"] is None, row["_lsm_tombstone"]) for row in found] == [
        (100, False, True), (101, True, False), (103, True, False), (104, False, False), (105, True, False),
        (106, False, False),
    ]  # fmt: skip
    assert (found[0]["id"], found[0]["country"], found[0]["_lsm_delete"]) == (9, None, False)
    assert found[0]["_lsm_bad"].startswith("a delete without a value is placed by its key")


def test_a_key_with_an_empty_part_has_its_tombstone_dropped_too() -> None:
    fields = event_columns("a STRING, b STRING, p STRING, ts BIGINT")
    reader = Envelope(fields, ("a", "b"), ("p",), ("ts",), EventFormat.DEBEZIUM)
    messages: list[Message] = []
    for part in ("", None):
        row = {"a": "A", "b": part, "p": "x", "ts": 1}
        key = dump(a="A", b=part)
        messages += [(key, dump(op="c", after=row)), (key, dump(op="d", before=row)), (key, None)]
    found = rows(reader, messages)
    assert [(row["_lsm_offset"], row["_lsm_bad"]) for row in found] == [
        (100, None),
        (101, None),
        (103, None),
        (104, None),
    ]


@pytest.mark.parametrize("key", [None, b'{"id":null}', b'{"id":"x"}'])
def test_tombstone_without_a_readable_key_is_bad_also_where_a_batch_begins(key: bytes | None) -> None:
    [row] = rows(envelope(EventFormat.DEBEZIUM), [(key, None)])
    assert row["_lsm_bad"]
    assert (row["id"], row["_lsm_tombstone"]) == (None, False)


# --- wrong settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "key", "message"),
    [
        (event_columns("id BIGINT, id INT"), "id", "'id' is declared twice"),
        (event_columns("id BIGINT, _lsm_x INT"), "id", "'_lsm_x': names with _lsm_ are reserved"),
        (event_columns("order_id BIGINT"), "orderid", "no column 'orderid'.*did you mean 'order_id'"),
        (event_columns("id ARRAY<INT>"), "id", "'id' is nested"),
        (event_columns("id BIGINT, at TIMESTAMP COMMENT 'seconds'"), "id", "comment 'seconds'.*names no unit"),
        (event_columns("id BIGINT, x STRUCT<a: ARRAY<TIMESTAMP>>"), "id", "x.a.element is TIMESTAMP"),
        (event_columns("id BIGINT", x=pa.month_day_nano_interval()), "id", "column 'x' is month_day_nano_interval"),
    ],
    ids=["twice", "reserved", "misspelt", "nested-key", "unknown-unit", "nested-timestamp", "interval"],
)
def test_columns_that_cannot_be_read_are_refused_by_name(columns: pa.Schema, key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Envelope(columns, (key,))


def test_times_do_not_depend_on_the_zone_when_they_name_one() -> None:
    [row] = rows(envelope(), [(b"k", dump(**{**GOOD, "at": "2026-06-01T12:00:00+05:30"}))])
    assert row["at"] == datetime(2026, 6, 1, 6, 30, tzinfo=UTC)
