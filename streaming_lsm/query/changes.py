"""Run CDC queries: the inserts, updates and deletes of every write, with the rows before and after.

A change log with both images is returned as recorded (docs/format/03-native-logs.md, "CDC log schema"). Without one,
each file group that the write touched is read as of just before and just after the write, and the rows are compared; a
written row that lost the merge is not a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from streaming_lsm.arrow.columns import Column, pc
from streaming_lsm.arrow.required_fields import cast_column
from streaming_lsm.errors import ConfigError
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView, LogFile
from streaming_lsm.file_group.lost_files import check_files, check_group
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.query.change_log import read_change_log
from streaming_lsm.query.log_kinds import check_kinds
from streaming_lsm.query.slice_reader import SliceReader
from streaming_lsm.schema import COMMIT_TIME, RECORD_KEY
from streaming_lsm.storage.base import Listing
from streaming_lsm.storage.failures import named_failures
from streaming_lsm.timeline.instant import FLAT, Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.lost_completion import check_named_writes

OP, TIME, BEFORE, AFTER = "op", "ts_ms", "before", "after"
_BEFORE, _AFTER = "before a write", "after it"
_Slices = dict[str, dict[str, FileSlice]]
_States = dict[str, tuple[Timeline, _Slices]]
"""The timelines just before and just after a write, with the slices listed so far."""
_REWRITES = ("COMPACT", "LOG_COMPACT", "CLUSTER")
"""Operations that rewrite rows without changing them."""


@dataclass(frozen=True)
class Changes:
    """A CDC query; nothing is read until its batches are.

    Attributes:
        timeline: the table's timeline.
        until: the timeline as of the end of the range.
        since: beginning of the range, excluded.
        commits: requested times of the queried writes, ordered by completion.
        table_schema: columns of a data file, meta columns included.
        reader: reads a slice with all these columns.
        view: returns the file system view of a timeline.
    """

    timeline: Timeline
    until: Timeline
    since: str
    commits: tuple[str, ...]
    table_schema: pa.Schema
    reader: SliceReader
    view: Callable[[Timeline], FileSystemView]

    @property
    def schema(self) -> pa.Schema:
        """``op`` (i, u, d), ``ts_ms`` (the write's instant as text), and the row ``before`` and ``after`` as structs.

        Meta columns are null in images from change logs, which do not record them.
        """
        image = pa.struct([field.with_nullable(True) for field in self.table_schema])
        return pa.schema([(OP, pa.string()), (TIME, pa.string()), (BEFORE, image), (AFTER, image)])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes write by write; the rows of one file group are in memory at a time.

        Raises:
            ConfigError: a write is archived, or a clean has deleted files of the state before or after it.
            CorruptFileError: a committed file, or the completed instant file of a write, is missing.
            UnsupportedTable: a log has blocks of an unsupported kind.
        """
        with named_failures():
            writes = self._writes()
            self._check_files(writes)
            self._check_kinds()
            for write in writes:
                states: _States = {}
                commit = self.timeline.read_commit(write)
                if commit.operation_type not in _REWRITES and not commit.compacted:
                    yield from self._of_write(write, commit, states)

    def to_arrow(self) -> pa.Table:
        """Read the whole result."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def _check_files(self, writes: Iterable[Instant]) -> None:
        """Check for missing files and writes; each state is checked again for the file groups that are read from it."""
        view = self.view(self.until)
        listings = self._listings.items()
        check_files(view, (found for partition, entries in listings for found in view.slices_in(partition, entries)))
        check_named_writes(self.timeline, writes, self.since)

    def _check_kinds(self) -> None:
        """Check the block types of all visible logs before any change is yielded."""
        view = self.view(self.timeline)
        files = (file for entries in self._listings.values() for file in view.visible_files(entries))
        check_kinds(self.reader.storage, (file for file in files if isinstance(file, LogFile)))

    def _writes(self) -> list[Instant]:
        """Find the queried writes on the active timeline and in the history; layout 1 keeps no write stats there."""
        found = {write.requested: write for write in self.timeline.completed_writes}
        archived = [time for time in self.commits if time not in found]
        if archived and self.timeline.layout == FLAT:
            raise ConfigError(
                f"the write at {archived[-1]} is archived, and its changes cannot be queried: begin at its completion "
                "time or later"
            )
        found |= {time: write for time in archived if (write := self.timeline.history.write(time)) is not None}
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
        # A base row of an older commit is inserted again if a smaller row replaces an unordered delete.
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
        """Convert rows to structs, null where not `known`."""
        columns = [column.combine_chunks() for column in rows.columns]
        mask = None if known is None else pc.invert(known).combine_chunks()
        return pa.StructArray.from_arrays(columns, fields=list(self.schema.field(BEFORE).type), mask=mask)

    def _batches(self, write: Instant, ops: Column, before: Column, after: Column) -> list[pa.RecordBatch]:
        times = pa.repeat(write.requested, len(ops))
        return pa.table([ops, times, before, after], schema=self.schema).to_batches()

    def _rows(self, timeline: Timeline, slices: _Slices, group: tuple[str, str]) -> pa.Table:
        """Read the rows of one file group as of a timeline.

        Args:
            slices: cache of the timeline's slices, by partition and file id.
        """
        partition, file_id = group
        if partition not in slices:
            found = self.view(timeline).slices_in(partition, self._listings.get(partition, []))
            slices[partition] = {file_slice.file_id: file_slice for file_slice in found}
        reader = self.reader
        if reader.visible is not None:
            reader = replace(reader, visible=timeline.visible())
        there = slices[partition].get(file_id)
        check_group(self.view(timeline), group, there)
        return pa.Table.from_batches([] if there is None else reader.read(there), schema=reader.output_schema)

    @cached_property
    def _listings(self) -> Mapping[str, Listing]:
        """The listings of all partitions, taken once: the slices of every timeline are derived from them."""
        return self.view(self.timeline).listings()

    def _recorded(self, path: str) -> pa.RecordBatch | None:
        """Read the changes of a change log; None if it does not record both images."""
        batches = read_change_log(self.reader.storage, path)
        if any(not {OP, TIME, BEFORE, AFTER} <= set(batch.schema.names) for batch in batches):
            return None
        if not batches:  # a native log without rows: nothing changed
            return pa.RecordBatch.from_pylist([], schema=self.schema)
        rows = pa.Table.from_batches(batches)
        images = [self._widened(rows.column(name).combine_chunks()) for name in (BEFORE, AFTER)]
        table = pa.table([rows.column(OP), rows.column(TIME), *images], schema=self.schema)
        columns = [column.combine_chunks() for column in table.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _widened(self, image: Any) -> pa.StructArray:
        """Cast an image of a change log to the table's current columns; those it lacks are null."""
        has = {field.name: place for place, field in enumerate(image.type)}
        fields = list(self.schema.field(BEFORE).type)
        columns: list[Any] = [
            cast_column(image.field(has[field.name]), field.type)
            if field.name in has
            else pa.nulls(len(image), field.type)
            for field in fields
        ]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=pc.is_null(image))
