"""Find under which names a file has the columns of a table that were renamed since.

See docs/format/01-table.md, "Schema-on-read".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from streaming_lsm.format.internal_schema import InternalSchema, encode_versions
from streaming_lsm.schema import with_inner_type

_GONE = "_lsm_gone_"
"""Begins the names of fields that the table has no more; no column of a table may begin with ``_lsm_``."""


@dataclass(frozen=True)
class StoredNames:
    """Translates the names in files of one version into those that the table has now.

    Attributes:
        now: the full names now of columns and nested fields that have others, by those in the files; None if one is
            gone.
    """

    now: Mapping[str, str | None]

    def current(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Translate names of columns of a file; those that are gone get a name that no table has."""
        return tuple(self._last_part(name) for name in columns)

    def stored(self, names: Iterable[str]) -> list[str]:
        """Translate names of columns of the table, but for those whose name in the files is that of another one."""
        return [self._stored.get(name, name) for name in names if name in self._stored or name not in self.now]

    def is_same(self, name: str) -> bool:
        """Test whether a column of the table has this name in the files, too, as have all fields inside it."""
        inside = f"{name}."
        concerned = (*self.now, *(now for now in self.now.values() if now is not None))
        return not any(other == name or other.startswith(inside) for other in concerned)

    def batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Name the columns of a batch, and the fields inside them, as the table does now; no value is copied."""
        columns = [self._named(rows.column(place), field.name) for place, field in enumerate(rows.schema)]
        return pa.RecordBatch.from_arrays(columns, names=list(self.current(rows.schema.names)))

    def image(self, rows: pa.StructArray) -> pa.Array[Any]:
        """Name the columns of rows that are structs, as `batch`."""
        kind = pa.struct([self._field(field, field.name) for field in rows.type])
        return rows if kind.equals(rows.type) else rows.view(kind)

    @cached_property
    def _stored(self) -> Mapping[str, str]:
        return {now: name for name, now in self.now.items() if now is not None and "." not in name}

    def _last_part(self, name: str) -> str:
        """Return the name now of a column or field, without what it is inside of."""
        now = self.now.get(name, name)
        return f"{_GONE}{name.replace('.', '_')}" if now is None else now.rpartition(".")[2]

    def _named(self, column: pa.Array[Any], name: str) -> pa.Array[Any]:
        kind = self._type(column.type, name)
        return column if kind.equals(column.type) else column.view(kind)

    def _field(self, found: pa.Field[Any], where: str) -> pa.Field[Any]:
        return pa.field(self._last_part(where), self._type(found.type, where), found.nullable)

    def _type(self, kind: Any, where: str) -> pa.DataType:
        if isinstance(kind, pa.StructType):
            return pa.struct([self._field(found, f"{where}.{found.name}") for found in kind])
        return with_inner_type(kind, lambda inner, name: self._type(inner, f"{where}.{name}"))


@dataclass(frozen=True)
class ColumnVersions:
    """The columns of a table and what they were before, by ids.

    Attributes:
        latest: the columns of the table.
        older: the versions before, by ascending `InternalSchema.version`.
        told: versions of writes that the time of the write does not tell, by its requested time: it was completed after
            columns were changed.
    """

    latest: InternalSchema
    older: Sequence[InternalSchema] = ()
    told: Mapping[str, InternalSchema] = field(default_factory=dict)

    @classmethod
    def begun(cls, schema: pa.Schema) -> ColumnVersions:
        """Begin the versions of a table whose columns have no ids yet; raises as `InternalSchema.first`.

        Args:
            schema: the table's columns, without meta columns.
        """
        return cls(InternalSchema.first(schema))

    def after(self, version: int, renamed: Mapping[str, str], schema: pa.Schema) -> ColumnVersions:
        """Return the versions after a write; they are these if the write changed no column.

        Args:
            version: requested time of the write.
            renamed: see `InternalSchema.renamed`.
            schema: the table's columns after the write, without meta columns.

        Raises:
            UnsupportedTable: see `InternalSchema.followed`.
        """
        latest = (self.latest.renamed(renamed, version) if renamed else self.latest).followed(schema, version)
        return self if latest is self.latest else replace(self, latest=latest, older=(*self.older, self.latest))

    def encode(self, source: str) -> str:
        """Encode the file of all versions; raises as `encode_versions`."""
        return encode_versions([self.latest, *reversed(self.older)], source)

    @cached_property
    def file_names(self) -> FileNames:
        """Under which names the files of each write have the columns."""
        starts: list[int] = []
        names: list[StoredNames | None] = []
        for version, now in zip((*self.older, self.latest), (*self._names_since, {}), strict=True):
            found = _stored_names(now)
            if not names or found != names[-1]:
                starts.append(version.version)
                names.append(found)
        told = {instant: _stored_names(self.latest.names_since(version)) for instant, version in self.told.items()}
        return FileNames(tuple(starts), tuple(names), told)

    def renamed_of(self, columns: Collection[str]) -> tuple[str, str] | None:
        """Return the older name and the latest one of a column that had one of some names, if it has another now."""
        every = (pair for names in self._names_since for pair in names.items())
        return next(((old, now) for old, now in every if now is not None and old in columns), None)

    @cached_property
    def former_names(self) -> Mapping[str, str]:
        """The full names that columns had, inside of what they are inside of now, each with that which it has."""
        found = {}
        for before in self.older:
            for number in before.columns.keys() & self.latest.columns.keys():
                (inside, now), (_, old) = self.latest.place_of(number), before.place_of(number)
                if old != now:
                    around = "" if inside is None else f"{self.latest.columns[inside].name}."
                    found[f"{around}{old}"] = f"{around}{now}"
        return {old: now for old, now in found.items() if old not in self.latest.ids}

    def had_name(self, column: str, name: str) -> bool:
        """Test whether a column had a name before, in any case, and no other one beside it had.

        Args:
            column: its full name now.
            name: without what it is inside of.
        """
        number = self.latest.ids.get(column)
        if number is None:
            return False
        inside, _ = self.latest.place_of(number)
        places = ((other, before.place_of(other)) for before in self.older for other in before.columns)
        return {other for other, (around, last) in places if around == inside and last.lower() == name.lower()} == {
            number
        }

    def is_renamed_since(self, version: int | None) -> bool:
        """Test whether a name of a version means another column, or none, by now; None is that without ids."""
        known = zip((*self.older, self.latest), (*self._names_since, {}), strict=True)
        found = self._names_since if version is None else [names for one, names in known if one.version == version]
        return not found or any(found)

    @cached_property
    def _names_since(self) -> Sequence[Mapping[str, str | None]]:
        """The names since each of the older versions; each query and write asks for them."""
        return [self.latest.names_since(version) for version in self.older]


def _stored_names(now: Mapping[str, str | None]) -> StoredNames | None:
    return StoredNames(now) if now else None


@dataclass(frozen=True)
class FileNames:
    """Under which names the files of a table have its columns; picklable, and small where few columns were renamed.

    Attributes:
        starts: versions from which on files have other names than before, ascending.
        names: those names, for each; None for those that the table has now.
        told: those of single writes, by requested time.
    """

    starts: tuple[int, ...]
    names: tuple[StoredNames | None, ...]
    told: Mapping[str, StoredNames | None] = field(default_factory=dict)

    def at(self, instant: str) -> StoredNames | None:
        """Return under which names the files of a write have the columns; None if under those that they have now.

        Args:
            instant: requested time of the write.
        """
        if instant in self.told:
            return self.told[instant]
        place = bisect_right(self.starts, int(instant) if instant.isdecimal() else 0)
        return self.names[place - 1] if place else None


def names_at(file_names: FileNames | None, instant: str) -> StoredNames | None:
    """Return `FileNames.at`; None for a table whose columns have no ids."""
    return None if file_names is None else file_names.at(instant)
