"""Encode Python values as Avro datums, one at a time.

For values that are Python objects anyway: `encode_records` needs columns, and takes milliseconds for a single row of a
schema with many types. A value is one that `pa.array` accepts for the Arrow type of its node: a dict for a record or a
map; for a union of several records a dict of the record's name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from streaming_lsm.errors import SchemaError
from streaming_lsm.format.avro.schema_tree import Node

Write: TypeAlias = Callable[[Any, bytearray], None]
"""Appends the encoding of a value to bytes."""

_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_BITS = {"int": 32, "long": 64}
_ONE_BYTE = 64


def datum_writer(node: Node) -> Write:
    """Build the function that encodes values of a type.

    Args:
        node: the type, of which every part has an Arrow type.

    Returns:
        The function; it raises SchemaError if a value does not fit the type, or is one of an enum, a fixed type, an
        array or a decimal, which are not written one at a time; UnicodeEncodeError if a text is not UTF-8.
    """
    return _BUILDERS.get(node.kind, _refused)(node)


def record_writer(fields: Mapping[str, Node]) -> Write:
    """Build the function that encodes records, dicts in which a field without a value is null; see `datum_writer`.

    Args:
        fields: the fields by name, in the order of the encoding.
    """
    writers = [(name, datum_writer(field)) for name, field in fields.items()]

    def write(value: Any, out: bytearray) -> None:
        for name, write_field in writers:
            write_field(value.get(name), out)

    return write


def _record(node: Node) -> Write:
    return record_writer({child.path.rpartition(".")[2]: child for child in node.children})


def _union(node: Node) -> Write:
    null = next((2 * place for place, child in enumerate(node.children) if child.kind == "null"), None)
    branches = [(2 * place, datum_writer(child)) for place, child in enumerate(node.children) if child.kind != "null"]
    if node.is_of_several:
        return _records(node, null, branches)
    ((valued, write_value),) = branches

    def write(value: Any, out: bytearray) -> None:
        if value is not None:
            out.append(valued)
            write_value(value, out)
        elif null is not None:
            out.append(null)
        else:
            raise _has_null(node)

    return write


def _records(node: Node, null: int | None, branches: list[tuple[int, Write]]) -> Write:
    assert node.arrow is not None  # as every part of the type has one
    kinds: Any = node.arrow
    by_name = {field.name: branch for field, branch in zip(kinds.fields, branches, strict=True)}

    def write(value: Any, out: bytearray) -> None:
        if value is None:
            if null is None:
                raise _has_null(node)
            out.append(null)
            return
        if len(value) != 1:
            raise SchemaError(f"column {node.path!r} has none or several of the records of its union")
        ((name, record),) = value.items()
        number, write_record = by_name[name]
        out.append(number)
        write_record(record, out)

    return write


def _map(node: Node) -> Write:
    (_, item) = node.children[0].children
    write_item = datum_writer(item)

    def write(value: Any, out: bytearray) -> None:
        if value is None:
            raise _has_null(node)
        if value:
            _append_number(len(value), out)
            for key, one in value.items():
                _append_text(key, out)
                write_item(one, out)
        out.append(0)

    return write


def _number(node: Node) -> Write:
    limit = 1 << (_BITS[node.kind] - 1)

    def write(value: Any, out: bytearray) -> None:
        if value is None or not -limit <= value < limit:
            raise SchemaError(f"column {node.path!r}: {value!r:.40} is not of Avro type {node.kind}")
        _append_number(value, out)

    return write


def _boolean(node: Node) -> Write:
    def write(value: Any, out: bytearray) -> None:
        if value is None:
            raise _has_null(node)
        out.append(1 if value else 0)

    return write


def _float(node: Node) -> Write:
    layout = _DOUBLE if node.kind == "double" else _FLOAT

    def write(value: Any, out: bytearray) -> None:
        if value is None:
            raise _has_null(node)
        out += layout.pack(value)

    return write


def _string(node: Node) -> Write:
    def write(value: Any, out: bytearray) -> None:
        if value is None:
            raise _has_null(node)
        _append_text(value, out)

    return write


def _bytes(node: Node) -> Write:
    if node.arrow is not None and pa.types.is_decimal(node.arrow):
        return _refused(node)

    def write(value: Any, out: bytearray) -> None:
        if value is None:
            raise _has_null(node)
        _append_number(len(value), out)
        out += value

    return write


def _refused(node: Node) -> Write:
    def write(value: Any, out: bytearray) -> None:  # noqa: ARG001
        raise SchemaError(f"column {node.path!r}: values of Avro type {node.kind} are not written one at a time")

    return write


def _append_text(text: str, out: bytearray) -> None:
    data = text.encode()
    _append_number(len(data), out)
    out += data


def _append_number(value: int, out: bytearray) -> None:
    """Append a varint in zigzag order."""
    if 0 <= value < _ONE_BYTE:
        out.append(2 * value)
        return
    rest = 2 * value if value >= 0 else -2 * value - 1
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _has_null(node: Node) -> SchemaError:
    return SchemaError(f"column {node.path!r} has nulls, the Avro schema has none there")


_BUILDERS: dict[str, Callable[[Node], Write]] = {
    "boolean": _boolean,
    "int": _number,
    "long": _number,
    "float": _float,
    "double": _float,
    "string": _string,
    "bytes": _bytes,
    "union": _union,
    "map": _map,
    "record": _record,
}
