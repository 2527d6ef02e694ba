"""Write sorted blocks of one file group to log files, or to its first base file, one block in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa

from streaming_lsm.format.actions.commit import WriteStat, base_file_stat
from streaming_lsm.format.checksum_file import checksum_path
from streaming_lsm.format.table.file_names import (
    BaseFileName,
    BucketId,
    DataFileName,
    InlineLogName,
    LogFileName,
    LogKind,
    WriteToken,
)
from streaming_lsm.schema import delete_log_avro, to_avro, with_meta
from streaming_lsm.write.buffer.budget import Meter
from streaming_lsm.write.buffer.dedup import FileGroupChanges
from streaming_lsm.write.files.base_file_writer import BaseFileWriter
from streaming_lsm.write.files.discarding import discard_files
from streaming_lsm.write.files.earlier_logs import EarlierLogs
from streaming_lsm.write.files.inline_log_writer import BlockOptions, InlineLogTarget, InlineLogWriter
from streaming_lsm.write.files.native_log_writer import NativeLogTarget, NativeLogWriter
from streaming_lsm.write.files.parquet import SequenceNumbers, block_with_meta
from streaming_lsm.write.files.prepare import prepare_data_file
from streaming_lsm.write.plan import UPSERT, WritePlan


class FileGroupWriter:
    """Writes the files of one task; each is preceded by its marker (docs/format/01-table.md, "Markers")."""

    def __init__(self, plan: WritePlan, token: WriteToken, meter: Meter | None = None) -> None:
        """Create a writer for the task attempt `token`; `meter` counts the memory of its open files."""
        self._plan = plan
        self._token = token
        self._meter = Meter() if meter is None else meter
        self._sequence = SequenceNumbers(plan.instant, token.task)
        self._file_schema = to_avro(with_meta(plan.schema), plan.config.name)
        self._delete_schema = delete_log_avro(plan.schema, plan.rule.ordering_fields)
        self._paths: list[str] = []

    def write(self, group: BucketId, blocks: Iterable[FileGroupChanges]) -> Iterator[WriteStat]:
        """Write the changes of one batch to one file group.

        A bulk insert into a new group makes its base file, unless the first block has deletes. Deletes that turn up
        later are logs on top of it; earlier deletes are left out then, as there is nothing older that they could act
        on. Of a new group without a bucket all deletes are left out, and rows beyond the size of a file go to further
        new groups.

        Args:
            group: partition path and bucket.
            blocks: ascending by record key; no two share a key.
        """
        with ExitStack() as files:
            base: BaseFileWriter | None = None
            log: NativeLogWriter | InlineLogWriter | None = None
            version, part, splits = 1, 0, self._plan.may_be_split(group)
            for block in blocks:
                if splits and self._is_full(base, log):
                    yield from self._finish(group, base, log)
                    base, log, version, part = None, None, 1, part + 1
                rows, deletes, earlier_deletes = (
                    block_with_meta(self._plan, block, self._sequence, part),
                    block.deletes.slice(0, 0) if splits else block.deletes,
                    block.earlier_deletes.slice(0, 0) if splits else block.earlier_deletes,
                )
                if base is None and log is None and self._begins_base(group, rows, deletes, earlier_deletes):
                    base = files.enter_context(self._open_base(group, part))
                if base is not None:
                    base.append(rows)
                    rows, earlier_deletes = rows.slice(0, 0), earlier_deletes.slice(0, 0)
                if log is not None and not log.takes(earlier_deletes):
                    yield from log.finish()
                    version, log = log.next_version, None
                if log is None and (rows.num_rows or deletes.num_rows):
                    log = self._begin_log(group, part, version, earlier_deletes)
                    files.push(log)
                if log is not None:
                    log.append(rows, deletes, earlier_deletes)
                self._count(base, log)
            yield from self._finish(group, base, log)
        self._count(None, None)

    def _begins_base(self, group: BucketId, rows: pa.Table, deletes: pa.Table, earlier_deletes: pa.Table) -> bool:
        if deletes.num_rows or earlier_deletes.num_rows:
            return False
        return self._plan.begins_with_base(group) and (rows.num_rows > 0 or self._plan.config.has_buckets)

    def _is_full(self, base: BaseFileWriter | None, log: NativeLogWriter | InlineLogWriter | None) -> bool:
        size = base.size if base is not None else log.size if isinstance(log, NativeLogWriter) else 0
        return size >= self._plan.files.group_bytes

    def _finish(
        self, group: BucketId, base: BaseFileWriter | None, log: NativeLogWriter | InlineLogWriter | None
    ) -> Iterator[WriteStat]:
        if base is not None:
            yield self._finish_base(group, base)
        if log is not None:
            yield from log.finish()

    def _open_base(self, group: BucketId, part: int) -> BaseFileWriter:
        plan = self._plan
        name = BaseFileName(plan.file_id(group, part), str(self._token), plan.instant)
        base = BaseFileWriter(
            storage=plan.storage,
            instant=plan.instant,
            partition=group[0],
            name=name,
            avro_schema=self._file_schema,
            options=plan.files,
            detect_early=plan.detect_early,
        )
        self._paths.append(base.path)
        return base

    def _finish_base(self, group: BucketId, base: BaseFileWriter) -> WriteStat:
        size, rows = base.finish(), base.rows
        stat = base_file_stat(group[0], base.name, total_bytes=size, num_writes=rows, num_inserts=rows)
        return replace(stat, ranges=base.ranges)

    def _begin_log(
        self, group: BucketId, part: int, version: int, earlier_deletes: pa.Table
    ) -> NativeLogWriter | InlineLogWriter:
        if not self._plan.config.has_native_logs:
            return InlineLogWriter(self._inline_source(group), version)
        target = self._native_target(group, part)
        return NativeLogWriter(target, version, has_earlier_deletes=earlier_deletes.num_rows > 0)

    def _native_target(self, group: BucketId, part: int) -> NativeLogTarget:
        plan = self._plan

        def create(version: int, kind: LogKind) -> tuple[str, LogFileName]:
            name = LogFileName(plan.file_id(group, part), self._token, plan.instant, version, kind)
            self._paths.append(self._prepare(group, name))
            return self._paths[-1], name

        return NativeLogTarget(
            storage=plan.storage,
            partition=group[0],
            instant=plan.instant,
            avro=self._file_schema,
            delete_avro=self._delete_schema,
            updates=plan.operation == UPSERT and not plan.may_be_split(group),
            options=plan.files,
            create=create,
            earlier=self._earlier(group),
        )

    def _earlier(self, group: BucketId) -> EarlierLogs | None:
        logs, options = self._plan.logs, self._plan.files.log_keys
        if logs is None or options is None:
            return None
        return EarlierLogs(self._plan.storage, logs.get(group, ()), options, self._plan.known)

    def _prepare(self, group: BucketId, name: DataFileName) -> str:
        plan, starts = self._plan, self._plan.starts_group(group)
        return prepare_data_file(
            plan.storage, plan.instant, group[0], str(name), detect_early=plan.detect_early, starts=starts
        )

    def _inline_source(self, group: BucketId) -> InlineLogTarget:
        plan, partition = self._plan, group[0]

        def create(version: int) -> tuple[str, InlineLogName]:
            name = InlineLogName(plan.file_id(group), plan.instant, version, self._token)
            self._paths.append(self._prepare(group, name))
            return self._paths[-1], name

        files = plan.files
        options = BlockOptions(files.data_block_format, files.codec, files.log_bytes)
        updates = plan.operation == UPSERT
        schema = with_meta(plan.schema)
        return InlineLogTarget(
            storage=plan.storage,
            partition=partition,
            instant=plan.instant,
            schema=schema,
            avro=self._file_schema,
            updates=updates,
            options=options,
            create=create,
        )

    def _count(self, base: BaseFileWriter | None, log: NativeLogWriter | InlineLogWriter | None) -> None:
        held = (0 if base is None else base.buffered_bytes) + (0 if log is None else log.buffered_bytes)
        # Encoded pages and the rows of a row group are in memory at the same time.
        self._meter.count("files", 2 * held)

    def discard(self) -> None:
        """Delete all files written so far, as the task has failed."""
        # Created after another writer has deleted its log, a checksum file would stay.
        checksums = () if self._plan.config.has_native_logs else map(checksum_path, self._paths)
        discard_files(self._plan.storage, (*self._paths, *checksums))
