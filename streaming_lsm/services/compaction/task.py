"""Execute one compaction operation: merge a file slice into one base file, in this process or on an executor.

The newest deletes are kept in delete logs beside it. See docs/format/06-services.md, "Kept deletes". With change data
capture there is a change log, too.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

from streaming_lsm.arrow.required_fields import cast_table
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.stored_row_group import StoredRowGroup
from streaming_lsm.format.actions.commit import WriteStat, base_file_stat
from streaming_lsm.format.table.file_names import BaseFileName, WriteToken
from streaming_lsm.lock.heartbeat import check_still_inflight
from streaming_lsm.merge.runs import Block
from streaming_lsm.query.slices.key_order import in_key_order
from streaming_lsm.query.slices.slice_reader import LogCounts, SliceReader
from streaming_lsm.services.compaction.attempt import attempt_token, discard
from streaming_lsm.services.compaction.target import CompactionTarget, with_counts
from streaming_lsm.services.compaction.timed import Timed
from streaming_lsm.write.files.base_file_writer import BaseFileWriter
from streaming_lsm.write.files.change_log_target import ChangeLogTarget
from streaming_lsm.write.files.change_log_writer import ChangeLogWriter
from streaming_lsm.write.files.copied_row_group import copy_rules
from streaming_lsm.write.files.kept_deletes import KeptDeletesWriter, Retention


@dataclass(frozen=True)
class CompactionTask:
    """Merges file slices of one compaction; picklable, so that it can be sent to executors.

    Memory is bounded by one batch per open file of the slice and the open row group of the new file.

    Attributes:
        target: the table, and how its files are written; a new base file is sorted whatever the layout.
        visible: instants whose inline blocks are visible, if a log may hold blocks of several. See `LogBlocks`.
        retention: which deletes are kept beside the base file; None for none.
        changes: the change logs of a table with change data capture; None for none.
    """

    target: CompactionTarget
    visible: Container[str] | None = None
    retention: Retention | None = None
    changes: ChangeLogTarget | None = None

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
        token = attempt_token(number)
        base = self._create(token, found)
        paths = [base.path]
        try:
            with ExitStack() as opened:
                opened.enter_context(base)
                changes = self._change_log(found, token, paths, opened)
                kept = self._kept_deletes(found, token, paths, opened)
                stat, logs = self._write(base, kept, changes, found, merged)
            check_still_inflight(self.target.storage, self.target.instant)
        except BaseException as error:
            discard(self.target, paths, error, inline=self.changes is not None and not self.changes.native)
            raise
        records = stat.num_inserts + stat.num_updates + stat.num_deletes
        return (with_counts(stat, found, counts, records=records, waited_ms=merged.waited_ms), *logs)

    def _blocks(self, found: FileSlice, counts: LogCounts) -> Iterator[Block | StoredRowGroup]:
        target, schema = self.target, self.target.schema
        reader = SliceReader(
            target.storage,
            schema,
            target.rule,
            tuple(schema.names),
            spill_folder=target.spill_folder,
            sorted_files=target.sorted_files,
            visible=self.visible,
            keeps_deletes=self.retention is not None,
            file_names=target.file_names,
        )
        if not target.sorted_files:
            return in_key_order(reader.blocks(found, counts), target.spill_folder)
        if self.changes is not None:  # which compares the rows of both base files, key range by key range
            return reader.blocks(found, counts)
        return reader.parts(found, counts, copy_rules(schema, target.files))

    def _create(self, token: WriteToken, found: FileSlice) -> BaseFileWriter:
        target = self.target
        return BaseFileWriter(
            storage=target.storage,
            instant=target.instant,
            partition=found.partition_path,
            name=BaseFileName(found.file_id, str(token), target.instant),
            avro_schema=target.avro,
            options=target.files,
        )

    def _change_log(
        self, found: FileSlice, token: WriteToken, paths: list[str], opened: ExitStack
    ) -> ChangeLogWriter | None:
        """Create the change log from the slice's base file to the new one; its path is added to `paths`."""
        if self.changes is None:
            return None
        group = (found.partition_path, found.file_id)
        paths.append(self.changes.path_of(*group, token))
        return self.changes.create(*group, token, found.base, opened)

    def _kept_deletes(
        self, found: FileSlice, token: WriteToken, paths: list[str], opened: ExitStack
    ) -> KeptDeletesWriter | None:
        """Create the writer of the deletes that are kept; the paths of its files are added to `paths`."""
        if self.retention is None:
            return None
        target = self.target
        logs = target.logs_beside_base(found.partition_path, found.file_id, token, paths)
        return opened.enter_context(KeptDeletesWriter(logs, target.delete_schema, self.retention))

    def _write(
        self,
        base: BaseFileWriter,
        kept: KeptDeletesWriter | None,
        changes: ChangeLogWriter | None,
        found: FileSlice,
        merged: Timed[Block | StoredRowGroup],
    ) -> tuple[WriteStat, list[WriteStat]]:
        schema = self.target.schema
        base.append(schema.empty_table())
        inserts = updates = deletes = 0
        for block in merged:
            if isinstance(block, StoredRowGroup):
                base.copy(block)
                continue
            rows = cast_table(block.rows, schema)
            base.append(rows)
            if changes is not None:
                changes.append(rows)
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
        return timed if changes is None else replace(timed, cdc_files=((changes.path, changes.finish()),)), logs
