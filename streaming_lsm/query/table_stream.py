"""Read a table as a stream: the rows or changes that its writes made, from one completion time to the next.

A position is the completion time of the last write that was read; writes are completed in the order of these times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from streaming_lsm.arrow.nullable import nullable_schema
from streaming_lsm.errors import ReadOvertaken, SchemaError
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.query.cdc.change_reader import BEFORE, ChangeReader, GroupChanges
from streaming_lsm.query.queries import Queries, QueryOptions
from streaming_lsm.query.scan import Scan
from streaming_lsm.timeline.action_kind import COMPACTIONS
from streaming_lsm.timeline.instant import FLAT
from streaming_lsm.timeline.timeline import Timeline

FIRST = "000"
"""The position before all writes."""


@dataclass(frozen=True)
class SlicePart:
    """The rows of one file slice; picklable.

    Attributes:
        scan: the scan, without its slices.
        file_slice: one of its slices.
    """

    scan: Scan
    file_slice: FileSlice

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; raises as `SliceReader.blocks`."""
        return self.scan.read_slice(self.file_slice)


@dataclass(frozen=True)
class ChangesPart:
    """The changes of one file group by one write; picklable.

    Attributes:
        reader: reads the changes.
        changes: what to read.
    """

    reader: ChangeReader
    changes: GroupChanges

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes; raises as `ChangeReader.read`."""
        return self.reader.read(self.changes)


StreamPart = SlicePart | ChangesPart


@dataclass(frozen=True)
class TableStream:
    """Plans the batches of a stream; each call loads the timeline again, if it has changed.

    Attributes:
        queries: plans the queries of the table.
        schema: the columns of the stream, each nullable; the same for as long as it runs.
        is_cdc: whether the stream has changes, instead of the newest row of each key.
    """

    queries: Queries
    schema: pa.Schema
    is_cdc: bool

    def latest(self) -> str:
        """Return the position of the newest write that no other can come before."""
        return _latest(self.queries.timeline_at(None))

    def next(self, start: str, most: int) -> str:
        """Return the position after so many writes from `start` on, or the latest one; `most` is 0 for no limit.

        Rows are read as of a position, which therefore is one whose state was not cleaned.
        """
        timeline = self.queries.timeline_at(None)
        latest = _latest(timeline)
        if not most or latest <= start:
            return max(start, latest)
        writes = timeline.completed_writes if start > timeline.first else timeline.every_write
        times = sorted(time for write in writes if start < (time := write.completed or "") <= latest)[most - 1 :]
        kept = 0 if self.is_cdc else bisect_left(times, True, key=partial(_is_kept, timeline))
        return next(iter(times[kept:]), latest)

    def check_read(self, position: str) -> None:
        """Check that the write at a position, up to which was read, is still there.

        Raises:
            ReadOvertaken: a restore or a rollback undid it, and with it rows that were read.
        """
        timeline = self.queries.timeline_at(None)
        if position == FIRST or any(write.completed == position for write in timeline.completed_writes):
            return
        if any(write.completed == position for write in timeline.every_write):
            return
        raise ReadOvertaken(
            f"the stream of {self.queries.storage.uri} has read the write that was completed at {position}, and it is "
            "on the timeline no more: a restore or a rollback undid it, and what followed. Begin a new checkpoint, "
            "such as with hoodie.datasource.streaming.startOffset=snapshot, and replace what was derived from the rows"
        )

    def parts(self, start: str, end: str) -> list[StreamPart]:
        """Plan the rows, or the changes, by the writes completed after `start`, up to `end`.

        Raises:
            ReadOvertaken: a clean deleted files that are needed.
            SchemaError: a column of the stream is not in the table any more, or has another type.
        """
        if self.is_cdc:
            reader = self._images()
            return [ChangesPart(reader, part) for part in self.queries.changes(start, end).parts()]
        return self._rows(self.queries.incremental(QueryOptions(self.schema.names), start, end))

    def snapshot(self, end: str) -> list[StreamPart]:
        """Plan all rows as of `end`, as inserts if the stream has changes; raises as `parts`."""
        if not self.is_cdc:
            return self._rows(self.queries.state(QueryOptions(self.schema.names), end))
        scan = self.queries.state(QueryOptions(meta=True), end)
        scan.check()
        reader = self._images()
        visible = scan.reader.visible
        changes = (GroupChanges(end, after=found, visible_after=visible) for found in scan.slices)
        return [ChangesPart(reader, part) for part in changes]

    def _rows(self, scan: Scan) -> list[StreamPart]:
        scan.check()
        self._check(scan.schema)
        bare = replace(scan, slices=())
        return [SlicePart(bare, found) for found in scan.slices]

    def _images(self) -> ChangeReader:
        """Return a reader of changes with the columns of the stream, which are those of the table when it began.

        They are looked for among those of now: a batch may end before a write that added or renamed one.
        """
        timeline = self.queries.timeline_at(None)
        found = self.queries.change_reader(timeline, timeline).of_columns(
            [field.name for field in self.schema.field(BEFORE).type]
        )
        self._check(found.schema)
        return found

    def _check(self, schema: pa.Schema) -> None:
        found = nullable_schema(schema)
        for field in self.schema:
            if found.field(field.name).type != field.type:
                raise SchemaError(
                    f"column {field.name!r} of {self.queries.storage.uri} has type {found.field(field.name).type} now, "
                    f"and the stream has {field.type}: start the query again, which reads on where it stopped"
                )


def _latest(timeline: Timeline) -> str:
    pending = [
        found.requested for found in timeline.whole.pending if found.is_write and found.action not in COMPACTIONS
    ]
    # In layout 1 the requested time is the completion time, and a pending write takes its place when it completes.
    bound = min(pending, default="~") if timeline.layout == FLAT else "~"
    times = (write.completed or "" for write in timeline.completed_writes or timeline.every_write)
    return max((time for time in times if time < bound), default=FIRST)


def _is_kept(timeline: Timeline, time: str) -> bool:
    """Return whether the state of a completion time can be read; that of a later one can be, too."""
    try:
        timeline.check_retained(time, time)
    except ReadOvertaken:
        return False
    return True
