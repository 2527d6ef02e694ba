"""Encode and decode delete blocks: keys and ordering values of deleted records.

See docs/format/04-inline-logs.md, "Contents". The deletes are the items of one Avro array; `item_chains.follow` finds
their positions, then all are decoded together, without per-delete work. A *wrapper* is an Avro record around one
ordering value; several ordering fields are a *tuple*, an array of wrappers, and one field is a *lone* wrapper.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import Array, data_of, nulls, take
from streaming_lsm.arrow.columns import Int64s, UInt8s, pc
from streaming_lsm.avro_names import resolved_avro
from streaming_lsm.casts import cast_array
from streaming_lsm.errors import CorruptFileError, RecordError, SchemaError, UnsupportedTable
from streaming_lsm.format.avro.cursor import Cursor
from streaming_lsm.format.avro.schema_tree import Node, node
from streaming_lsm.format.avro.skipping import items, skip
from streaming_lsm.format.avro.value_reader import read
from streaming_lsm.format.avro.value_writer import Piece, constant, encode, joined, number, spread
from streaming_lsm.format.avro.varints import Stretch
from streaming_lsm.schema import PARTITION_PATH, RECORD_KEY, arrow_fields

VERSION = 3

_HEAD = struct.Struct(">ii")
_SERIALISED_BY_JAVA = (1, 2)
_INT = "IntWrapper"
_FLOAT = "FloatWrapper"
_ARRAY = "ArrayWrapper"
_TIMESTAMP = "TimestampMicrosWrapper"
_NO_ORDERING = b"\x04\x00"  # an int wrapper of 0

_IsType = Callable[[pa.DataType], bool]
_is = pa.types
_WRITTEN: tuple[tuple[_IsType, str], ...] = (
    (_is.is_boolean, "BooleanWrapper"),
    (_is.is_int32, _INT),
    (_is.is_int64, "LongWrapper"),
    (_is.is_float32, _FLOAT),
    (_is.is_float64, "DoubleWrapper"),
    (_is.is_binary, "BytesWrapper"),
    (_is.is_string, "StringWrapper"),
    (_is.is_date32, _INT),
    (_is.is_timestamp, "LongWrapper"),
    (_is.is_decimal128, "DecimalWrapper"),
)
# A long in a timestamp field is in the unit of that field.
_READ: dict[str, tuple[_IsType, ...]] = {
    "BooleanWrapper": (_is.is_boolean,),
    _INT: (_is.is_int32, _is.is_int64, _is.is_floating, _is.is_date32),
    "LongWrapper": (_is.is_int32, _is.is_int64, _is.is_floating, _is.is_timestamp),
    _FLOAT: (_is.is_floating,),
    "DoubleWrapper": (_is.is_float64,),
    "BytesWrapper": (_is.is_binary,),
    "StringWrapper": (_is.is_string,),
    "DateWrapper": (_is.is_date32,),
    "LocalDateWrapper": (_is.is_date32,),
    "DecimalWrapper": (_is.is_decimal128,),
    "TimeMicrosWrapper": (_is.is_int64,),
    _TIMESTAMP: (_is.is_timestamp,),
}


@dataclass(frozen=True, slots=True)
class _Wrappers:
    """Union of wrapper records.

    Attributes:
        union: node of the union, for skipping it.
        names: names of its branches; empty for null.
        values: node of the wrapped value of each branch; None for null and for `_ARRAY`.
    """

    union: Node
    names: tuple[str, ...]
    values: tuple[Node | None, ...]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Nodes of the packaged schema of the delete list, in the order in which they are read."""

    deletes: Node
    key: Node
    partition: Node
    ordering: _Wrappers
    tuples: Node
    in_tuple: _Wrappers


def decode_delete_block(content: memoryview | bytes, ordering: Sequence[pa.Field[Any]], source: str) -> pa.RecordBatch:
    """Decode the deletes of a block (docs/format/04-inline-logs.md, "Contents").

    Args:
        content: the block's content.
        ordering: the table's ordering fields.
        source: the block, for messages.

    Returns:
        one row per delete: record key, partition path, and a column per ordering field in the field's type; null for a
        delete without ordering value, which is also the meaning of a lone int 0.

    Raises:
        CorruptFileError: the content does not match the layout, or an ordering value does not fit its field.
        UnsupportedTable: the deletes are serialised by Java, or have an unknown version.
    """
    length = check_delete_version(content, source)
    if length != len(content) - _HEAD.size:
        raise CorruptFileError(f"{source}: {length} bytes of deletes in a block of {len(content)}; restore the file")
    return _decode_list(np.frombuffer(content, np.uint8)[_HEAD.size :], ordering, source)


def check_delete_version(content: memoryview | bytes, source: str) -> int:
    """Check that the version of a delete block is supported.

    Args:
        content: the block's content, or a prefix of it.
        source: the block, for messages.

    Returns:
        Size of the deletes in bytes.

    Raises:
        CorruptFileError: the content is too short.
        UnsupportedTable: the deletes are serialised by Java, or have an unknown version.
    """
    if len(content) < _HEAD.size:
        raise CorruptFileError(f"{source}: a delete block of only {len(content)} bytes; restore the file")
    version, length = _HEAD.unpack_from(content)
    if version in _SERIALISED_BY_JAVA:
        raise UnsupportedTable(
            f"{source}: delete block version {version}, serialised by Java, is not read; compact the table with Hudi"
        )
    if version != VERSION:
        raise UnsupportedTable(f"{source}: delete block version {version}; this release reads version {VERSION}")
    return int(length)


def encode_delete_block(keys: Array, partition_paths: Array, ordering: Sequence[Array]) -> bytes:
    """Encode the content of a delete block (docs/format/04-inline-logs.md, "Contents").

    Dates are wrapped as int days and timestamps as long, because the Spark reader of Hudi 1.2 compares them with the
    plain numbers of its rows and fails on the date and timestamp wrappers.

    Args:
        keys: record keys, strings.
        partition_paths: strings.
        ordering: a column per ordering field of the table; a row with only nulls is an unconditional delete, and is
            written as int 0, never as null.

    Raises:
        RecordError: a key is null, an ordering value is null in some fields only, or a decimal has more digits than
            the format allows.
        SchemaError: a type has no wrapper in the format.
    """
    if keys.null_count:
        raise RecordError("a delete without a record key; drop it")
    layout, rows = _layout(), len(keys)
    head = [*encode(layout.key, keys), *encode(layout.partition, partition_paths)]
    datums = joined([*head, *_ordering_pieces(layout, ordering, rows)], rows)
    body = b"\x00"
    if rows:
        body = number(rows) + data_of(datums, 2).tobytes() + body
    return _HEAD.pack(VERSION, len(body)) + body


def _ordering_pieces(layout: _Layout, ordering: Sequence[Array], rows: int) -> list[Piece]:
    has = np.full(rows, bool(ordering))
    some = np.zeros(rows, np.bool_)
    for column in ordering:
        has &= np.asarray(column.is_valid())
        some |= np.asarray(column.is_valid())
    if (partly := some & ~has).any():
        raise RecordError(f"delete {np.argmax(partly)} has no value in some of the {len(ordering)} ordering fields")
    places, without = np.flatnonzero(has), np.flatnonzero(~has)
    columns = [column.filter(pa.array(has)) for column in ordering]
    pieces = [spread(piece, places, rows) for piece in _tuple_pieces(layout, columns, len(places))]
    return [*pieces, spread(constant(len(without), _NO_ORDERING), without, rows)]


def _tuple_pieces(layout: _Layout, ordering: Sequence[Array], rows: int) -> list[Piece]:
    if len(ordering) == 1:
        return _wrapped_pieces(layout.ordering, ordering[0])
    begin = bytes([2 * layout.ordering.names.index(_ARRAY), 2]) + number(len(ordering))
    values = [piece for column in ordering for piece in _wrapped_pieces(layout.in_tuple, column)]
    return [constant(rows, begin), *values, constant(rows, b"\x00")]


def _wrapped_pieces(wrappers: _Wrappers, values: Array) -> list[Piece]:
    name = next((name for is_type, name in _WRITTEN if is_type(values.type)), None)
    if name is None:
        raise SchemaError(
            f"ordering values of type {values.type} cannot be written into delete blocks; cast them first"
        )
    branch = wrappers.names.index(name)
    value = wrappers.values[branch]
    assert value is not None
    if pa.types.is_decimal(values.type):
        try:
            values = pc.cast(values, value.arrow)
        except pa.ArrowInvalid as error:
            raise RecordError(f"an ordering value does not fit a delete block ({error})") from error
    return [constant(len(values), bytes([2 * branch])), *encode(value, values)]


def _decode_list(data: UInt8s, ordering: Sequence[pa.Field[Any]], source: str) -> pa.RecordBatch:
    layout, zero = _layout(), np.zeros(1, np.int64)
    whole = Cursor(Stretch.copy_of(data), zero, zero + len(data), zero, source)
    _, deletes = items(layout.deletes, whole, chain=True)
    if int(whole.at[0]) != len(data):
        raise CorruptFileError(f"{source}: {len(data) - int(whole.at[0])} bytes behind the deletes; restore the file")
    deletes.records = np.arange(len(deletes))
    keys, partitions = read(layout.key, deletes), read(layout.partition, deletes)
    if keys.null_count:
        deletes.refuse(np.asarray(keys.is_null()), RECORD_KEY, "is null")
    columns = [keys, partitions, *_ordering(layout, deletes, ordering)]
    fields = [pa.field(RECORD_KEY, pa.string()), pa.field(PARTITION_PATH, pa.string())]
    schema = pa.schema([*fields, *(field.with_nullable(True) for field in ordering)])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _ordering(layout: _Layout, deletes: Cursor, ordering: Sequence[pa.Field[Any]]) -> list[Array]:
    if not ordering:
        skip(layout.ordering.union, deletes)
        return []
    begin = deletes.at
    in_tuple = deletes.branches(layout.ordering.union) == layout.ordering.names.index(_ARRAY)
    deletes.at = begin
    places = [np.flatnonzero(~in_tuple), np.flatnonzero(in_tuple)]
    lone = _lone(layout, deletes.select(places[0]), ordering)
    tuples = _tuples(layout, deletes.select(places[1]), ordering)
    return [_put(pair, places) for pair in zip(lone, tuples, strict=True)]


def _lone(layout: _Layout, deletes: Cursor, ordering: Sequence[pa.Field[Any]]) -> list[Array]:
    """Decode ordering values that are not in a tuple; an int 0 becomes null."""
    several = len(ordering) > 1
    field = pa.field(", ".join(field.name for field in ordering), pa.int32()) if several else ordering[0]
    found = _wrapped(layout.ordering, deletes, field, lone=True)
    if not several:
        return [found]
    if found.null_count != len(found):
        deletes.refuse(np.asarray(found.is_valid()), field.name, "has one value for several ordering fields")
    return [nulls(len(found), field.type) for field in ordering]


def _tuples(layout: _Layout, deletes: Cursor, ordering: Sequence[pa.Field[Any]]) -> list[Array]:
    names = ", ".join(field.name for field in ordering)
    deletes.branches(layout.ordering.union)
    if (wrong := deletes.branches(layout.tuples) == 0).any():
        deletes.refuse(wrong, names, "is an ordering value without values")
    lane, inside = items(layout.tuples.children[1], deletes)
    if (wrong := np.bincount(lane, minlength=len(deletes)) != len(ordering)).any():
        deletes.refuse(wrong, names, f"does not have the {len(ordering)} values of an ordering value")
    nths = (np.arange(nth, len(lane), len(ordering)) for nth in range(len(ordering)))
    return [_wrapped(layout.in_tuple, inside.select(nth), field) for nth, field in zip(nths, ordering, strict=True)]


def _wrapped(wrappers: _Wrappers, cursor: Cursor, field: pa.Field[Any], lone: bool = False) -> Array:
    branches = cursor.branches(wrappers.union)
    found, places = [], []
    for branch in np.flatnonzero(np.bincount(branches)):
        places.append(np.flatnonzero(branches == branch))
        part, value = cursor.select(places[-1]), wrappers.values[branch]
        if value is None:
            found.append(nulls(len(part), field.type))
            continue
        values = read(value, part)
        if lone and wrappers.names[branch] == _INT:
            values = pc.if_else(pc.equal(values, 0), pa.scalar(None, values.type), values)
        found.append(_fitted(values, wrappers.names[branch], field, part))
    return _put(found, places) if found else pa.array([], field.type)


def _fitted(values: Array, wrapper: str, field: pa.Field[Any], cursor: Cursor) -> Array:
    """Cast the values of a wrapper to the type of their field, if the cast is lossless."""
    if values.null_count == len(values):
        return nulls(len(values), field.type)
    reason = "another kind"
    try:
        if any(is_type(field.type) for is_type in _READ[wrapper]):
            if wrapper == _TIMESTAMP:
                values = values.cast(pa.timestamp("us", field.type.tz))
            return cast_array(values, field.type) if wrapper == _FLOAT else values.cast(field.type)
    except pa.ArrowInvalid as error:
        reason = str(error)
    wrong = np.asarray(values.is_valid())
    cursor.refuse(wrong, field.name, f"is an ordering value in a {wrapper} that does not fit {field.type} ({reason})")
    raise AssertionError("a cursor that only notes what is corrupt")


def _put(values: Sequence[Array], places: Sequence[Int64s]) -> Array:
    """Scatter several arrays into one array, each to its `places`."""
    if len(values) == 1:
        return values[0]
    nth = np.empty(sum(map(len, places)), np.int64)
    nth[np.concatenate(list(places))] = np.arange(len(nth))
    return take(pa.concat_arrays(values), nth)


@functools.cache
def _layout() -> _Layout:
    text = resources.files("streaming_lsm.format").joinpath("schemas", "HoodieDeleteRecordList.avsc").read_text("utf-8")
    (deletes,) = resolved_avro(text, "HoodieDeleteRecordList")
    key, partition, ordering = (field["type"] for field in deletes["type"]["items"]["fields"])
    tuples = next(branch for branch in ordering if branch != "null" and branch["name"] == _ARRAY)["fields"][0]["type"]
    return _Layout(
        deletes=node(deletes["type"], "deletes", None),
        key=node(key, RECORD_KEY, pa.string()),
        partition=node(partition, PARTITION_PATH, pa.string()),
        ordering=_wrappers(ordering),
        tuples=node(tuples, "ordering value", None),
        in_tuple=_wrappers(tuples[1]["items"]),
    )


def _wrappers(union: list[Any]) -> _Wrappers:
    names = tuple("" if branch == "null" else str(branch["name"]) for branch in union)
    values: list[Node | None] = []
    for name, branch in zip(names, union, strict=True):
        if name in ("", _ARRAY):
            values.append(None)
        else:
            (value,) = arrow_fields(branch["fields"], name)
            values.append(node(branch["fields"][0]["type"], "ordering value", value.type))
    return _Wrappers(node(union, "ordering value", None), names, tuple(values))
