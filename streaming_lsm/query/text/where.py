"""Parse row filters from text, such as ``qty > 5 and country in ('DE', 'FR')``, into Arrow expressions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.errors import ConfigError

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], pc.Expression]] = {
    ast.Eq: lambda field, value: field.is_null() if value is None else field == value,
    ast.NotEq: lambda field, value: field.is_valid() if value is None else field != value,
    ast.Lt: lambda field, value: field < value,
    ast.LtE: lambda field, value: field <= value,
    ast.Gt: lambda field, value: field > value,
    ast.GtE: lambda field, value: field >= value,
    ast.In: lambda field, value: field.isin(value),
    ast.NotIn: lambda field, value: ~field.isin(value),
}

_MOST_NAMES = 1000
_EXAMPLE = "write for example: qty > 5 and country == 'DE'"


def parse_where(text: str, schema: pa.Schema) -> pc.Expression:
    """Parse a filter: columns compared with literals, joined by and, or, not.

    Comparisons are ``== != < <= > >= in not in``; ``== None`` selects nulls. Dates, times and decimals are
    written in quotes; a time without a zone is UTC.

    Args:
        text: the filter.
        schema: the columns that it may reference; a text in quotes is converted to its column's type.

    Raises:
        ConfigError: the text is not such a filter; the message shows the part that cannot be parsed.
    """
    try:
        return _expression(ast.parse(text.strip(), mode="eval").body, schema)
    except SyntaxError as error:
        raise ConfigError(f"filter {text[:200]!r}: {error.msg}; {_EXAMPLE}") from None
    except (RecursionError, MemoryError):
        raise ConfigError(f"filter {text[:200]!r}: nested too deeply; {_EXAMPLE}") from None


def _expression(node: ast.expr, schema: pa.Schema) -> pc.Expression:
    if isinstance(node, ast.BoolOp):
        join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
        return _joined([_expression(value, schema) for value in node.values], join)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ~_expression(node.operand, schema)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        return _comparison(node.left, node.ops[0], node.comparators[0], schema)
    if isinstance(node, ast.Name | ast.Attribute):
        return _field(node)
    raise ConfigError(f"filter: {_shown(node)} is not a comparison of a column with a value; {_EXAMPLE}")


def _joined(
    parts: Sequence[pc.Expression], join: Callable[[pc.Expression, pc.Expression], pc.Expression]
) -> pc.Expression:
    """Join expressions as a balanced tree: Arrow evaluates recursively, and a long chain would exhaust its stack."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return join(_joined(parts[:middle], join), _joined(parts[middle:], join))


def _comparison(left: ast.expr, compare: ast.cmpop, right: ast.expr, schema: pa.Schema) -> pc.Expression:
    field, value = _field(left), _literal(right)
    if isinstance(compare, ast.In | ast.NotIn) and not (value and isinstance(value, list | tuple | set)):
        raise ConfigError(
            f"filter: {_shown(right)} is not a list of values; write for example: country in ('DE', 'FR')"
        )
    try:
        return _COMPARE[type(compare)](field, _typed(value, left, schema))
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise ConfigError(f"filter: {_shown(right)} is not a value to compare with: {error}") from None


def _field(node: ast.expr) -> pc.Expression:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise ConfigError(f"filter: {_shown(node)} is not a column; the column stands on the left")
    if len(names) > _MOST_NAMES:  # Python 3.11 refuses some thousands, 3.13 takes them
        raise ConfigError(f"filter: column {node.id} with {len(names)} fields: nested too deeply; {_EXAMPLE}")
    return pc.field(node.id, *names)


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        raise ConfigError(f"filter: {_shown(node)} is not a value; write texts in quotes") from None


def _typed(value: object, column: ast.expr, schema: pa.Schema) -> object:
    """Convert texts that are compared with a date, time or decimal column to the column's type."""
    kind = schema.field(column.id).type if isinstance(column, ast.Name) and column.id in schema.names else None
    if kind is None or not (pa.types.is_temporal(kind) or pa.types.is_decimal(kind)):
        return value
    if isinstance(value, list | tuple | set):
        return [_of_text(item, kind) for item in value]
    return _of_text(value, kind)


def _of_text(value: object, kind: pa.DataType) -> Any:
    if not isinstance(value, str):
        return value
    scalar: Any = pa.scalar(value)
    if pa.types.is_timestamp(kind) and kind.tz and not _has_zone(value):
        scalar = pc.cast(scalar, pa.timestamp(kind.unit))
    return pc.cast(scalar, kind).as_py()


def _has_zone(text: str) -> bool:
    return text.endswith("Z") or "+" in text or "-" in text[10:]


def _shown(node: ast.expr) -> str:
    return repr(ast.unparse(node)[:200])
