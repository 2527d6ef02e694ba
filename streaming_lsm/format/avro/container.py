"""Encode and decode Avro object containers of one record, the content of timeline files.

See docs/format/02-timeline.md, "Content". Input is not trusted: lengths are checked against the available bytes, and
the *writer's schema*, the schema in the file, is validated and rebuilt before it is passed to the decoder.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, cast

import fastavro
import numpy as np

from streaming_lsm.errors import CorruptFileError, StorageError

AvroValue = None | bool | int | float | str | bytes | list["AvroValue"] | dict[str, "AvroValue"]
AvroRecord = dict[str, AvroValue]

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_MAX_DEPTH = 24
_MAX_FIELDS = 256
_MAX_SCHEMA_NODES = 4096
_CACHED_BYTES = 1 << 16
"""Maximum length of a schema that is kept parsed."""
_MAX_SCHEMA_BYTES = 1 << 20
_MAX_HEADER_ENTRIES = 64
_WINDOW = 1 << 20
_LEAST_NUMBERS, _MOST_NUMBERS = 1 / 2048, 0.6
"""Share of bytes below 0x20 (lengths, nulls, small numbers); actions completed by Hudi have 0.15 to 0.26, and
rollbacks one for each path. With fewer the texts are longer than 2 KiB, as no path is."""
_MOST_TEXTS = 16
"""Maximum number of windows of long texts: schema, ledger, and entries of other programs."""
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def encode_record(schema_name: str, record: Mapping[str, object]) -> bytes:
    """Encode one record as an object container with codec null, and only ``avro.schema`` as metadata.

    Equal records have equal encodings: the sync marker is the MD5 of schema and record.

    Args:
        schema_name: one of the packaged schemas, e.g. ``HoodieCommitMetadata``.
        record: value per field; missing fields take the schema's default.
    """
    text = _schema_text(schema_name)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, _pinned(schema_name), record)
    sync = hashlib.md5(text + body.getvalue(), usedforsecurity=False).digest()
    key = b"avro.schema"
    header = _MAGIC + _long(1) + _long(len(key)) + key + _long(len(text)) + text + _long(0) + sync
    return header + _long(1) + _long(len(body.getvalue())) + body.getvalue() + sync


def decode_record(schema_name: str, data: bytes, source: str) -> AvroRecord:
    """Decode the record of an object container, resolved from the writer's schema to the packaged schema.

    Args:
        schema_name: name of the packaged schema.
        data: the whole file.
        source: name of the file, for messages.

    Raises:
        CorruptFileError: truncated or altered bytes, another record type, an unknown codec, or lengths beyond the file.
    """
    text, body = _open(data, source)
    found = _record_name(_json(text, source), source)
    wanted = record_type(schema_name)
    if found != wanted:
        raise CorruptFileError(f"{source}: holds an Avro record {found!r} instead of {wanted!r}; restore the file")
    try:
        writer = _writer_schema(text, source)
        if text != _schema_text(schema_name):
            # When resolving, the decoder skips unknown fields without checking their lengths, so decode them first.
            fastavro.schemaless_reader(io.BytesIO(body), writer, None)
        stream = io.BytesIO(body)
        record = fastavro.schemaless_reader(stream, writer, _pinned(schema_name))
    except CorruptFileError:
        raise
    except Exception as error:  # fastavro raises errors of many types on malformed input
        reason = f"{type(error).__name__}: {error}"
        raise CorruptFileError(f"{source}: {schema_name} cannot be decoded ({reason:.200}); restore the file") from None
    if stream.tell() != len(body):
        raise CorruptFileError(f"{source}: {len(body) - stream.tell()} bytes after the record; restore the file")
    return cast(AvroRecord, record)


def check_readable(data: bytes, target: str) -> None:
    """Check the content of a file that is about to be written: with one that readers refuse the table is unreadable.

    Args:
        data: a record as encoded by `encode_record`, or the empty content of a pending action.
        target: name of the file, for the message.

    Raises:
        StorageError: `decode_record` would refuse it.
    """
    fault = _odd_content(data)
    if fault:
        raise StorageError(
            f"{target} would have {fault}, so that readers would refuse the table: write fewer files at a time, or "
            "give the table shorter partition paths, shorter names of columns, or fewer writers"
        )


def writer_schema(text: str, source: str) -> Any:
    """Validate, rebuild and parse the writer's schema of a file, once for all its records.

    Raises:
        CorruptFileError: the text is not the JSON of a supported Avro record.
    """
    try:
        _record_name(json.loads(text), source)
        return _writer_schema(text.encode(), source)
    except CorruptFileError:
        raise
    except Exception as error:  # fastavro raises errors of many types on malformed schemas
        raise CorruptFileError(f"{source}: an Avro schema cannot be read ({error!r:.200}); restore the file") from None


def record_name(data: bytes, source: str) -> str:
    """Return the name of the record type in a container, without its namespace.

    Raises:
        CorruptFileError: as `decode_record`.
    """
    return _record_name(_json(_open(data, source)[0], source), source)


def _writer_schema(text: bytes, source: str) -> Any:
    try:
        return (_parsed if len(text) <= _CACHED_BYTES else _parsed.__wrapped__)(text)
    except _Refused as error:
        raise CorruptFileError(f"{source}: Avro schema {error}; restore the file") from None


@functools.lru_cache(maxsize=64)
def _parsed(text: bytes) -> Any:
    """Rebuild and parse a writer's schema; the files of a table repeat a handful of them."""
    return fastavro.parse_schema(_Rebuilt().schema(json.loads(text)))


def _record_name(schema: object, source: str) -> str:
    name = schema.get("name") if isinstance(schema, dict) and schema.get("type") == "record" else None
    if not isinstance(name, str):
        raise CorruptFileError(f"{source}: the Avro schema names no record; restore the file")
    return name.rsplit(".", 1)[-1]


def _json(text: bytes, source: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise CorruptFileError(f"{source}: the Avro schema is not JSON; restore the file") from None


def _open(data: bytes, source: str) -> tuple[bytes, bytes]:
    """Return the text of the schema, and the body of the container's only block, which has one record."""
    cursor = _Cursor(data, source)
    if cursor.take(4) != _MAGIC:
        raise CorruptFileError(f"{source}: not an Avro object container (first bytes {data[:4]!r}); restore the file")
    fault = _odd_content(data)
    if fault:
        raise CorruptFileError(f"{source}: {fault}; restore the file")
    metadata = cursor.metadata()
    if (size := len(metadata.get(b"avro.schema", b""))) > _MAX_SCHEMA_BYTES:
        raise CorruptFileError(
            f"{source}: an Avro schema of {size} bytes, {_MAX_SCHEMA_BYTES} at most; restore the file"
        )
    codec = metadata.get(b"avro.codec", b"null")
    if codec != b"null":
        raise CorruptFileError(f"{source}: Avro codec {codec!r:.40}; metadata files are never compressed")
    sync = cursor.take(_SYNC_BYTES)
    count = cursor.long()
    body = cursor.take(cursor.long())
    if count != 1 or cursor.take(_SYNC_BYTES) != sync or cursor.left():
        raise CorruptFileError(f"{source}: expected one block with one record, intact to the end; restore the file")
    return metadata.get(b"avro.schema", b""), body


def _odd_content(data: bytes) -> str:
    """Name content that no action has: mostly empty values in a window of a large file, or long texts; "" if none.

    An empty value takes one byte in the file, and up to 50 when decoded; a text is copied several times.
    """
    texts = 0
    for start in range(0, len(data) - _WINDOW + 1, _WINDOW):
        window = np.frombuffer(data, np.uint8, _WINDOW, start)
        share = int(np.count_nonzero(window < 0x20)) / _WINDOW
        texts += int(share < _LEAST_NUMBERS)
        if share > _MOST_NUMBERS:
            return f"bytes that are no text ({share:.0%} from offset {start}, {_MOST_NUMBERS:.0%} at most are expected)"
    return f"long texts ({texts} MiB, {_MOST_TEXTS} at most are expected)" if texts > _MOST_TEXTS else ""


class _Cursor:
    """Sequential reader of bytes; raises CorruptFileError at a read past the end."""

    def __init__(self, data: bytes, source: str) -> None:
        self._data = data
        self._source = source
        self._at = 0

    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left():
            raise CorruptFileError(f"{self._source}: {self._fault(size)}; restore the file")
        self._at += size
        return self._data[self._at - size : self._at]

    def _fault(self, size: int) -> str:
        if not self._data:
            return "the file is empty"
        if size < 0:
            return f"a negative length, of {size} bytes, at offset {self._at}"
        return f"cut off: expected {size} bytes at offset {self._at}, found {self.left()}"

    def long(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise CorruptFileError(f"{self._source}: overlong number at offset {self._at}; restore the file")

    def metadata(self) -> dict[bytes, bytes]:
        """Read the header's map; a negative count is followed by the size of its block."""
        found: dict[bytes, bytes] = {}
        while count := self.long():
            if abs(count) > _MAX_HEADER_ENTRIES - len(found):
                raise CorruptFileError(f"{self._source}: an Avro header of too many entries; restore the file")
            if count < 0:
                self.long()
            for _ in range(abs(count)):
                key = self.take(self.long())
                found[key] = self.take(self.long())
        return found


class _Refused(Exception):
    """A writer's schema is not supported; the text says why."""


class _Rebuilt:
    """Rebuilds a writer's schema without logical types, defaults and recursive types.

    Schemas whose records or array items may take no bytes are refused, so that work and memory are bounded by the size
    of the file.
    """

    def __init__(self) -> None:
        self._nodes = 0
        self._known: dict[str, bool] = {}

    def schema(self, schema: object) -> Any:
        return self._walk(schema, "", 0)[0]

    def _walk(self, schema: object, namespace: str, depth: int) -> tuple[Any, bool]:
        """Return the rebuilt schema, and whether its values may take no bytes."""
        self._nodes += 1
        if depth > _MAX_DEPTH or self._nodes > _MAX_SCHEMA_NODES:
            raise _Refused("is nested too deeply or too large")
        if isinstance(schema, list):
            return [self._walk(branch, namespace, depth + 1)[0] for branch in schema], False
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if not isinstance(schema, dict):
            raise _Refused(f"has {schema!r:.40} where a type belongs")
        kind = schema.get("type")
        if kind in ("record", "enum", "fixed"):
            return self._define(kind, schema, namespace, depth)
        if kind in ("array", "map"):
            child = "items" if kind == "array" else "values"
            inner, empty = self._walk(schema.get(child), namespace, depth + 1)
            if empty and kind == "array":
                raise _Refused("has an array of items without bytes")
            return {"type": kind, child: inner}, False
        return self._walk(kind, namespace, depth + 1)

    def _named(self, name: str, namespace: str) -> tuple[str, bool]:
        if name in _PRIMITIVES:
            return name, name == "null"
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full not in self._known:
            raise _Refused(f"uses the type {name!r:.80} before or inside its definition")
        return full, self._known[full]

    def _define(self, kind: str, schema: dict[str, Any], namespace: str, depth: int) -> tuple[Any, bool]:
        name, space = schema.get("name"), schema.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(space, str):
            raise _Refused(f"has a {kind} without a name")
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._known:
            raise _Refused(f"defines {full!r:.80} twice")
        rebuilt: dict[str, Any] = {"type": kind, "name": full}
        empty = False
        if kind == "record":
            rebuilt["fields"], empty = self._fields(schema.get("fields"), full.rpartition(".")[0], depth)
        elif kind == "enum":
            rebuilt["symbols"] = schema.get("symbols")
        else:
            rebuilt["size"] = schema.get("size")
            empty = not isinstance(rebuilt["size"], int) or rebuilt["size"] < 1
        if empty:
            raise _Refused(f"has a type {full!r:.80} without bytes")
        self._known[full] = empty
        return rebuilt, empty

    def _fields(self, fields: object, namespace: str, depth: int) -> tuple[list[dict[str, Any]], bool]:
        if not isinstance(fields, list) or len(fields) > _MAX_FIELDS:
            raise _Refused("has a record without a list of fields, or with too many")
        rebuilt, empty = [], True
        for field in fields:
            if not isinstance(field, dict) or not isinstance(field.get("name"), str):
                raise _Refused("has a field without a name")
            inner, inner_empty = self._walk(field.get("type"), namespace, depth + 1)
            rebuilt.append({"name": field["name"], "type": inner})
            empty = empty and inner_empty
        return rebuilt, empty


@functools.cache
def _schema_text(name: str) -> bytes:
    """Return the packaged schema without white space, as Hudi writes it into the header."""
    text = resources.files("streaming_lsm.format").joinpath("schemas", f"{name}.avsc").read_text("utf-8")
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False).encode()


@functools.cache
def record_type(name: str) -> str:
    """Return the record name of a packaged schema; several versions of a record have schemas of different names."""
    return str(json.loads(_schema_text(name))["name"])


@functools.cache
def _pinned(name: str) -> Any:
    return fastavro.parse_schema(json.loads(_schema_text(name)))


def _long(value: int) -> bytes:
    """Encode a non-negative number as a zigzag varint."""
    value <<= 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
