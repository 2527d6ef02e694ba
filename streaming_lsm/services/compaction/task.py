"""Execute one compaction operation: merge a file slice into one base file, in this process or on an executor.

The newest deletes are kept in delete logs beside it. See docs/format/06-services.md, "Kept deletes".
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pyarrow as pa

from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.stored_row_group import StoredRowGroup
from streaming_lsm.format.actions.commit import WriteStat, base_file_stat
from streaming_lsm.format.table.file_names import BaseFileName, LogFileName, LogKind, WriteToken
from streaming_lsm.lock.heartbeat import check_still_inflight
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.runs import Block
from streaming_lsm.read.key_order import in_key_order
from streaming_lsm.read.slice_reader import LogCounts, SliceReader
from streaming_lsm.schema import delete_log_avro, delete_log_schema, to_avro, with_meta
from streaming_lsm.services.compaction.kept_deletes import KeptDeletesWriter, Retention
from streaming_lsm.services.compaction.timed import Timed
from streaming_lsm.storage.base import Storage
from streaming_lsm.write.files.base_file_writer import BaseFileWriter
from streaming_lsm.write.files.copied_row_group import copy_rules
from streaming_lsm.write.files.native_log_writer import NativeLogTarget
from streaming_lsm.write.files.prepare import prepare_data_file
from streaming_lsm.write.plan import FileOptions


@dataclass(frozen=True)
class CompactionTask:
    """Merges file slices of one compaction; picklable, so that it can be sent to executors.

    Memory is bounded by one batch per open file of the slice and the open row group of the new file.

    Attributes:
        storage: the table's files.
        instant: requested time of the compaction.
        table_name: the record name of the Avro schema in the new files' footers.
        schema: the table's columns, without meta columns.
        rule: the table's merge semantics.
        files: Parquet settings.
        spill_folder: a folder on a local disk for slices of many files; None means the system's for temporary files.
        sorted_files: whether the table's files are sorted by record key. The new one always is.
        visible: instants whose inline blocks are visible, if a log may hold blocks of several. See `LogBlocks`.
        retention: which deletes are kept beside the base file; None for none.
    """

    storage: Storage
    instant: str
    table_name: str
    schema: pa.Schema
    rule: MergeRule
    files: FileOptions
    spill_folder: str | None = None
    sorted_files: bool = True
    visible: Container[str] | None = None
    retention: Retention | None = None

    def __call__(self, operation: tuple[int, FileSlice]) -> tuple[WriteStat, ...]:
        """Write the new base file of a slice; it has no rows if all records of the slice are deleted.

        Args:
            operation: its number in the plan, and the slice with exactly the files that the plan names.

        Returns:
            The stat of the base file, which has the counts of what was read, and those of the logs of kept deletes.

        Raises:
            CorruptFileError: a file is missing or damaged, or its footer contradicts its name.
            Fenced: the compaction was completed or rolled back meanwhile; the new files are removed.
        """
        number, found = operation
        counts = LogCounts()
        merged = Timed(self._blocks(found, counts))
        base, token = self._create(number, found.partition_path, found.file_id)
        paths = [base.path]
        try:
            with ExitStack() as opened:
                opened.enter_context(base)
                stat, kept = self._write(base, self._kept_deletes(found, token, paths, opened), found, merged)
            check_still_inflight(self.storage, self.instant)
        except BaseException:
            for path in paths:
                self.storage.delete(path)
            raise
        read = replace(
            stat,
            log_records=counts.records,
            log_blocks=counts.blocks,
            updated_records_compacted=stat.num_inserts + stat.num_updates + stat.num_deletes,
            log_files_compacted=len(found.logs),
            log_bytes_compacted=sum(log.size for log in found.logs),
            log_read_ms=merged.waited_ms,
            scan_ms=merged.waited_ms,
        )
        return (read, *kept)

    def _blocks(self, found: FileSlice, counts: LogCounts) -> Iterator[Block | StoredRowGroup]:
        schema = with_meta(self.schema)
        names, spill_folder = tuple(schema.names), self.spill_folder
        reader = SliceReader(
            self.storage,
            schema,
            self.rule,
            names,
            spill_folder=spill_folder,
            sorted_files=self.sorted_files,
            visible=self.visible,
            keeps_deletes=self.retention is not None,
        )
        if not self.sorted_files:
            return in_key_order(reader.blocks(found, counts), spill_folder)
        return reader.parts(found, counts, copy_rules(schema, self.files))

    def _create(self, number: int, partition: str, file_id: str) -> tuple[BaseFileWriter, WriteToken]:
        """Create a base file under a name that no other attempt has used, in this or an earlier run of the compaction.

        The markers of all attempts stay until the compaction completes, so creating a marker reserves the name.
        """
        attempt = 0
        while True:
            token = WriteToken(number, 0, attempt)
            try:
                base = BaseFileWriter(
                    storage=self.storage,
                    instant=self.instant,
                    partition=partition,
                    name=BaseFileName(file_id, str(token), self.instant),
                    avro_schema=self._avro,
                    options=self.files,
                )
            except FileExistsError:
                attempt += 1
            else:
                return base, token

    @property
    def _avro(self) -> str:
        return to_avro(with_meta(self.schema), self.table_name)

    def _kept_deletes(
        self, found: FileSlice, token: WriteToken, paths: list[str], opened: ExitStack
    ) -> KeptDeletesWriter | None:
        """Create the writer of the deletes that are kept; the paths of its files are added to `paths`."""
        if self.retention is None:
            return None

        def create(version: int, kind: LogKind) -> tuple[str, LogFileName]:
            name = LogFileName(found.file_id, token, self.instant, version, kind)
            path = prepare_data_file(self.storage, self.instant, found.partition_path, str(name), starts=False)
            paths.append(path)
            return path, name

        target = NativeLogTarget(
            storage=self.storage,
            partition=found.partition_path,
            instant=self.instant,
            avro=self._avro,
            delete_avro=delete_log_avro(self.schema, self.rule.ordering_fields),
            updates=False,
            options=self.files,
            create=create,
        )
        schema = delete_log_schema(self.schema, self.rule.ordering_fields)
        return opened.enter_context(KeptDeletesWriter(target, schema, self.retention))

    def _write(
        self,
        base: BaseFileWriter,
        kept: KeptDeletesWriter | None,
        found: FileSlice,
        merged: Timed[Block | StoredRowGroup],
    ) -> tuple[WriteStat, list[WriteStat]]:
        schema = with_meta(self.schema)
        base.append(schema.empty_table())
        inserts = updates = deletes = 0
        for block in merged:
            if isinstance(block, StoredRowGroup):
                base.copy(block)
                continue
            base.append(block.rows.select(schema.names).cast(schema))
            inserts, updates, deletes = inserts + block.inserts, updates + block.updates, deletes + block.deletes
            if kept is not None and block.kept is not None:
                kept.append(block.kept)
        logs = [] if kept is None else list(kept.finish())
        stat = base_file_stat(
            found.partition_path,
            base.name,
            total_bytes=base.finish(),
            num_writes=base.rows,
            num_inserts=inserts,
            num_updates=updates,
            num_deletes=deletes,
            previous=found.base.name if found.base else None,
        )
        # Hudi reports the time of a file group's first base file as create time, that of a later one as upsert time.
        timed = replace(stat, upsert_ms=merged.age_ms) if found.base else replace(stat, create_ms=merged.age_ms)
        return timed, logs
