"""Read the live records of one file slice, by the sorted merge if all its files are sorted, else by the hash merge.

See docs/format/03-native-logs.md, "Which reader".
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from streaming_lsm.file_group.data_file import DataFile, open_base, open_log
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.key_search import KeySearch
from streaming_lsm.file_group.known_footers import KnownFooters
from streaming_lsm.file_group.log_order import logs_of_commits, merge_order
from streaming_lsm.file_group.slice_files import log_said, open_slice, searched_slice
from streaming_lsm.file_group.stored_row_group import CopyRules, StoredRowGroup
from streaming_lsm.format.column_versions import FileNames
from streaming_lsm.format.log.native_footer import LogHeader
from streaming_lsm.merge.hash_merge import fold_logs, merge_base
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.runs import Block
from streaming_lsm.query.prune.commits import of_commits
from streaming_lsm.query.prune.looked_up import KeyPruner
from streaming_lsm.query.prune.predicate import Every
from streaming_lsm.query.prune.row_groups import RowGroupCounts, RowGroupPruner
from streaming_lsm.query.slices.key_order import in_key_order
from streaming_lsm.query.slices.log_kinds import check_kinds
from streaming_lsm.query.slices.log_parts import LogBlocks
from streaming_lsm.query.slices.slice_merge import SliceMerge
from streaming_lsm.schema import COMMIT_TIME, META_COLUMNS, OPERATION, RECORD_KEY
from streaming_lsm.storage.base import Storage


@dataclass
class LogCounts:
    """Counts the log blocks of a slice that were read (a native log is one block), and their records."""

    blocks: int = 0
    records: int = 0


@dataclass(frozen=True)
class SliceReader:
    """Reads file slices of one table; picklable, so that it can be sent to executors.

    Attributes:
        storage: the table's files.
        schema: the reader's columns of a data file, meta columns included.
        rule: the table's merge semantics.
        columns: the columns to return, in this order; without any, batches have a number of rows only.
        threads: whether to decode columns in parallel.
        spill_folder: a folder on a local disk for slices of many files; None means the system's for temporary files.
        sorted_files: whether the table's files are sorted by record key.
        commits: instants whose rows take part, for an incremental read; None for all.
        visible: instants whose inline blocks are visible, if a log may hold blocks of several. See `LogBlocks`.
        skip_corrupt: whether damaged inline blocks are skipped. See `LogBlocks`.
        keeps_deletes: whether blocks have the winning deletes with an ordering value, for a compaction; `columns` has
            `_hoodie_commit_time` then.
        pruner: leaves out the row groups that a filter or a look-up does not need; None to read all.
        footers: those that were read before, for look-ups; None to read them.
        file_names: names the columns of files that were written before columns were renamed.
    """

    storage: Storage
    schema: pa.Schema
    rule: MergeRule
    columns: tuple[str, ...]
    threads: bool = False
    spill_folder: str | None = None
    sorted_files: bool = True
    commits: frozenset[str] | None = None
    visible: Container[str] | None = None
    skip_corrupt: bool = False
    keeps_deletes: bool = False
    pruner: RowGroupPruner | KeyPruner | None = None
    footers: KnownFooters | None = None
    file_names: FileNames | None = None

    @property
    def output_schema(self) -> pa.Schema:
        """Schema of the batches that `read` yields."""
        return pa.schema([self.schema.field(name) for name in self.columns])

    def check(self, slices: Iterable[FileSlice]) -> None:
        """Check that all log blocks are of supported kinds, before any row is read; takes some 30 µs per log.

        Raises:
            UnsupportedTable: a block of another version, of an unknown type, or with Java-serialised deletes.
        """
        check_kinds(self.storage, (log for file_slice in slices for log in file_slice.logs))

    def prune(self, file_slice: FileSlice) -> RowGroupCounts:
        """Count what the filter leaves of a slice, from the footers of its files; raises as `blocks`.

        Slices with logs that are merged by hash are not pruned. The keys are read of files whose footers do not declare
        their order. Inline logs are not opened.
        """
        search = self._search(file_slice)
        if not file_slice.is_native or (file_slice.logs and not self.sorted_files):
            return self._of_hashed(self._searched(file_slice, search)) + _left_out(search)
        with ExitStack() as files:
            opened = self._opened(file_slice, files, search)
            if file_slice.logs and not all(file.ascends() for file in opened):
                return RowGroupCounts.of_whole(opened) + _left_out(search)
            return self._prune(opened)[1] + _left_out(search)

    def read(self, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        """Read the live records of one slice; raises as `blocks`."""
        # Arrow loses the number of rows in a new batch without columns, and keeps it when selecting no columns.
        held = self.columns or (RECORD_KEY,)
        schema = pa.schema([self.schema.field(name) for name in held])
        for block in self._merged(file_slice, LogCounts(), None, held):
            assert isinstance(block, Block)
            for batch in block.rows.select(held).to_batches():
                if batch.num_rows:
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema).select(list(self.columns))

    def blocks(self, file_slice: FileSlice, counts: LogCounts | None = None) -> Iterator[Block]:
        """Merge one slice; the rows ascend by key in a table of sorted files, else follow the order of the base file.

        A table of sorted files may have unsorted files of another program; their rows are merged by hash, then sorted.

        Args:
            file_slice: the slice to read.
            counts: receives the counts of the log blocks and records read.

        Yields:
            Blocks with `columns`, the key, and the columns of `rule`.

        Raises:
            CorruptFileError: a file is missing or damaged, or its footer contradicts its name.
            UnsupportedTable: a file has a feature that is not supported.
            StorageError: a file cannot be opened at present, or the local disk has no room for the spill files.
        """
        return (part for part in self.parts(file_slice, counts, None) if isinstance(part, Block))

    def parts(
        self, file_slice: FileSlice, counts: LogCounts | None, copies: CopyRules | None
    ) -> Iterator[Block | StoredRowGroup]:
        """Merge one slice as `blocks`, but for row groups of the base file that a new file may copy.

        Args:
            file_slice, counts: see `blocks`.
            copies: what these row groups have in common with the new file; None to merge all.
        """
        return self._merged(file_slice, counts or LogCounts(), copies, None)

    def _merged(
        self, file_slice: FileSlice, counts: LogCounts, copies: CopyRules | None, returned: tuple[str, ...] | None
    ) -> Iterator[Block | StoredRowGroup]:
        """Merge one slice; blocks of sorted files have the columns `returned` only, if it is not None."""
        if not self.sorted_files:
            return self._hashed(file_slice, counts)
        if not file_slice.is_native:
            return self._hashed_in_order(file_slice, counts)
        return self._sorted(file_slice, counts, copies, returned)

    @property
    def _needed(self) -> pa.Schema:
        time = () if self.commits is None else (COMMIT_TIME,)
        if self.rule.strategy and not set(self.columns) <= set(META_COLUMNS):
            return self.schema  # a record merger sees whole rows
        names = dict.fromkeys([RECORD_KEY, *time, *self.rule.columns(self.schema), *self.columns])
        return pa.schema([self.schema.field(name) for name in names])

    def _sorted(
        self, file_slice: FileSlice, counts: LogCounts, copies: CopyRules | None, returned: tuple[str, ...] | None
    ) -> Iterator[Block | StoredRowGroup]:
        with ExitStack() as files:
            opened = self._opened(file_slice, files, self._search(file_slice))
            if not all(file.ascends() for file in opened):
                # A file of another program that breaks the layout's order must not lead to wrong rows.
                yield from self._hashed_in_order(file_slice, counts)
                return
            opened = self._pruned(opened)
            logs = [file for file in opened if not file.is_base]
            counts.blocks, counts.records = len(logs), sum(file.rows for file in logs)
            merge = SliceMerge(
                self.rule,
                self._needed,
                self.spill_folder,
                self.threads,
                keeps_deletes=self.keeps_deletes,
                returned=returned,
            )
            # No row of the base file has a key of the deletes that were kept when it was written.
            newer = [log for log in logs if not (log.is_delete and log.instant == file_slice.base_instant)]
            copied = [] if copies is None or file_slice.base is None else copies.groups(opened[0], newer)
            yield from merge.parts(opened, copied)

    def _search(self, file_slice: FileSlice) -> KeySearch | None:
        """Begin the search for the keys of a look-up or a filter in the logs; None without keys or native logs."""
        wanted = None if self.pruner is None or self.commits is not None else self.pruner.wanted
        return None if wanted is None or not file_slice.is_native else KeySearch(wanted)

    def _searched(self, file_slice: FileSlice, search: KeySearch | None) -> FileSlice:
        return file_slice if search is None else searched_slice(self.storage, file_slice, search, self.footers)

    def _opened(self, file_slice: FileSlice, files: ExitStack, search: KeySearch | None) -> list[DataFile]:
        return open_slice(
            self.storage,
            file_slice,
            self.rule,
            files,
            commits=self.commits,
            footers=self.footers,
            file_names=self.file_names,
            search=search,
        )

    def _of_hashed(self, file_slice: FileSlice) -> RowGroupCounts:
        """Count what is read of a slice whose logs, if it has any, are merged by hash."""
        if file_slice.logs:
            return self._whole(file_slice)
        with ExitStack() as files:
            base = file_slice.base
            return self._prune([] if base is None else [open_base(self.storage, base, files, self.file_names)])[1]

    def _whole(self, file_slice: FileSlice) -> RowGroupCounts:
        """Count what the hash merge reads of a slice, by the footers of its Parquet files."""
        found: list[DataFile] = []
        if file_slice.base is not None:
            with ExitStack() as one:
                found.append(open_base(self.storage, file_slice.base, one, self.file_names))
        native: list[tuple[DataFile, LogHeader]] = []
        for log in file_slice.logs:
            if log.is_native:
                with ExitStack() as one:
                    native.append(open_log(self.storage, log, self.rule, one, self.file_names))
        if self.commits is not None:
            native = logs_of_commits(native, log_said, self.commits, file_slice.base_instant)
        if file_slice.is_native:
            native = merge_order(native, log_said, file_slice.base_instant)
        inline = sum(not log.is_native for log in file_slice.logs)
        return RowGroupCounts.of_whole([*found, *(file for file, _ in native)], inline)

    def _pruned(self, opened: list[DataFile]) -> list[DataFile]:
        return opened if self.commits is None and self.pruner is None else self._prune(opened)[0]

    def _prune(self, opened: list[DataFile]) -> tuple[list[DataFile], RowGroupCounts]:
        if self.commits is not None:
            opened = [of_commits(file, self.commits) for file in opened]
        return (self.pruner or RowGroupPruner(Every(()), frozenset(), self.schema)).prune(opened)

    def _hashed_in_order(self, file_slice: FileSlice, counts: LogCounts) -> Iterator[Block]:
        return in_key_order(self._hashed(file_slice, counts), self.spill_folder)

    def log_blocks(self, schema: pa.Schema) -> LogBlocks:
        """Build the reader of the blocks of logs, with the columns `schema`; see `LogBlocks`."""
        return LogBlocks(
            storage=self.storage,
            schema=schema,
            rule=self.rule,
            commits=self.commits,
            visible=self.visible,
            skip_corrupt=self.skip_corrupt,
            file_names=self.file_names,
        )

    def _hashed(self, file_slice: FileSlice, counts: LogCounts) -> Iterator[Block]:
        schema = pa.schema([field.with_nullable(True) for field in self._needed])
        file_slice = self._searched(file_slice, self._search(file_slice))
        if file_slice.logs and OPERATION not in schema.names:
            schema = schema.append(pa.field(OPERATION, pa.string()))
        parts = self.log_blocks(schema).parts(file_slice.logs, file_slice.base_instant)
        counts.blocks, counts.records = len(parts), sum(len(part.rows) for part in parts)
        outcome = fold_logs(parts, schema, self.rule, keeps_deletes=self.keeps_deletes)
        with ExitStack() as files:
            batches: Iterator[pa.RecordBatch] = iter(())
            if file_slice.base is not None:
                bases = [
                    replace(open_base(self.storage, file_slice.base, files, self.file_names), commits=self.commits)
                ]
                if not file_slice.logs:
                    bases = self._pruned(bases)
                batches = chain.from_iterable(base.batches(schema, threads=self.threads) for base in bases)
            yield from merge_base(batches, outcome, self.rule)


def _left_out(search: KeySearch | None) -> RowGroupCounts:
    """Count the logs that a search left out."""
    if search is None:
        return RowGroupCounts()
    files, groups = len(search.closed), sum(file.stored_groups for file in search.closed)
    return RowGroupCounts(
        files=files, files_skipped=files, row_groups=groups, by_bloom=groups, unopened=search.ruled_out
    )
