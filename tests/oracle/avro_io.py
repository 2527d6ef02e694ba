"""Avro as the timeline uses it: pinned schemas, one-record object containers, and Avro → Arrow types."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

MAGIC = b"Obj\x01"
SYNC = bytes(range(16))
SCHEMAS = Path(__file__).parent / "schemas"
PRIMITIVES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}


@cache
def pinned_text(name: str) -> str:
    """Return the pinned schema as one-line JSON."""
    return json.dumps(json.loads((SCHEMAS / f"{name}.avsc").read_text("utf-8")))


@cache
def pinned(name: str) -> Any:
    """Return the pinned schema, parsed for fastavro."""
    return fastavro.parse_schema(json.loads(pinned_text(name)))


class Container:
    """An Avro object container taken apart byte by byte."""

    def __init__(self, raw: bytes) -> None:
        if raw[:4] != MAGIC:
            raise ValueError("no Avro magic")
        self._raw, self._at = raw, 4
        self.metadata = self._read_map()
        sync = self._take(16)
        self.counts: list[int] = []
        while self._at < len(raw):
            self.counts.append(self._read_long())
            self._take(self._read_long())
            if self._take(16) != sync:
                raise ValueError("sync marker differs")

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._raw):
            raise ValueError("container is cut short")
        self._at += size
        return self._raw[self._at - size : self._at]

    def _read_long(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def _read_map(self) -> dict[str, bytes]:
        entries: dict[str, bytes] = {}
        while count := self._read_long():
            if count < 0:
                self._read_long()
            for _ in range(abs(count)):
                key = self._take(self._read_long()).decode("utf-8")
                entries[key] = self._take(self._read_long())
        return entries


def read_record(raw: bytes, name: str) -> dict[str, Any]:
    """Read the one record of a container, resolved to the pinned schema."""
    records = list(fastavro.reader(io.BytesIO(raw), reader_schema=pinned(name)))
    if len(records) != 1:
        raise ValueError(f"{len(records)} records instead of one")
    return records[0]  # type: ignore[return-value]


def _long(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_record(name: str, record: dict[str, Any]) -> bytes:
    """Make a container as Hudi does: the key avro.schema alone, one block with one record."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, pinned(name), record)
    schema = pinned_text(name).encode("utf-8")
    datum = body.getvalue()
    key = b"avro.schema"
    header = MAGIC + _long(1) + _long(len(key)) + key + _long(len(schema)) + schema + _long(0) + SYNC
    return header + _long(1) + _long(len(datum)) + datum + SYNC


def _union(branches: list[Any], names: dict[str, Any]) -> pa.DataType:
    rest = [branch for branch in branches if branch != "null"]
    if len(rest) != 1:
        raise ValueError(f"union of several types: {branches}")
    return arrow_type(rest[0], names)


def _fullname(schema: dict[str, Any]) -> str:
    space = schema.get("namespace")
    return f"{space}.{schema['name']}" if space else str(schema["name"])


def arrow_type(schema: Any, names: dict[str, Any] | None = None) -> pa.DataType:
    """Map an Avro type to the Arrow type that a reader returns; a nullable union is its other branch."""
    names = {} if names is None else names
    if isinstance(schema, list):
        return _union(schema, names)
    if isinstance(schema, str):
        return PRIMITIVES[schema] if schema in PRIMITIVES else arrow_type(names[schema], names)
    kind, logical = schema["type"], schema.get("logicalType")
    if kind in ("record", "fixed", "enum"):
        names |= {schema["name"]: schema, _fullname(schema): schema}
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical in LOGICAL:
        return LOGICAL[logical]
    if kind == "array":
        return pa.list_(pa.field("element", arrow_type(schema["items"], names)))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(schema["values"], names))
    if kind == "record":
        return pa.struct([pa.field(f["name"], arrow_type(f["type"], names)) for f in schema["fields"]])
    if kind == "fixed":
        return pa.binary(schema["size"])
    return pa.string() if kind == "enum" else arrow_type(kind, names)


def arrow_schema(schema: dict[str, Any]) -> pa.Schema:
    """Map an Avro record to an Arrow schema; every column is nullable."""
    names: dict[str, Any] = {}
    return pa.schema([pa.field(f["name"], arrow_type(f["type"], names)) for f in schema["fields"]])
