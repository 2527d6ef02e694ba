"""Compare versions of Hudi's internal schema (docs/format/01-table.md, "Schema-on-read").

An *internal schema* gives each column and nested field an id that stays when it is renamed. Hudi keeps it where
columns were changed with ``hoodie.schema.on.read.enable``. Files are read by the names of columns here, which shows the
same rows as long as no name changed its id, and no id its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from streaming_lsm.bounded_json import parse_json
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.schema_evolution import promotes

T = TypeVar("T")

LATEST_SCHEMA_KEY = "latest_schema"
"""Key of the extra metadata of a commit: the internal schema as of the commit."""
SCHEMA_FOLDER = ".hoodie/.schema"
"""Folder of the versions of the internal schema: each file has all versions until its own."""

_HISTORY = re.compile(r"(?P<instant>[0-9]{1,18})(_[0-9]{1,18})?\.schemacommit")
_DECIMAL = re.compile(r"decimal\((?P<precision>[0-9]{1,2}), *(?P<scale>[0-9]{1,2})\)")
_TYPES: Mapping[str, pa.DataType] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
}
_CHILDREN = {"array": ("element",), "map": ("key", "value")}


@dataclass(frozen=True, slots=True)
class Column:
    """A column or nested field: its full name, such as ``items.element.price``, and the text or kind of its type."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class InternalSchema:
    """A version of the internal schema.

    Attributes:
        version: requested time of the commit that changed the columns; 0 for the columns before the first change.
        columns: columns and nested fields by id; each comes before those inside it.
    """

    version: int
    columns: Mapping[int, Column]

    @classmethod
    def decode(cls, text: str, source: str) -> InternalSchema:
        """Decode a single version, as it is in a commit.

        Raises:
            CorruptFileError: not an internal schema; `source` is the file that holds it.
        """
        return _decoded(text, source, _version)

    def fault_of_names(self, older: Iterable[InternalSchema]) -> str | None:
        """Return why files with the columns of `older` versions must not be read by name; None if they may."""
        for before in older:
            known = {column.name for column in before.columns.values()}
            for number, column in self.columns.items():
                fault = _fault(column, before.columns.get(number), known)
                if fault:
                    return fault
        return None


def decode_history(text: str, source: str) -> list[InternalSchema]:
    """Decode a file of all versions; raises as `InternalSchema.decode`."""
    return _decoded(text, source, lambda record: [_version(one) for one in record["schemas"]])


def history_name(names: Iterable[str], version: int) -> str | None:
    """Choose the newest file, which has all versions until `version`; None if there is none, or an older one.

    Writes make such files, too, and Hudi deletes those of archived instants.
    """
    found = ((int(match["instant"]), name) for name in names if (match := _HISTORY.fullmatch(name)))
    newest, name = max(found, default=(0, None))
    return name if newest >= version else None


def _decoded(text: str, source: str, decode: Callable[[Any], T]) -> T:
    try:
        return decode(parse_json(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFileError(f"{source}: not an internal schema of Hudi ({error!r}); restore the file") from None


def _version(record: Mapping[str, Any]) -> InternalSchema:
    return InternalSchema(int(record["version_id"]), dict(_fields(record, "")))


def _fields(record: Mapping[str, Any], inside: str) -> Iterator[tuple[int, Column]]:
    for field in record["fields"]:
        yield from _column(int(field["id"]), field["type"], f"{inside}{field['name']}")


def _column(number: int, kind: Any, name: str) -> Iterator[tuple[int, Column]]:
    if isinstance(kind, str):
        yield number, Column(name, kind)
        return
    yield number, Column(name, kind["type"])
    if kind["type"] == "record":
        yield from _fields(kind, f"{name}.")
    for child in _CHILDREN.get(kind["type"], ()):
        yield from _column(int(kind[f"{child}_id"]), kind[child], f"{name}.{child}")


def _fault(column: Column, before: Column | None, known: set[str]) -> str | None:
    if before is None:
        return f"column {column.name!r} was dropped, and added again later" if column.name in known else None
    if before.name != column.name:
        return f"column {column.name!r} was renamed from {before.name!r}"
    if before.kind != column.kind and not _promotes(before.kind, column.kind):
        return f"the type of column {column.name!r} was changed from {before.kind} to {column.kind}"
    return None


def _promotes(old: str, new: str) -> bool:
    one, other = _arrow_type(old), _arrow_type(new)
    return one is not None and other is not None and (one == other or promotes(one, other))


def _arrow_type(kind: str) -> pa.DataType | None:
    decimal = _DECIMAL.fullmatch(kind)
    return pa.decimal128(int(decimal["precision"]), int(decimal["scale"])) if decimal else _TYPES.get(kind)
