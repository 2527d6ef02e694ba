"""A change query: what every write did to every row (docs/format/03-native-logs.md, "CDC log schema").

What a write has recorded in change logs with both images is returned as it is. Otherwise the rows of each file group
that the write touched are compared with those before it: nothing needs to be recorded for that, and a row that loses
against a newer one is no change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from streaming_lsm.arrow.columns import Column, pc
from streaming_lsm.errors import ConfigError
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView, LogFile
from streaming_lsm.file_group.lost_files import check_group
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.read.change_log import read_change_log
from streaming_lsm.read.log_kinds import check_kinds
from streaming_lsm.read.slice_reader import SliceReader
from streaming_lsm.schema import COMMIT_TIME, RECORD_KEY
from streaming_lsm.storage.base import Listing
from streaming_lsm.storage.failures import named_failures
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

OP, TIME, BEFORE, AFTER = "op", "ts_ms", "before", "after"
_BEFORE, _AFTER = "before a write", "after it"
_Slices = dict[str, dict[str, FileSlice]]
_States = dict[str, tuple[Timeline, _Slices]]
"""A table just before a write and just after it, with the slices that were looked at."""
_REWRITES = ("COMPACT", "LOG_COMPACT", "CLUSTER")
"""Operations that move rows and change none."""


@dataclass(frozen=True)
class Changes:
    """A change query that has been described and not yet run.

    Attributes:
        timeline: the table's actions.
        commits: requested times of the writes to look at, in the order in which they took effect.
        table_schema: columns of a data file, meta columns included.
        reader: reads a slice with all of them.
        view: the files that a timeline makes visible.
    """

    timeline: Timeline
    commits: tuple[str, ...]
    table_schema: pa.Schema
    reader: SliceReader
    view: Callable[[Timeline], FileSystemView]

    @property
    def schema(self) -> pa.Schema:
        """``op`` (i, u, d), ``ts_ms`` (the write's instant as text), and the row before and after as structs.

        Images out of change logs have no meta columns: theirs are null.
        """
        image = pa.struct([field.with_nullable(True) for field in self.table_schema])
        return pa.schema([(OP, pa.string()), (TIME, pa.string()), (BEFORE, image), (AFTER, image)])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The changes, write by write; one file group is held at a time.

        Raises:
            ConfigError: a write is archived, or a clean has deleted what was there before it or after it.
            UnsupportedTable: a log has blocks of a kind that is not read.
        """
        with named_failures():
            writes = self._writes()
            self._check_kinds()
            for write in writes:
                states: _States = {}
                commit = self.timeline.read_commit(write)
                if commit.operation_type not in _REWRITES and not commit.compacted:
                    yield from self._of_write(write, commit, states)

    def to_arrow(self) -> pa.Table:
        """The whole result."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def _check_kinds(self) -> None:
        """Look at the blocks of all logs that a write may have to be compared by."""
        view = self.view(self.timeline)
        files = (file for entries in self._listings.values() for file in view.visible_files(entries))
        check_kinds(self.reader.storage, (file for file in files if isinstance(file, LogFile)))

    def _writes(self) -> list[Instant]:
        """The writes on the timeline; what an archived one did is not known any more."""
        found = {write.requested: write for write in self.timeline.completed_writes}
        archived = [time for time in self.commits if time not in found]
        if archived:
            raise ConfigError(
                f"the write at {archived[-1]} is archived, and its changes with it: begin when it was completed"
            )
        return [found[time] for time in self.commits]

    def _of_write(self, write: Instant, commit: CommitMetadata, states: _States) -> Iterator[pa.RecordBatch]:
        logs: dict[tuple[str, str], list[str]] = {}
        groups = dict.fromkeys((stat.partition_path, stat.file_id) for stat in commit.stats)
        for stat in commit.stats:
            logs.setdefault((stat.partition_path, stat.file_id), []).extend(path for path, _ in stat.cdc_files)
        for partition, file_ids in (commit.replaced or {}).items():
            groups.update(dict.fromkeys((partition, file_id) for file_id in file_ids))
        for group in groups:
            recorded = [self._recorded(path) for path in logs.get(group, ())]
            if recorded and all(batch is not None for batch in recorded):
                yield from (batch for batch in recorded if batch is not None)
            else:
                yield from self._compared(write, group, states)

    def _compared(self, write: Instant, group: tuple[str, str], states: _States) -> Iterator[pa.RecordBatch]:
        if not states:
            states |= {_BEFORE: (self.timeline.before(write), {}), _AFTER: (self.timeline.up_to(write), {})}
            for timeline, _ in states.values():
                self.timeline.check_retained(f"changes by {write.path}", timeline.until or "")
        before, after = (self._rows(*states[moment], group) for moment in (_BEFORE, _AFTER))
        # A row of the base file may also come back, when a smaller row takes the place of a delete without ordering.
        is_new = pc.invert(pc.is_in(after.column(RECORD_KEY), value_set=before.column(RECORD_KEY)))
        written = after.filter(pc.or_(is_new, pc.equal(after.column(COMMIT_TIME), write.requested)))
        place = pc.index_in(written.column(RECORD_KEY), value_set=before.column(RECORD_KEY))
        known = pc.is_valid(place)
        older = self._image(before.take(place), known)
        yield from self._batches(write, pc.if_else(known, "u", "i"), older, self._image(written))
        gone = before.filter(pc.invert(pc.is_in(before.column(RECORD_KEY), value_set=after.column(RECORD_KEY))))
        nothing = pa.nulls(len(gone), self.schema.field(AFTER).type)
        yield from self._batches(write, pa.repeat("d", len(gone)), self._image(gone), nothing)

    def _image(self, rows: pa.Table, known: Column | None = None) -> Column:
        """Rows as structs, null where not `known`."""
        columns = [column.combine_chunks() for column in rows.columns]
        mask = None if known is None else pc.invert(known).combine_chunks()
        return pa.StructArray.from_arrays(columns, fields=list(self.schema.field(BEFORE).type), mask=mask)

    def _batches(self, write: Instant, ops: Column, before: Column, after: Column) -> list[pa.RecordBatch]:
        times = pa.repeat(write.requested, len(ops))
        return pa.table([ops, times, before, after], schema=self.schema).to_batches()

    def _rows(self, timeline: Timeline, slices: _Slices, group: tuple[str, str]) -> pa.Table:
        """The rows of one file group as of a state of the table.

        Args:
            slices: those of the state, by partition and file id, as far as they were asked for.
        """
        partition, file_id = group
        if partition not in slices:
            found = self.view(timeline).slices_in(partition, self._listings.get(partition, []))
            slices[partition] = {file_slice.file_id: file_slice for file_slice in found}
        reader = self.reader
        if reader.visible is not None:
            reader = replace(reader, visible=timeline.visible())
        there = slices[partition].get(file_id)
        check_group(self.view(timeline), self.timeline, group, there)
        return pa.Table.from_batches([] if there is None else reader.read(there), schema=reader.output_schema)

    @cached_property
    def _listings(self) -> Mapping[str, Listing]:
        """What lies in the partitions: listed once, as every state of the table is chosen out of it."""
        return self.view(self.timeline).listings()

    def _recorded(self, path: str) -> pa.RecordBatch | None:
        """The changes of a change log; None when it does not have both images."""
        batches = read_change_log(self.reader.storage, path)
        if any(not {OP, TIME, BEFORE, AFTER} <= set(batch.schema.names) for batch in batches):
            return None
        rows = pa.Table.from_batches(batches)
        images = [self._widened(rows.column(name).combine_chunks()) for name in (BEFORE, AFTER)]
        table = pa.table([rows.column(OP), rows.column(TIME), *images], schema=self.schema)
        return table.combine_chunks().to_batches()[0] if len(table) else None

    def _widened(self, image: Any) -> pa.StructArray:
        """An image of a change log with the columns that the table has by now."""
        has = {field.name: place for place, field in enumerate(image.type)}
        fields = list(self.schema.field(BEFORE).type)
        columns = [
            pc.cast(image.field(has[field.name]), field.type) if field.name in has else pa.nulls(len(image), field.type)
            for field in fields
        ]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=pc.is_null(image))
