"""Read and write versions of Hudi's internal schema (docs/format/01-table.md, "Schema-on-read").

An *internal schema* gives each column and nested field an id that stays when it is renamed. Hudi keeps it where
columns were changed with ``hoodie.schema.on.read.enable``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, TypeVar

import pyarrow as pa

from streaming_lsm.bounded_json import SMALL, parse_json
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.schema import META_COLUMNS, decimal_bytes, with_meta
from streaming_lsm.schema_evolution import promotes

T = TypeVar("T")
Json = Mapping[str, Any]

LATEST_SCHEMA_KEY = "latest_schema"
"""Key of the extra metadata of a commit: the internal schema as of the commit."""
SCHEMA_FOLDER = ".hoodie/.schema"
"""Folder of the versions of the internal schema: each file has all versions until its own."""

MOST_OF_VERSIONS = 64 << 20
"""Most characters of a file of all versions; one of 200 columns has 17,000."""

_DECIMAL = re.compile(r"decimal(_fixed|_bytes)?\((?P<precision>[0-9]{1,2}), *(?P<scale>[0-9]{1,2})\)(\[[0-9]+\])?")
_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_TEXTS = {kind: text for text, kind in _TYPES.items()}
_CHILDREN = {"array": ("element",), "map": ("key", "value")}


@dataclass(frozen=True, slots=True)
class Column:
    """A column or nested field: its full name, such as ``items.element.price``, and the text or kind of its type."""

    name: str
    kind: str


@dataclass(frozen=True)
class InternalSchema:
    """A version of the internal schema.

    Attributes:
        version: requested time of the commit that changed the columns; 0 for the columns before the first change.
        columns: columns and nested fields by id; each comes before those inside it.
        fields: the columns as in the file, meta columns included.
        last_id: the greatest id that was given to a column, in this version or before.
    """

    version: int
    columns: Mapping[int, Column]
    fields: Sequence[Json] = ()
    last_id: int = -1

    @classmethod
    def decode(cls, text: str, source: str) -> InternalSchema:
        """Decode a single version, as it is in a commit.

        Raises:
            CorruptFileError: not an internal schema; `source` is the file that holds it.
        """
        return _decoded(text, source, _version)

    @classmethod
    def first(cls, schema: pa.Schema) -> InternalSchema:
        """Give ids to the columns of a table that has none yet.

        Args:
            schema: the table's columns, without meta columns.

        Raises:
            UnsupportedTable: a column has a type that internal schemas do not have.
        """
        return _made(0, _Numbering(-1).fields(with_meta(schema), (), ""))

    def followed(self, schema: pa.Schema, version: int) -> InternalSchema:
        """Return the version after a write that leaves the table with the columns of `schema`, matched by name.

        New columns get new ids, and those that `schema` lacks are left out. It is this version if nothing changed.

        Args:
            schema: the table's columns, without meta columns.
            version: of the write.

        Raises:
            UnsupportedTable: see `first`.
        """
        return self._changed(_Numbering(self.last_id).fields(with_meta(schema), self.fields, ""), version)

    def renamed(self, names: Mapping[str, str], version: int) -> InternalSchema:
        """Return the version after columns were renamed.

        Args:
            names: the new name of columns and fields, without what they are inside of, by their full names now.
            version: of the write that renames them.
        """
        return self._changed([_renamed(field, names, "") for field in self.fields], version)

    def encode(self) -> str:
        """Encode the version as it is in a commit."""
        return json.dumps(self.record, separators=(",", ":"))

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The ids of columns by their full names."""
        return {column.name: number for number, column in self.columns.items()}

    @property
    def record(self) -> Json:
        """The version as it is in files."""
        head = {"max_column_id": self.last_id, "version_id": self.version, "type": "record"}
        return {**head, "fields": list(self.fields)}

    def names_since(self, older: InternalSchema) -> Mapping[str, str | None]:
        """Map the full names in an older version to those in this one, None for columns that are gone.

        Returns:
            Those that differ; nothing if the same columns are found by their names.
        """
        found = {
            column.name: self.columns[number].name if number in self.columns else None
            for number, column in older.columns.items()
        }
        is_by_name = all(now == name or (now is None and name not in self.ids) for name, now in found.items())
        return {} if is_by_name else {name: now for name, now in found.items() if now != name}

    def place_of(self, number: int) -> tuple[int | None, str]:
        """Return the id of what a column is inside of, None for one of the table's, and its name there."""
        inside, _, last = self.columns[number].name.rpartition(".")
        return self.ids.get(inside), last

    def fault_of_types(self, older: Iterable[InternalSchema]) -> str | None:
        """Return why files with the columns of `older` versions cannot be read; None if they can."""
        for before in older:
            for number, column in self.columns.items():
                found = before.columns.get(number)
                if found is not None and found.kind != column.kind and not _promotes(found.kind, column.kind):
                    return f"the type of column {column.name!r} was changed from {found.kind} to {column.kind}"
        return None

    def _changed(self, fields: Sequence[Json], version: int) -> InternalSchema:
        return self if list(fields) == list(self.fields) else _made(version, fields, self.last_id)


def decode_versions(text: str, source: str) -> list[InternalSchema]:
    """Decode a file of all versions; raises as `InternalSchema.decode`."""
    return _decoded(text, source, lambda record: [_version(one) for one in record["schemas"]], MOST_OF_VERSIONS)


def encode_versions(versions: Iterable[InternalSchema], source: str) -> str:
    """Encode a file of all versions, the newest first.

    Hudi adds versions to the text itself, which must begin as its own does.

    Raises:
        UnsupportedTable: there are more than readers take; `source` is the table.
    """
    text = json.dumps({"schemas": [version.record for version in versions]}, separators=(",", ":"))
    if len(text) > MOST_OF_VERSIONS:
        raise UnsupportedTable(
            f"{source}: the versions of its columns would take {len(text):,} characters, and {MOST_OF_VERSIONS:,} at "
            "most are read: change its columns no more, or copy it with `lsm copy`, which begins anew"
        )
    return text


def _decoded(text: str, source: str, decode: Callable[[Any], T], most: int = SMALL) -> T:
    try:
        return decode(parse_json(text, most))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFileError(f"{source}: not an internal schema of Hudi ({error!r}); restore the file") from None


def _version(record: Json) -> InternalSchema:
    return _made(int(record["version_id"]), record["fields"], int(record.get("max_column_id", -1)))


def _made(version: int, fields: Sequence[Json], last_id: int = -1) -> InternalSchema:
    columns = dict(_columns(fields, ""))
    return InternalSchema(version, columns, fields, max(last_id, *columns) if columns else last_id)


def _columns(fields: Sequence[Json], inside: str) -> Iterator[tuple[int, Column]]:
    for field in fields:
        yield from _column(int(field["id"]), field["type"], f"{inside}{field['name']}")


def _column(number: int, kind: Any, name: str) -> Iterator[tuple[int, Column]]:
    if isinstance(kind, str):
        yield number, Column(name, kind)
        return
    yield number, Column(name, kind["type"])
    if kind["type"] == "record":
        yield from _columns(kind["fields"], f"{name}.")
    for child in _CHILDREN.get(kind["type"], ()):
        yield from _column(int(kind[f"{child}_id"]), kind[child], f"{name}.{child}")


def _renamed(field: Json, names: Mapping[str, str], inside: str) -> Json:
    where = f"{inside}{field['name']}"
    return {**field, "name": names.get(where, field["name"]), "type": _renamed_inside(field["type"], names, where)}


def _renamed_inside(kind: Any, names: Mapping[str, str], where: str) -> Any:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "record":
        return {**kind, "fields": [_renamed(field, names, f"{where}.") for field in kind["fields"]]}
    children = _CHILDREN.get(kind["type"], ())
    return {**kind, **{child: _renamed_inside(kind[child], names, f"{where}.{child}") for child in children}}


class _Numbering:
    """Describes columns in the JSON of an internal schema; those that have no id yet get the next ones."""

    def __init__(self, last_id: int) -> None:
        self._ids = count(last_id + 1)

    def fields(self, fields: Iterable[pa.Field[Any]], known: Sequence[Json], inside: str) -> list[Json]:
        """Describe the columns of a table, or the fields of a struct; `known` has those of before."""
        by_name = {field["name"]: field for field in known}
        # The ids of columns come before those of fields inside them, as in Hudi.
        heads = [by_name.get(field.name) or self._head(field) for field in fields]
        return [
            {**head, "optional": field.nullable, "type": self._type(field.type, head.get("type"), inside + field.name)}
            for head, field in zip(heads, fields, strict=True)
        ]

    def _head(self, field: pa.Field[Any]) -> Json:
        doc = {"doc": ""} if field.name in META_COLUMNS else {}
        return {"id": next(self._ids), "name": field.name, **doc}

    def _type(self, kind: Any, known: Any, where: str) -> Any:
        before = known if isinstance(known, dict) else {}
        if pa.types.is_struct(kind):
            return {"type": "record", "fields": self.fields(list(kind), before.get("fields", ()), f"{where}.")}
        if pa.types.is_list(kind):
            number = self._child(before, "element")
            element = self._type(kind.value_type, before.get("element"), f"{where}.element")
            return {"type": "array", **number, "element": element, "element_optional": kind.value_field.nullable}
        if pa.types.is_map(kind):
            keys, values = self._child(before, "key"), self._child(before, "value")
            value = self._type(kind.item_type, before.get("value"), f"{where}.value")
            optional = kind.item_field.nullable
            return {"type": "map", **keys, "key": "string", **values, "value": value, "value_optional": optional}
        return _text(kind, known, where)

    def _child(self, before: Json, child: str) -> Json:
        key = f"{child}_id"
        return {key: before[key] if key in before else next(self._ids)}


def _text(kind: pa.DataType, known: Any, where: str) -> str:
    found = _TEXTS.get(kind)
    if pa.types.is_decimal128(kind):
        found = f"decimal_fixed({kind.precision}, {kind.scale})[{decimal_bytes(kind.precision)}]"
    # A text without a type here, such as uuid, is of a column whose type does not change.
    if isinstance(known, str) and (found is None or _arrow_type(known) in (kind, None)):
        return known
    if found is None:
        raise UnsupportedTable(
            f"column {where!r} has type {kind}, for which Hudi's internal schema has no name: no column of the table "
            "can be renamed"
        )
    return found


def _promotes(old: str, new: str) -> bool:
    one, other = _arrow_type(old), _arrow_type(new)
    return one is not None and other is not None and (one == other or promotes(one, other))


def _arrow_type(kind: str) -> pa.DataType | None:
    decimal = _DECIMAL.fullmatch(kind)
    return pa.decimal128(int(decimal["precision"]), int(decimal["scale"])) if decimal else _TYPES.get(kind)
