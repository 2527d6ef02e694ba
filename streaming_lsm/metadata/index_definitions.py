"""Read and reduce the definitions of the metadata table's indexes.

See docs/format/07-index-and-metadata.md, "Column stats". They are one JSON document, whose path is in the table's
properties.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.metadata.column_stats import PARTITION
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME
from streaming_lsm.java_properties import parse_properties
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.metadata.commit import created_by_former
from streaming_lsm.metadata.creation import DEFINITIONS_KEY
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.storage.base import Storage

INDEX_DEFINITIONS = ".hoodie/.index_defs"
MADE_BY_KEY = "lsm.index.definition"
"""Entry of the partition metadata file of an index: function and columns by which its records are made, as JSON."""
_ALL, _VERSION = "indexDefinitions", "V2"


def ranged_columns(storage: Storage, properties: Mapping[str, str]) -> Sequence[str]:
    """Return the columns whose ranges the partition ``column_stats`` has.

    Args:
        storage: the table.
        properties: its properties.

    Raises:
        CorruptFileError: the definitions are missing or damaged.
        UnsupportedTable: the index has another version than V2.
    """
    path = _path(properties)
    found = _read(storage, path)[_ALL].get(PARTITION)
    if not isinstance(found, dict):
        raise CorruptFileError(f"{path} has no definition of {PARTITION}")
    if found.get("version") != _VERSION:
        raise UnsupportedTable(f"{path}: {PARTITION} of version {found.get('version')!r:.20}, {_VERSION} is kept")
    columns = found.get("sourceFields")
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise CorruptFileError(f"{path}: sourceFields of {PARTITION} is {columns!r:.80}")
    return list(dict.fromkeys(columns))


def read_definitions(
    storage: Storage, properties: Mapping[str, str], checked: str | None = None
) -> Mapping[str, Mapping[str, Any]]:
    """Return the definitions of all indexes by name; empty if the properties name none.

    Args:
        storage: the table.
        properties: its properties.
        checked: an index whose definition is checked, see `check_definition`; None for none.

    Raises:
        CorruptFileError: the definitions are missing or damaged, or that of `checked` is of another time.
        UnsupportedTable: they are elsewhere than in `INDEX_DEFINITIONS`.
    """
    if DEFINITIONS_KEY not in properties:
        return {}
    every = _read(storage, _path(properties))[_ALL]
    found = {name: definition for name, definition in every.items() if isinstance(definition, dict)}
    if checked is not None:
        check_definition(storage, checked, found)
    return found


def partition_entries(definition: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the entries of the partition metadata file of an index, by which `check_definition` knows its definition.

    Args:
        definition: the one by which its records are made; None if it has none.
    """
    return {} if definition is None else {MADE_BY_KEY: _made_by(definition)}


def check_definition(storage: Storage, name: str, definitions: Mapping[str, Mapping[str, Any]]) -> CheckedDefinition:
    """Check that an index is defined as when its partition was made: an older definition may be of other columns.

    Args:
        storage: the table.
        name: partition of the index; if another program made it, all definitions are accepted.
        definitions: of all indexes, by name.

    Raises:
        CorruptFileError: it is not.
    """
    definition, made = definitions.get(name, {}), _made(storage, name)
    made_by = parse_properties(made or b"", _made_path(name)).get(MADE_BY_KEY)
    found = _made_by(definition)
    if made_by is not None and made_by != found:
        raise CorruptFileError(f"{name} was made by the definition {made_by:.200}, and is defined as {found:.200}")
    return CheckedDefinition(storage, name, definition, made)


@dataclass(frozen=True)
class CheckedDefinition:
    """Holds the definition of an index as it was read.

    Attributes:
        storage: the table.
        name: partition of the index.
        definition: its definition.
        made: content of its partition metadata file; None without one.
    """

    storage: Storage
    name: str
    definition: Mapping[str, Any]
    made: bytes | None

    def is_current(self, properties: Mapping[str, str]) -> bool:
        """Whether the index is still the same: it may be dropped, and made of other columns, while it is read.

        Args:
            properties: those of the table, loaded after the index was read.
        """
        try:
            definitions = read_definitions(self.storage, properties)
        except (CorruptFileError, UnsupportedTable):
            return False
        return definitions.get(self.name) == self.definition and _made(self.storage, self.name) == self.made


def _made_path(name: str) -> str:
    return f"{METADATA_TABLE}/{name}/{PARTITION_METADATA_NAME}"


def _made(storage: Storage, name: str) -> bytes | None:
    """Return the content of the partition metadata file of an index; None without one."""
    try:
        return storage.read(_made_path(name))
    except FileNotFoundError:
        return None


def _made_by(definition: Mapping[str, Any]) -> str:
    """Return what the records of an index depend on, in a form that outlives a change of the document's layout."""
    made = {key: definition.get(key) for key in ("indexFunction", "sourceFields")}
    return json.dumps(made, separators=(",", ":"), sort_keys=True)


def ranges_definition(name: str, columns: Sequence[str]) -> dict[str, Any]:
    """Return the definition of an index of ranges, ``column_stats`` or ``partition_stats``, of some columns."""
    return {
        "indexName": name,
        "indexType": name,
        "indexFunction": name,
        "sourceFields": list(columns),
        "indexOptions": {},
        "version": _VERSION,
    }


def put_definition(
    storage: Storage, properties: Mapping[str, str], name: str, definition: Mapping[str, Any], lock: TableLock
) -> str:
    """Define an index beside those that are defined; return the path of the definitions.

    Args:
        storage: the table.
        properties: its properties.
        name: the index.
        definition: its definition, as JSON.
        lock: the table's lock, which is held.

    Raises:
        CommitConflict: a former holder of the lock created the definitions at this moment.
        CorruptFileError: the definitions that the properties name are damaged.
        Fenced: another writer took the lock; nothing was changed.
    """
    path = _path(properties) if DEFINITIONS_KEY in properties else f"{INDEX_DEFINITIONS}/index.json"
    try:
        content = storage.read(path)
    except FileNotFoundError:
        content = b""
    # Definitions that no property names are left over.
    document = _parsed(content, path) if content and DEFINITIONS_KEY in properties else {_ALL: {}}
    changed = json.dumps({**document, _ALL: {**document[_ALL], name: definition}}, indent=2).encode()
    lock.verify()
    if content:
        storage.replace_if_unchanged(path, changed, content)
        return path
    try:
        storage.put_if_absent(path, changed)
    except FileExistsError as error:
        lock.verify()
        raise created_by_former(path, storage) from error
    return path


def keep_definitions(
    storage: Storage, properties: Mapping[str, str], names: Collection[str | None], verify: Callable[[], None]
) -> None:
    """Remove the definitions of all indexes but some.

    Args:
        storage: the table.
        properties: its properties.
        names: the indexes whose definitions are kept.
        verify: raises `Fenced` if the caller does not hold the table's lock any more.

    Raises:
        Fenced: another writer took the lock; nothing was changed.
    """
    path = _path(properties)
    try:
        content = storage.read(path)
    except FileNotFoundError:  # lost, and so are those that are to be kept
        return
    document = _parsed(content, path)
    kept = {name: found for name, found in document[_ALL].items() if name in names}
    if kept != document[_ALL]:
        changed = json.dumps({**document, _ALL: kept}, indent=2).encode()
        verify()
        storage.replace_if_unchanged(path, changed, content)


def _path(properties: Mapping[str, str]) -> str:
    path = properties.get(DEFINITIONS_KEY, "")
    if not path.startswith(f"{INDEX_DEFINITIONS}/"):
        raise UnsupportedTable(f"{DEFINITIONS_KEY}={path!r:.80}: index definitions are read in {INDEX_DEFINITIONS}")
    return path


def _read(storage: Storage, path: str) -> dict[str, Any]:
    try:
        return _parsed(storage.read(path), path)
    except FileNotFoundError:
        raise CorruptFileError(f"{path} is gone") from None


def _parsed(content: bytes, path: str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError as error:
        raise CorruptFileError(f"{path} is no JSON document ({error})") from None
    if not isinstance(found, dict) or not isinstance(found.get(_ALL), dict):
        raise CorruptFileError(f"{path} has no {_ALL}")
    return found
