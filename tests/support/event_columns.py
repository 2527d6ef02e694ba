"""Build the columns of an event envelope from text like Spark's DDL, and batches of Kafka messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa

from streaming_lsm.decode.column_types import Field
from streaming_lsm.decode.envelope import EventFormat

_TYPES: dict[str, pa.DataType] = {
    "STRING": pa.string(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "BINARY": pa.binary(),
}
_COLUMN = re.compile(r"(?:`([^`]+)`|(\w+))\s*:?\s*(.+?)(\s+NOT\s+NULL)?(?:\s+COMMENT\s+'([^']*)')?", re.DOTALL)
_DECIMAL = re.compile(r"DECIMAL\((\d+)\s*,\s*(\d+)\)")
_NESTED = re.compile(r"(ARRAY|MAP|STRUCT)\s*<(.*)>", re.DOTALL)
_MARKS = re.compile(r"`[^`]*`|'[^']*'|[<(]|[>)]|,")
Message = tuple[bytes | None, bytes | None]
"""Key and value."""
JSON_FORMATS = tuple(kind for kind in EventFormat if not kind.is_avro)
"""Formats of events in JSON."""


def event_columns(ddl: str, **others: pa.DataType) -> pa.Schema:
    """Build the columns of an envelope.

    Args:
        ddl: like ``id BIGINT, at TIMESTAMP COMMENT 'micros', x DECIMAL(10,2), tags ARRAY<INT>, v INT NOT NULL``; names
            may stand in backticks. Types are written in upper case.
        others: more columns, which stand at the end.

    Returns:
        A schema; a comment is the metadata ``comment`` of its field.
    """
    return pa.schema([*map(_column, _split(ddl)), *(pa.field(name, kind) for name, kind in others.items())])


def kafka_messages(
    messages: Sequence[Message], *, sources: Sequence[tuple[str, int, int]] | None = None
) -> pa.RecordBatch:
    """Build a batch of messages in the columns of Spark's Kafka source.

    Args:
        messages: the messages.
        sources: topic, partition and offset of each; by default partition 2 of topic ``t`` from offset 100.
    """
    places = [("t", 2, 100 + place) for place in range(len(messages))] if sources is None else sources
    assert len(places) == len(messages)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for key, _ in messages], pa.binary()),
            "value": pa.array([value for _, value in messages], pa.binary()),
            "topic": pa.array([topic for topic, _, _ in places], pa.string()),
            "partition": pa.array([partition for _, partition, _ in places], pa.int32()),
            "offset": pa.array([offset for _, _, offset in places], pa.int64()),
        }
    )


def _column(text: str) -> Field:
    found = _COLUMN.fullmatch(text.strip())
    assert found, text
    quoted, plain, kind, required, comment = found.groups()
    metadata = None if comment is None else {"comment": comment}
    return pa.field(quoted or plain, _type(kind), nullable=not required, metadata=metadata)


def _type(text: str) -> pa.DataType:
    decimal, nested = _DECIMAL.fullmatch(text.strip()), _NESTED.fullmatch(text.strip())
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if not nested:
        return _TYPES[text.strip()]
    inside = list(_split(nested[2]))
    if nested[1] == "STRUCT":
        return pa.struct(list(map(_column, inside)))
    if nested[1] == "MAP":
        key, value = map(_type, inside)
        return pa.map_(key, value)
    (element,) = map(_type, inside)
    return pa.list_(element)


def _split(text: str) -> Iterator[str]:
    """Yield the parts of a text between the commas that stand in no brackets and no quotes."""
    depth = begin = 0
    for found in _MARKS.finditer(text):
        mark = found[0]
        depth += (mark in "<(") - (mark in ">)")
        if mark == "," and not depth:
            yield text[begin : found.start()]
            begin = found.end()
    yield text[begin:]
