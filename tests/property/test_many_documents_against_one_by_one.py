"""Random messages: what is decoded many documents at a time is what the exact reader reads, one by one, without Spark.

Types of columns are varied here more than where Spark is the judge.
"""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm.decode.decoder import Decoder
from streaming_lsm.decode.envelope import DELETED_FLAGS, Envelope
from streaming_lsm.decode.exact_reader import Event, ExactReader
from tests.support.crash_points import EVERY_CALL, sample
from tests.support.event_columns import Message, event_columns, kafka_messages
from tests.support.random_messages import HostileMessages, NaturalMessages

STREAMS, MESSAGES = (40, 60) if EVERY_CALL else (8, 40)
TYPES = (
    "STRING", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(3,0)", "DECIMAL(10,2)", "BOOLEAN",
    "DATE", "TIMESTAMP", "TIMESTAMP COMMENT 'millis'", "TIMESTAMP_NTZ", "BINARY", "ARRAY<INT>", "ARRAY<BOOLEAN>",
    "ARRAY<STRING>", "MAP<STRING, STRING>", "STRUCT<a: BOOLEAN, s: STRING>",
)  # fmt: skip
FLAG_VALUES = (
    b"true", b"false", b'"true"', b'"false"', b'"TRUE"', b'"True "', b'"x"', b"0", b"1", b"-1", b"1.0", b"-2.5", b"0.0",
    b"null", b"[1]", b"[true]", b'["true"]', b"{}", b'{"a":true}', b"1e400", b'"1"', b"99999999999",
)  # fmt: skip

Seen = tuple[dict[str, Any], bool, bool, str | None]
"""Values that are not null, delete, tombstone, reason."""


def plain(kind: Any) -> Any:
    """A type whose values are those of an `Event`."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind


def decoded(envelope: Envelope, messages: list[Message], zone: str = "UTC") -> list[Seen]:
    batch = Decoder(envelope, zone).decode(kafka_messages(messages))
    assert len(batch) == len(messages)
    names = envelope.columns.names
    columns = [batch.column(name).cast(plain(batch.column(name).type)).to_pylist() for name in names]
    controls = [batch.column(name).to_pylist() for name in ("_lsm_delete", "_lsm_tombstone", "_lsm_bad")]
    return [
        ({name: value for name, value in zip(names, row, strict=True) if value is not None}, *control)
        for row, control in zip(zip(*columns, strict=True), zip(*controls, strict=True), strict=True)
    ]


def expected(event: Event, columns: pa.Schema) -> Seen:
    values = {
        name: pa.array([value], columns.field(name).type).cast(plain(columns.field(name).type))[0].as_py()
        for name, value in event.values.items()
        if value is not None
    }
    values = {name: values[name] for name in columns.names if name in values}
    return values, event.delete, event.tombstone and event.reason is None, event.reason


def differences(envelope: Envelope, messages: list[Message]) -> list[str]:
    """Describe the messages that are read in two ways."""
    reader = ExactReader(envelope)
    singly = [expected(reader.read(value, key), envelope.columns) for key, value in messages]
    return [
        f"{message}: {found}, one by one {known}"
        for message, found, known in zip(messages, decoded(envelope, messages), singly, strict=True)
        if repr(found) != repr(known)
    ]


@pytest.mark.parametrize(("flag", "kind"), sample(list(product(DELETED_FLAGS, TYPES)), 0, 3))
def test_a_flag_of_deletes_that_is_a_column_of_any_type_is_read_as_one_by_one(flag: str, kind: str) -> None:
    random = Random(f"{flag} {kind}")
    envelope = Envelope(event_columns(f"id BIGINT, v INT, {flag} {kind}"), ("id",))
    for stream in range(STREAMS):
        draw = (NaturalMessages if stream % 2 else HostileMessages)(random, envelope).draw
        assert not differences(envelope, draw(MESSAGES))


@pytest.mark.parametrize(("flag", "kind"), sample(list(product(DELETED_FLAGS, TYPES)), 1, 3))
def test_a_batch_with_one_value_in_the_flag_of_deletes_is_read_as_one_by_one(flag: str, kind: str) -> None:
    envelope = Envelope(event_columns(f"id BIGINT, v INT, {flag} {kind}"), ("id",))
    for value in FLAG_VALUES:
        document = b'{"id":1,"v":5,"%b":%b}' % (flag.encode(), value)
        assert not differences(envelope, [(None, document)] * 3)
