"""Read the structure of a filter from an Arrow expression.

Arrow shows it in the serialised form only, by which expressions are pickled: an IPC file of one row. Its schema has a
token in its metadata for each step of a walk through the tree, and a column for each literal and each function's
options. Tokens have keys that repeat, which the metadata of a `pyarrow.Schema` as a dictionary loses; Arrow's C data
interface has them all. An expression that cannot be read is undecided, so that nothing is pruned by it.
"""

from __future__ import annotations

import ctypes
import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.query.prune.predicate import (
    EQUAL,
    GREATER,
    GREATER_EQUAL,
    LESS,
    LESS_EQUAL,
    NOT_EQUAL,
    Comparison,
    Every,
    IsNull,
    Membership,
    Negation,
    Predicate,
    Some,
    StartsWith,
    Undecided,
    is_shallow,
)

_LOG = logging.getLogger(__name__)

Token = tuple[str, str]
_COMPARE = {
    "equal": EQUAL,
    "not_equal": NOT_EQUAL,
    "less": LESS,
    "less_equal": LESS_EQUAL,
    "greater": GREATER,
    "greater_equal": GREATER_EQUAL,
}
_FLIPPED = {LESS: GREATER, GREATER: LESS, LESS_EQUAL: GREATER_EQUAL, GREATER_EQUAL: LESS_EQUAL}
_DEEPEST = 100
"""Levels of a predicate that is looked at; each takes some calls of Python's stack."""
_MATCH_NULLS = 0
"""The value of ``null_matching_behavior`` by which null is one of the values; Arrow's default."""


def predicate_of(expression: pc.Expression) -> Predicate:
    """Read the structure of an expression; what is not known of it is undecided."""
    try:
        tokens, values = _serialised(expression)
        found = _Walk(tokens, values).predicate()
    except (OverflowError, pa.ArrowNotImplementedError):
        # A value that Python cannot hold, such as a time in year 11,476; a column by its number.
        return Undecided()
    except (pa.ArrowInvalid, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # The serialised form is not a documented one: another release of Arrow may have another.
        _LOG.warning(
            "filter %s: nothing is pruned by it, as Arrow %s serialises it otherwise than known: %r",
            expression,
            pa.__version__,
            error,
        )
        return Undecided()
    return found if is_shallow(found, _DEEPEST) else Undecided()


def _serialised(expression: pc.Expression) -> tuple[list[Token], list[pa.Array[Any]]]:
    """Return the tokens of an expression, and the arrays of one row that these name by number."""
    reduced: Any = expression.__reduce__()
    _, (buffer,) = reduced
    batch = pa.ipc.open_file(buffer).get_batch(0)
    return list(_metadata(batch.schema)), batch.columns


class _CSchema(ctypes.Structure):
    """The first members of ``struct ArrowSchema`` of the C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _metadata(schema: pa.Schema) -> Iterator[Token]:
    """Yield the entries of a schema's metadata, in order: their number, then length and bytes of each key and value."""
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = _CSchema.from_address(pointer(capsule, b"arrow_schema")).metadata
    if not at:
        raise ValueError("no tokens")
    (count,) = struct.unpack("=i", ctypes.string_at(at, 4))
    at += 4
    for _ in range(count):
        pair = []
        for _ in range(2):
            (length,) = struct.unpack("=i", ctypes.string_at(at, 4))
            pair.append(ctypes.string_at(at + 4, length).decode())
            at += 4 + length
        yield pair[0], pair[1]


class _Column(str):
    """A reference to a column, as an operand."""


_Operand: TypeAlias = "Predicate | _Column | pa.Scalar[Any]"


class _Walk:
    """Builds predicates while the tokens are read from left to right."""

    def __init__(self, tokens: Sequence[Token], values: Sequence[pa.Array[Any]]) -> None:
        self._tokens, self._values = tokens, values

    def predicate(self) -> Predicate:
        """Read the whole expression.

        Raises:
            ValueError, KeyError, IndexError: the tokens are not of the known form.
        """
        stack: list[list[_Operand]] = [[]]
        options: dict[str, Any] = {}
        tokens = iter(self._tokens)
        for kind, text in tokens:
            if kind == "call":
                stack.append([])
            elif kind == "field_ref":
                stack[-1].append(_Column(text))
            elif kind == "nested_field_ref":
                stack[-1].append(_Column(".".join(_next_field(tokens) for _ in range(int(text)))))
            elif kind == "literal":
                stack[-1].append(self._values[int(text)][0])
            elif kind == "options":
                options = self._values[int(text)][0].as_py()
            elif kind == "end":
                operands = stack.pop()
                stack[-1].append(_call(text, operands, options))
                options = {}
            else:
                raise ValueError(f"token {kind!r}")
        ((whole,),) = stack
        return _condition(whole)


def _next_field(tokens: Iterator[Token]) -> str:
    kind, text = next(tokens, ("", ""))
    if kind != "field_ref":
        raise ValueError(f"token {kind!r} in a nested field")
    return text


def _condition(operand: _Operand) -> Predicate:
    """Read an operand as a condition: a boolean column is compared with true."""
    if isinstance(operand, Predicate):
        return operand
    if isinstance(operand, _Column):
        return Comparison(str(operand), EQUAL, pa.scalar(True))
    if pa.types.is_boolean(operand.type) and operand.is_valid:
        return Every(()) if operand.as_py() else Some(())
    return Undecided()


def _call(name: str, operands: list[_Operand], options: dict[str, Any]) -> Predicate:
    if name in _COMPARE:
        return _comparison(_COMPARE[name], *operands)
    read = _CALLS.get(name)
    return Undecided() if read is None else read(operands, options)


def _comparison(operator: str, left: _Operand, right: _Operand) -> Predicate:
    if isinstance(left, _Column) and isinstance(right, pa.Scalar) and right.is_valid:
        return Comparison(str(left), operator, right)
    if isinstance(right, _Column) and isinstance(left, pa.Scalar) and left.is_valid:
        return Comparison(str(right), _FLIPPED.get(operator, operator), left)
    return Undecided()


def _every(operands: list[_Operand], _: dict[str, Any]) -> Predicate:
    return Every(tuple(_flat(Every, operands)))


def _some(operands: list[_Operand], _: dict[str, Any]) -> Predicate:
    return Some(tuple(_flat(Some, operands)))


def _flat(kind: type[Every] | type[Some], operands: list[_Operand]) -> Iterator[Predicate]:
    """Yield the parts of a chain of one kind, so that a long chain is no deep tree."""
    for operand in operands:
        part = _condition(operand)
        if isinstance(part, kind):
            yield from part.parts
        else:
            yield part


def _negation(operands: list[_Operand], _: dict[str, Any]) -> Predicate:
    (part,) = operands
    return Negation(_condition(part))


def _membership(operands: list[_Operand], options: dict[str, Any]) -> Predicate:
    (column,), values = operands, options["value_set"]
    if not isinstance(column, _Column) or values is None:
        return Undecided()
    found = pa.array([value for value in values if value is not None])
    has_null = len(found) < len(values)
    if has_null and options["null_matching_behavior"] != _MATCH_NULLS:
        return Undecided()
    return Membership(str(column), found, has_null)


def _is_null(operands: list[_Operand], options: dict[str, Any]) -> Predicate:
    (column,) = operands
    if not isinstance(column, _Column) or options.get("nan_is_null"):
        return Undecided()
    return IsNull(str(column))


def _is_valid(operands: list[_Operand], _: dict[str, Any]) -> Predicate:
    (column,) = operands
    return Negation(IsNull(str(column))) if isinstance(column, _Column) else Undecided()


def _starts_with(operands: list[_Operand], options: dict[str, Any]) -> Predicate:
    (column,) = operands
    if not isinstance(column, _Column) or options["ignore_case"]:
        return Undecided()
    return StartsWith(str(column), options["pattern"])


def _like(operands: list[_Operand], options: dict[str, Any]) -> Predicate:
    """Read a pattern of SQL by the text before its first wildcard."""
    (column,) = operands
    if not isinstance(column, _Column) or options["ignore_case"] or "\\" in options["pattern"]:
        return Undecided()
    pattern: str = options["pattern"]
    prefix = pattern[: min((at for mark in "%_" if (at := pattern.find(mark)) >= 0), default=len(pattern))]
    if pattern == prefix:
        return Comparison(str(column), EQUAL, pa.scalar(pattern))
    known = StartsWith(str(column), prefix)
    return known if pattern == prefix + "%" else Every((known, Undecided()))


_CALLS: dict[str, Callable[[list[_Operand], dict[str, Any]], Predicate]] = {
    "and_kleene": _every,
    "or_kleene": _some,
    "invert": _negation,
    "is_in": _membership,
    "is_null": _is_null,
    "is_valid": _is_valid,
    "starts_with": _starts_with,
    "match_like": _like,
}
