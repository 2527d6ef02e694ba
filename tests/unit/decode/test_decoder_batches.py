"""Batches of messages: of several partitions, calls, forms and schemas, of bad events only, and of plain ones only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from streaming_lsm.decode.decoder import PAYLOAD_BYTES, Decoder, Messages
from streaming_lsm.decode.envelope import Envelope, EventFormat
from streaming_lsm.decode.exact_reader import ExactReader
from tests.support.event_columns import JSON_FORMATS, Message, event_columns, kafka_messages

COLUMNS = event_columns(
    "id BIGINT, country STRING, name STRING, qty INT, price DECIMAL(10,2), ratio DOUBLE, ok BOOLEAN, day DATE, "
    "at TIMESTAMP COMMENT 'micros', plain TIMESTAMP, blob BINARY, tags ARRAY<INT>, place STRUCT<lat: DOUBLE>"
)
FLAT = Envelope(COLUMNS, ("id",), ("country",), ("at",))
DEBEZIUM = Envelope(COLUMNS, ("id",), ("country",), ("at",), EventFormat.DEBEZIUM)
UNPARTITIONED = {kind: Envelope(COLUMNS, ("id",), (), ("at",), kind) for kind in JSON_FORMATS}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]
Source = tuple[str, int, int]


def row_of(number: int) -> Row:
    return {
        "id": number, "country": "DE", "name": f"ž{number}", "qty": number % 7, "price": 0.25 + number % 1000,
        "ratio": number / 8, "ok": number % 2 == 0, "day": "2026-01-02", "at": number, "plain": "2026-01-02T03:04:05Z",
        "blob": "aGk=", "tags": [number % 5, None], "place": {"lat": 1.5}, "unknown": {"x": [number]},
    }  # fmt: skip


def compact(document: object) -> bytes:
    """A document as Kafka Connect writes it."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def wrapped(payload: object, **semantics: str) -> bytes:
    """A flat document in Kafka Connect's wrapper."""
    fields = [{"type": "int64", "optional": True, "name": name, "field": field} for field, name in semantics.items()]
    return compact({"schema": {"type": "struct", "fields": fields, "optional": False}, "payload": payload})


def change_wrapped(change: object) -> bytes:
    side = {"type": "struct", "fields": [{"type": "int64", "field": "id"}], "optional": True}
    fields = [{**side, "field": "before"}, {**side, "field": "after"}, {"type": "string", "field": "op"}]
    return compact({"schema": {"type": "struct", "fields": fields, "name": "t.Envelope"}, "payload": change})


def created(number: int) -> bytes:
    return compact({"before": None, "after": row_of(number), "source": {"lsn": number}, "op": "c", "ts_ms": 5})


def deleted(number: int) -> bytes:
    return compact({"before": row_of(number), "after": None, "source": {"lsn": number}, "op": "d", "ts_ms": 5})


def key_of(number: int) -> bytes:
    return compact({"id": number})


def decoded(decoder: Decoder, messages: Sequence[Message], sources: Sequence[Source] | None = None) -> list[Row]:
    return decoder.decode(kafka_messages(messages, sources=sources)).to_pylist()


# --- forms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("envelope", [FLAT, DEBEZIUM])
def test_values_that_are_sent_otherwise_from_one_batch_to_the_next_are_read_as_ever(envelope: Envelope) -> None:
    ways: list[dict[str, Any]] = [{}, {"price": "7.25", "qty": "3"}, {"at": "2026-01-02T03:04:05Z", "ok": "true"}, {}]
    rows = [[row_of(number) | way for number in range(20)] for way in ways]
    if envelope is DEBEZIUM:
        rows = [[{"before": None, "after": row, "op": "c"} for row in batch] for batch in rows]
    decoder = Decoder(envelope)
    for batch in rows:
        messages: list[Message] = [(None, compact(document)) for document in batch]
        alone = [decoded(Decoder(envelope), [message])[0] for message in messages]
        assert decoded(decoder, messages) == [row | {"_lsm_offset": 100 + place} for place, row in enumerate(alone)]


# --- tombstones -------------------------------------------------------------------------------------------------


def test_tombstone_that_repeats_the_delete_of_an_earlier_call_is_dropped() -> None:
    decoder = Decoder(DEBEZIUM)
    messages: list[Message] = [(key_of(1), deleted(1)), (key_of(1), None), (key_of(1), None), (key_of(2), deleted(2))]
    [delete] = decoded(decoder, messages[:1], [("t", 0, 10)])
    assert (delete["_lsm_delete"], delete["_lsm_bad"], delete["id"]) == (True, None, 1)
    again, last = decoded(decoder, messages[1:], [("t", 0, 11), ("t", 0, 12), ("t", 0, 13)])
    assert (again["_lsm_offset"], again["_lsm_tombstone"], again["id"]) == (12, False, None)
    assert again["_lsm_bad"].startswith("a delete without a value is placed by its key")
    assert (last["_lsm_offset"], last["_lsm_bad"]) == (13, None)
    assert decoded(decoder, [(key_of(2), None)], [("t", 0, 14)]) == []


@pytest.mark.parametrize(
    "before", [[(key_of(1), created(1))], [(key_of(2), deleted(2))], [(key_of(1), deleted(1)), (b"k", b"poison")]]
)
def test_tombstone_after_another_event_of_an_earlier_call_is_bad(before: list[Message]) -> None:
    decoder = Decoder(DEBEZIUM)
    decoded(decoder, before)
    [row] = decoded(decoder, [(key_of(1), None)], [("t", 2, 110)])
    assert row["_lsm_bad"].startswith("a delete without a value is placed by its key")
    assert (row["id"], row["_lsm_tombstone"]) == (None, False)


def test_the_delete_before_a_tombstone_is_looked_for_in_its_topic_partition() -> None:
    messages: list[Message] = [
        (key_of(1), deleted(1)), (key_of(2), deleted(2)), (key_of(3), deleted(3)),
        (key_of(2), None), (key_of(3), None), (key_of(1), None),
        (key_of(4), deleted(4)), (key_of(5), deleted(5)), (key_of(5), None), (key_of(4), None), (key_of(4), None),
    ]  # fmt: skip
    sources = [
        ("t", 0, 5), ("t", 1, 5), ("u", 0, 5),
        ("t", 1, 6), ("u", 0, 6), ("t", 0, 6),
        ("t", 0, 7), ("t", 1, 7), ("t", 0, 8), ("t", 1, 8), ("v", 0, 9),
    ]  # fmt: skip
    found = decoded(Decoder(DEBEZIUM), messages, sources)
    places = [(row["_lsm_topic"], row["_lsm_partition"], row["_lsm_offset"]) for row in found]
    assert places == [*sources[:3], *sources[6:]]
    assert [row["_lsm_bad"] is None for row in found] == [True] * 5 + [False] * 3
    # Only the first message of a topic partition may still follow a delete that the sink knows.
    assert [(row["id"], row["_lsm_tombstone"]) for row in found[5:]] == [(None, False), (None, False), (4, True)]


def test_messages_of_two_topic_partitions_keep_their_order_and_places() -> None:
    decoder = Decoder(DEBEZIUM)
    for call in range(3):
        numbers = range(100 * call, 100 * call + 100)
        sources = [("t", number % 2, number // 2) for number in numbers]
        messages: list[Message] = [(key_of(number), created(number)) for number in numbers]
        found = decoded(decoder, messages, sources)
        assert [row["id"] for row in found] == list(numbers)
        assert [(row["_lsm_topic"], row["_lsm_partition"], row["_lsm_offset"]) for row in found] == sources


@pytest.mark.parametrize("kind", list(JSON_FORMATS))
def test_tombstones_with_keys_of_all_forms_delete_their_keys(kind: EventFormat) -> None:
    forms = (
        lambda number: key_of(number),
        lambda number: wrapped({"id": number}),
        lambda number: str(number).encode(),
        lambda number: f'"{number}"'.encode(),
        lambda number: f' {{ "id" : "{number}" }}'.encode(),
    )
    keys = [forms[number % len(forms)](number) for number in range(5000)]
    found = decoded(Decoder(UNPARTITIONED[kind]), [(key, None) for key in keys])
    assert [row["id"] for row in found] == list(range(5000))
    for row in found:
        assert (row["_lsm_bad"], row["_lsm_delete"], row["_lsm_tombstone"], row["at"]) == (None, True, True, None)


@pytest.mark.parametrize("wrap", [False, True])
def test_keys_of_one_form_place_their_tombstones_in_the_partition(wrap: bool) -> None:
    keys = [{"id": number, "country": "DE" if number % 3 else "FR"} for number in range(5000)]
    messages: list[Message] = [(wrapped(key) if wrap else compact(key), None) for key in keys]
    found = decoded(Decoder(DEBEZIUM), messages)
    assert [{"id": row["id"], "country": row["country"]} for row in found] == keys
    assert {row["_lsm_bad"] for row in found} == {None}


# --- bad events and large ones ----------------------------------------------------------------------------------

POISON = [
    b"", b"null", b"{}null{}", b"{}{}", b"[]", b"\xff", b"{", b'{"id":', b'{"id":}', b'{"id":1,}', b'{"id":"x"}',
    b'{"id":{}}', b'{"id":1,"at":null}', b'{"id":1,"at":5,"ratio":NaN}', b'{"id":1,"at":5,"price":1.005}',
    b'{"id":1,"at":5,"tags":["x"]}', b'{"id":1,"at":5,"name":"\n"}', b'{"id":1,"at":"x"}', b'{"at":5}', b"x" * 70_000,
    b'{"id":1,"at":5,"qty":2147483648}', b'{"schema":{},"payload":5}', b'{"id":1,"at":5,"_hoodie_is_deleted":"?"}',
    b'{"id":1,"at":5,"x":' + b"[" * 2000 + b"]" * 2000 + b"}", b'{"id":1}}', b'{"id":1,"at":5}{"id":2,"at":5}',
]  # fmt: skip


@pytest.mark.parametrize("reader", [FLAT, DEBEZIUM], ids=["flat", "debezium"])
def test_batch_of_nothing_but_poison_has_a_reason_for_each_message(reader: Envelope) -> None:
    values = POISON * 40
    found = decoded(Decoder(reader), [(b"k", value) for value in values])
    exact = ExactReader(reader)
    reasons = {value: exact.read(value, b"k").reason for value in POISON}
    assert None not in reasons.values()
    assert [row["_lsm_bad"] for row in found] == [reasons[value] for value in values]
    assert [row["_lsm_payload"] for row in found] == [value[:PAYLOAD_BYTES] for value in values]
    assert {row["id"] for row in found} == {None}


@pytest.mark.parametrize("poison", POISON)
def test_poison_leaves_the_messages_around_it_as_they_are(poison: bytes) -> None:
    numbers = list(range(300))
    plain: list[Message] = [(b"k", compact(row_of(number))) for number in numbers]
    found = decoded(Decoder(FLAT), [*plain[:150], (b"k", poison), *plain[150:]])
    assert found.pop(150)["_lsm_bad"]
    assert [row["_lsm_bad"] for row in found] == [None] * 300
    assert [(row["id"], row["name"], row["at"]) for row in found] == [
        (number, f"ž{number}", EPOCH + timedelta(microseconds=number)) for number in numbers
    ]


@pytest.mark.parametrize("reader", [FLAT, DEBEZIUM], ids=["flat", "debezium"])
def test_document_of_ten_megabytes_is_read_beside_small_ones(reader: Envelope) -> None:
    large = "ž" * 5_000_000
    rows = [{**row_of(number), **({"name": large} if number == 7 else {})} for number in range(20)]
    documents = [row if reader is FLAT else {"op": "c", "after": row} for row in rows]
    found = decoded(Decoder(reader), [(b"k", compact(document)) for document in documents])
    assert [(row["_lsm_bad"], row["id"]) for row in found] == [(None, number) for number in range(20)]
    assert [row["name"] == expected["name"] for row, expected in zip(found, rows, strict=True)] == [True] * 20


# --- forms ------------------------------------------------------------------------------------------------------


def test_each_document_is_read_by_the_schema_in_its_own_wrapper() -> None:
    units = ("io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp", "io.debezium.time.NanoTimestamp")
    per_second = (10**3, 10**6, 10**9)
    messages: list[Message] = [
        (b"k", wrapped({**row_of(number), "plain": number * per_second[number % 3]}, plain=units[number % 3]))
        for number in range(300)
    ]
    found = decoded(Decoder(FLAT), messages)
    assert [row["_lsm_bad"] for row in found] == [None] * 300
    assert [row["plain"] for row in found] == [EPOCH + timedelta(seconds=number) for number in range(300)]


def test_more_schemas_than_are_read_together_are_read_all_the_same() -> None:
    messages: list[Message] = []
    for number in range(120):
        other = {f"x{number % 40}": "io.debezium.time.Timestamp"}
        payload = {**row_of(number), "plain": number * 1000}
        messages.append((b"k", wrapped(payload, **other, plain="io.debezium.time.Timestamp")))
    found = decoded(Decoder(FLAT), messages)
    assert [(row["_lsm_bad"], row["plain"]) for row in found] == [
        (None, EPOCH + timedelta(seconds=number)) for number in range(120)
    ]


def test_a_schema_of_some_wrappers_does_not_tell_how_others_send_a_value() -> None:
    row = {**row_of(1), "plain": 1000}
    name = {"plain": "io.debezium.time.Timestamp"}
    found = decoded(Decoder(FLAT), [(b"k", one) for one in (wrapped(row), wrapped(row, **name), compact(row))] * 20)
    bad = "column 'plain' holds '1000', which is not TIMESTAMP"
    assert [row["_lsm_bad"] for row in found] == [bad, None, bad] * 20


@pytest.mark.parametrize("reader", [FLAT, DEBEZIUM], ids=["flat", "debezium"])
def test_strings_that_hold_numbers_are_numbers_where_the_column_is_one(reader: Envelope) -> None:
    rows = [
        {"id": str(number), "country": "49", "name": f"{number}.0", "qty": f"-{number}", "price": f"{number}.50",
         "ratio": f"{number}e-1", "ok": "true", "day": "2026-01-02", "at": str(number)}
        for number in range(1, 200)
    ]  # fmt: skip
    documents = [row if reader is FLAT else {"op": "c", "after": row} for row in rows]
    found = decoded(Decoder(reader), [(b"k", compact(document)) for document in documents])
    for number, row in enumerate(found, 1):
        assert (row["_lsm_bad"], row["id"], row["country"], row["name"]) == (None, number, "49", f"{number}.0")
        assert (row["qty"], row["price"], row["ratio"]) == (-number, Decimal(f"{number}.5"), float(f"{number}e-1"))
        assert (row["ok"], row["at"]) == (True, EPOCH + timedelta(microseconds=number))


def test_messages_read_the_same_in_batches_of_any_size() -> None:
    rows = [{**row_of(number), "qty": "x" if number % 11 == 0 else number} for number in range(90)]
    values = [wrapped(row) if row["id"] % 4 == 0 else compact(row) for row in rows]
    messages: list[Message] = [(b"k", None if place % 13 == 0 else value) for place, value in enumerate(values)]
    batch = kafka_messages(messages)
    together = Decoder(FLAT).decode(batch).to_pylist()
    assert len({row["_lsm_bad"] for row in together}) == 3
    for size in (1, 7, 89):
        pieces = [batch.slice(begin, size) for begin in range(0, len(batch), size)]
        decoder = Decoder(FLAT)
        assert [row for piece in pieces for row in decoder.decode(piece).to_pylist()] == together
        joined = Messages(FLAT, "UTC").decoder().decoded(pieces)
        assert [row for one in joined for row in one.to_pylist()] == together


@pytest.mark.parametrize("reader", [FLAT, DEBEZIUM], ids=["flat", "debezium"])
def test_batch_without_messages_has_no_rows(reader: Envelope) -> None:
    decoder = Decoder(reader)
    found = decoder.decode(kafka_messages([]))
    assert (len(found), found.schema) == (0, decoder.schema)


# --- plain messages ---------------------------------------------------------------------------------------------


def deletes_of(row: Row) -> Row:
    return {**row, "_hoodie_is_deleted": row["id"] % 3 == 0}


MARKED = (
    "Hello {name}!", '{"price": 1, "b": {}}', "{} {}", "}null{", "Info", "NaN", "Infinity or Inf", "a -0 b", "[-0]",
    "\\", 'ends in \\"', '"}\\', '"price":123456789012', "}\n{", "price",
)  # fmt: skip
"""Texts of what only the exact reader understands outside of strings."""


def marked_row(number: int) -> Row:
    text = MARKED[number % len(MARKED)]
    more = {"deviceInfo": text, "NaN": "NaN", "userInf": {"}{": [text]}, "unit_price": 10**14 + number}
    return {**deletes_of(row_of(number)), "name": text, **more}


PLAIN: dict[str, tuple[Envelope, list[Message]]] = {
    "flat-marked-texts": (FLAT, [(b"k", compact(marked_row(number))) for number in range(600)]),
    "debezium-marked-texts": (
        UNPARTITIONED[EventFormat.DEBEZIUM],
        [
            (key_of(n), compact({"before": marked_row(n), "after": None if n % 3 == 0 else marked_row(n), "op": op}))
            for n in range(600)
            for op in ("d" if n % 3 == 0 else "u",)
        ],
    ),
    "flat": (FLAT, [(b"k", compact(deletes_of(row_of(number)))) for number in range(600)]),
    "flat-wrapped": (FLAT, [(b"k", wrapped(deletes_of(row_of(number)))) for number in range(600)]),
    "flat-tombstones": (
        FLAT,
        [(compact({"id": n, "country": "DE"}), None if n % 3 == 0 else compact(row_of(n))) for n in range(600)],
    ),
    "flat-wrapped-tombstones": (
        FLAT,
        [(wrapped({"id": n, "country": "DE"}), None if n % 3 == 0 else wrapped(row_of(n))) for n in range(600)],
    ),
    "flat-plain-keys": (
        UNPARTITIONED[EventFormat.JSON],
        [(str(n).encode(), None if n % 3 == 0 else compact(row_of(n))) for n in range(600)],
    ),
    "debezium": (
        DEBEZIUM,
        [(key_of(n), value) for n in range(200) for value in (created(n), deleted(n), None)],
    ),
    "debezium-wrapped": (
        DEBEZIUM,
        [
            (wrapped({"id": n}), value and change_wrapped(json.loads(value)))
            for n in range(200)
            for value in (created(n), deleted(n), None)
        ],
    ),
    "debezium-unpartitioned": (
        UNPARTITIONED[EventFormat.DEBEZIUM],
        [(key_of(n), value) for n in range(200) for value in (created(n), deleted(n), None)],
    ),
    "debezium-tombstones": (
        DEBEZIUM,
        [(compact({"id": n, "country": "DE"}), None if n % 3 == 0 else created(n)) for n in range(600)],
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_messages_are_never_read_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, messages = PLAIN[name]
    exact = [ExactReader(reader).read(value, key) for key, value in messages]

    def refuse(*_: object) -> None:
        raise AssertionError("a plain message is read by the exact reader")

    monkeypatch.setattr(ExactReader, "read", refuse)
    found = decoded(Decoder(reader), messages)
    dropped = [value is None and name in ("debezium", "debezium-wrapped") for _, value in messages]
    expected = [event for event, gone in zip(exact, dropped, strict=True) if not gone]
    assert [row["_lsm_bad"] for row in found] == [None] * len(expected)
    assert [(row["id"], row["_lsm_delete"], row["_lsm_tombstone"]) for row in found] == [
        (event.values["id"], event.delete, event.tombstone) for event in expected
    ]
    assert any(event.delete for event in expected)
