"""Entries of secondary indexes, read record by record, and what must hold of them at every moment."""

from __future__ import annotations

from streaming_lsm.format.metadata.group_files import DeletedKeys
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.merge.table_rule import table_rule
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileGroup, MetadataFileSlice, counted_instants
from streaming_lsm.query.queries import Queries, QueryOptions
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline

Entry = tuple[str | None, str]
"""Value as text, and record key."""


def entries_of(storage: Storage, name: str) -> set[Entry]:
    """Values and record keys of an index."""
    metadata, data = Subfolder(storage, METADATA_TABLE), Timeline.load(storage)
    timeline, names = Timeline.load(metadata), metadata.names(name)
    found: set[Entry] = set()
    for file_id in sorted({parsed.file_id for text in names if (parsed := parse_file_name(text)) is not None}):
        of_group: set[str] = set()
        newest = MetadataFileSlice.newest(timeline, names, MetadataFileGroup(name, file_id))
        for part in newest.parts(metadata, counted_instants(data)):
            if isinstance(part, DeletedKeys):
                of_group -= {str(key) for key in part.keys.to_pylist()}
            else:
                of_group |= {key.decode() for cells in part.cells() for key in cells.keys.to_pylist()}
        found |= {plain_entry(key) for key in of_group}
    return found


def plain_entry(key: str) -> Entry:
    """Undo the escapes of a key, one character after the other."""
    parts: list[list[str]] = [[]]
    characters = iter(key)
    for character in characters:
        if character == "$" and len(parts) == 1:
            parts.append([])
        else:
            parts[-1].append(next(characters) if character == "\\" else character)
    value, record_key = ("".join(part) for part in parts)
    return (None if key.startswith("\0$") else value), record_key


def assert_secondary_entries(storage: Storage, name: str, column: str) -> int:
    """An index has the value and the key of each row of the snapshot and no others; return how many."""
    config = TableConfig.from_properties(load_properties(storage), storage.uri)
    columns = ["_hoodie_record_key", column]
    scan = Queries(storage, config, table_rule(config), map, 1).snapshot(QueryOptions(columns), None)
    found = [row for slice_ in scan.slices for batch in scan.read_slice(slice_) for row in batch.to_pylist()]
    rows = {(None if row[column] is None else str(row[column]), row["_hoodie_record_key"]) for row in found}
    told = entries_of(storage, name)
    assert told == rows, f"{name} lacks {sorted(map(str, rows - told))}, has left over {sorted(map(str, told - rows))}"
    return len(rows)
