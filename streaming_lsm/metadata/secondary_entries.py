"""Merge the entries of secondary indexes, and look record keys up by the values of an indexed column.

See docs/format/07-index-and-metadata.md, "Secondary index". A *shard* is a file group of the index; a hash of the value
tells which. The newest record of an entry tells whether the row has the value still.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import flags, pc
from streaming_lsm.errors import CorruptFileError, TableNotFound, UnsupportedTable
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata import record_index
from streaming_lsm.format.metadata.group_files import DeletedKeys
from streaming_lsm.format.metadata.secondary_index import (
    PREFIX,
    decode_entries,
    entry_shards,
    group_file_id,
    prefixes,
    split_keys,
)
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.creation import PARTITIONS_KEY
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileSlice, counted_instants, is_first
from streaming_lsm.metadata.index_definitions import check_definition, read_definitions
from streaming_lsm.metadata.record_locations import check_merged
from streaming_lsm.metadata.slice_records import numbered_groups
from streaming_lsm.metadata.state import check_replacements, check_up_to_date
from streaming_lsm.metadata.unread import warn_unread
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.instant import FLAT
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline

_LOG = logging.getLogger(__name__)
_OWN_TOKEN = "0-0-0"
VERSION = "V2"
"""The index version whose hash is that of the value."""


def indexed_column(name: str, definitions: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the column of a secondary index.

    Args:
        name: partition of the metadata table.
        definitions: of all indexes, by name.

    Raises:
        CorruptFileError: it has no definition, or one of several columns.
        UnsupportedTable: the index has another version than V2.
    """
    found = definitions.get(name, {})
    columns = found.get("sourceFields")
    if not isinstance(columns, list) or len(columns) != 1 or not isinstance(columns[0], str):
        raise CorruptFileError(f"the definition of {name} has the columns {columns!r:.80}: drop it")
    if found.get("version") != VERSION:
        raise UnsupportedTable(f"{name} of version {found.get('version')!r:.20}, {VERSION} is kept")
    return columns[0]


def check_own(name: str, names: Sequence[str], properties: Mapping[str, str]) -> None:
    """Check that no other program has recorded writes to logs in an index: Hudi 1.2 leaves out values of their rows.

    Args:
        name: partition of the metadata table.
        names: names of its files.
        properties: properties of the table.

    Raises:
        UnsupportedTable: one may have.
    """
    if properties.get("hoodie.table.type") != "MERGE_ON_READ":
        return
    for text in names:
        found = parse_file_name(text)
        if found is not None and str(found.token) != _OWN_TOKEN and not is_first(found.instant):
            raise UnsupportedTable(f"{name}: another program wrote {text}, which may lack values of rows in logs")


def newest_entries(parts: Iterable[HFile | DeletedKeys], wanted: pa.StringArray | None = None) -> pa.StringArray:
    """Return the keys of the entries of a shard that are not deleted, ascending.

    Args:
        parts: its files, see `MetadataFileSlice.parts`.
        wanted: how the keys begin, see `prefixes`; None for all.

    Raises:
        CorruptFileError, UnsupportedTable: a file cannot be read.
        FileNotFoundError: a file was deleted meanwhile.
    """
    keys: list[Any] = [pa.array([], pa.string())]
    deleted: list[Any] = [pa.array([], pa.bool_())]
    for some, gone in _records(parts, wanted):
        keys.append(some)
        deleted.append(gone)
    texts = pa.concat_arrays(keys)
    order = pc.sort_indices(texts.cast(pa.binary()))  # stable: of equal keys the newest is the last
    texts, is_gone = texts.take(order), flags(pa.concat_arrays(deleted).take(order))
    is_last = np.append(flags(pc.not_equal(texts[1:], texts[:-1])), np.ones(min(len(texts), 1), np.bool_))
    newest: pa.StringArray = texts.filter(pa.array(is_last & ~is_gone))
    return newest


def _records(parts: Iterable[HFile | DeletedKeys], wanted: pa.StringArray | None) -> Iterator[tuple[Any, Any]]:
    """Yield the keys of entries in merge order, and which are deleted."""
    for part in parts:
        if isinstance(part, DeletedKeys):
            keys = part.keys if wanted is None else part.keys.filter(_begins(part.keys, wanted, part.source))
            yield keys, pa.repeat(pa.scalar(True), len(keys))
            continue
        beginnings: Any = None if wanted is None else wanted.cast(pa.binary())
        for cells in part.cells() if wanted is None else part.blocks_from(beginnings):
            texts: Any = cells.keys.cast(pa.string())
            if wanted is not None:
                chosen = flags(_begins(texts, wanted, part.source))
                cells, texts = cells.at(chosen), texts.filter(pa.array(chosen))
            if len(texts):
                yield texts, decode_entries(cells, part.schema_json, part.source)


def _begins(keys: pa.StringArray, wanted: pa.StringArray, source: str) -> Any:
    return pc.is_in(split_keys(keys, source)[0], value_set=wanted)


def keys_of_values(
    storage: Storage, data: Timeline, column: str, values: pa.StringArray, timelines: TimelineCache
) -> tuple[pa.StringArray, str] | None:
    """Look up the record keys of the rows that have one of some values, as of a timeline.

    Args:
        storage: the table.
        data: its timeline, without restrictions.
        column: a column.
        values: values of it as texts, without nulls.
        timelines: caches the timelines of the table and of its metadata table.

    Returns:
        The keys, and the name of the index; None if they are not known: no index is of the column, or, with a warning,
        it cannot be read, or it tells a later state.
    """
    properties = load_properties(storage)
    registered = listed(properties.get(PARTITIONS_KEY, ""))
    # Without a record index over all partitions a key may have several rows, of which an index may lack some.
    if data.layout == FLAT or record_index.PARTITION not in registered:
        return None
    names = [name for name in registered if name.startswith(PREFIX)]
    if not names:
        return None
    try:
        definitions = read_definitions(storage, properties)
        name = next((name for name in names if definitions.get(name, {}).get("sourceFields") == [column]), None)
        if name is None or indexed_column(name, definitions) != column:
            return None
        checked = check_definition(storage, name, definitions)
        check_own(name, storage.names(f"{METADATA_TABLE}/{name}"), properties)
        found, until = _look_up(storage, data, name, values, timelines)
        now = timelines.load(storage, data.layout)
        is_same = _is_current(data, now, until) and load_properties(storage) == properties
        if is_same and checked.is_current(properties):
            return found, name
        _LOG.debug("%s of %s tells a later state than the one that is read", name, storage.uri)
    except (CorruptFileError, UnsupportedTable, TableNotFound, OSError, pa.ArrowInvalid) as error:
        warn_unread(storage, ", ".join(names), f"no row is looked up by a value of {column}", error)
    return None


def _look_up(
    storage: Storage, data: Timeline, name: str, values: pa.StringArray, timelines: TimelineCache
) -> tuple[pa.StringArray, str]:
    """Return the record keys of values, and the completion time until which writes may have been merged."""
    metadata = Subfolder(storage, METADATA_TABLE)
    timeline, counts = timelines.load(metadata, data.layout), counted_instants(data)
    check_up_to_date(timeline, data)
    check_replacements(timeline, data, name)
    files = metadata.names(name)
    shards = MetadataFileSlice.newest_of_all(timeline, files, name, all_groups=True)
    if len(numbered_groups(name, group_file_id(name), files)) != len(shards):
        raise CorruptFileError(f"{name} lacks a file group: drop it")
    until = max((timeline.completion_time(one.base.instant) or "" for one in shards if one.base), default="")
    check_merged(timeline, counts, until)
    beginnings = prefixes(pc.unique(values))
    of_shard = entry_shards(beginnings, len(shards))
    found: list[Any] = [pa.array([], pa.string())]
    for number, shard in enumerate(sorted(shards, key=lambda one: one.group.file_id)):
        wanted = beginnings.filter(pa.array(of_shard == number))
        if len(wanted):
            parts = _of_shard(shard.parts(metadata, counts), number, len(shards))
            found.append(split_keys(newest_entries(parts, wanted), name)[1])
    return pc.unique(pa.concat_arrays(found)), until


def _of_shard(parts: Iterable[HFile | DeletedKeys], number: int, shards: int) -> Iterator[HFile | DeletedKeys]:
    """Check that the last key of each file is of a shard."""
    for part in parts:
        last = pa.array([part.last_key] if isinstance(part, HFile) else part.keys[-1:].to_pylist(), pa.binary())
        texts: Any = last.filter(pc.greater(pc.binary_length(last), 0)).cast(pa.string())
        beginnings, _ = split_keys(texts, part.source)
        if (entry_shards(beginnings, shards) != number).any():
            raise CorruptFileError(f"{part.source}: its last key is not of shard {number} of {shards}: drop it")
        yield part


def _is_current(data: Timeline, now: Timeline, until: str) -> bool:
    """Whether no file that was read has entries of writes that are not completed on `data`."""
    known = {action.requested for action in data.instants if action.is_completed}
    later = [action for action in now.instants if action.is_completed and action.requested not in known]
    newest = max(known, default="")
    return (not newest or now.has(newest)) and all((action.completed or "") > until for action in later)
