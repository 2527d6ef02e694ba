"""Decode chosen fields of Parquet's footers and page headers, and skip all others.

The structs are in Thrift's compact protocol. pyarrow ends the process when it is asked for the column chunks or the
statistics of some damaged footers, and does not show all fields; so they are decoded here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import pyarrow as pa

from streaming_lsm.errors import CorruptFileError

Value: TypeAlias = "int | bytes | list[Fields] | Fields"
Fields: TypeAlias = dict[int, Value]
"""Values of a struct by field id."""
Wanted = dict[int, "Wanted"]
"""Ids of the fields that are decoded; those of a struct, or of the structs in a list, with the wanted fields in it."""

T = TypeVar("T")

_TAIL_BYTES = 8
_MAGIC = b"PAR1"
_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_MAX_DEPTH = 16
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_SIZES = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8}
_INTEGERS = (4, 5, 6)
_LONG_LIST = 15
_NO_DIFFERENCE = 15
"""The largest head of a field whose id follows."""


def read_footer(source: pa.NativeFile, path: str, wanted: Wanted) -> Fields:
    """Decode the wanted fields of a Parquet file's footer (struct ``FileMetaData``).

    Args:
        source: the open Parquet file.
        path: its name, for messages.
        wanted: the fields to decode.

    Raises:
        CorruptFileError: the footer is malformed.
    """
    size = source.size()
    tail = read_at(source, _TAIL_BYTES, size - _TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > size - _TAIL_BYTES:
        raise CorruptFileError(f"{path}: damaged: the file does not end in a Parquet footer; restore the file")
    return decode_fields(read_at(source, length, size - _TAIL_BYTES - length), path, "the footer", wanted)


def read_chunks(source: pa.NativeFile, path: str, meta: Wanted, build: Callable[[Fields], T]) -> list[list[T]]:
    """Decode the column chunks of each row group from the footer, one for each leaf column.

    Args:
        source: the open Parquet file.
        path: its name, for messages.
        meta: the fields of struct ``ColumnMetaData`` to decode.
        build: builds a chunk from them; raises KeyError or TypeError where they are missing or of another type.

    Raises:
        CorruptFileError: the footer is malformed.
    """
    footer = read_footer(source, path, {_ROW_GROUPS: {_COLUMNS: {_META_DATA: meta}}})
    try:
        groups = [structs_of(group, _COLUMNS) for group in structs_of(footer, _ROW_GROUPS)]
        return [[build(struct_of(chunk[_META_DATA])) for chunk in group] for group in groups]
    except (KeyError, TypeError) as error:
        raise malformed(path, "the footer", error) from None


def read_at(source: pa.NativeFile, size: int, offset: int) -> bytes:
    """Read bytes of an open file."""
    found: bytes = source.read_at(size, offset)  # type: ignore[call-arg]  # the stubs miss the offset
    return found


def structs_of(fields: Fields, field: int) -> list[Fields]:
    """Return a field that is a list of structs; raises TypeError, or KeyError, if it is not one."""
    values = fields[field]
    if not isinstance(values, list):
        raise TypeError(f"field {field} is not a list")
    return [struct_of(value) for value in values]


def struct_of(value: Value) -> Fields:
    """Return a value that is a struct; raises TypeError if it is not one."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} is not a struct")
    return value


def size_of(value: Value) -> int:
    """Return a value that is a number of things; raises TypeError if it is not one."""
    if not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r:.40} is not a size")
    return value


def malformed(path: str, what: str, error: Exception) -> CorruptFileError:
    """Build the error for a part of a file that cannot be decoded."""
    return CorruptFileError(f"{path}: damaged: {what} is malformed ({error!r:.80}); restore the file")


def decode_fields(data: bytes, path: str, what: str, wanted: Wanted, last: int | None = None) -> Fields:
    """Decode the wanted fields of the struct at the begin of `data`.

    Args:
        data: bytes of the footer or header.
        path: the file's name, for messages.
        what: what is decoded, for messages.
        wanted: the fields to decode.
        last: the field after which decoding ends, if `data` may be cut; None for the end of the struct.

    Raises:
        CorruptFileError: the struct is malformed.
    """
    try:
        return _decode_struct(data, 0, wanted, last)[0]
    except (IndexError, ValueError) as error:
        raise malformed(path, what, error) from None


def _decode_struct(data: bytes, at: int, wanted: Wanted, last: int | None = None) -> tuple[Fields, int]:
    """Decode the wanted fields of the struct at offset `at`. Of a field that is repeated the last one counts.

    Args:
        data: bytes of the footer or header.
        at: offset of the struct.
        wanted: the fields to decode.
        last: the field after which decoding ends, if `data` may be cut; None for the end of the struct.

    Returns:
        Values by field id, and the offset after the struct; the offset counts only if `last` is None.
    """
    fields: Fields = {}
    field = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            field += head >> 4
        else:
            field, at = _decode_zigzag(data, at)
        inner = wanted.get(field)
        if inner is not None:
            fields[field], at = _decode_value(data, at, head & 15, inner)
        elif head & 15 in _INTEGERS:
            at = _skip_varint(data, at)
        else:
            at = _skip(data, at, head & 15, 0)
        if field == last:
            break
    return fields, at + 1


def _decode_value(data: bytes, at: int, kind: int, wanted: Wanted) -> tuple[Value, int]:
    if kind in _INTEGERS:
        return _decode_zigzag(data, at)
    if kind == _BINARY:
        size, at = _decode_varint(data, at)
        end = _after(data, at, size)
        return data[at:end], end
    if kind == _STRUCT and wanted:
        return _decode_struct(data, at, wanted)
    if kind != _LIST or not wanted:
        raise ValueError(f"type {kind}")
    count, kind, at = _list_head(data, at)
    if count and kind != _STRUCT:
        raise ValueError(f"a list of type {kind}")
    structs: list[Fields] = []
    for _ in range(count):
        struct, at = _decode_struct(data, at, wanted)
        structs.append(struct)
    return structs, at


def _skip(data: bytes, at: int, kind: int, depth: int) -> int:
    """Return the offset after the field's value at offset `at`; a boolean field has no bytes."""
    if kind in _INTEGERS:
        return _skip_varint(data, at)
    if kind == _BINARY:
        size, at = _decode_varint(data, at)
        return _after(data, at, size)
    if kind in (_STRUCT, _LIST, _SET):
        return _skip_nested(data, at, kind, depth)
    if kind in _SIZES:
        return _after(data, at, _SIZES[kind])
    raise ValueError(f"type {kind}")


def _skip_nested(data: bytes, at: int, kind: int, depth: int) -> int:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if kind == _STRUCT:
        return _skip_struct(data, at, depth)
    count, kind, at = _list_head(data, at)
    if kind in (_TRUE, _FALSE):  # in a list, each takes a byte
        return _after(data, at, count)
    for _ in range(count):
        at = _skip(data, at, kind, depth + 1)
    return at


def _skip_struct(data: bytes, at: int, depth: int) -> int:
    """Return the offset after a struct. Footers have many, of numbers and short texts, which are skipped right here."""
    while head := data[at]:
        # A field id that is not a difference to the one before follows the type.
        at = at + 1 if head > _NO_DIFFERENCE else _skip_varint(data, at + 1)
        kind = head & 15
        if kind in _INTEGERS:
            while data[at] > 0x7F:
                at += 1
            at += 1
        elif kind == _BINARY and data[at] <= 0x7F:
            at = _after(data, at + 1, data[at])
        else:
            at = _skip(data, at, kind, depth + 1)
    return at + 1


def _skip_varint(data: bytes, at: int) -> int:
    while data[at] > 0x7F:
        at += 1
    return at + 1


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Return number and type of a list's values, and the offset of the first."""
    head, at = data[at], at + 1
    count = head >> 4
    if count == _LONG_LIST:
        count, at = _decode_varint(data, at)
    if count > len(data) - at:
        raise ValueError(f"a list of {count} values")
    return count, head & 15, at


def _after(data: bytes, at: int, size: int) -> int:
    if size > len(data) - at:
        raise ValueError(f"{size} bytes beyond the end")
    return at + size


def _decode_zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    if value < 0x80:  # most are, and footers have many
        return (value >> 1) ^ -(value & 1), at + 1
    value, at = _decode_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _decode_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("an overlong number")
