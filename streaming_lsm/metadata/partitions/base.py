"""Define how a partition of the metadata table is kept up to date, so that each kind is one module.

See docs/format/07-index-and-metadata.md, "Metadata table". A *kind* of partition finds, opens and builds partitions:
one of a fixed name, or several, as secondary indexes are. An open partition is *kept*: each delta commit logs its
records of the action, and compactions of the metadata table merge them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from streaming_lsm.config import METADATA_RANGED_COLUMNS, READ_THREADS, Options
from streaming_lsm.errors import CorruptFileError, TableNotFound, UnsupportedTable
from streaming_lsm.format.actions.commit import CommitMetadata, WrittenRanges
from streaming_lsm.format.internal_schema import LATEST_SCHEMA_KEY
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.metadata.changed_keys import FileSizes, StoredKeys
from streaming_lsm.metadata.changed_ranges import PartitionRows, StoredRanges, added_ranges
from streaming_lsm.metadata.changed_values import StoredValues
from streaming_lsm.metadata.commit import FileChanges, NewRecords
from streaming_lsm.metadata.file_slices import MetadataFileGroup, MetadataFileSlice
from streaming_lsm.metadata.followed_columns import followed_columns
from streaming_lsm.metadata.shard_files import ShardFiles
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import COMPACTIONS
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

# NotADirectoryError, IsADirectoryError: a file is in place of a folder, or a folder in place of a file.
DAMAGE = (CorruptFileError, UnsupportedTable, TableNotFound, NotADirectoryError, IsADirectoryError)
"""Errors of a metadata table, or of one of its partitions, for which it is dropped."""


_NAME = re.compile(r"[^\s/,\x00-\x1f\x7f]+")
_LONGEST_NAME = 120
"""Bytes; names of files have more beside it."""


def check_name(name: str) -> None:
    """Check the name of a partition, which is a folder, and an entry of a list; raises `UnsupportedTable`."""
    if not _NAME.fullmatch(name) or len(name.encode(errors="surrogateescape")) > _LONGEST_NAME:
        why = f"it has a blank, slash or comma, or more than {_LONGEST_NAME} bytes"
        raise UnsupportedTable(f"{name!r:.200} cannot be the name of an index: {why}")


class NothingToIndex(UnsupportedTable):
    """A table has nothing yet of which a partition can be built."""


Encoded = tuple[pa.BinaryArray, pa.BinaryArray]
"""Keys, ascending, and records."""
StoredBloom = Callable[[Storage, str], tuple[str, bytes] | None]
"""Reads the bloom filter of a base file; see `streaming_lsm.index.stored_blooms.stored_bloom`."""


StoredExpression = Callable[[Storage, str, str, str], list[dict[str, Any]]]
"""Finds the range of an expression; see `streaming_lsm.index.stored_expressions.stored_expression`."""


@dataclass(frozen=True)
class FileReaders:
    """Read from data files what partitions record of them; given by rooms that read data files.

    Attributes:
        ranges: finds the ranges of columns.
        bloom: reads the bloom filter of a base file.
        keys: finds record keys.
        values: finds the values of a column.
        expression: finds the ranges of an expression.
    """

    ranges: StoredRanges
    bloom: StoredBloom
    keys: StoredKeys
    values: StoredValues
    expression: StoredExpression


@dataclass(frozen=True)
class TableContext:
    """The table whose metadata table is kept.

    Attributes:
        storage: the table.
        metadata: storage of its metadata table.
        options: options of the writer.
        readers: read its data files.
        lock: its lock, which is held.
        timelines: caches the metadata table's timeline.
        shard_files: reads the files of the record index.
    """

    storage: Storage
    metadata: Storage
    options: Options
    readers: FileReaders
    lock: TableLock
    timelines: TimelineCache
    shard_files: ShardFiles

    def load_timeline(self) -> Timeline:
        """Load the metadata table's timeline; raises as `Timeline.load`."""
        return self.timelines.load(self.metadata)

    @property
    def threads(self) -> int:
        """Number of threads that read data files; 0 for a default."""
        return int(self.options[READ_THREADS])

    def ranges(
        self, changes: FileChanges, columns: Sequence[str], written: Mapping[str, WrittenRanges] | None = None
    ) -> PartitionRows:
        """Find the ranges of columns in the files that are added; see `added_ranges`."""
        return added_ranges(changes, self.storage, columns, self.readers.ranges, written or {}, self.threads)


@dataclass(frozen=True)
class RecordedAction:
    """An action of the data table that is about to be completed.

    Attributes:
        instant: the running action.
        content: content of its completed file.
        changes: the files that it adds and deletes; deletions of files that the metadata table does not list are left
            out.
        data: timeline of the data table before it; None if it was not loaded.
        commit: its commit metadata, which tell the ranges of some files; None for a clean.
    """

    instant: Instant
    content: bytes
    changes: FileChanges
    data: Timeline | None
    commit: CommitMetadata | None = None

    @property
    def row_changes(self) -> CommitMetadata | None:
        """Its commit metadata if it may change rows; None for a compaction or a clean."""
        keeps = self.instant.action in COMPACTIONS or self.commit is None or self.commit.keeps_rows
        return None if keeps else self.commit

    @cached_property
    def schemas(self) -> tuple[str | None, str | None]:
        """Avro JSON of the table's columns before the action and after it; None where they are not known."""
        before = None if self.data is None else self.data.table_schema()
        return before, before if self.commit is None else self.commit.schema or before

    def followed(self, columns: Sequence[str], options: Options) -> tuple[str, ...]:
        """Return the columns whose ranges are recorded from the action on; see `followed_columns`."""
        has_ids = self.commit is not None and LATEST_SCHEMA_KEY in self.commit.extra
        adds = not has_ids and not options[METADATA_RANGED_COLUMNS]
        return followed_columns(columns, *self.schemas, adds=adds)

    @cached_property
    def ranges(self) -> Mapping[str, WrittenRanges]:
        """Ranges of columns in files that it adds, by path, as far as their writers told them."""
        stats = () if self.commit is None else self.commit.stats
        return {stat.path: stat.ranges for stat in stats if stat.ranges is not None}


class KeptPartition(Protocol):
    """A partition of the metadata table that is kept up to date.

    A fault (`DAMAGE`) in one of the methods drops the partition, with a warning; `files` with the whole metadata table.
    """

    @property
    def name(self) -> str:
        """Name of the partition."""
        ...

    @property
    def groups(self) -> Sequence[MetadataFileGroup]:
        """All its file groups."""
        ...

    @property
    def columns(self) -> Sequence[str]:
        """Columns whose ranges it records."""
        ...

    @property
    def definition(self) -> str | None:
        """Name of the index definition that the partition needs: its own, or that of a partition that is kept, too."""
        ...

    def records(self, action: RecordedAction) -> Sequence[NewRecords]:
        """Return the records of an action, those of each file group together; a group without records is left out."""
        ...

    def merged(
        self, found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool], base_name: str
    ) -> Encoded:
        """Read and merge a file slice.

        Args:
            found: the slice.
            metadata: storage of the metadata table.
            counts: whether the log records of an instant are valid, see `counted_instants`.
            base_name: name of the base file for which the records are encoded.
        """
        ...


@runtime_checkable
class GrowingPartition(Protocol):
    """A partition of which a compaction may increase the number of file groups."""

    def grown(
        self, slices: Sequence[MetadataFileSlice], metadata: Storage, counts: Callable[[str], bool], instant: str
    ) -> Iterable[NewRecords]:
        """Return the records of more file groups in place of those that have too many records; mostly nothing.

        Args:
            slices: the newest slices of all file groups.
            metadata, counts: see `KeptPartition.merged`.
            instant: instant of the compaction, which is in the names of the base files.
        """
        ...


@dataclass(frozen=True)
class Snapshot:
    """State of the table from which a partition is built.

    Attributes:
        data: timeline of the table.
        properties: its properties.
        files: size in bytes by file name, by partition path: the files of completed actions.
        instant: instant of the delta commit that creates the partition, which is in the names of its base files.
    """

    data: Timeline
    properties: Mapping[str, str]
    files: FileSizes
    instant: str


CatchUp = Callable[[Snapshot, Snapshot], Sequence[NewRecords]]
"""Returns the records by which a state of the table differs from the one before, encoded for logs.

It is called with one state after the other, the first one that from which the partition was built. Records of a key
replace those of an earlier call. Raises an error of `DAMAGE` if a file cannot be read."""


def changes_between(before: Snapshot, after: Snapshot) -> FileChanges:
    """Return the files that were added and deleted between two states of a table."""

    def without(files: FileSizes, others: FileSizes) -> FileSizes:
        found = {
            path: {n: s for n, s in sizes.items() if n not in others.get(path, ())} for path, sizes in files.items()
        }
        return {path: sizes for path, sizes in found.items() if sizes}

    deleted = without(before.files, after.files)
    return FileChanges(without(after.files, before.files), {path: list(names) for path, names in deleted.items()})


@dataclass(frozen=True)
class NewPartition:
    """A partition that is built, and not stored yet.

    Attributes:
        groups: all its file groups.
        records: records of the base files, made one by one; a group without records gets none.
        catch_up: see `CatchUp`.
        definition: the index definition of the partition's name, if it has one.
    """

    groups: Sequence[MetadataFileGroup]
    records: Iterable[NewRecords]
    catch_up: CatchUp
    definition: Mapping[str, Any] | None = None


class PartitionKind(Protocol):
    """A kind of partition that this package keeps up to date. It has no state."""

    def owns(self, name: str) -> bool:
        """Return whether a partition of this name is of the kind."""
        ...

    def asked(self, options: Options) -> Mapping[str, bool]:
        """Return names of partitions that the options want (True) or refuse (False); others are kept if they exist."""
        ...

    def open(self, name: str, context: TableContext, properties: Mapping[str, str]) -> KeptPartition:
        """Open a partition that exists; raises an error of `DAMAGE` if it cannot be kept."""
        ...

    def build(self, name: str, context: TableContext, snapshot: Snapshot) -> NewPartition:
        """Build a partition from the files of the table; raises an error of `DAMAGE` if that is not possible."""
        ...
