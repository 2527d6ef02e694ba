"""Merging the files of one slice, however many: scans, compactions and copy on write all come through here.

A merge has all its runs open at once. Where a slice has more files than may be open, neighbours in merge order are
brought together first into files on a local disk, every row of them, by key and then in their order; so that the one
merge at the end decides as if it had read the files themselves. The base file, by far the largest, is always read
directly (docs/format/05-merge.md, "Opened-file bound"; which of the logs are brought together is the reader's own
choice).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_lsm.file_group.data_file import MAX_OPEN_FILES, DataFile
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.runs import Block, SortedRun, interleave_runs, merge_runs
from streaming_lsm.schema import OPERATION, delete_log_schema
from streaming_lsm.storage.spill_file import SpillFile

_DELETE = "_lsm_delete"
"""Marks the deletes among the rows of a spilled file; no column of a table may begin with ``_lsm_``."""


@dataclass(frozen=True)
class SliceMerge:
    """How the files of slices are merged.

    Attributes:
        rule: the table's merge semantics.
        columns: the columns that the blocks shall have, among them the key and what the rule asks for.
        spill_folder: a folder on a local disk for slices of many files; None means the system's for temporary files.
        threads: whether a slice has more than one core for itself.
        max_open: files that may be open at once; files on the local disk come on top, one for each `max_open` logs.
    """

    rule: MergeRule
    columns: pa.Schema
    spill_folder: str | None = None
    threads: bool = False
    max_open: int = MAX_OPEN_FILES

    def blocks(self, files: Sequence[DataFile]) -> Iterator[Block]:
        """Merge files that are in merge order.

        Yields:
            Blocks with the columns asked for, and the changelog column where a file has one.

        Raises:
            CorruptFileError: a file is damaged.
            StorageError: there is no room for what has to be spilled, or no more files may be open.
        """
        with ExitStack() as held:
            schema = self._data_schema(files)
            parts: list[_Part] = [_Stored(file, schema, self) for file in files]
            while len(parts) > self.max_open:
                first, last = self._next_pass(parts)
                spilled = self._spill(parts[first:last], schema, files)
                held.callback(spilled.file.close)
                parts[first:last] = [spilled]
            yield from merge_runs([part.open(held) for part in parts], self.rule)

    def _data_schema(self, files: Sequence[DataFile]) -> pa.Schema:
        """Columns to read from data files; the changelog column is no table column and in few files."""
        fields = [field.with_nullable(True) for field in self.columns]
        if OPERATION not in self.columns.names and any(OPERATION in file.columns for file in files):
            fields.append(pa.field(OPERATION, pa.string()))
        return pa.schema(fields)

    def _next_pass(self, parts: Sequence[_Part]) -> tuple[int, int]:
        """The neighbours to bring together next: as many as must and may be, with the fewest rows."""
        count = min(self.max_open, len(parts) - self.max_open + 1)
        total = np.cumsum([0, *(part.rows for part in parts)])
        begin = int(parts[0].is_base)
        first = begin + int(np.argmin((total[count:] - total[:-count])[begin:]))
        return first, first + count

    def _spill(self, parts: Sequence[_Part], schema: pa.Schema, files: Sequence[DataFile]) -> _Spilled:
        rows, size = min(file.batch_rows for file in files), min(file.batch_bytes for file in files)
        marked = schema.append(pa.field(_DELETE, pa.bool_()))
        with ExitStack() as opened:
            runs = [_with_marks(part.open(opened), marked) for part in parts]
            file = SpillFile(self.spill_folder, marked, _rebatched(interleave_runs(runs), rows, size))
        return _Spilled(file, sum(part.rows for part in parts))


@dataclass(frozen=True)
class _Stored:
    """A file of the slice."""

    data: DataFile
    schema: pa.Schema
    merge: SliceMerge

    @property
    def rows(self) -> int:
        return self.data.rows

    @property
    def is_base(self) -> bool:
        return self.data.is_base

    def open(self, opened: ExitStack) -> SortedRun:
        """The file as a run; `opened` ends the reading."""
        is_delete = self.data.is_delete
        schema = delete_log_schema(self.schema, self.merge.rule.ordering_fields) if is_delete else self.schema
        batches = opened.enter_context(closing(self.data.batches(schema, threads=self.merge.threads)))
        return SortedRun(self.data.path, batches, deletes=is_delete, base=self.is_base)


@dataclass(frozen=True)
class _Spilled:
    """Several neighbours in one file of this process."""

    file: SpillFile
    rows: int
    is_base: bool = False

    def open(self, opened: ExitStack) -> SortedRun:
        """The file as a run, which can be read once."""
        opened.callback(self.file.close)
        return SortedRun("a spilled run", self.file.batches(), marks=_DELETE, trusted=True)


_Part = _Stored | _Spilled


def _with_marks(run: SortedRun, schema: pa.Schema) -> SortedRun:
    """A run as a data run whose deletes are marked; what a delete log does not have is null."""
    if run.marks is not None:
        return run
    return SortedRun(run.source, (_marked(batch, schema, run.deletes) for batch in run.batches), marks=_DELETE)


def _marked(batch: pa.RecordBatch, schema: pa.Schema, deleted: bool) -> pa.RecordBatch:
    names, count = batch.schema.names, batch.num_rows
    columns = [
        batch.column(field.name) if field.name in names else pa.nulls(count, field.type)
        for field in schema
        if field.name != _DELETE
    ]
    return pa.RecordBatch.from_arrays([*columns, pa.repeat(deleted, count)], schema=schema)


def _rebatched(tables: Iterable[pa.Table], rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Batches of so many rows, or of about so many bytes if these are fewer rows, whatever the tables have."""
    waiting: list[pa.Table] = []
    count = held = 0
    for table in tables:
        waiting.append(table)
        count, held = count + len(table), held + table.nbytes
        if count >= rows or held >= size:
            yield from _joined(waiting, min(rows, max(1, size * count // max(1, held))))
            waiting.clear()
            count = held = 0
    if waiting:
        yield from _joined(waiting, rows)


def _joined(tables: Sequence[pa.Table], rows: int) -> list[pa.RecordBatch]:
    return pa.concat_tables(tables).combine_chunks().to_batches(max_chunksize=rows)
