"""Encode Avro messages with fastavro, framed as by Confluent's serializers, and hold their schemas in memory."""

from __future__ import annotations

import io
import json
import struct
from dataclasses import dataclass, field
from typing import Any

import fastavro

from streaming_lsm.schema_registry.sources import WriterSchema


@dataclass(eq=False)
class MemorySchemas:
    """Gives schemas ids, in the order in which they are added."""

    texts: dict[int, str] = field(default_factory=dict)
    name: str = "memory"

    def add(self, avro: Any) -> int:
        """Add a schema, and return its id."""
        schema_id = 1 + len(self.texts)
        self.texts[schema_id] = json.dumps(avro)
        return schema_id

    def find(self, schema_id: int) -> WriterSchema | None:
        text = self.texts.get(schema_id)
        return None if text is None else WriterSchema(schema_id, text, (), f"memory/{schema_id}")

    def message(self, schema_id: int, value: Any) -> bytes:
        """Encode a value with a schema."""
        return framed(schema_id, encoded(json.loads(self.texts[schema_id]), value))


def framed(schema_id: int, datum: bytes) -> bytes:
    """Put magic byte and id before a datum."""
    return struct.pack(">bI", 0, schema_id) + datum


def encoded(avro: Any, value: Any) -> bytes:
    """Encode a value."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(avro), value)
    return stream.getvalue()


def decoded(avro: Any, datum: bytes) -> Any:
    """Decode a datum, which must end with its value."""
    stream = io.BytesIO(datum)
    found = fastavro.schemaless_reader(stream, fastavro.parse_schema(avro), None)
    assert not stream.read(1)
    return found


def record(*fields: tuple[str, Any], name: str = "Value", **more: Any) -> dict[str, Any]:
    """Build the schema of a record from names and types of its fields."""
    return {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields], **more}


def nullable(kind: Any) -> Any:
    """Build the union of null and a type, or of null and the types of a union."""
    if kind == "null" or (isinstance(kind, list) and "null" in kind):
        return kind
    return ["null", *kind] if isinstance(kind, list) else ["null", kind]


def debezium(row: Any, *source: tuple[str, Any]) -> dict[str, Any]:
    """Build the schema of a Debezium envelope of rows; the type of the row before is named again by the row after."""
    return record(
        ("before", nullable(row)),
        ("after", nullable(f"{row['namespace']}.{row['name']}" if "namespace" in row else row["name"])),
        ("source", record(("version", "string"), *source, name="Source", namespace="io.debezium.connector.postgresql")),
        ("op", "string"),
        ("ts_ms", nullable("long")),
        name="Envelope",
    )
