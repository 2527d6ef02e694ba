"""Drop and rename columns of a table, and fields inside columns.

A *full name* has all that a field is inside of: ``items.element.price``. ``element`` stands for the elements of a list,
``value`` for the values of a map. See docs/format/01-table.md, "Schema-on-read".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streaming_lsm.errors import SchemaError
from streaming_lsm.schema import with_inner_type
from streaming_lsm.schema_evolution import NAME_RULE, is_free_name, taken_name


@dataclass(frozen=True)
class ColumnChange:
    """Drop and rename columns of a table, as one ALTER_SCHEMA does.

    Attributes:
        dropped: full names of columns.
        renamed: new names, without what the columns are inside of, by full names.
    """

    dropped: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.dropped or self.renamed)

    def applied(self, table: pa.Schema, needed: Collection[str] = (), *, lenient: bool = False) -> pa.Schema:
        """Return the columns of a table after the change.

        Args:
            needed: columns that must stay, and keep their names.
            lenient: whether dropped columns that the table does not have are passed over.

        Raises:
            SchemaError: see `without_columns` and `renamed_columns`.
        """
        return renamed_columns(without_columns(table, self.dropped, needed, lenient=lenient), self.renamed, needed)

    def gone_after(self, gone: Iterable[str]) -> frozenset[str]:
        """Return the names that no new column may have after the change, as files have values under them.

        Args:
            gone: those before it.
        """
        now = {self.full_name(name).lower() for name in self.renamed}
        left = (
            f"{self.full_name(inside)}{dot}{last}" for inside, dot, last in (n.rpartition(".") for n in self.renamed)
        )
        return frozenset(name for name in (*map(self.full_name, gone), *self.dropped, *left) if name.lower() not in now)

    def full_name(self, name: str) -> str:
        """Return the full name of a column after the change."""
        parts = name.split(".")
        return ".".join(self.renamed.get(".".join(parts[: place + 1]), part) for place, part in enumerate(parts))


NO_CHANGE = ColumnChange()


def renamed_columns(table: pa.Schema, renamed: Mapping[str, str], needed: Collection[str] = ()) -> pa.Schema:
    """Return the columns of a table after some were renamed.

    Args:
        renamed: see `ColumnChange`.
        needed: columns that keep their names.

    Raises:
        SchemaError: a column is not there, or keeps its name; or a new name is malformed, reserved or taken.
    """
    if not renamed:
        return table
    for name in renamed:
        _check_free(name, needed, "renamed")
    found: set[str] = set()
    try:
        after = pa.schema(list(_renamed(list(table), renamed, "", found)))
    except SchemaError as error:
        raise SchemaError(f"columns cannot be renamed: {error}") from None
    missing = sorted(set(renamed) - found)
    if missing:
        raise SchemaError(f"column {missing[0]!r} is not in the table, which has {', '.join(table.names)}")
    return after


def _renamed(
    fields: list[pa.Field[Any]], renamed: Mapping[str, str], inside: str, found: set[str]
) -> Iterator[pa.Field[Any]]:
    given: list[str] = []
    for column in fields:
        where = f"{inside}{column.name}"
        name = renamed.get(where)
        if name is not None:
            found.add(where)
            # A name that another column has until now is in files under it, too.
            _check_new_name(name, [*given, *(other.name for other in fields if other is not column)], where)
            given.append(name)
        kind = _type_renamed(column.type, renamed, where, found)
        yield pa.field(name or column.name, kind, column.nullable)


def _type_renamed(kind: Any, renamed: Mapping[str, str], where: str, found: set[str]) -> pa.DataType:
    if isinstance(kind, pa.StructType):
        return pa.struct(list(_renamed(list(kind), renamed, f"{where}.", found)))
    return with_inner_type(kind, lambda inner, name: _type_renamed(inner, renamed, f"{where}.{name}", found))


def _check_new_name(name: str, known: Iterable[str], where: str) -> None:
    """Check the new name of a column beside those that are known; raises `SchemaError`."""
    same = taken_name(name, known)
    if same is not None:
        raise SchemaError(f"{where!r} to {name!r}, as there is {same!r}; give it another name")
    if name == where.rpartition(".")[2]:
        raise SchemaError(f"{where!r} has the name {name!r} already")
    if not is_free_name(name):
        raise SchemaError(f"{where!r} to {name!r}: expected {NAME_RULE}")


def _check_free(name: str, needed: Collection[str], done: str) -> None:
    for kept in needed:
        if kept == name or kept.startswith(f"{name}."):
            raise SchemaError(
                f"column {name!r} cannot be {done}: the record key, partition path, order or deletes of the table are "
                f"made from {kept!r}"
            )


def without_columns(
    table: pa.Schema, dropped: Collection[str], needed: Collection[str] = (), *, lenient: bool = False
) -> pa.Schema:
    """Return the columns of a table without some of them.

    Args:
        dropped: full names.
        needed: columns that must stay.
        lenient: whether names that the table does not have are ignored.

    Raises:
        SchemaError: a column is not there, must stay, or is the last field of a struct.
    """
    for name in dropped:
        _check_free(name, needed, "dropped")
    found: set[str] = set()
    left = pa.schema(list(_without(list(table), set(dropped), "", found)))
    # A field of a dropped column goes with it.
    missing = sorted(name for name in set(dropped) - found if not any(name.startswith(f"{whole}.") for whole in found))
    if missing and not lenient:
        raise SchemaError(f"column {missing[0]!r} is not in the table, which has {', '.join(table.names)}")
    return left


def _without(
    fields: list[pa.Field[Any]], dropped: Collection[str], inside: str, found: set[str]
) -> Iterator[pa.Field[Any]]:
    """Yield the fields of a table, or of the struct `inside` of it, that stay; `found` receives the names of others."""
    for column in fields:
        where = f"{inside}{column.name}"
        if where in dropped:
            found.add(where)
        else:
            yield column.with_type(_type_without(column.type, dropped, where, found))


def _type_without(kind: Any, dropped: Collection[str], where: str, found: set[str]) -> pa.DataType:
    if isinstance(kind, pa.StructType):
        left = list(_without(list(kind), dropped, f"{where}.", found))
        if not left:
            raise SchemaError(f"all fields of {where!r} would be dropped: drop the column itself")
        return pa.struct(left)
    return with_inner_type(kind, lambda inner, name: _type_without(inner, dropped, f"{where}.{name}", found))
