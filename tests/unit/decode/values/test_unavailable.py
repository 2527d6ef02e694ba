"""Debezium's placeholder for a large value that an update did not change, in all its forms: the event is bad.

Forms are written as Debezium's Postgres connector sends them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest

from streaming_lsm.decode.avro.exact_events import ExactAvroReader
from streaming_lsm.decode.decoder import Decoder
from streaming_lsm.decode.envelope import Envelope, EventFormat
from streaming_lsm.decode.exact_reader import ExactReader
from streaming_lsm.decode.values.unavailable import PLACEHOLDER, unavailable
from streaming_lsm.errors import ConfigError
from tests.support.avro_messages import MemorySchemas, debezium, nullable, record
from tests.support.event_columns import event_columns, kafka_messages

UNSENT = "column 'v' was not sent (unchanged large value): set REPLICA IDENTITY FULL"
TEXT = "__debezium_unavailable_value"
BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
NUMBERS = [
    95, 95, 100, 101, 98, 101, 122, 105, 117, 109, 95, 117, 110, 97, 118, 97, 105, 108, 97, 98, 108, 101, 95, 118, 97,
    108, 117, 101,
]  # fmt: skip
REALS = [float(number) for number in NUMBERS]
TEXTS = "ARRAY<STRING>"
FORMS: list[tuple[str, Any]] = [
    ("STRING", TEXT),
    ("STRING", BASE64),
    ("BINARY", BASE64),
    ("BINARY", TEXT),
    ("INT", TEXT),
    (TEXTS, [TEXT]),
    (TEXTS, [UUID]),
    (TEXTS, [BASE64]),
    ("ARRAY<BINARY>", [BASE64]),
    ("ARRAY<SMALLINT>", NUMBERS),
    ("ARRAY<INT>", NUMBERS),
    ("ARRAY<BIGINT>", NUMBERS),
    ("ARRAY<FLOAT>", REALS),
    ("ARRAY<DOUBLE>", REALS),
    ("ARRAY<DOUBLE>", NUMBERS),
    (TEXTS, NUMBERS),
    (TEXTS, REALS),
    ("MAP<STRING,STRING>", {TEXT: TEXT}),
    *(("STRING", form) for form in ([TEXT], [UUID], [BASE64], NUMBERS, REALS, {TEXT: TEXT})),
    ("STRING", '{"__debezium_unavailable_value":"__debezium_unavailable_value"}'),
]
DATA: list[tuple[str, Any]] = [
    ("STRING", f"{TEXT} "),
    ("STRING", [TEXT, TEXT]),
    ("STRING", {TEXT: ""}),
    (TEXTS, [TEXT, "x"]),
    (TEXTS, ["x", TEXT]),
    (TEXTS, [TEXT, TEXT]),
    (TEXTS, []),
    (TEXTS, [None]),
    ("ARRAY<INT>", NUMBERS[:-1]),
    ("ARRAY<INT>", [*NUMBERS[:-1], 5]),
    ("ARRAY<INT>", [*NUMBERS, 101]),
    ("ARRAY<DOUBLE>", [*REALS[:-1], 101.5]),
    ("ARRAY<DOUBLE>", [0.5] * len(NUMBERS)),
    ("MAP<STRING,STRING>", {TEXT: "x"}),
    ("MAP<STRING,STRING>", {"x": TEXT}),
    ("MAP<STRING,STRING>", {TEXT: TEXT, "x": "y"}),
    ("STRUCT<a: STRING>", {"a": TEXT}),
    ("ARRAY<ARRAY<STRING>>", [[TEXT]]),
]
"""Values beside the forms."""


def envelope(kind: str, form: EventFormat = EventFormat.DEBEZIUM, **more: Any) -> Envelope:
    return Envelope(event_columns(f"id BIGINT, v {kind}"), ("id",), format=form, **more)


def change(value: Any, operation: str = "u") -> bytes:
    row = {"id": 1, "v": value}
    before, after = (row, None) if operation == "d" else (None, row)
    return json.dumps({"before": before, "after": after, "op": operation, "source": {"lsn": 1}}).encode()


def reasons(reader: Envelope, values: Sequence[bytes]) -> list[str | None]:
    """Reasons against messages that are read many at a time; they are those of messages read one by one."""
    batch = Decoder(reader).decode(kafka_messages([(b"k", value) for value in values]))
    found: list[str | None] = batch.column("_lsm_bad").to_pylist()
    if not reader.format.is_avro:
        exact = ExactReader(reader)
        assert found == [exact.read(value, b"k").reason for value in values]
    return found


@pytest.mark.parametrize(("kind", "value"), FORMS)
def test_placeholder_in_any_form_makes_an_update_bad(kind: str, value: Any) -> None:
    neighbour = change(None)
    assert reasons(envelope(kind), [neighbour, change(value), neighbour]) == [None, UNSENT, None]
    assert reasons(envelope(kind), [change(value)] * 3) == [UNSENT] * 3
    assert reasons(envelope(kind), [change(value, "d")]) == [None], "a delete needs its key only"


@pytest.mark.parametrize(("kind", "value"), FORMS)
def test_placeholder_that_the_table_fills_is_left_in_texts_and_binaries(kind: str, value: Any) -> None:
    filled = {"STRING": TEXT, "BINARY": base64.b64encode(TEXT.encode()).decode()}
    reader = envelope(kind, fills_unavailable=True)
    wanted = None if filled.get(kind) == value else UNSENT
    assert reasons(reader, [change(None), change(value), change(value)]) == [None, wanted, wanted]
    if wanted is None:
        found = Decoder(reader).decode(kafka_messages([(b"k", change(value))])).column("v").to_pylist()
        assert found == [TEXT if kind == "STRING" else TEXT.encode()]


def test_placeholder_of_a_key_is_never_filled() -> None:
    columns = event_columns("id BIGINT, v STRING, w STRING")
    reader = Envelope(columns, ("id", "v"), (), ("w",), EventFormat.DEBEZIUM, fills_unavailable=True)
    rows = [{"id": 1, "v": TEXT, "w": "x"}, {"id": 1, "v": "x", "w": TEXT}]
    messages = [json.dumps({"after": row, "op": "u", "source": {"lsn": 1}}).encode() for row in rows]
    assert all("was not sent" in (reason or "") for reason in reasons(reader, messages))


@pytest.mark.parametrize(("kind", "value"), FORMS)
def test_placeholder_in_a_flat_row_is_data_as_before(kind: str, value: Any) -> None:
    document = json.dumps({"id": 1, "v": value}).encode()
    assert UNSENT not in reasons(envelope(kind, EventFormat.JSON), [document] * 2)


@pytest.mark.parametrize(("kind", "value"), DATA)
def test_value_that_only_resembles_the_placeholder_is_stored(kind: str, value: Any) -> None:
    assert reasons(envelope(kind), [change(None), change(value), change(value)]) == [None] * 3


def test_arrays_that_begin_otherwise_are_read_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ExactReader, "read")
    decoder = Decoder(envelope("ARRAY<INT>"))
    arrays: list[Any] = [[number] * len(NUMBERS) for number in range(90)] + [[95], [95] * 29, [], None, [None] * 28]
    found = decoder.decode(kafka_messages([(b"k", change(value)) for value in arrays]))
    assert found.column("v").to_pylist() == arrays


AVRO_FORMS: list[tuple[str, Any, Any]] = [
    ("STRING", "string", TEXT),
    ("BINARY", "bytes", TEXT.encode()),
    ("BINARY", "string", TEXT),
    (TEXTS, {"type": "array", "items": "string"}, [TEXT]),
    (TEXTS, {"type": "array", "items": nullable("string")}, [UUID]),
    ("ARRAY<BINARY>", {"type": "array", "items": "bytes"}, [TEXT.encode()]),
    ("ARRAY<INT>", {"type": "array", "items": nullable("int")}, NUMBERS),
    ("ARRAY<BIGINT>", {"type": "array", "items": "long"}, NUMBERS),
    ("ARRAY<DATE>", {"type": "array", "items": {"type": "int", "connect.name": "io.debezium.time.Date"}}, NUMBERS),
    ("ARRAY<DATE>", {"type": "array", "items": {"type": "int", "logicalType": "date"}}, NUMBERS),
    ("ARRAY<FLOAT>", {"type": "array", "items": "float"}, REALS),
    ("ARRAY<DOUBLE>", {"type": "array", "items": "double"}, REALS),
    (TEXTS, {"type": "array", "items": "int"}, NUMBERS),
    (TEXTS, {"type": "array", "items": "double"}, REALS),
    ("MAP<STRING,STRING>", {"type": "map", "values": nullable("string")}, {TEXT: TEXT}),
    ("STRING", {"type": "array", "items": "string"}, [TEXT]),
    ("STRING", {"type": "array", "items": "int"}, NUMBERS),
    ("STRING", {"type": "array", "items": "float"}, REALS),
    ("STRING", {"type": "map", "values": "string"}, {TEXT: TEXT}),
    ("STRING", "string", '{"__debezium_unavailable_value":"__debezium_unavailable_value"}'),
]


@pytest.mark.parametrize(("kind", "written", "value"), AVRO_FORMS)
def test_placeholder_in_any_form_of_avro_makes_an_update_bad(kind: str, written: Any, value: Any) -> None:
    schemas = MemorySchemas()
    schema = schemas.add(debezium(record(("id", "long"), ("v", nullable(written)))))
    reader = envelope(kind, EventFormat.DEBEZIUM_AVRO, schemas=(schemas,))

    def message(held: Any) -> bytes:
        after = {"id": 1, "v": held}
        return schemas.message(
            schema, {"before": None, "after": after, "source": {"version": "3.0"}, "op": "u", "ts_ms": 1}
        )

    other = value[:-1] if isinstance(value, list) else None
    messages = [(b"k", message(held)) for held in (None, value, other, value)]
    rows = Decoder(reader).decode(kafka_messages(messages))
    assert rows.column("_lsm_bad").to_pylist() == [None, UNSENT, None, UNSENT]
    batch = kafka_messages(messages)
    exact = ExactAvroReader(reader).events(batch.column("value"), batch.column("key"))
    assert [event.reason for event in exact] == [None, UNSENT, None, UNSENT]


def test_another_placeholder_is_found_in_the_place_of_the_usual_one() -> None:
    octets = b"gone"
    for setting in ("gone", "hex:" + octets.hex()):
        for kind, value in [
            ("STRING", "gone"), ("BINARY", base64.b64encode(octets).decode()), (TEXTS, ["gone"]),
            ("ARRAY<INT>", list(octets)), ("MAP<STRING,STRING>", {"gone": "gone"}),
        ]:  # fmt: skip
            assert reasons(envelope(kind, unavailable=setting), [change(value)]) == [UNSENT]
    for kind, value in FORMS:
        assert UNSENT not in reasons(envelope(kind, unavailable="gone"), [change(value)])


def test_bytes_beyond_ascii_are_signed_numbers_as_in_java() -> None:
    assert [-61, -92] in unavailable("ä").nested
    assert [-1, 0] in unavailable("hex:ff00").nested


@pytest.mark.parametrize("setting", ["", "hex:", "hex:5", "hex:zz"])
def test_placeholder_without_bytes_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"lsm\.kafka\.debezium\.unavailable\.value='.*': write the text of the conn"):
        envelope("STRING", unavailable=setting)


def test_default_is_that_of_debezium() -> None:
    assert envelope("STRING").unavailable == PLACEHOLDER == TEXT


@pytest.mark.parametrize(
    "key",
    [
        '{"id":1,"v":"__debezium_unavailable_value"}',
        '{"payload":{"id":1,"v":"__debezium_unavailable_value"},"schema":{}}',
    ],
)
def test_a_key_with_the_placeholder_deletes_nothing(key: str) -> None:
    envelope = Envelope(event_columns("id BIGINT, v STRING"), ("id", "v"), (), (), EventFormat.DEBEZIUM)
    messages = kafka_messages([(key.encode(), None), (b'{"id":2,"v":"b"}', None)])
    rows = Decoder(envelope).decode(messages).to_pylist()
    assert [(row["_lsm_delete"], row["_lsm_bad"]) for row in rows] == [(False, UNSENT), (True, None)]
