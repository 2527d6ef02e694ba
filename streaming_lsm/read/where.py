"""Row filters as text: ``qty > 5 and country in ('DE', 'FR')``."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pyarrow.compute as pc

from streaming_lsm.errors import ConfigError

_COMPARE: dict[type[ast.cmpop], Callable[[pc.Expression, object], pc.Expression]] = {
    ast.Eq: lambda field, value: field.is_null() if value is None else field == value,
    ast.NotEq: lambda field, value: field.is_valid() if value is None else field != value,
    ast.Lt: lambda field, value: field < value,
    ast.LtE: lambda field, value: field <= value,
    ast.Gt: lambda field, value: field > value,
    ast.GtE: lambda field, value: field >= value,
    ast.In: lambda field, value: field.isin(value),
    ast.NotIn: lambda field, value: ~field.isin(value),
}


def parse_where(text: str) -> pc.Expression:
    """The filter that `text` describes: columns compared with literals, joined by and, or, not.

    Comparisons are ``== != < <= > >= in not in``; ``== None`` asks for nulls.

    Raises:
        ConfigError: anything else; the message shows the part that is not understood.
    """
    try:
        return _expression(ast.parse(text, mode="eval").body)
    except SyntaxError as error:
        raise ConfigError(f"filter {text!r}: {error.msg}; write for example: qty > 5 and country == 'DE'") from None


def _expression(node: ast.expr) -> pc.Expression:
    if isinstance(node, ast.BoolOp):
        parts = [_expression(value) for value in node.values]
        joined = parts[0]
        for part in parts[1:]:
            joined = joined & part if isinstance(node.op, ast.And) else joined | part
        return joined
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ~_expression(node.operand)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        return _COMPARE[type(node.ops[0])](_field(node.left), _literal(node.comparators[0]))
    if isinstance(node, ast.Name | ast.Attribute):
        return _field(node)
    raise ConfigError(f"filter: {ast.unparse(node)!r} is not a comparison of a column with a value")


def _field(node: ast.expr) -> pc.Expression:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise ConfigError(f"filter: {ast.unparse(node)!r} is not a column; the column stands on the left")
    return pc.field(node.id, *names)


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ConfigError(f"filter: {ast.unparse(node)!r} is not a value; write texts in quotes") from None
