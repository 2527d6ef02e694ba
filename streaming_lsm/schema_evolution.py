"""Decide how the columns of a table follow those of a batch, by Hudi's rules of schema evolution on write.

A batch may *add* columns, *widen* the type of a column, and *relax* one that was not nullable. The fields of structs
and the elements of lists and maps follow the same rules. See docs/format/01-table.md, "Schema evolution".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streaming_lsm.config import NULL_FOR_MISSING, SCHEMA_EVOLUTION
from streaming_lsm.errors import SchemaError
from streaming_lsm.schema import AVRO_NAME, META_COLUMNS, map_type, stored_type

FAIL, ADD, IGNORE = "fail", "add", "ignore"
"""Values of ``lsm.schema.evolution``."""

_RESERVED = ("_hoodie_", "_lsm_")
NAME_RULE = f"letters, digits and _, no digit first, and none of the reserved beginnings {', '.join(_RESERVED)}"
"""Says, in messages, what the name of a new column is made of."""
_INT, _LONG, _FLOAT, _DOUBLE = pa.int32(), pa.int64(), pa.float32(), pa.float64()
_WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    _INT: (_LONG, _FLOAT, _DOUBLE, pa.string()),
    _LONG: (_FLOAT, _DOUBLE, pa.string()),
    _FLOAT: (_DOUBLE, pa.string()),
    _DOUBLE: (pa.string(),),
    pa.string(): (pa.binary(),),
}
_EXACT = ((_INT, _LONG), (_FLOAT, _DOUBLE))
"""Promotions of a batch's values that are made whatever the mode."""
_OF_KEYS = ((_INT, _LONG), (_INT, pa.string()), (_LONG, pa.string()))
"""Promotions that leave the text of a record key as it is."""
_OF_PARTITIONS = ((_INT, _LONG),)
_OF_ORDERING = ((_INT, _LONG), (_INT, _DOUBLE), (_FLOAT, _DOUBLE))
"""Promotions that leave the order of values, and which of them are equal, as they are."""


def promotes(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Test whether values of a type that is not nested are read as a wider one.

    See docs/format/01-table.md, "Schema evolution".

    Args:
        found, wanted: types as tables store them.
    """
    if pa.types.is_decimal128(found) and pa.types.is_decimal128(wanted):
        digits = wanted.precision - wanted.scale >= found.precision - found.scale
        return bool(digits and wanted.scale >= found.scale and wanted != found)
    return wanted in _WIDER.get(found, ())


@dataclass(frozen=True)
class SchemaRules:
    """Decides which columns a table has after a batch.

    Attributes:
        mode: ``fail``: the batch has the table's columns; ``add``: its new columns are added, and wider types widen
            those of the table; ``ignore``: its new columns are not stored.
        fills_missing: whether columns that a batch lacks are null.
        relaxes: whether, in mode ``add``, columns become nullable that are nullable in the batch.
        keys: columns of the record key.
        partitions: columns of the partition path.
        ordering: columns by which records of one key are ordered.
        dropped: full names of columns that were dropped or renamed: files still have values under these names.
        renamed: the full names now of renamed columns, by those that they had: a batch with these is of before.
    """

    mode: str = FAIL
    fills_missing: bool = False
    relaxes: bool = True
    keys: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    ordering: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def evolved(self, table: pa.Schema, batch: pa.Schema) -> pa.Schema:
        """Return the table's columns after a batch: those of `table` in their order, then the new ones.

        Args:
            table: the table's columns.
            batch: the columns of the batch in any order; meta columns among them are ignored.

        Raises:
            SchemaError: a column is missing, unknown or of a type that does not fit, or cannot change so.
        """
        given = [field for field in batch if field.name not in META_COLUMNS]
        return pa.schema(self._fields(list(table), given, ""))

    def _fields(self, table: list[pa.Field[Any]], batch: list[pa.Field[Any]], inside: str) -> Iterator[pa.Field[Any]]:
        """Yield the fields of a table, or of the struct `inside` of it, after a batch."""
        given = {field.name: field for field in batch}
        new = [field for field in batch if field.name not in {known.name for known in table}]
        added = [field for field in new if self._is_added(field, table, inside)]
        for field in table:
            found, where = given.get(field.name), f"{inside}{field.name}"
            yield self._missing(field, where, batch) if found is None else self._field(field, found, where)
        yield from (self._new(field, f"{inside}{field.name}") for field in added)

    def _field(self, old: pa.Field[Any], found: pa.Field[Any], where: str) -> pa.Field[Any]:
        kind = self._type(old.type, found.type, where)
        return pa.field(old.name, kind, old.nullable or (found.nullable and self._is_relaxed(where)))

    def _is_relaxed(self, where: str) -> bool:
        return self.relaxes and self.mode == ADD and where not in self.keys | self.ordering

    def _missing(self, field: pa.Field[Any], where: str, batch: list[pa.Field[Any]]) -> pa.Field[Any]:
        names = ", ".join(found.name for found in batch)
        if where in self.keys | self.partitions | self.ordering:
            raise SchemaError(f"column {where!r} is missing; the batch has {names}; each batch needs it")
        if not self.fills_missing:
            raise SchemaError(
                f"column {where!r} is missing; the batch has {names}; {NULL_FOR_MISSING.key}=true fills it with nulls"
            )
        if not field.nullable and self.mode != ADD:
            raise SchemaError(f"column {where!r} is missing, but is not nullable in the table; the batch has {names}")
        return field.with_nullable(True)

    def _is_added(self, field: pa.Field[Any], table: list[pa.Field[Any]], inside: str) -> bool:
        where = f"{inside}{field.name}"
        if where in self.renamed:
            raise SchemaError(f"column {where!r} was renamed to {self.renamed[where]!r}: rename it in the batch, too")
        # A column that has only nulls has no type yet.
        if self.mode == IGNORE or (pa.types.is_null(field.type) and self.mode == ADD):
            return False
        if where.lower() in {name.lower() for name in self.dropped}:
            raise SchemaError(
                f"column {where!r} was dropped or renamed, and older files still have values under its name, which "
                "would come back: leave it out, or give it another name"
            )
        if self.mode == FAIL:
            raise SchemaError(
                f"column {where!r} is not in the table, which has {', '.join(known.name for known in table)}; drop it, "
                f"or set {SCHEMA_EVOLUTION.key}={ADD}"
            )
        check_new_name(field.name, [known.name for known in table], where)
        return True

    def _new(self, field: pa.Field[Any], where: str) -> pa.Field[Any]:
        # Rows that were written before have no value.
        return pa.field(field.name, stored_type(field.type, where), nullable=True)

    def _type(self, old: Any, found: Any, where: str) -> pa.DataType:
        """Return the type of a column after a batch has it as `found`."""
        if pa.types.is_null(found):
            return old  # type: ignore[no-any-return]
        if isinstance(old, pa.StructType) and isinstance(found, pa.StructType):
            return pa.struct(list(self._fields(list(old), list(found), f"{where}.")))
        if pa.types.is_list(old) and _is_list(found):
            return pa.list_(self._inner(old.value_field, found.value_field, f"{where}.element"))
        if pa.types.is_map(old) and pa.types.is_map(found):
            value = self._inner(old.item_field, found.item_field, f"{where}.value")
            return map_type(old.key_type, value.type, value.nullable)
        return self._leaf(old, found, where)

    def _inner(self, old: pa.Field[Any], found: pa.Field[Any], where: str) -> pa.Field[Any]:
        """Return the element of a list or map after a batch; its name in the batch does not count."""
        return self._field(old, found.with_name(old.name), where)

    def _leaf(self, old: pa.DataType, found: pa.DataType, where: str) -> pa.DataType:
        try:
            stored = stored_type(found, where)
        except SchemaError:
            raise SchemaError(f"column {where!r} has type {found}, the table has {old}; cast it first") from None
        if stored.equals(old) or (stored, old) in _EXACT:
            return old
        if self.mode == ADD and promotes(stored, old):
            return old
        if not promotes(old, stored):
            raise SchemaError(
                f"column {where!r} has type {found}, the table has {old}, and neither can become the other "
                f"({SCHEMA_EVOLUTION.key}, docs/writing.md); cast it first"
            )
        if self.mode != ADD:
            raise SchemaError(
                f"column {where!r} has type {found}, the table has {old}; cast it first, or set "
                f"{SCHEMA_EVOLUTION.key}={ADD}, which widens the column"
            )
        self._check_role(old, stored, where)
        return stored

    def _check_role(self, old: pa.DataType, new: pa.DataType, where: str) -> None:
        """Refuse wider types that would change the text of keys, the path of partitions, or the order of records."""
        exact = pa.types.is_decimal128(new)
        for columns, role, allowed, is_allowed in (
            (self.keys, "record key", _OF_KEYS, exact and new.scale == old.scale),  # type: ignore[attr-defined]
            (self.partitions, "partition path", _OF_PARTITIONS, False),
            (self.ordering, "ordering", _OF_ORDERING, exact),
        ):
            if where in columns and (old, new) not in allowed and not is_allowed:
                raise SchemaError(
                    f"column {where!r} has type {new}, the table has {old}: as a column of the {role} it cannot be "
                    "widened so, since rows that are stored would be others, or ordered otherwise; cast it first"
                )


def check_new_name(name: str, known: Iterable[str], where: str) -> None:
    """Check the name of a new column, or of a field inside one, beside those that are known.

    Raises:
        SchemaError: it is reserved or malformed, or differs from another one by case only.
    """
    same = taken_name(name, known)
    if same is not None:
        raise SchemaError(f"column {where!r} differs from the table's {same!r} by case only; rename it")
    if not is_free_name(name):
        raise SchemaError(f"column {where!r} cannot be added: expected {NAME_RULE}; rename or drop it")


def taken_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that differs from a name by case at most; None if there is none."""
    return next((other for other in known if other.lower() == name.lower()), None)


def is_free_name(name: str) -> bool:
    """Test whether a column may have a name, see `NAME_RULE`."""
    return not name.startswith(_RESERVED) and AVRO_NAME.fullmatch(name) is not None


def _is_list(kind: Any) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
