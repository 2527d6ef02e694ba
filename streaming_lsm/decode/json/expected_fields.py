"""Learn from samples which fields documents have beyond those that are read, so that a parser accepts just these.

*Node*: what a sampled value was: a JSON type, an object of nodes by field, or an array with the node of its elements.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streaming_lsm.decode.json.document import Members, Number

_MOST = 256
_LONGEST_NAME = 1_000
_Node = Any
_TYPES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "number": pa.float64(),
    "string": pa.string(),
}


@dataclass
class _Array:
    """Describes the values of an array by the node of its elements."""

    element: _Node


class _Irregular(Exception):
    """Reports a field with values of several types."""


class ExpectedFields:
    """Learns the fields of documents.

    Attributes:
        regular: whether each field has one type, and there are not too many. If not, a parser is better not told.
    """

    def __init__(self, known: Iterable[str], sides: tuple[str, ...] = ()) -> None:
        """Prepare to learn the fields of documents of one kind.

        Args:
            known: fields of a row that the parser knows.
            sides: fields of a document that hold rows; none if the document is a row.
        """
        self._known, self._sides = frozenset(known), sides
        self._row: dict[str, _Node] = {}
        self._around: dict[str, _Node] = {}
        self._count = 0
        self.regular = True

    def learn(self, document: Members) -> None:
        """Learn from a document. A name that Arrow cannot take, or a very long one, is passed over."""
        if not self.regular:
            return
        try:
            if not self._sides:
                self._learn_fields(self._row, document, self._known)
                return
            self._learn_fields(self._around, document, self._sides)
            for side in self._sides:
                row = document.get(side)
                if isinstance(row, Members):
                    self._learn_fields(self._row, row, self._known)
        except _Irregular:
            self.regular = False

    def extended(self, form: pa.Schema) -> pa.Schema:
        """Add the learned fields to a form; all sides get the same fields, those of the form's last side included."""
        if not self._sides:
            return pa.schema(_extended(list(form), self._row))
        fields = {field.name: field for field in _extended(list(form), self._around)}
        row: list[pa.Field[Any]] = []
        for side in reversed(self._sides):
            own = _extended(list(fields[side].type), self._row)
            names = {field.name for field in own}
            own += [field for field in row if field.name not in names]
            row = row or own
            fields[side] = pa.field(side, pa.struct(own))
        return pa.schema(list(fields.values()))

    def names(self) -> tuple[str, ...]:
        """Return the learned fields of rows."""
        return tuple(self._row)

    def _learn_fields(self, nodes: dict[str, _Node], members: Members, known: Iterable[str]) -> None:
        for name, token in members.items():
            if name not in known and _is_learnable(name):
                if name not in nodes:
                    self._count += 1
                    if self._count > _MOST:
                        raise _Irregular
                nodes[name] = self._joined(nodes.get(name, "null"), token)

    def _joined(self, node: _Node, token: Any) -> _Node:
        """Return the node of the values sampled so far and `token`; raises `_Irregular` if they have several types."""
        if token is None:
            return node
        if isinstance(token, Members):
            inside = {} if node == "null" else node
            if not isinstance(inside, dict):
                raise _Irregular
            self._learn_fields(inside, token, ())
            return inside
        if isinstance(token, list):
            array = _Array("null") if node == "null" else node
            if not isinstance(array, _Array):
                raise _Irregular
            for element in token:
                array.element = self._joined(array.element, element)
            return array
        kind = "number" if isinstance(token, Number) else "boolean" if isinstance(token, bool) else "string"
        if node not in ("null", kind):
            raise _Irregular
        return kind


def _is_learnable(name: str) -> bool:
    """Tell whether Arrow takes a name: a document may write half of a surrogate pair, which UTF-8 does not have."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return len(name) <= _LONGEST_NAME


def _extended(fields: list[pa.Field[Any]], nodes: dict[str, _Node]) -> list[pa.Field[Any]]:
    """Add nodes to the fields of an object; a field that is there keeps its type, and its objects get theirs."""
    found = []
    for field in fields:
        node = nodes.get(field.name)
        if isinstance(node, dict) and pa.types.is_struct(field.type):
            found.append(pa.field(field.name, pa.struct(_extended(list(field.type), node))))
        else:
            found.append(field)
    there = {field.name for field in fields}
    return found + [pa.field(name, _type(node)) for name, node in nodes.items() if name not in there]


def _type(node: _Node) -> pa.DataType:
    if isinstance(node, dict):
        return pa.struct([pa.field(name, _type(child)) for name, child in node.items()])
    if isinstance(node, _Array):
        return pa.list_(_type(node.element))
    return _TYPES[node]
