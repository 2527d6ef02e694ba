"""Find the values of a column in data files, for secondary indexes of the metadata table.

See docs/format/07-index-and-metadata.md, "Secondary index". As in Hudi, the file slices that a write changes are read
before and after it: only the former value of a row tells which entry is to be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.index.changed_slices import changed_slices, listed_entries, slices_of
from streaming_lsm.merge.table_rule import table_rule
from streaming_lsm.metadata.changed_keys import ListedTable
from streaming_lsm.metadata.changed_values import RowValues
from streaming_lsm.query.queries import Queries
from streaming_lsm.query.slices.slice_reader import SliceReader
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH, load_properties
from streaming_lsm.timeline.timeline import Timeline

_LAST = "9" * 17
"""A completion time after all others."""
INDEXED_TYPES = (pa.string(), pa.int32(), pa.int64())
"""Types of columns whose values Hudi writes as these texts."""


class TableValues:
    """Reads the values of columns of tables; see `streaming_lsm.metadata.changed_values.StoredValues`."""

    def live(self, storage: Storage, now: ListedTable, column: str) -> Iterator[RowValues]:
        """Yield the rows of each file group."""
        state = _State.of(storage, now.data, column)
        for partition in sorted(now.files):
            for found in state.view.slices_in(partition, listed_entries(now.files, partition)):
                yield state.rows((partition, found.file_id), found)

    def since(self, storage: Storage, before: ListedTable, now: ListedTable, column: str) -> Iterator[RowValues]:
        """Yield all rows of each file group whose newest slice has other files than before."""
        state = _State.of(storage, now.data, column)
        view = _State.of(storage, before.data, column).view
        for partition, file_id, _, new in changed_slices(view, before.files, state.view, now.files):
            yield state.rows((partition, file_id), new)

    def changed(
        self, storage: Storage, data: Timeline, action: Instant, commit: CommitMetadata, column: str
    ) -> Iterator[tuple[RowValues, RowValues]]:
        """Yield the rows before and after a write, of each file group that it writes to, or replaces."""
        completed = action.completed_at(_LAST)
        before = _State.of(storage, data, column)
        after = _State.of(storage, data.with_latest(completed, {completed: commit}), column)
        groups = commit.file_groups | commit.replaced_groups
        for partition, file_id, old, new in slices_of(storage, groups, before.view, after.view):
            yield before.rows((partition, file_id), old), after.rows((partition, file_id), new)


@dataclass(frozen=True)
class _State:
    """The table as of a timeline; `reader` reads the record keys and a column of a slice."""

    view: FileSystemView
    reader: SliceReader | None
    column: str
    is_copy_on_write: bool

    @staticmethod
    def of(storage: Storage, timeline: Timeline, column: str) -> _State:
        table = TableConfig.from_properties(load_properties(storage), f"{storage.uri}/{PROPERTIES_PATH}")
        queries = Queries(storage, table, table_rule(table), map, 1)
        schema = queries.schema_at(timeline)
        kind = schema.field(column).type if column in schema.names else None
        if schema.names and kind not in INDEXED_TYPES:
            raise UnsupportedTable(
                f"column {column!r} is {kind or 'not in the table'}; texts and whole numbers are indexed"
            )
        reader = queries.column_reader(timeline, (column,)) if schema.names else None
        return _State(queries.view(timeline), reader, column, table.is_copy_on_write)

    def rows(self, group: tuple[str, str], found: FileSlice | None) -> RowValues:
        """Read the rows of a slice after the merge."""
        none: Any = pa.array([], pa.string())
        if found is None or self.reader is None:
            return RowValues(group, none, none)
        found = found.without_kept() if self.is_copy_on_write else found
        self.reader.check([found])
        keys: list[Any] = [none]
        values: list[Any] = [none]
        for batch in self.reader.read(found):
            keys.append(batch.column(RECORD_KEY))
            values.append(batch.column(self.column).cast(pa.string()))
        return RowValues(group, pa.concat_arrays(keys), pa.concat_arrays(values))
