"""List and check the columns that a query names, itself and in its filter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.errors import SchemaError
from streaming_lsm.schema import META_COLUMNS

_ABSENT = re.compile(r"No match for FieldRef\.(?:Name\((.*?)\)|Nested\((.*?)\)) in ", re.DOTALL)
"""Matches what Arrow says of a column, or of a field inside a column, that is not there."""
_PART = re.compile(r"FieldRef\.Name\((.*?)\)(?: |$)", re.DOTALL)
_UNPRINTABLE = "with a pattern of bytes"
"""Stands for a filter that Arrow cannot print."""
_AFTER_NAME = ") "
"""A name with this text cannot be read from what Arrow says."""


def filter_columns(expression: pc.Expression | None, schema: pa.Schema) -> tuple[str, ...]:
    """List the columns of `schema` that an expression references.

    Raises:
        SchemaError: the expression references another column, or one by its number, or compares a column with a value
            of another type.
    """
    if expression is None:
        return ()
    _check_names(expression)
    unreadable = [name for name in schema.names if _AFTER_NAME in name]
    found = list(unreadable)
    while True:  # each round finds a column, whatever the number of those that are not referenced
        error = _binding_error(expression, pa.schema([schema.field(name) for name in found]))
        if error is None:
            break
        name = next(iter(_missed(error)), None)
        if name is None or name in found or schema.get_field_index(name) < 0:
            raise SchemaError(_misfit(expression, schema))
        found.append(name)
    for name in unreadable:
        others = [other for other in found if other != name]
        if _binding_error(expression, pa.schema([schema.field(other) for other in others])) is None:
            found = others
    return tuple(sorted(found, key=schema.get_field_index))


def _misfit(expression: pc.Expression, schema: pa.Schema) -> str:
    """Tell why an expression does not bind to the columns of a table."""
    error = _binding_error(expression, schema)
    names = _missed(error)
    if names:
        return f"filter {_shown(expression)}: {_absent(names, schema)}"
    return f"filter {_shown(expression)} does not fit the columns {', '.join(schema.names)}: {error}"


def _missed(error: Exception | None) -> list[str]:
    """Return the name of the column, and those inside it, that Arrow does not find; none if it fails otherwise."""
    absent = _ABSENT.search(str(error))
    if absent is None:
        return []
    return [absent[1]] if absent[2] is None else _PART.findall(absent[2])


def _check_names(expression: pc.Expression) -> None:
    shown = _shown(expression)
    if "FieldPath(" in shown or shown == _UNPRINTABLE:  # perhaps within a text
        try:
            expression.__reduce__()
        except pa.ArrowNotImplementedError as error:
            if "non-name" in str(error):
                raise SchemaError(
                    f"filter {shown} references a column, or a field inside one, by its number: give its name"
                ) from None


def _shown(expression: pc.Expression) -> str:
    try:
        return str(expression)
    except UnicodeDecodeError:  # of the bytes of a pattern
        return _UNPRINTABLE


def _binding_error(expression: pc.Expression, schema: pa.Schema) -> Exception | None:
    try:
        schema.empty_table().filter(expression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        return error
    return None


def check_columns(names: Iterable[str], schema: pa.Schema) -> None:
    """Check that columns are in `schema`.

    Raises:
        SchemaError: one is not.
    """
    there = set(schema.names)
    for name in names:
        if not isinstance(name, str):
            raise SchemaError(f"column {name!r} is no text: give the names of columns")
        if name not in there:
            raise SchemaError(_absent([name], schema))


def _absent(names: Sequence[str], schema: pa.Schema) -> str:
    """Tell which column, or which field inside a column, is not there, and which are."""
    kind = schema.field(names[0]).type if names[0] in schema.names else None
    for place, name in enumerate(names[1:], 1):
        if kind is None:
            break
        outer = ".".join(names[:place])
        fields = [field.name for field in kind] if pa.types.is_struct(kind) else []
        if not fields:
            return f"column {outer!r} is of type {kind}, and has no field {name!r}"
        if name not in fields:
            return f"column {outer!r} has no field {name!r}; it has {_nearest_first(name, fields)}"
        kind = kind.field(name).type
    return f"column {names[0]!r} is not in the table, which has {_nearest_first(names[0], schema.names)}"


def _nearest_first(name: str, names: Sequence[str]) -> str:
    """List names, those first that are like `name` whatever their case, and meta columns last."""
    folded = {other.lower(): other for other in reversed(names)}
    near = [folded[like] for like in get_close_matches(name.lower(), folded)]
    others = [other for other in names if other not in near]
    return ", ".join([*near, *sorted(others, key=META_COLUMNS.__contains__)])
