"""Execute one operation of a log compaction: merge adjacent logs of a file slice into fewer, larger logs.

The base file is neither read nor written. See docs/format/06-services.md, "Log compaction".
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pyarrow as pa

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.checksum_file import checksum_path
from streaming_lsm.format.table.file_names import InlineLogName, LogFileName, LogKind, WriteToken
from streaming_lsm.lock.heartbeat import check_still_inflight
from streaming_lsm.merge.log_fold import FoldedLogs
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.read.log_reader import LogReader
from streaming_lsm.read.slice_reader import LogCounts
from streaming_lsm.schema import delete_log_avro, delete_log_schema, to_avro, with_meta
from streaming_lsm.services.compaction.timed import Timed
from streaming_lsm.storage.base import Storage
from streaming_lsm.write.files.inline_log_writer import BlockOptions, InlineLogTarget, InlineLogWriter
from streaming_lsm.write.files.native_log_writer import NativeLogTarget, NativeLogWriter
from streaming_lsm.write.files.prepare import prepare_data_file
from streaming_lsm.write.plan import FileOptions


@dataclass(frozen=True)
class LogCompactionTask:
    """Merges logs of one log compaction; picklable, so that it can be sent to executors.

    Memory is bounded by one batch per open log and the open row groups of the new logs. The records of logs that are
    not sorted are held in memory, as in a query.

    Attributes:
        storage: the table's files.
        instant: requested time of the log compaction.
        table_name: the record name of the Avro schema in the new files' footers.
        schema: the table's columns, without meta columns.
        rule: the table's merge semantics.
        files: Parquet settings, and the bytes at which a log ends and the next version begins.
        spill_folder: a folder on a local disk for slices of many files; None means the system's for temporary files.
        sorted_files: whether the table's files are sorted by record key.
        native_logs: whether the table's version has native logs; inline ones are written if not.
    """

    storage: Storage
    instant: str
    table_name: str
    schema: pa.Schema
    rule: MergeRule
    files: FileOptions
    spill_folder: str | None = None
    sorted_files: bool = True
    native_logs: bool = True

    def __call__(self, operation: tuple[int, FileSlice]) -> tuple[WriteStat, ...]:
        """Write logs that replace those of a slice; at least one, so that readers leave the replaced ones out.

        Args:
            operation: its number in the plan, and a slice without a base file. Its logs are adjacent in merge order,
                with all logs of each instant, none of them replaced by another one. If native logs are written, they
                include either all inline logs of the file slice or none (see `fold_unsorted_logs`).

        Returns:
            The stats of the new logs, the oldest in merge order first. The first one has the counts of what was read.

        Raises:
            CorruptFileError: a file is missing or damaged, or its footer contradicts its name.
            UnsupportedTable: the table has partial updates, or a log has partial rows.
            Fenced: the log compaction was completed or rolled back meanwhile; the new files are removed.
        """
        number, found = operation
        if self.rule.partial is not None:
            raise UnsupportedTable(
                f"{self.storage.uri}: hoodie.table.partial.update.mode={self.rule.partial}: logs of partial updates "
                f"cannot be merged without the base file; run a full compaction of {_group(found)}"
            )
        if found.base is not None or not found.logs:
            raise ValueError(f"{_group(found)}: a log compaction merges logs only, and at least one")
        attempt = 0
        while True:
            try:
                return self._attempt(WriteToken(number, 0, attempt), found)
            except FileExistsError:
                # The markers of all attempts stay until the action completes, so creating a marker reserves the name.
                attempt += 1

    def _attempt(self, token: WriteToken, found: FileSlice) -> tuple[WriteStat, ...]:
        counts = LogCounts()
        reader = LogReader(
            storage=self.storage,
            schema=with_meta(self.schema),
            rule=self.rule,
            spill_folder=self.spill_folder,
            sorted_files=self.sorted_files,
            inline=not self.native_logs,
        )
        merged = Timed(reader.blocks(found, counts))
        output = _Output(self, token, found)
        try:
            keys, stats = output.write(merged)
            check_still_inflight(self.storage, self.instant)
        except BaseException:
            output.discard()
            raise
        read = replace(
            stats[0],
            log_records=counts.records,
            log_blocks=counts.blocks,
            updated_records_compacted=keys,
            log_files_compacted=len(found.logs),
            log_bytes_compacted=sum(log.size for log in found.logs),
            log_read_ms=merged.waited_ms,
            scan_ms=merged.waited_ms,
            upsert_ms=merged.age_ms,
        )
        return (read, *stats[1:])


@dataclass
class _Output:
    """Writes the logs of one attempt."""

    task: LogCompactionTask
    token: WriteToken
    found: FileSlice
    paths: list[str] = field(default_factory=list)

    def write(self, blocks: Iterable[FoldedLogs]) -> tuple[int, list[WriteStat]]:
        """Write all blocks; returns the number of keys, and the stats of the files."""
        schema, keys, version = with_meta(self.task.schema), 0, 1
        stats: list[WriteStat] = []
        log: NativeLogWriter | InlineLogWriter | None = None
        with ExitStack() as files:
            for block in blocks:
                keys += block.rows.num_rows + block.deletes.num_rows
                if log is not None and not log.takes(block.unordered_deletes):
                    stats += log.finish()
                    version, log = log.next_version, None
                if log is None:
                    log = self._begin(version, has_unordered_deletes=block.unordered_deletes.num_rows > 0)
                    files.push(log)
                log.append(block.rows.cast(schema), block.deletes, block.unordered_deletes)
            stats += [] if log is None else log.finish()
            if not stats:
                stats += self._without_records(files)
        return keys, stats

    def _without_records(self, files: ExitStack) -> Iterable[WriteStat]:
        log = self._begin(1, has_unordered_deletes=False)
        files.push(log)
        log.append_deletes(delete_log_schema(self.task.schema, self.task.rule.ordering_fields).empty_table())
        return log.finish()

    def _begin(self, version: int, *, has_unordered_deletes: bool) -> NativeLogWriter | InlineLogWriter:
        if self.task.native_logs:
            return NativeLogWriter(self._native(), version, has_unordered_deletes=has_unordered_deletes)
        return InlineLogWriter(self._inline(), version)

    def _native(self) -> NativeLogTarget:
        task = self.task

        def create(version: int, kind: LogKind) -> tuple[str, LogFileName]:
            name = LogFileName(self.found.file_id, self.token, task.instant, version, kind)
            return self._prepare(name), name

        return NativeLogTarget(
            storage=task.storage,
            partition=self.found.partition_path,
            instant=task.instant,
            avro=self._avro,
            delete_avro=delete_log_avro(task.schema, task.rule.ordering_fields),
            updates=True,  # as Hudi counts the rows of a log compaction
            options=task.files,
            create=create,
            compacted=self._compacted,
        )

    def _inline(self) -> InlineLogTarget:
        task, files = self.task, self.task.files

        def create(version: int) -> tuple[str, InlineLogName]:
            name = InlineLogName(self.found.file_id, task.instant, version, self.token)
            return self._prepare(name), name

        return InlineLogTarget(
            storage=task.storage,
            partition=self.found.partition_path,
            instant=task.instant,
            schema=with_meta(task.schema),
            avro=self._avro,
            updates=True,
            options=BlockOptions(files.data_block_format, files.codec, files.log_bytes),
            create=create,
            compacted=self._compacted,
        )

    @property
    def _avro(self) -> str:
        return to_avro(with_meta(self.task.schema), self.task.table_name)

    @property
    def _compacted(self) -> tuple[str, ...]:
        """The instants of the merged logs, ascending (docs/format/10-rules.md, "Rule 21").

        A merged output of a log compaction is listed by its own instant: what that replaced follows from its footer.
        """
        return tuple(sorted(dict.fromkeys(log.name.instant for log in self.found.logs)))

    def _prepare(self, name: LogFileName | InlineLogName) -> str:
        task = self.task
        path = prepare_data_file(task.storage, task.instant, self.found.partition_path, str(name))
        self.paths.append(path)
        return path

    def discard(self) -> None:
        """Delete all files written so far."""
        for path in self.paths:
            self.task.storage.delete(path)
            if not self.task.native_logs:
                self.task.storage.delete(checksum_path(path))


def _group(found: FileSlice) -> str:
    return f"file group {found.file_id!r} of partition {found.partition_path!r}"
