"""Say which record keys are in the files of a table, for the partition ``record_index`` of its metadata table.

They are read by rooms that read data files; see `streaming_lsm.index.stored_keys`. A key is *live* if the file
slice has a row of it after the merge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import pyarrow as pa

from streaming_lsm.arrow.columns import without
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

Texts: TypeAlias = "pa.ChunkedArray[pa.StringScalar]"
"""Record keys, without nulls."""
FileSizes = Mapping[str, Mapping[str, int]]
"""Size in bytes by file name, by partition path."""


class ListedTable(Protocol):
    """A table as of a moment."""

    @property
    def data(self) -> Timeline:
        """Its timeline."""
        ...

    @property
    def files(self) -> FileSizes:
        """The files of completed actions; some may be gone since."""
        ...


@dataclass(frozen=True)
class GroupKeys:
    """Record keys of one file group.

    Attributes:
        partition: partition path, empty for an unpartitioned table.
        file_id: the file group.
        instant: the instant that its rows are said to be of.
        live: keys that have a row there; of an action, those that it may have added.
        dead: keys that have none, of those that the action wrote or that were there before.
        indexed: keys of which the record index has this file group already.
    """

    partition: str
    file_id: str
    instant: str
    live: Texts
    dead: Texts
    indexed: Texts = field(default_factory=lambda: pa.chunked_array([], pa.string()))

    @property
    def added(self) -> Texts:
        """The live keys of which the record index may not have this file group."""
        return without(self.live, self.indexed)


@dataclass(frozen=True)
class KeysSince:
    """The keys by which a file group differs from an earlier state of the table.

    Attributes:
        keys: keys of the records that were logged since, live and dead; if `is_whole`, all live keys and no dead ones.
        is_whole: whether the file group has more than new logs, such as another base file.
    """

    keys: GroupKeys
    is_whole: bool


class StoredKeys(Protocol):
    """Reads the record keys in data files.

    Its methods raise `CorruptFileError` or `UnsupportedTable` if a file cannot be read, `StorageError` if it cannot be
    opened at present.
    """

    def live(self, storage: Storage, now: ListedTable) -> Iterator[GroupKeys]:
        """Yield the keys of each file group of the table."""
        ...

    def since(self, storage: Storage, before: ListedTable, now: ListedTable) -> Iterator[KeysSince]:
        """Yield the keys of each file group whose newest slice has other files than before."""
        ...

    def changed(self, storage: Storage, data: Timeline, action: Instant, commit: CommitMetadata) -> Iterator[GroupKeys]:
        """Yield what a write changes: keys of each file group that it writes to, or replaces.

        Args:
            storage: the table.
            data: its timeline, on which the write is not completed.
            action: the running write.
            commit: content of its completed file.
        """
        ...
