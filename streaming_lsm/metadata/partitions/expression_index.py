"""Keep expression indexes of the metadata table up to date: ranges of a function of a column in data files.

See docs/format/07-index-and-metadata.md, "Expression index". Beside the range in each file there is one in each
partition of the table, which Hudi prunes partitions by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.arrow.columns import pc
from streaming_lsm.config import Options
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.metadata.column_stats import RANGES, encode_ranges
from streaming_lsm.format.metadata.expression_index import (
    FUNCTIONS,
    INDEX_TYPE,
    LOWER,
    PREFIX,
    are_of_files,
    partition_range_key,
)
from streaming_lsm.format.metadata.group_files import base_name, check_file_id
from streaming_lsm.format.metadata.secondary_index import group_file_id
from streaming_lsm.metadata.changed_ranges import PartitionRows, deleted_ranges, keyed_rows, shares
from streaming_lsm.metadata.column_ranges import decoded_ranges, newest_ranges
from streaming_lsm.metadata.commit import FileChanges, NewRecords
from streaming_lsm.metadata.file_slices import MetadataFileGroup, MetadataFileSlice
from streaming_lsm.metadata.followed_columns import flat_columns
from streaming_lsm.metadata.index_definitions import read_definitions
from streaming_lsm.metadata.partition_ranges import united_ranges
from streaming_lsm.metadata.partitions.base import (
    Encoded,
    NewPartition,
    RecordedAction,
    Snapshot,
    StoredExpression,
    TableContext,
    changes_between,
)
from streaming_lsm.metadata.slice_records import numbered_groups, slice_records
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.parallel import read_in_threads

_SINCE = 9
_VERSION = "V2"


@dataclass
class ExpressionIndex:
    """An index of a table; see `KeptPartition`.

    Attributes:
        name: name of the partition, and of its definition.
        context: the table.
        function: one of `FUNCTIONS`.
        column: its column.
        groups: the file groups.
    """

    name: str
    context: TableContext
    function: str
    column: str
    groups: Sequence[MetadataFileGroup]
    columns: Sequence[str] = ()
    _added: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def definition(self) -> str:
        """Name of its definition."""
        return self.name

    def records(self, action: RecordedAction) -> list[NewRecords]:
        """Return the ranges in the files that an action adds, and tombstones for those that it deletes.

        Raises:
            UnsupportedTable: the table does not have the column any more.
        """
        _, avro = action.schemas
        if avro is not None and self.column not in flat_columns(avro):
            raise UnsupportedTable(f"the table has no column {self.column!r} any more")
        added = self.rows(action.changes)
        return self._logged(added, action.changes, added)

    def caught_up(self, before: Snapshot, after: Snapshot) -> list[NewRecords]:
        """Return the ranges of new files and of their partitions, and tombstones of gone files; see `CatchUp`."""
        changes = changes_between(before, after)
        added = self.rows(changes)
        self._added += added
        touched = {partition for partition, _ in added}
        return self._logged(added, changes, [row for row in self._added if row[0] in touched])

    def rows(self, changes: FileChanges) -> list[tuple[str, dict[str, Any]]]:
        """Find the ranges in the files that are added; see `expression_rows`."""
        context, of_index = self.context, (self.function, self.column)
        return expression_rows(context.storage, context.readers.expression, *of_index, changes, context.threads)

    def _logged(self, added: PartitionRows, changes: FileChanges, united: PartitionRows) -> list[NewRecords]:
        files = of_files([*added, *deleted_ranges(changes, [self.column])])
        return [new for new, _ in self.split(files, of_partitions(self.column, united), None)]

    def split(self, files: Any, partitions: Any, instant: str | None) -> Iterator[tuple[NewRecords, int]]:
        """Yield the records of each file group that has some, and its number.

        Args:
            files, partitions: keys and ranges of files, and those of partitions.
            instant: of the base files for which they are encoded; None for logs.
        """
        for number, group in enumerate(self.groups):
            name = None if instant is None else str(base_name(group.file_id, instant))
            shared = [_share(keys, ranges, self.groups, group) for keys, ranges in (files, partitions)]
            new = _encoded(shared[0], shared[1], name)
            if len(new[0]):
                yield NewRecords(group, *new), number

    def merged(
        self, found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool], base_name: str
    ) -> Encoded:
        """Merge a slice: the newest range of each file, and those of each partition, united."""
        files, partitions = self.reduced(*decoded_ranges(slice_records(found, metadata, counts)))
        return _encoded(files, partitions, base_name)

    @staticmethod
    def reduced(keys: pa.BinaryArray, ranges: pa.StructArray) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """Reduce the ranges of a slice; return keys and ranges of files, and those of partitions.

        Args:
            keys, ranges: see `decoded_ranges`.
        """
        of_files = pa.array(are_of_files(keys))
        texts, rows, others = _any(keys), _any(ranges), pc.invert(of_files)
        files = newest_ranges(texts.filter(of_files), rows.filter(of_files))
        return files, united_ranges(texts.filter(others), rows.filter(others))


class ExpressionIndexKind:
    """See `PartitionKind`."""

    def owns(self, name: str) -> bool:
        """Return whether a partition is an expression index."""
        return name.startswith(PREFIX) and len(name) > len(PREFIX)

    def asked(self, _options: Options) -> Mapping[str, bool]:
        """Return nothing: such an index is made on request, and kept if it exists."""
        return {}

    def open(self, name: str, context: TableContext, properties: Mapping[str, str]) -> ExpressionIndex:
        """Open an index of a table.

        Raises:
            CorruptFileError: its definition, or a file group, is missing or damaged.
            UnsupportedTable: its type, function or version is none that is kept.
        """
        function, column = expression_of(name, read_definitions(context.storage, properties, checked=name))
        groups = numbered_groups(name, group_file_id(name), context.metadata.names(name))
        return ExpressionIndex(name, context, function, column, groups)

    def build(self, name: str, context: TableContext, snapshot: Snapshot) -> NewPartition:
        """Build an index with the ranges of all files.

        Raises:
            CorruptFileError: a data file cannot be read.
            UnsupportedTable: the options name no column and function of the table that fit; or it is older than
                version 9.
        """
        function, column = (context.options[o] for o in (config.EXPRESSION_FUNCTION, config.EXPRESSION_COLUMN))
        if int(snapshot.properties["hoodie.table.version"]) < _SINCE:
            raise UnsupportedTable(f"expression indexes are made in tables of version {_SINCE} and later")
        if function is None or column is None:
            named = f"{config.EXPRESSION_FUNCTION.key} and {config.EXPRESSION_COLUMN.key}"
            raise UnsupportedTable(f"no function of a column is named for {name}: set {named}")
        _check_expression(snapshot, function, column)
        groups = [MetadataFileGroup(name, group_file_id(name).format(0))]
        check_file_id(groups[0].file_id, f"index name {name!r:.80}")
        kept = ExpressionIndex(name, context, function, column, groups)
        rows = kept.rows(FileChanges(snapshot.files))
        parts = of_files(rows), of_partitions(column, rows)
        records = [new for new, _ in kept.split(*parts, snapshot.instant)]
        return NewPartition(groups, records, kept.caught_up, _definition(name, function, column))


def expression_rows(
    storage: Storage, read: StoredExpression, function: str, column: str, changes: FileChanges, threads: int
) -> list[tuple[str, dict[str, Any]]]:
    """Find the ranges of an expression in the files that are added.

    Args:
        storage: the table.
        read: finds the range in a file.
        function, column: the expression.
        changes: the files.
        threads: number of threads that read files; 0 for a default.

    Returns:
        Partition paths and values of the type `RANGES`; raises as `read`.
    """
    files = [
        (partition, f"{partition}/{name}" if partition else name)
        for partition, names in changes.added.items()
        for name in names
    ]
    found = read_in_threads(lambda file: read(storage, file[1], function, column), files, storage, threads)
    return [(file[0], row) for file, rows in zip(files, found, strict=True) for row in rows]


def expression_of(name: str, definitions: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """Return function and column of an index, by the definitions of the table.

    Raises:
        CorruptFileError: it has no definition.
        UnsupportedTable: the definition is of another type, function or version than are kept.
    """
    found = definitions.get(name)
    if found is None:
        raise CorruptFileError(f"there is no definition of {name}")
    columns, function = found.get("sourceFields"), found.get("indexFunction")
    if found.get("indexType") != INDEX_TYPE or found.get("version") != _VERSION:
        raise UnsupportedTable(
            f"{name} is of type {found.get('indexType')!r:.40} and version {found.get('version')!r:.20}; kept are "
            f"those of {INDEX_TYPE} and {_VERSION}"
        )
    if function not in FUNCTIONS or not isinstance(columns, list) or len(columns) != 1:
        raise UnsupportedTable(f"{name} is of {function!r:.40} of {columns!r:.80}; kept are {', '.join(FUNCTIONS)}")
    return function, str(columns[0])


def of_files(rows: PartitionRows) -> tuple[Any, Any]:
    """Return the keys of ranges of files, ascending, and the ranges."""
    keys, ranges = keyed_rows(rows)
    return keys, pa.array(ranges, RANGES)


def of_partitions(column: str, rows: PartitionRows) -> tuple[Any, Any]:
    """Unite the ranges of files by partition of the table; return their keys, ascending, and the ranges."""
    keyed = [(partition_range_key(column, partition), {**row, "fileName": partition}) for partition, row in rows]
    keyed.sort(key=lambda one: one[0])
    keys: Any = pa.array([key.encode() for key, _ in keyed], pa.binary())
    ranges: Any = pa.array([row for _, row in keyed], RANGES)
    return united_ranges(keys, ranges)


def _check_expression(snapshot: Snapshot, function: str, column: str) -> None:
    if function not in FUNCTIONS:
        raise UnsupportedTable(f"function {function!r} is not indexed: expected one of {', '.join(FUNCTIONS)}")
    avro = snapshot.data.table_schema() or snapshot.properties.get("hoodie.table.create.schema")
    if not avro:
        raise UnsupportedTable("the table has no schema yet")
    kind = flat_columns(avro).get(column)
    fits = kind is not None and (
        pa.types.is_string(kind)
        if function == LOWER
        else pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and function != "hour")
    )
    if not fits:
        raise UnsupportedTable(
            f"{function} of column {column!r}, which is {kind or 'not in the table'}, is not indexed"
        )


def _definition(name: str, function: str, column: str) -> dict[str, Any]:
    return {
        "indexName": name,
        "indexType": INDEX_TYPE,
        "indexFunction": function,
        "sourceFields": [column],
        "indexOptions": {"expr": function},
        "version": _VERSION,
    }


def _any(values: Any) -> Any:
    return values


def _share(keys: Any, ranges: Any, groups: Sequence[MetadataFileGroup], group: MetadataFileGroup) -> tuple[Any, Any]:
    """Return the keys of a file group, as bytes, and their ranges."""
    texts = keys.cast(pa.string())
    for found, wanted in shares(texts, groups):
        if found == group:
            return texts.filter(wanted).cast(pa.binary()), ranges.filter(wanted)
    return pa.array([], pa.binary()), ranges.slice(0, 0)


def _encoded(files: tuple[Any, Any], partitions: tuple[Any, Any], name: str | None) -> Encoded:
    """Encode the ranges of files and of partitions, ordered by key."""
    keys: Any = pa.concat_arrays([files[0].cast(pa.binary()), partitions[0].cast(pa.binary())])
    values: Any = pa.concat_arrays(
        [encode_ranges(files[1], name), encode_ranges(partitions[1], name, of_partitions=True)]
    )
    order = pc.sort_indices(keys)
    return keys.take(order), values.take(order)
