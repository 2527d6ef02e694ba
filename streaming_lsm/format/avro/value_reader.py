"""Decode the Avro values of many datums to Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import Array, array_of, bits, data_of, gather, nulls, take
from streaming_lsm.arrow.columns import Flags, Int64s, UInt8s, is_utf8, pc
from streaming_lsm.format.avro.cursor import Cursor
from streaming_lsm.format.avro.decimals import decimals_of_bytes
from streaming_lsm.format.avro.schema_tree import Node
from streaming_lsm.format.avro.skipping import items, skip

_ASCII = 0x80


def read(node: Node, cursor: Cursor) -> Array:
    """Decode the next value of each datum in the node's Arrow type, and advance the cursor.

    Raises:
        CorruptFileError: a value is not of the node's type, or exceeds its datum.
    """
    return _READERS[node.kind](node, cursor)


def read_record(fields: tuple[Node, ...], cursor: Cursor) -> list[Array]:
    """Decode the fields with an Arrow type, in the order of the encoding; skip the others."""
    found = []
    for field in fields:
        if field.arrow is None:
            skip(field, cursor)
        else:
            found.append(read(field, cursor))
    return found


def _null(node: Node, cursor: Cursor) -> Array:
    return nulls(len(cursor), node.arrow)


def _boolean(node: Node, cursor: Cursor) -> Array:
    found = cursor.byte(node.path)
    if (wrong := found > 1).any():
        cursor.refuse(wrong, node.path, "is neither true nor false")
    return array_of(node.arrow, len(found), [None, bits(found)])


def _int(node: Node, cursor: Cursor) -> Array:
    values = cursor.ints(node.path)
    return array_of(node.arrow, len(values), [None, values.astype(np.int32)])


def _long(node: Node, cursor: Cursor) -> Array:
    values = cursor.longs(node.path)
    return array_of(node.arrow, len(values), [None, values])


def _float(node: Node, cursor: Cursor) -> Array:
    found = cursor.stretch.halves[cursor.at]
    cursor.move(cursor.at + 4, node.path)
    return array_of(node.arrow, len(found), [None, found])


def _double(node: Node, cursor: Cursor) -> Array:
    found = cursor.stretch.words[cursor.at]
    cursor.move(cursor.at + 8, node.path)
    return array_of(node.arrow, len(found), [None, found])


def _bytes(node: Node, cursor: Cursor) -> Array:
    lengths, begin = cursor.lengths(node.path), cursor.at
    cursor.at = begin + lengths
    return _of_bytes(node, cursor, begin, cursor.at)


def _fixed(node: Node, cursor: Cursor) -> Array:
    begin = cursor.at
    cursor.move(begin + node.least, node.path)
    return _of_bytes(node, cursor, begin, cursor.at)


def _of_bytes(node: Node, cursor: Cursor, begin: Int64s, end: Int64s) -> Array:
    assert node.arrow is not None
    if pa.types.is_decimal(node.arrow):
        values, wrong = decimals_of_bytes(cursor.stretch, begin, end, node.arrow.precision)
        if wrong.any():
            cursor.refuse(wrong, node.path, f"is not a decimal of {node.arrow.precision} digits")
        return array_of(node.arrow, len(begin), [None, values])
    found = gather(cursor.stretch.data, begin, end)
    return _text(node, cursor, found) if node.kind == "string" else found


def _text(node: Node, cursor: Cursor, found: pa.BinaryArray) -> Array:
    data = data_of(found, 2)
    if not len(data) or data.max() < _ASCII:
        return array_of(pa.string(), len(found), [None, data_of(found, 1), data])
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        wrong = ~is_utf8(found)
        cursor.refuse(wrong, node.path, "is not UTF-8")
        texts: Array = pc.if_else(pa.array(wrong), b"", found).cast(pa.string())
        return texts


def _enum(node: Node, cursor: Cursor) -> Array:
    places = cursor.ints(node.path)
    wrong = places.view(np.uint64) >= len(node.symbols)  # as unsigned, a negative number is a large one
    if wrong.any():
        cursor.refuse(wrong, node.path, f"has a number beyond the {len(node.symbols)} symbols of its enum")
        places[wrong] = 0
    return take(pa.array(node.symbols, pa.string()), places)


def _union(node: Node, cursor: Cursor) -> Array:
    branches = cursor.branches(node)
    if not len(branches):
        return nulls(0, node.arrow)
    if node.is_of_several:
        return _records(node, cursor, branches)
    lowest, highest = int(branches.min()), int(branches.max())
    if lowest == highest:
        child = node.children[lowest]
        return nulls(len(branches), node.arrow) if child.kind == "null" else read(child, cursor)
    valued = 0 if node.children[0].kind != "null" else 1
    has = branches == valued
    return _chosen(node.children[valued], cursor, has)


def _records(node: Node, cursor: Cursor, branches: UInt8s) -> Array:
    """Read a union of several records: a struct with a column for each of them."""
    valid, columns = np.ones(len(branches), np.bool_), []
    for number, child in enumerate(node.children):
        has = branches == number
        if child.kind == "null":
            valid &= ~has
        else:
            columns.append(_chosen(child, cursor, has) if has.any() else nulls(len(has), child.arrow))
    return array_of(node.arrow, len(branches), [bits(valid)], columns)


def _chosen(node: Node, cursor: Cursor, has: Flags) -> Array:
    """Read the values of the datums where `has` is True; null elsewhere."""
    places = np.flatnonzero(has)
    part = cursor.select(places)
    values = read(node, part)
    cursor.at[places] = part.at
    return _spread(values, has, places)


def _spread(values: Array, has: Flags, places: Int64s) -> Array:
    """Take the values at `places` where `has` is True; null elsewhere."""
    kind = values.type
    if pa.types.is_primitive(kind) and kind.bit_width >= 32 and not values.null_count:
        width = kind.bit_width // 8
        narrow = data_of(values, 1)[: width * len(places)].view(f"V{width}")
        wide = np.zeros(len(has), narrow.dtype)
        wide[places] = narrow
        return array_of(kind, len(has), [bits(has), wide.view(np.uint8)])
    return take(values, np.cumsum(has, dtype=np.int32) - np.int32(1), ~has)


def _items(node: Node, cursor: Cursor) -> Array:
    count = len(cursor)
    lane, inside = items(node, cursor)
    values = read(node.children[0], inside)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(lane, minlength=count), out=offsets[1:])
    return array_of(node.arrow, count, [None, offsets], [values])


def _record(node: Node, cursor: Cursor) -> Array:
    count = len(cursor)
    return array_of(node.arrow, count, [None], read_record(node.children, cursor))


_READERS: dict[str, Callable[[Node, Cursor], Array]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "enum": _enum,
    "string": _bytes,
    "bytes": _bytes,
    "fixed": _fixed,
    "union": _union,
    "array": _items,
    "map": _items,
    "record": _record,
}
