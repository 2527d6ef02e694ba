"""Find the values of a column in data files, for secondary indexes of the metadata table.

See docs/format/07-index-and-metadata.md, "Secondary index". As in Hudi, the file slices that a write changes are read
before and after it: only the former value of a row tells which entry is to be deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.index.changed_slices import changed_slices, listed_entries
from streaming_lsm.merge.table_rule import table_rule
from streaming_lsm.metadata.changed_keys import FileSizes
from streaming_lsm.metadata.changed_values import RowValues
from streaming_lsm.query.queries import Queries
from streaming_lsm.query.slices.slice_reader import SliceReader
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.base import FileEntry, Storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH, load_properties
from streaming_lsm.timeline.timeline import Timeline

_LAST = "9" * 17
"""A completion time after all others."""
INDEXED_TYPES = (pa.string(), pa.int32(), pa.int64())
"""Types of columns whose values Hudi writes as these texts."""


class TableValues:
    """Reads the values of columns of tables; see `streaming_lsm.metadata.changed_values.StoredValues`."""

    def live(self, storage: Storage, data: Timeline, files: FileSizes, column: str) -> Iterator[RowValues]:
        """Yield the rows of each file group."""
        state = _State.of(storage, data, column)
        for partition in sorted(files):
            for found in state.view.slices_in(partition, listed_entries(files, partition)):
                yield state.rows((partition, found.file_id), found)

    def since(
        self,
        storage: Storage,
        before: Timeline,
        old_files: FileSizes,
        after: Timeline,
        new_files: FileSizes,
        column: str,
    ) -> Iterator[RowValues]:
        """Yield all rows of each file group whose newest slice has other files than before."""
        state = _State.of(storage, after, column)
        view = _State.of(storage, before, column).view
        for partition, file_id, _, now in changed_slices(view, old_files, state.view, new_files):
            yield state.rows((partition, file_id), now)

    def changed(
        self, storage: Storage, data: Timeline, action: Instant, commit: CommitMetadata, column: str
    ) -> Iterator[tuple[RowValues, RowValues]]:
        """Yield the rows before and after a write, of each file group that it writes to, or replaces."""
        completed = action.completed_at(_LAST)
        before = _State.of(storage, data, column)
        after = _State.of(storage, data.with_latest(completed, {completed: commit}), column)
        changed: dict[str, set[str]] = defaultdict(set)
        for stat in commit.stats:
            changed[stat.partition_path].add(stat.file_id)
        for partition, file_ids in (commit.replaced or {}).items():
            changed[partition].update(file_ids)
        for partition in sorted(changed):
            entries = _files_of(storage, partition, changed[partition])
            old = {one.file_id: one for one in before.view.slices_in(partition, entries)}
            new = {one.file_id: one for one in after.view.slices_in(partition, entries)}
            for file_id in sorted(changed[partition]):
                group = partition, file_id
                yield before.rows(group, old.get(file_id)), after.rows(group, new.get(file_id))


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


def _files_of(storage: Storage, partition: str, file_ids: Collection[str]) -> list[FileEntry]:
    """List the data files of some file groups of a partition."""
    parsed = ((entry, parse_file_name(entry.name)) for entry in storage.list(partition) if not entry.is_dir)
    return [entry for entry, name in parsed if name is not None and name.file_id in file_ids]
