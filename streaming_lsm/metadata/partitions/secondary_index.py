"""Keep secondary indexes of the metadata table up to date: the record keys of each value of a column.

See docs/format/07-index-and-metadata.md, "Secondary index". The records of a write are the entries that its rows have,
and deletes of those that they had. An index needs a record index over all partitions, in which each key has one row:
else an entry might be deleted that another row of its key has still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.arrow.columns import without
from streaming_lsm.config import Options
from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.metadata.group_files import base_name, check_file_id
from streaming_lsm.format.metadata.record_index import PARTITION as RECORD_INDEX
from streaming_lsm.format.metadata.record_index import parse_shard
from streaming_lsm.format.metadata.secondary_index import (
    PREFIX,
    encode_entries,
    entry_keys,
    entry_shards,
    group_file_id,
    split_keys,
)
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.changed_values import RowValues
from streaming_lsm.metadata.commit import NewRecords
from streaming_lsm.metadata.creation import PARTITIONS_KEY
from streaming_lsm.metadata.file_slices import MetadataFileGroup, MetadataFileSlice
from streaming_lsm.metadata.index_definitions import read_definitions
from streaming_lsm.metadata.partitions.base import Encoded, NewPartition, RecordedAction, Snapshot, TableContext
from streaming_lsm.metadata.record_shards import Sizing, sorted_keys
from streaming_lsm.metadata.secondary_entries import VERSION, check_own, indexed_column, newest_entries
from streaming_lsm.metadata.slice_records import numbered_groups
from streaming_lsm.metadata.state import check_rows_known
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.properties_file import load_properties


@dataclass(frozen=True)
class SecondaryIndex:
    """An index of a table; see `KeptPartition`.

    Attributes:
        name: name of the partition, and of its definition.
        context: the table.
        column: the indexed column.
        groups: the file groups, in order of their numbers.
    """

    name: str
    context: TableContext
    column: str
    groups: Sequence[MetadataFileGroup]
    columns: Sequence[str] = ()

    @property
    def definition(self) -> str:
        """Name of its definition."""
        return self.name

    def records(self, action: RecordedAction) -> list[NewRecords]:
        """Return the entries of rows that a write adds or changes, and deletes of those that rows do not have any more.

        Raises:
            UnsupportedTable: the table has no record index any more, or not the column.
        """
        running, commit, context = action.instant, action.row_changes, self.context
        _check_record_index(context, load_properties(context.storage))
        if commit is None:
            return []
        data = check_rows_known(context.load_timeline, action.data, running, commit, self.name)
        found = context.readers.values.changed(context.storage, data, running, commit, self.column)
        return _changed([(_entries(before), _entries(after)) for before, after in found], self.groups)

    def merged(
        self, found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool], base_name: str
    ) -> Encoded:
        """Merge a slice: the entries that are not deleted."""
        keys: Any = newest_entries(found.parts(metadata, counts))
        return keys.cast(pa.binary()), encode_entries(len(keys), base_name)


@dataclass
class _CatchUp:
    """Compares the entries of file groups of the table with those that they had; see `CatchUp`.

    Attributes:
        context: the table.
        column: the indexed column.
        groups: the file groups of the index.
        known: entries by partition path and file id.
    """

    context: TableContext
    column: str
    groups: Sequence[MetadataFileGroup]
    known: dict[tuple[str, str], Any]

    def __call__(self, before: Snapshot, after: Snapshot) -> list[NewRecords]:
        none: Any = pa.array([], pa.string())
        found = self.context.readers.values.since(self.context.storage, before, after, self.column)
        new = {rows.group: _entries(rows) for rows in found}
        pairs = [(self.known.get(group, none), entries) for group, entries in new.items()]
        self.known |= new
        return _changed(pairs, self.groups)


class SecondaryIndexKind:
    """See `PartitionKind`."""

    def owns(self, name: str) -> bool:
        """Return whether a partition is a secondary index."""
        return name.startswith(PREFIX) and len(name) > len(PREFIX)

    def asked(self, options: Options) -> Mapping[str, bool]:
        """Return the index of the column that the options name; other indexes are kept if they exist."""
        column = options[config.SECONDARY_INDEX_COLUMN]
        return {f"{PREFIX}{column}": True} if column else {}

    def open(self, name: str, context: TableContext, properties: Mapping[str, str]) -> SecondaryIndex:
        """Open an index of a table.

        Raises:
            CorruptFileError: its definition, or a file group, is missing or damaged.
            UnsupportedTable: it has another version than V2; the table has no record index over all partitions; or
                another program has recorded writes to logs in it, see `check_own`.
        """
        _check_record_index(context, properties)
        column = indexed_column(name, read_definitions(context.storage, properties, checked=name))
        names = context.metadata.names(name)
        check_own(name, names, properties)
        groups = numbered_groups(name, group_file_id(name), names)
        return SecondaryIndex(name, context, column, groups)

    def build(self, name: str, context: TableContext, snapshot: Snapshot) -> NewPartition:
        """Build an index with the entries of all rows.

        Raises:
            CorruptFileError: a data file cannot be read.
            UnsupportedTable: the options name no column, or one that the table does not have, or that is neither of
                texts nor of whole numbers; or the table has no record index over all partitions, or is older than
                version 9.
        """
        column = context.options[config.SECONDARY_INDEX_COLUMN]
        if not column:
            raise UnsupportedTable(f"no column is named for {name}: set {config.SECONDARY_INDEX_COLUMN.key}")
        if int(snapshot.properties["hoodie.table.version"]) < _SINCE:
            raise UnsupportedTable(f"secondary indexes are made in tables of version {_SINCE} and later")
        _check_record_index(context, snapshot.properties)
        live = context.readers.values.live(context.storage, snapshot, column)
        known = {rows.group: _entries(rows) for rows in live}
        entries = _joined(known.values())
        count = _sizing(context.options).shards(len(entries))
        groups = [MetadataFileGroup(name, group_file_id(name).format(number)) for number in range(count)]
        check_file_id(groups[-1].file_id, f"index name {name!r:.80}")
        catch_up = _CatchUp(context, column, groups, known)
        records = _base_records(entries, groups, snapshot.instant)
        return NewPartition(groups, records, catch_up, _definition(name, column))


_SINCE = 9


def _check_record_index(context: TableContext, properties: Mapping[str, str]) -> None:
    """Check that each record key has one row, which a record index over all partitions makes sure of."""
    if RECORD_INDEX not in listed(properties.get(PARTITIONS_KEY, "")):
        raise UnsupportedTable(
            f"the metadata table has no {RECORD_INDEX}, by which the keys of an index are found: create that first"
        )
    parsed = (parse_file_name(name) for name in context.metadata.names(RECORD_INDEX))
    shards = [shard for name in parsed if name is not None and (shard := parse_shard(name.file_id)) is not None]
    if any(path is not None for path, _ in shards):
        raise UnsupportedTable(
            f"{RECORD_INDEX} has file groups for each partition, so that a key may have several rows: drop it, and "
            "create it for the whole table"
        )


def _definition(name: str, column: str) -> dict[str, Any]:
    return {
        "indexName": name,
        "indexType": PREFIX.rstrip("_"),
        "indexFunction": "identity",
        "sourceFields": [column],
        "indexOptions": {},
        "version": VERSION,
    }


def _sizing(options: Options) -> Sizing:
    least, most = options[config.RECORD_INDEX_MIN_GROUPS], options[config.RECORD_INDEX_MAX_GROUPS]
    return Sizing(least, most, options[config.RECORD_INDEX_GROWTH], options[config.RECORD_INDEX_GROUP_BYTES])


def _changed(pairs: Sequence[tuple[Any, Any]], groups: Sequence[MetadataFileGroup]) -> list[NewRecords]:
    """Return the records of file groups of the table whose entries changed, given those before and after."""
    added = _joined(without(after, before) for before, after in pairs)
    # A row may move to another file group.
    deleted = without(_joined(without(before, after) for before, after in pairs), added)
    return list(_of_groups(added, deleted, groups))


def _entries(rows: RowValues) -> Any:
    return entry_keys(rows.values, rows.keys)


def _joined(parts: Iterable[Any]) -> Any:
    return pa.concat_arrays([pa.array([], pa.string()), *parts])


def _shards(keys: Any, groups: int) -> Any:
    return entry_shards(split_keys(keys, "entries")[0], groups)


def _of_groups(added: Any, deleted: Any, groups: Sequence[MetadataFileGroup]) -> Iterator[NewRecords]:
    """Yield the records of each file group that has some."""
    new, gone = _shards(added, len(groups)), _shards(deleted, len(groups))
    for number, group in enumerate(groups):
        keys = sorted_keys(added.filter(pa.array(new == number)))
        dead = sorted_keys(deleted.filter(pa.array(gone == number)))
        if len(keys) or len(dead):
            yield NewRecords(group, keys, encode_entries(len(keys), None), dead if len(dead) else None)


def _base_records(entries: Any, groups: Sequence[MetadataFileGroup], instant: str) -> Iterator[NewRecords]:
    """Yield the records of the base file of each file group that has some."""
    shards = _shards(entries, len(groups))
    for number in np.unique(shards).tolist():
        keys = sorted_keys(entries.filter(pa.array(shards == number)))
        name = str(base_name(groups[number].file_id, instant))
        yield NewRecords(groups[number], keys, encode_entries(len(keys), name))
