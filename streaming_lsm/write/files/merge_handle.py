"""Merge the changes of one batch into a new base file of each file group (copy on write).

The newest deletes are kept in delete logs beside it. See docs/format/06-services.md, "Kept deletes".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from streaming_lsm.arrow.columns import strings
from streaming_lsm.arrow.required_fields import cast_table
from streaming_lsm.file_group.data_file import BATCH_BYTES, BATCH_ROWS, DataFile, open_base
from streaming_lsm.file_group.file_system_view import BaseFile, FileSlice, LogFile
from streaming_lsm.file_group.slice_files import open_slice
from streaming_lsm.format.actions.commit import WriteStat, base_file_stat
from streaming_lsm.format.table.file_names import (
    BaseFileName,
    BucketId,
    LogFileName,
    LogKind,
    WriteToken,
    parse_file_name,
)
from streaming_lsm.keys.words import KeyWords, sort_keys
from streaming_lsm.merge.hash_merge import LogPart, fold_logs, merge_base
from streaming_lsm.merge.runs import Block, merge_runs
from streaming_lsm.merge.sorted_runs import SortedRun
from streaming_lsm.query.slices.key_order import in_key_order
from streaming_lsm.schema import RECORD_KEY, delete_log_avro, delete_log_schema, to_avro, with_meta
from streaming_lsm.write.buffer.budget import Budget, Meter
from streaming_lsm.write.buffer.dedup import FileGroupChanges
from streaming_lsm.write.files.base_file_writer import BaseFileWriter
from streaming_lsm.write.files.change_log_target import ChangeLogTarget
from streaming_lsm.write.files.change_log_writer import ChangeLogWriter
from streaming_lsm.write.files.change_rows import ChangeRows
from streaming_lsm.write.files.discarding import discard_files
from streaming_lsm.write.files.kept_deletes import KeptDeletesWriter, Retention
from streaming_lsm.write.files.native_log_writer import NativeLogTarget
from streaming_lsm.write.files.parquet import SequenceNumbers, block_with_meta
from streaming_lsm.write.files.prepare import prepare_data_file
from streaming_lsm.write.intake.control_columns import DELETE
from streaming_lsm.write.plan import WritePlan


class MergeHandle:
    """Writes the base files of one task: the rows of the base file before, changed by those of the batch."""

    def __init__(self, plan: WritePlan, token: WriteToken, meter: Meter | None = None) -> None:
        """Create a merge handle for the task attempt `token`; `meter` counts the memory of its files."""
        self._plan = plan
        self._token = token
        self._meter = Meter() if meter is None else meter
        # Base files are read in pieces as large as those in which the batch comes.
        self._read_bytes = min(BATCH_BYTES, Budget(plan.buffer_bytes).block)
        self._sequence = SequenceNumbers(plan.instant, token.task)
        self._file_schema = with_meta(plan.schema)
        self._avro_schema = to_avro(self._file_schema, plan.config.name)
        nullable = [field.with_nullable(True) for field in self._file_schema]
        self._base_schema = pa.schema(nullable)
        self._batch_schema = pa.schema([*nullable, pa.field(DELETE, pa.bool_())])
        self._delete_schema = delete_log_schema(self._file_schema, plan.rule.ordering_fields)
        self._retention = Retention.of(plan.instant, plan.retention_seconds, plan.config.timeline_zone)
        mode = plan.config.cdc_mode
        self._changes = None if mode is None else self._change_logs(mode)
        self._paths: list[str] = []

    def _change_logs(self, mode: str) -> ChangeLogTarget:
        plan = self._plan
        return ChangeLogTarget(
            storage=plan.storage,
            rows=ChangeRows(mode, plan.instant, plan.config.name, plan.schema, compares=not plan.rule.takes_winner),
            native=plan.config.has_native_logs,
            sorted_files=plan.config.is_lsm_tree,
            codec=plan.files.codec,
            spill_folder=plan.spill_folder,
            held_bytes=Budget(plan.buffer_bytes).block,
            file_names=plan.file_names,
        )

    def write(self, group: BucketId, blocks: Iterable[FileGroupChanges]) -> Iterator[WriteStat]:
        """Write the group's next base file, and the deletes and the change log beside it.

        There is none where there is no base file yet, and the batch has only deletes of which none is kept. Rows of
        the base file that the batch does not touch keep their meta columns (docs/format/05-merge.md, "Output").

        Args:
            group: partition path and bucket.
            blocks: what the batch does to it, ascending by record key.

        Raises:
            CorruptFileError: the base file is missing or damaged.
        """
        previous = self._plan.bases.get(group)
        with ExitStack() as files:
            merged = self._merged(group, previous, blocks, files)
            first, part = next(merged, None), 0
            while first is not None or (previous is not None and not part):
                found = merged if first is None else chain((first,), merged)
                yield from self._write(group, previous, found, files, part)
                # A group without a bucket ends before its rows do.
                first, part = next(merged, None), part + 1

    def discard(self) -> None:
        """Delete all files that this task wrote: a rollback that has already listed the markers would leave them."""
        discard_files(self._plan.storage, self._paths)

    def _write(
        self, group: BucketId, previous: BaseFile | None, merged: Iterable[Block], files: ExitStack, part: int
    ) -> Iterator[WriteStat]:
        plan, partition = self._plan, group[0]
        limit = plan.files.group_bytes if plan.may_be_split(group) else None
        name = BaseFileName(plan.file_id(group, part), str(self._token), plan.instant)
        base = BaseFileWriter(
            storage=plan.storage,
            instant=plan.instant,
            partition=partition,
            name=name,
            avro_schema=self._avro_schema,
            options=plan.files,
            detect_early=plan.detect_early,
            starts=plan.starts_group(group),
        )
        self._paths.append(base.path)
        files.enter_context(base)
        base.append(self._file_schema.empty_table())
        kept = None if self._retention is None else files.enter_context(self._kept_deletes(group, self._retention))
        changes = None if previous is None else self._change_log(group, previous, files)
        inserts = updates = deletes = 0
        # Counts the batch read, the rest of the previous one, and the gathered copy of their rows.
        reading = 0 if previous is None else 3 * self._read_bytes
        for block in merged:
            rows = cast_table(block.rows, self._file_schema)
            base.append(rows)
            held = 2 * base.buffered_bytes
            if changes is not None:
                changes.append(rows)
                held += self._read_bytes + 2 * changes.buffered_bytes
            self._meter.count("files", reading + held)
            inserts, updates, deletes = inserts + block.inserts, updates + block.updates, deletes + block.deletes
            if kept is not None and block.kept is not None:
                kept.append(block.kept)
            if limit is not None and base.size >= limit:
                break
        total_bytes = base.finish()
        self._meter.count("files", 0)
        self._meter.count("group", 0)
        stat = base_file_stat(
            partition,
            name,
            total_bytes=total_bytes,
            num_writes=base.rows,
            num_inserts=inserts,
            num_updates=updates,
            num_deletes=deletes,
            previous=None if previous is None else previous.name,
        )
        stat = replace(stat, ranges=base.ranges)
        yield stat if changes is None else replace(stat, cdc_files=((changes.path, changes.finish()),))
        if kept is not None:
            yield from kept.finish()

    def _change_log(self, group: BucketId, previous: BaseFile, files: ExitStack) -> ChangeLogWriter | None:
        """Create the change log of a file group; None unless the table captures changes.

        A new file group needs none: all its rows are inserts (docs/format/03-native-logs.md, "CDC log schema").
        """
        if self._changes is None:
            return None
        file_id = self._plan.file_id(group)
        self._paths.append(self._changes.path_of(group[0], file_id, self._token))
        return self._changes.create(group[0], file_id, self._token, previous, files)

    def _kept_deletes(self, group: BucketId, retention: Retention) -> KeptDeletesWriter:
        """Create the writer of the deletes that are kept beside the base file; without any it writes no file."""
        plan = self._plan

        def create(version: int, kind: LogKind) -> tuple[str, LogFileName]:
            name = LogFileName(plan.file_id(group), self._token, plan.instant, version, kind)
            self._paths.append(prepare_data_file(plan.storage, plan.instant, group[0], str(name), starts=False))
            return self._paths[-1], name

        logs = NativeLogTarget(
            storage=plan.storage,
            partition=group[0],
            instant=plan.instant,
            avro=self._avro_schema,
            delete_avro=delete_log_avro(plan.schema, plan.rule.ordering_fields),
            updates=False,
            options=plan.files,
            create=create,
        )
        return KeptDeletesWriter(logs, self._delete_schema, retention)

    def _merged(
        self, group: BucketId, previous: BaseFile | None, blocks: Iterable[FileGroupChanges], files: ExitStack
    ) -> Iterator[Block]:
        plan = self._plan
        if previous is None or self._is_in_order(previous):
            keep = None if self._retention is None else self._base_schema
            return merge_runs(self._runs(group, previous, blocks, files), plan.rule, keep=keep)
        # A base file of another program may be unsorted: the batch of its group is loaded as a whole, this once.
        parts = [*self._kept_parts(group, previous), *(part for block in blocks for part in self._parts(block))]
        self._meter.count("group", 2 * sum(part.rows.nbytes for part in parts))
        outcome = fold_logs(parts, self._base_schema, plan.rule, keeps_deletes=self._retention is not None)
        base = open_base(plan.storage, previous, files, plan.file_names)
        merged = merge_base(base.batches(self._base_schema), outcome, plan.rule)
        return in_key_order(merged, plan.spill_folder, Budget(plan.buffer_bytes).block)

    def _is_in_order(self, base: BaseFile) -> bool:
        """Test whether the keys of a base file ascend, strictly where repeated keys are not merged."""
        with ExitStack() as files:
            return open_base(self._plan.storage, base, files).ascends(distinct=not self._plan.config.is_lsm_tree)

    def _parts(self, block: FileGroupChanges) -> list[LogPart]:
        rows = cast_table(block_with_meta(self._plan, block, self._sequence), self._base_schema)
        time = self._plan.instant
        older, newer = (LogPart(found, deletes=True, time=time) for found in (block.earlier_deletes, block.deletes))
        return [older, LogPart(rows), newer]

    def _runs(
        self, group: BucketId, previous: BaseFile | None, blocks: Iterable[FileGroupChanges], files: ExitStack
    ) -> list[SortedRun]:
        batch = SortedRun(f"the batch at {self._plan.instant}", self._incoming(blocks), marks=DELETE)
        if previous is None:
            return [batch]
        before = self._slice(group, previous)
        base, *kept = self._open(before, files)
        deletes = (
            SortedRun(file.path, file.batches(self._delete_schema), deletes=True, time=file.time) for file in kept
        )
        return [SortedRun(base.path, base.batches(self._base_schema), base=True), *deletes, batch]

    def _open(self, file_slice: FileSlice, files: ExitStack) -> list[DataFile]:
        plan = self._plan
        return open_slice(plan.storage, file_slice, plan.rule, files, self._read_bytes, file_names=plan.file_names)

    def _slice(self, group: BucketId, base: BaseFile) -> FileSlice:
        """Return the slice that the batch changes: the base file, and the deletes that were kept beside it."""
        paths = self._plan.kept_deletes.get(group, ())
        names = (parse_file_name(path.rpartition("/")[2]) for path in paths)
        # The size of a log is not needed to read it.
        logs = (
            LogFile(path, name, 0) for path, name in zip(paths, names, strict=True) if isinstance(name, LogFileName)
        )
        return FileSlice(group[0], base.name.file_id, base, tuple(logs))

    def _kept_parts(self, group: BucketId, base: BaseFile) -> list[LogPart]:
        with ExitStack() as files:
            opened = self._open(self._slice(group, base), files)
            return [
                LogPart(
                    pa.Table.from_batches(file.batches(self._delete_schema), self._delete_schema),
                    deletes=True,
                    time=file.time,
                )
                for file in opened[1:]
            ]

    def _incoming(self, blocks: Iterable[FileGroupChanges]) -> Iterator[pa.RecordBatch]:
        """Build one run of the batch: per key the earlier delete, the row, and the delete after the row."""
        for block in blocks:
            rows = self._marked(block_with_meta(self._plan, block, self._sequence))
            # Up to version 9 a row after an unordered delete hides that delete from the base file
            # (docs/format/05-merge.md, "Pairwise rule").
            older = [] if self._plan.rule.logs_first else [self._deletes(block.earlier_deletes)]
            parts = [*older, rows, self._deletes(block.deletes)]
            filled = [part for part in parts if part.num_rows]
            table = pa.concat_tables(filled or parts)
            if len(filled) > 1:
                keys = strings(table.column(RECORD_KEY))
                table = table.take(pa.array(sort_keys(KeyWords.of(keys), runs=True).order, pa.int64()))
            yield from table.to_batches(max_chunksize=BATCH_ROWS)

    def _marked(self, rows: pa.Table) -> pa.Table:
        marks = pa.repeat(pa.scalar(False), rows.num_rows)
        return cast_table(rows.append_column(DELETE, marks), self._batch_schema)

    def _deletes(self, deletes: pa.Table) -> pa.Table:
        """Build rows for deletes: key and ordering fields, and nulls.

        The nulls are built in their type: Arrow refuses to cast a null struct whose fields are required.
        """
        marked = deletes.append_column(DELETE, pa.repeat(pa.scalar(True), deletes.num_rows))
        columns = [
            marked.column(field.name).cast(field.type)
            if field.name in marked.schema.names
            else pa.nulls(len(deletes), field.type)
            for field in self._batch_schema
        ]
        return pa.table(columns, schema=self._batch_schema)
