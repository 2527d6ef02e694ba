"""Encode Arrow values as Avro: one piece per value and row.

A *piece* has some bytes of the datum of each row; `joined` concatenates the pieces of each row to its datum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import Array, data_of, offsets_of, spans
from streaming_lsm.arrow.columns import Flags, Int64s, UInt8s, pc
from streaming_lsm.errors import SchemaError
from streaming_lsm.format.avro.decimals import bytes_of_decimals, needless_bytes
from streaming_lsm.format.avro.schema_tree import Node
from streaming_lsm.format.avro.varints import write_varints


@dataclass(frozen=True, slots=True)
class Cells:
    """Up to w bytes per row.

    Attributes:
        data: uint8 (rows, w).
        keep: flags of the bytes that are used, bool (rows, w).
        lengths: number of used bytes, int64 (rows,).
    """

    data: UInt8s
    keep: Flags
    lengths: Int64s


Piece: TypeAlias = "Cells | pa.BinaryArray"
"""The next bytes of each row; an array has no nulls."""


def encode_fields(fields: Sequence[Node], columns: Sequence[Array | None], rows: int) -> list[Piece]:
    """Encode the fields of records; one without a column is null.

    Raises:
        SchemaError: a value does not fit its field, or a field without a column is not nullable.
    """
    return [
        piece
        for field, column in zip(fields, columns, strict=True)
        for piece in (_absent(field, rows) if column is None else encode(field, column))
    ]


def _absent(node: Node, rows: int) -> list[Piece]:
    null = next((place for place, child in enumerate(node.children) if child.kind == "null"), None)
    if node.kind != "union" or null is None:
        raise SchemaError(f"column {node.path!r} is missing, and the Avro schema has no null there")
    return [constant(rows, bytes([2 * null]))]


def encode(node: Node, values: Array) -> list[Piece]:
    """Encode values of one type.

    Raises:
        SchemaError: a null in a type that is not nullable, or bytes that do not fit a fixed size.
    """
    if values.null_count and node.kind not in ("union", "null"):
        raise SchemaError(f"column {node.path!r} has nulls, the Avro schema has none there")
    return _ENCODERS[node.kind](node, values)


def joined(pieces: Sequence[Piece], rows: int) -> pa.BinaryArray:
    """Concatenate the pieces of each row."""
    arrays: list[pa.BinaryArray] = []
    cells: list[Cells] = []
    for piece in pieces:
        if isinstance(piece, Cells):
            cells.append(piece)
        else:
            if cells:
                arrays.append(_packed(cells))
            arrays.append(piece)
            cells = []
    if cells or not arrays:
        arrays.append(_packed([*cells, constant(rows, b"")]))
    whole: pa.BinaryArray = arrays[0] if len(arrays) == 1 else pc.binary_join_element_wise(*arrays, b"")
    return whole


def number(value: int) -> bytes:
    """Encode one number as a varint."""
    return write_varints(np.array([value], np.int64))[0].tobytes()


def constant(rows: int, value: bytes) -> Cells:
    """Repeat the same bytes for every row."""
    return _whole(np.broadcast_to(np.frombuffer(value, np.uint8), (rows, len(value))))


def _whole(data: UInt8s) -> Cells:
    return Cells(data, np.ones(data.shape, np.bool_), np.full(len(data), data.shape[1], np.int64))


def _packed(cells: Sequence[Cells]) -> pa.BinaryArray:
    data = np.concatenate([piece.data for piece in cells], axis=1)
    keep = np.concatenate([piece.keep for piece in cells], axis=1)
    offsets = np.zeros(len(data) + 1, np.int64)
    np.cumsum(sum(piece.lengths for piece in cells), out=offsets[1:])
    return spans(offsets, data[keep])


def spread(piece: Piece, places: Int64s, rows: int) -> Piece:
    """Scatter the rows of a piece to `places` among `rows` rows; the others get no bytes."""
    if isinstance(piece, Cells):
        data, keep = np.zeros((rows, piece.data.shape[1]), np.uint8), np.zeros((rows, piece.data.shape[1]), np.bool_)
        lengths = np.zeros(rows, np.int64)
        data[places], keep[places], lengths[places] = piece.data, piece.keep, piece.lengths
        return Cells(data, keep, lengths)
    found = offsets_of(piece)
    offsets = np.zeros(rows + 1, np.int64)
    offsets[places + 1] = np.diff(found)
    return spans(found[0] + np.cumsum(offsets), data_of(piece, 2))


def _union(node: Node, values: Array) -> list[Piece]:
    if node.is_of_several:
        return _records(node, values)
    null = next((place for place, child in enumerate(node.children) if child.kind == "null"), None)
    valued = 1 if null == 0 else 0
    if not values.null_count:
        return [constant(len(values), bytes([2 * valued])), *encode(node.children[valued], values)]
    if null is None:
        raise SchemaError(f"column {node.path!r} has nulls, the Avro schema has none there")
    has = np.asarray(values.is_valid())
    branches = np.where(has, np.uint8(2 * valued), np.uint8(2 * null))[:, None]
    places = np.flatnonzero(has)
    inside = encode(node.children[valued], values.drop_null())
    return [_whole(branches), *(spread(piece, places, len(has)) for piece in inside)]


def _records(node: Node, values: Any) -> list[Piece]:
    """Encode a union of several records, of which at most one is not null."""
    branches = np.zeros(len(values), np.int64)
    valid = np.asarray(values.is_valid())
    chosen, found = np.zeros(len(values), np.int64), []
    columns = iter(range(values.type.num_fields))
    for number, child in enumerate(node.children):
        if child.kind == "null":
            branches[~valid] = number
            chosen[~valid] += 1
            continue
        column = values.field(next(columns))
        if column.null_count == len(column):
            continue
        has = np.asarray(column.is_valid()) & valid
        branches[has] = number
        chosen += has
        if has.any():
            places = np.flatnonzero(has)
            found += [spread(piece, places, len(has)) for piece in encode(child, column.filter(pa.array(has)))]
    if (chosen != 1).any():
        raise SchemaError(f"column {node.path!r} has none or several of the records of its union")
    return [_whole((branches * 2).astype(np.uint8)[:, None]), *found]


def _null(_node: Node, _values: Array) -> list[Piece]:
    return []


def _boolean(_node: Node, values: Array) -> list[Piece]:
    return [_whole(np.asarray(values, np.bool_).astype(np.uint8)[:, None])]


def _number(_node: Node, values: Array) -> list[Piece]:
    wide = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return [Cells(*write_varints(np.asarray(wide).astype(np.int64)))]


def _float(node: Node, values: Array) -> list[Piece]:
    data = np.ascontiguousarray(np.asarray(values)).view(np.uint8)
    return [_whole(data.reshape(len(values), node.least))]


def _bytes(_node: Node, values: Any) -> list[Piece]:
    if pa.types.is_decimal(values.type):
        data = bytes_of_decimals(values)
        needless = needless_bytes(data)
        lengths = Cells(*write_varints(data.shape[1] - needless))
        return [lengths, Cells(data, np.arange(data.shape[1]) >= needless[:, None], data.shape[1] - needless)]
    plain = values.view(pa.binary()) if pa.types.is_string(values.type) else values
    return [Cells(*write_varints(np.diff(offsets_of(plain)))), plain]


def _fixed(node: Node, values: Any) -> list[Piece]:
    if not pa.types.is_decimal(values.type):
        if (np.diff(offsets_of(values)) != node.least).any():
            raise SchemaError(f"column {node.path!r} has values of other than the {node.least} bytes of its Avro type")
        return [values]
    data = bytes_of_decimals(values)
    sign = np.where(data[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    surplus = data.shape[1] - node.least
    if surplus < 0:
        return [_whole(np.concatenate((np.repeat(sign, -surplus, axis=1), data), axis=1))]
    if (data[:, :surplus] != sign).any() or ((data[:, surplus] ^ sign[:, 0]) >= 0x80).any():
        raise SchemaError(f"column {node.path!r} has values of more than the {node.least} bytes of its Avro type")
    return [_whole(data[:, surplus:])]


def _items(node: Node, values: Any) -> list[Piece]:
    offsets = offsets_of(values)
    counts = np.diff(offsets)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    if isinstance(values, pa.MapArray):
        columns = [values.keys.slice(first, count), values.items.slice(first, count)]
        pieces = encode_fields(node.children[0].children, columns, count)
    else:
        pieces = encode(node.children[0], values.values.slice(first, count))
    items = joined(pieces, count)
    some = counts > 0
    ends = Cells(np.zeros((len(counts), 1), np.uint8), some[:, None], some.astype(np.int64))
    return [Cells(*write_varints(counts)), spans(offsets_of(items)[offsets - first], data_of(items, 2)), ends]


def _record(node: Node, values: Any) -> list[Piece]:
    return encode_fields(node.children, values.flatten(), len(values))


_ENCODERS: dict[str, Callable[[Node, Any], list[Piece]]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _number,
    "long": _number,
    "float": _float,
    "double": _float,
    "string": _bytes,
    "bytes": _bytes,
    "fixed": _fixed,
    "union": _union,
    "array": _items,
    "map": _items,
    "record": _record,
}
