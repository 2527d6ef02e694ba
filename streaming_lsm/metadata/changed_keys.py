"""Say which record keys are in the files of a table, for the partition ``record_index`` of its metadata table.

They are read by rooms that read data files; see `streaming_lsm.index.stored_keys`. A key is *live* if the file
slice has a row of it after the merge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

Texts: TypeAlias = "pa.ChunkedArray[pa.StringScalar]"
"""Record keys, without nulls."""
FileSizes = Mapping[str, Mapping[str, int]]
"""Size in bytes by file name, by partition path."""


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
        if not len(self.live) or not len(self.indexed):
            return self.live
        return self.live.filter(pc.invert(pc.is_in(self.live, value_set=self.indexed.combine_chunks())))


@dataclass(frozen=True)
class KeysSince:
    """What is new in a file group.

    Attributes:
        keys: `GroupKeys.live` and `GroupKeys.dead` of the records that were logged since.
        is_whole: whether `GroupKeys.live` is all its keys instead; those that it had before are not told then.
    """

    keys: GroupKeys
    is_whole: bool


class StoredKeys(Protocol):
    """Reads the record keys in data files.

    Its methods raise `CorruptFileError` or `UnsupportedTable` if a file cannot be read, `StorageError` if it cannot be
    opened at present.
    """

    def live(self, storage: Storage, data: Timeline, files: FileSizes) -> Iterator[GroupKeys]:
        """Yield the keys of each file group.

        Args:
            storage: the table.
            data: its timeline.
            files: size in bytes by file name, by partition path: the files of completed actions.
        """
        ...

    def since(
        self,
        storage: Storage,
        before: Timeline,
        old_files: FileSizes,
        after: Timeline,
        new_files: FileSizes,
    ) -> Iterator[KeysSince]:
        """Yield the keys of each file group whose newest slice has other files than before.

        Args:
            storage: the table.
            before: its timeline before.
            old_files: the files of actions that were completed before, as in `live`; some may be gone.
            after: its timeline now.
            new_files: the files of actions that are completed now.
        """
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
