"""Decode and encode structs of Thrift's compact protocol without their definition, as Parquet's footers hold them.

A struct is a dict of field id to `Field`, so that fields which this package does not know are kept as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)
I32, I64 = 5, 6
_MOST_BITS = 70
_MOST_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Field:
    """A value and its type in the compact protocol; a list holds the type of its items, too."""

    kind: int
    value: Value
    items: int = 0


Struct = dict[int, Field]
Value = bool | int | bytes | list["Value"] | Struct


def integer(struct: Struct, number: int, default: int = 0) -> int:
    """Return an integer field; raises ValueError if it has another type."""
    value = struct[number].value if number in struct else default
    if not isinstance(value, int):
        raise ValueError(f"field {number} is no integer")
    return value


def inner(struct: Struct, number: int) -> Struct:
    """Return a field that is a struct; raises ValueError if it is missing or has another type."""
    return as_struct(struct[number].value if number in struct else None)


def structs(struct: Struct, number: int) -> list[Struct]:
    """Return a field that is a list of structs, [] if it is missing; raises ValueError if it has another type."""
    found = struct[number].value if number in struct else []
    if not isinstance(found, list):
        raise ValueError(f"field {number} is no list")
    return [as_struct(item) for item in found]


def as_struct(value: object) -> Struct:
    """Return a value that is a struct; raises ValueError otherwise."""
    if not isinstance(value, dict):
        raise ValueError("no struct")
    return value


def list_of(items: Sequence[Struct]) -> Field:
    """Build a field that is a list of structs."""
    return Field(_LIST, list(items), _STRUCT)


def decode(data: bytes | memoryview, offset: int = 0) -> tuple[Struct, int]:
    """Decode a struct; returns it and the offset of its end.

    Raises:
        ValueError: the bytes end, or hold an unknown type.
    """
    reader = _Reader(memoryview(data), offset)
    try:
        return reader.struct(), reader.place
    except IndexError:
        raise ValueError("the struct ends too early") from None


def encode(struct: Struct) -> bytes:
    """Encode a struct."""
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


class _Reader:
    def __init__(self, data: memoryview, place: int) -> None:
        self._data, self.place = data, place
        self._depth = 0

    def struct(self) -> Struct:
        self._enter()
        found: Struct = {}
        number = 0
        while head := self._byte():
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            items = self._data[self.place] & 15 if kind in (_LIST, _SET) else 0
            found[number] = Field(kind, self._value(kind, in_list=False), items)
        self._depth -= 1
        return found

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise ValueError("the struct is nested too deeply")

    def _byte(self) -> int:
        self.place += 1
        return self._data[self.place - 1]

    def _varint(self) -> int:
        value = shift = 0
        while shift < _MOST_BITS:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ValueError("an integer has more than ten bytes")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self.place:
            raise IndexError
        self.place += count
        return bytes(self._data[self.place - count : self.place])

    def _value(self, kind: int, *, in_list: bool) -> Value:
        if kind in (_TRUE, _FALSE):
            return self._byte() == _TRUE if in_list else kind == _TRUE
        if kind in _INTEGERS:
            return self._zigzag()
        readers: dict[int, Callable[[], Value]] = {
            _BYTE: self._byte,
            _DOUBLE: lambda: self._bytes(8),
            _BINARY: lambda: self._bytes(self._varint()),
            _LIST: self._list,
            _SET: self._list,
            _STRUCT: self.struct,
        }
        if kind not in readers:
            raise ValueError(f"type {kind} of the compact protocol is not supported")
        return readers[kind]()

    def _list(self) -> list[Value]:
        head = self._byte()
        count = self._varint() if head >> 4 == 15 else head >> 4
        if count > len(self._data) - self.place:
            raise IndexError
        self._enter()
        found = [self._value(head & 15, in_list=True) for _ in range(count)]
        self._depth -= 1
        return found


def _put_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for number, field in struct.items():
        kind = field.kind if not isinstance(field.value, bool) else _TRUE if field.value else _FALSE
        if 0 < number - last < 16:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            _put_zigzag(out, number)
        if not isinstance(field.value, bool):
            _put(out, kind, field.value, field.items)
        last = number
    out.append(0)


def _put(out: bytearray, kind: int, value: Value, items: int = 0) -> None:
    if isinstance(value, bool):
        out.append(_TRUE if value else _FALSE)
    elif isinstance(value, int):
        out.append(value) if kind == _BYTE else _put_zigzag(out, value)
    elif isinstance(value, bytes):
        if kind == _BINARY:
            _put_varint(out, len(value))
        out += value
    elif isinstance(value, dict):
        _put_struct(out, value)
    else:
        out.append(min(len(value), 15) << 4 | items)
        if len(value) >= 15:
            _put_varint(out, len(value))
        for item in value:
            _put(out, items, item)


def _put_zigzag(out: bytearray, value: int) -> None:
    _put_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _put_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
