"""Read adjacent logs of one file slice, without its base file, as a log compaction merges them.

See docs/format/06-services.md, "Log compaction".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.slice_files import open_logs
from streaming_lsm.format.column_versions import FileNames
from streaming_lsm.merge.log_fold import FoldedLogs, fold_unsorted_logs
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.query.slices.log_parts import LogBlocks
from streaming_lsm.query.slices.slice_merge import SliceMerge
from streaming_lsm.query.slices.slice_reader import LogCounts
from streaming_lsm.schema import OPERATION
from streaming_lsm.storage.base import Storage


@dataclass(frozen=True)
class LogReader:
    """Reads the logs of slices folded by key; picklable.

    Attributes:
        storage: the table's files.
        schema: the columns of a data file, meta columns included.
        rule: the table's merge semantics, without partial updates.
        spill_folder: a folder on a local disk for slices of many files; None means the system's for temporary files.
        sorted_files: whether the table's files are sorted by record key.
        inline: whether the outcome is stored in an inline log.
        file_names: names the columns of files that were written before columns were renamed.
    """

    storage: Storage
    schema: pa.Schema
    rule: MergeRule
    spill_folder: str | None = None
    sorted_files: bool = True
    inline: bool = False
    file_names: FileNames | None = None

    def blocks(self, logs: FileSlice, counts: LogCounts) -> Iterator[FoldedLogs]:
        """Fold the logs of a slice; blocks ascend by record key and have no key in common.

        Sorted logs are read block by block. The records of unsorted ones are held in memory, as in a query.

        Args:
            logs: the slice without a base file: adjacent logs in merge order. See `fold_unsorted_logs` for inline ones.
            counts: receives the counts of the log blocks and records read.

        Raises:
            CorruptFileError: a file is missing or damaged, or its footer contradicts its name.
            UnsupportedTable: a log has partial rows, or another feature that is not supported.
            StorageError: a file cannot be opened at present, or the local disk has no room for the spill files.
        """
        with ExitStack() as files:
            if self.sorted_files and logs.is_native:
                opened = open_logs(self.storage, logs.logs, self.rule, files, self.file_names)
                if all(file.ascends() for file in opened):
                    counts.blocks, counts.records = len(opened), sum(file.rows for file in opened)
                    yield from SliceMerge(self.rule, self.schema, self.spill_folder).folded_logs(opened)
                    return
        yield self._hashed(logs, counts)

    def _hashed(self, logs: FileSlice, counts: LogCounts) -> FoldedLogs:
        read = pa.schema([field.with_nullable(True) for field in self.schema])
        if OPERATION not in read.names:
            read = read.append(pa.field(OPERATION, pa.string()))
        blocks = LogBlocks(
            storage=self.storage, schema=read, rule=self.rule, partial=False, adjacent=True, file_names=self.file_names
        )
        parts = blocks.parts(logs.logs)
        counts.blocks, counts.records = len(parts), sum(len(part.rows) for part in parts)
        return fold_unsorted_logs(parts, self.rule, self.schema, read, inline=self.inline)
