"""Write one task's part of a batch: collect, sort, dedup, write, report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.errors import Fenced, StorageError
from streaming_lsm.format.actions.commit import WriteStat, paths_of
from streaming_lsm.format.checksum_file import checksum_path
from streaming_lsm.format.table.file_names import BucketId, WriteToken
from streaming_lsm.lock.heartbeat import check_still_inflight
from streaming_lsm.storage.failures import no_room
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.write.buffer.dedup import FileGroupChanges
from streaming_lsm.write.buffer.record_buffer import RecordBuffer
from streaming_lsm.write.files.file_group_writer import FileGroupWriter
from streaming_lsm.write.files.merge_handle import MergeHandle
from streaming_lsm.write.intake.dead_letters import DeadLetterBox
from streaming_lsm.write.intake.tombstones import LastEvents
from streaming_lsm.write.numbers import TaskNumbers, Timed
from streaming_lsm.write.plan import REPLACING, WritePlan
from streaming_lsm.write.stray_rows import StrayRows


@dataclass(frozen=True)
class WriteResult:
    """Reports the files that one task, or a whole batch, has written.

    Attributes:
        stats: one per file.
        last_events: the last event of each topic partition, as each task saw it.
        numbers: what was counted and timed.
        unordered_deletes: whether some events were deletes without an ordering value.
        left_out: whether a task has written nothing, as its rows belong to too many file groups.
        groups: the file groups of the rows that the task has received; those of a whole batch are not kept.
        partitions: paths of the partitions of these rows, deletes among them, if the write replaces file groups.
        stray_rows: whether a row was written to another partition than its partition columns name.
    """

    stats: tuple[WriteStat, ...]
    last_events: tuple[LastEvents, ...] = ()
    numbers: TaskNumbers = field(default_factory=TaskNumbers)
    unordered_deletes: bool = False
    left_out: bool = False
    groups: tuple[BucketId, ...] = ()
    partitions: frozenset[str] = frozenset()
    stray_rows: bool = False

    @staticmethod
    def joined(parts: Iterable[WriteResult]) -> WriteResult:
        """Join the results of several tasks."""
        found = list(parts)
        stats = tuple(stat for part in found for stat in part.stats)
        events = tuple(events for part in found for events in part.last_events)
        numbers = TaskNumbers.joined(part.numbers for part in found)
        unordered_deletes, left_out = any(p.unordered_deletes for p in found), any(p.left_out for p in found)
        partitions = frozenset[str]().union(*(part.partitions for part in found))
        strays = any(part.stray_rows for part in found)
        return WriteResult(
            stats, events, numbers, unordered_deletes, left_out, partitions=partitions, stray_rows=strays
        )

    @property
    def file_groups(self) -> int:
        """Number of file groups that have new files."""
        return len({(stat.partition_path, stat.file_id) for stat in self.stats})


def write_partition(
    plan: WritePlan, batches: Iterable[pa.RecordBatch], token: WriteToken, most_groups: int | None = None
) -> WriteResult:
    """Write rows of some buckets.

    Args:
        plan: the batch being written.
        batches: rows of any number of buckets, in the table's types.
        token: the attempt of the task.
        most_groups: number of file groups; nothing is written if the rows belong to more.

    Raises:
        RecordError, SchemaError: see `RecordBuffer.append`; nothing was written.
        StorageError: a disk is full; what was written is removed.
        Fenced: the instant was completed or rolled back meanwhile; the files are removed.
    """
    collected = collect(plan, batches, token)
    if most_groups is not None and len(collected.buffer.groups) > most_groups:
        collected.buffer.close()
        return WriteResult((), left_out=True)
    return write_collected(plan, collected, token)


@dataclass(frozen=True)
class CollectedRows:
    """Holds the checked rows of one task, and its unreadable events.

    Attributes:
        buffer: the rows.
        letters: the events that the table cannot take.
        receive_seconds: time spent waiting for input.
        check_seconds: time spent checking and holding it, and spilling what does not fit.
    """

    buffer: RecordBuffer
    letters: DeadLetterBox
    receive_seconds: float = 0.0
    check_seconds: float = 0.0


def collect(plan: WritePlan, batches: Iterable[pa.RecordBatch], token: WriteToken) -> CollectedRows:
    """Collect and check rows: the first half of `write_partition`. Nothing is written."""
    buffer, letters, received = RecordBuffer(plan), DeadLetterBox(plan, token), Timed(batches)
    try:
        begun = perf_counter()
        for batch in received:
            buffer.append(letters.divert(batch))
        spent = perf_counter() - begun
    except BaseException:
        buffer.close()
        raise
    return CollectedRows(buffer, letters, received.seconds, spent - received.seconds)


class _IndexedKeys:
    """Tells which of the keys that are written to a file group the record index locates there already.

    Not all keys that it locates there are written: a late event of a key that does not move is left out.
    """

    def __init__(self, indexed: pa.StringArray | None) -> None:
        """Begin with the keys that the index locates in the file group; None if none are known."""
        self._indexed: Any = indexed
        self._written: list[pa.StringArray] = []

    def watched(self, blocks: Iterable[FileGroupChanges]) -> Iterator[FileGroupChanges]:
        """Pass blocks on, after a look at their keys."""
        for block in blocks:
            if self._indexed is not None:
                keys: Any = block.keys
                self._written.append(keys.filter(pc.is_in(keys, value_set=self._indexed)))
            yield block

    @property
    def written(self) -> pa.StringArray | None:
        """The keys, of the blocks so far; None if none are known."""
        return pa.concat_arrays(self._written) if self._written else None


def _written(buffer: RecordBuffer, writer: _Writers, strays: StrayRows) -> Iterator[WriteStat]:
    """Write what a buffer holds, file group by file group."""
    for group, blocks in buffer.drain():
        indexed = _IndexedKeys(buffer.indexed_keys(group))
        for stat in writer.write(group, indexed.watched(strays.watched(blocks))):
            yield replace(stat, indexed_keys=indexed.written)


def write_collected(plan: WritePlan, collected: CollectedRows, token: WriteToken) -> WriteResult:
    """Write collected rows: the second half of `write_partition`."""
    buffer = collected.buffer
    writer, strays = _Writers.of(plan, token, buffer), StrayRows(plan)
    begun = perf_counter()
    try:
        stats = tuple(_written(buffer, writer, strays))
        collected.letters.post()
        if not plan.sole:
            check_still_inflight(plan.storage, plan.instant)
    except BaseException as error:
        with suppress(OSError):
            writer.discard()
        if isinstance(error, OSError) and no_room(error):
            raise StorageError(
                f"no room in {plan.storage.uri} for a file of instant {plan.instant} ({error.strerror}: "
                f"{error.filename}): free some; the batch is not in the table and can be written again"
            ) from error
        raise
    finally:
        buffer.close()
    spent = perf_counter() - begun
    numbers = _numbers(collected, spent)
    groups = buffer.groups
    partitions = frozenset(partition for partition, _ in groups) if plan.operation in REPLACING else frozenset[str]()
    events, unordered_deletes = (buffer.last_events,), buffer.unordered_deletes
    return WriteResult(
        stats,
        events,
        numbers,
        unordered_deletes,
        groups=groups,
        partitions=partitions,
        stray_rows=strays.are_there,
    )


def discard_late(plan: WritePlan, parts: Sequence[WriteResult]) -> None:
    """Delete the files of tasks of a `sole` plan, if the instant is another writer's by now.

    That writer may have looked for files before these were there.
    """
    paths = [path for part in parts for path in paths_of(part.stats)]
    with suppress(OSError):
        try:
            if paths:
                check_still_inflight(plan.storage, plan.instant)
        except Fenced:
            committed = _committed(plan)
            late = sorted(path for path in paths if path not in committed)
            plan.storage.delete_files([*late, *(() if plan.config.has_native_logs else map(checksum_path, late))])


def _committed(plan: WritePlan) -> frozenset[str]:
    """Return the files of a write that are committed all the same: a repair completes what was decided, otherwise."""
    timeline = Timeline.load(plan.storage, plan.config.timeline_layout)
    done = (write for write in timeline.completed_writes if write.requested == plan.instant)
    return frozenset(path for write in done for path in paths_of(timeline.read_commit(write).stats))


@dataclass(frozen=True)
class _Writers:
    """Writes each file group by the writer for it: rows are merged with its base file, or appended.

    Attributes:
        plan: the batch being written.
        appends, merges: the writers of one task.
    """

    plan: WritePlan
    appends: FileGroupWriter
    merges: MergeHandle

    @staticmethod
    def of(plan: WritePlan, token: WriteToken, buffer: RecordBuffer) -> _Writers:
        row_group = min(plan.files.row_group_bytes, buffer.budget.row_group)
        plan = replace(plan, files=replace(plan.files, row_group_bytes=row_group))
        return _Writers(plan, FileGroupWriter(plan, token, buffer.meter), MergeHandle(plan, token, buffer.meter))

    def write(self, group: BucketId, blocks: Iterable[FileGroupChanges]) -> Iterator[WriteStat]:
        """Write the changes of one file group; see `FileGroupWriter.write` and `MergeHandle.write`."""
        merges = self.plan.config.is_copy_on_write or group in self.plan.bases
        return (self.merges if merges else self.appends).write(group, blocks)

    def discard(self) -> None:
        """Delete all files written so far, as the task has failed."""
        try:
            self.appends.discard()
        finally:
            self.merges.discard()


def _numbers(collected: CollectedRows, write_seconds: float) -> TaskNumbers:
    buffer = collected.buffer
    return TaskNumbers(
        rows_in=buffer.rows_in,
        rows_kept=buffer.rows_kept,
        rows_deleted=buffer.rows_deleted,
        rows_added=buffer.rows_added,
        rows_replaced=buffer.rows_in + buffer.rows_added - buffer.rows_kept - buffer.rows_deleted,
        spilled_bytes=buffer.spilled_bytes,
        peak_bytes=buffer.meter.peak,
        dead_letters=collected.letters.count,
        receive_ms=round(1000 * collected.receive_seconds),
        sort_ms=round(1000 * (collected.check_seconds + buffer.drain_seconds)),
        write_ms=round(1000 * (write_seconds - buffer.drain_seconds)),
    )
