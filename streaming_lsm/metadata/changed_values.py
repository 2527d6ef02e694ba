"""Say which values of a column the rows of a table have, for secondary indexes of its metadata table.

They are read by rooms that read data files; see `streaming_lsm.index.stored_values`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.metadata.changed_keys import ListedTable
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline


@dataclass(frozen=True)
class RowValues:
    """Values of a column in rows of one file group.

    Attributes:
        group: partition path of the table, and file id.
        keys: record keys (n,), without nulls.
        values: the values as texts (n,), null where a row has none.
    """

    group: tuple[str, str]
    keys: pa.StringArray
    values: pa.StringArray


class StoredValues(Protocol):
    """Reads the values of a column in data files.

    Its methods raise `CorruptFileError` or `UnsupportedTable` if a file cannot be read, or the table has no such column
    of texts or whole numbers.
    """

    def live(self, storage: Storage, now: ListedTable, column: str) -> Iterator[RowValues]:
        """Yield the rows of each file group of the table."""
        ...

    def since(self, storage: Storage, before: ListedTable, now: ListedTable, column: str) -> Iterator[RowValues]:
        """Yield all rows of each file group whose newest slice has other files than before."""
        ...

    def changed(
        self, storage: Storage, data: Timeline, action: Instant, commit: CommitMetadata, column: str
    ) -> Iterator[tuple[RowValues, RowValues]]:
        """Yield the rows before and after a write, of each file group that it writes to, or replaces.

        Args:
            storage: the table.
            data: its timeline, on which the write is not completed.
            action: the running write.
            commit: content of its completed file.
            column: the column.
        """
        ...
