"""Parse Avro schemas into trees of nodes, which the decoder and the encoder traverse.

A *node* is one Avro type with its Arrow type; a node without Arrow type is skipped. A *record plan* has the nodes of a
record's fields and the columns to decode.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streaming_lsm.avro_names import resolved_avro
from streaming_lsm.errors import SchemaError, UnsupportedTable
from streaming_lsm.schema import arrow_fields

MAX_BRANCHES = 64

_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_OF_ANY_SIZE = frozenset({"int", "long", "string", "bytes"})


@dataclass(frozen=True, slots=True)
class Node:
    """Type in an Avro schema.

    Attributes:
        kind: its Avro name: a primitive, ``fixed``, ``enum``, ``array``, ``map``, ``record`` or ``union``.
        path: path in the schema, as ``column.child``, for messages.
        least: minimum size of a value in bytes.
        size: size of every value in bytes; None if it varies.
        arrow: Arrow type of the values; None if they are skipped.
        children: fields of a record, branches of a union, the items of an array or map.
        repeats: whether it is an array or map, or contains one.
        symbols: texts of an enum, by number.
    """

    kind: str
    path: str
    least: int
    size: int | None
    arrow: pa.DataType | None
    children: tuple[Node, ...] = ()
    repeats: bool = False
    symbols: tuple[str, ...] = ()

    @property
    def is_of_several(self) -> bool:
        """Whether it is a union of several types beside null."""
        return sum(child.kind != "null" for child in self.children) > 1


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """Plan for decoding or encoding records.

    Attributes:
        fields: all fields, in the order of the encoding; fields without an Arrow type are skipped.
        schema: the columns to decode, in the requested order.
        places: for each column the index of its field.
    """

    fields: tuple[Node, ...]
    schema: pa.Schema
    places: tuple[int, ...]


def record_plan(avro: str, source: str, columns: Sequence[str] | None = None, *, unions: bool = False) -> RecordPlan:
    """Build the plan for the records of a schema.

    Args:
        avro: Avro JSON.
        source: the file that holds it, for messages.
        columns: columns to decode, all by default; columns that the schema does not have are ignored.
        unions: see `arrow_fields`.

    Raises:
        SchemaError: not an Avro record.
        UnsupportedTable: a column has a type that is not supported.
    """
    try:
        return _record_plan(avro, None if columns is None else tuple(columns), unions)
    except (SchemaError, UnsupportedTable) as error:
        raise type(error)(f"{source}: {error}") from error


@functools.lru_cache(maxsize=256)
def _record_plan(avro: str, columns: tuple[str, ...] | None, unions: bool) -> RecordPlan:
    fields = resolved_avro(avro, "schema of the records")
    places = {str(field["name"]): place for place, field in enumerate(fields)}
    wanted = tuple(places[name] for name in (places if columns is None else columns) if name in places)
    schema = arrow_fields([fields[place] for place in wanted], "schema of the records", unions=unions)
    types = {place: field.type for place, field in zip(wanted, schema, strict=True)}
    nodes = tuple(node(field["type"], str(field["name"]), types.get(place)) for place, field in enumerate(fields))
    return RecordPlan(nodes, schema, wanted)


def node(avro: Any, path: str, arrow: Any) -> Node:
    """Build the tree of a type.

    Args:
        avro: its JSON, as returned by `resolved_avro`.
        path: the column.
        arrow: the `pa.DataType` of its values: that of `arrow_fields`, string for an enum, or a struct of some of a
            record's fields, in their order; None if values are skipped. A union of several records has a struct.

    Raises:
        SchemaError: not an Avro type, or items of an array that take no bytes.
    """
    if isinstance(avro, list):
        return _union(avro, path, arrow)
    kind = avro if isinstance(avro, str) else avro.get("type")
    if kind in ("array", "map"):
        return _repeated(avro, path, arrow)
    if kind == "record":
        return _record(avro, path, arrow)
    if arrow is not None and pa.types.is_decimal(arrow) and kind not in ("bytes", "fixed"):
        raise SchemaError(f"column {path!r}: a decimal of Avro type {kind!r} is not read")
    if kind == "fixed" and isinstance(avro.get("size"), int) and avro["size"] > 0:
        return Node(kind, path, avro["size"], avro["size"], arrow)
    if kind in _SIZES:
        return Node(kind, path, _SIZES[kind], _SIZES[kind], arrow)
    if kind == "enum":
        return _enum(avro, path, arrow)
    if kind in _OF_ANY_SIZE:
        return Node(kind, path, 1, None, arrow)
    raise SchemaError(f"column {path!r}: Avro type {kind!r:.80} is not read")


def _enum(avro: dict[str, Any], path: str, arrow: Any) -> Node:
    symbols = avro.get("symbols")
    if not isinstance(symbols, list) or not symbols:
        raise SchemaError(f"column {path!r}: an enum without symbols is not read")
    return Node(kind="enum", path=path, least=1, size=None, arrow=arrow, symbols=tuple(map(str, symbols)))


def _union(avro: list[Any], path: str, arrow: Any) -> Node:
    if not 0 < len(avro) <= MAX_BRANCHES:
        raise SchemaError(f"column {path!r}: a union of {len(avro)} types is not read")
    several = arrow is not None and sum(branch != "null" for branch in avro) > 1
    kinds = [arrow.field(branch["name"]).type if several and branch != "null" else arrow for branch in avro]
    branches = tuple(
        node(branch, path, None if branch == "null" else kind) for branch, kind in zip(avro, kinds, strict=True)
    )
    least = 1 + min(branch.least for branch in branches)
    return Node(
        kind="union",
        path=path,
        least=least,
        size=None,
        arrow=arrow,
        children=branches,
        repeats=any(branch.repeats for branch in branches),
    )


def _repeated(avro: dict[str, Any], path: str, arrow: Any) -> Node:
    if avro["type"] == "array":
        item = node(avro["items"], f"{path}.element", None if arrow is None else arrow.value_type)
    else:
        entry = None if arrow is None else pa.struct([arrow.key_field, arrow.item_field])
        fields = [{"name": "key", "type": "string"}, {"name": "value", "type": avro["values"]}]
        item = _record({"fields": fields}, path, entry)
    if not item.least:
        raise SchemaError(f"column {path!r}: items that take no bytes are not read")
    return Node(kind=avro["type"], path=path, least=1, size=None, arrow=arrow, children=(item,), repeats=True)


def _record(avro: dict[str, Any], path: str, arrow: Any) -> Node:
    fields = avro["fields"]
    if len({str(field["name"]) for field in fields}) < len(fields):
        raise SchemaError(f"column {path!r}: a record that names a field twice is not read")
    types = {} if arrow is None else {field.name: field.type for field in arrow.fields}
    children = tuple(node(field["type"], f"{path}.{field['name']}", types.get(str(field["name"]))) for field in fields)
    sizes = [child.size for child in children]
    size = None if None in sizes else sum(size for size in sizes if size is not None)
    least, repeats = sum(child.least for child in children), any(child.repeats for child in children)
    return Node(kind="record", path=path, least=least, size=size, arrow=arrow, children=children, repeats=repeats)
