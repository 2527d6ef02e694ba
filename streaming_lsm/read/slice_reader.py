"""One file slice → its live records, ascending by record key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.runs import Run, merge_runs
from streaming_lsm.read.data_file import DataFile, open_slice
from streaming_lsm.read.file_view import FileSlice
from streaming_lsm.schema import OPERATION, RECORD_KEY, delete_log_schema
from streaming_lsm.storage.base import Storage


@dataclass(frozen=True)
class SliceReader:
    """Reads file slices of one table; picklable, so that it travels to executors.

    Attributes:
        storage: the table's files.
        schema: columns of a data file as the reader wants them, meta columns included.
        rule: the table's merge semantics.
        columns: the columns to return, in this order; none gives batches that only have a number of rows.
        threads: whether a slice has more than one core for itself.
    """

    storage: Storage
    schema: pa.Schema
    rule: MergeRule
    columns: tuple[str, ...]
    threads: bool = False

    @property
    def output_schema(self) -> pa.Schema:
        """Schema of the batches that `read` yields."""
        return pa.schema([self.schema.field(name) for name in self.columns])

    def read(self, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        """Live records of one slice.

        Raises:
            CorruptFileError: a file is missing, damaged, or not what its name says.
            UnsupportedTable: a file has a feature that is not supported.
        """
        # Arrow forgets the number of rows when it makes a batch of no columns, and keeps it in a selection.
        held = self.columns or (RECORD_KEY,)
        schema = pa.schema([self.schema.field(name) for name in held])
        with ExitStack() as files:
            for block in merge_runs(self._runs(file_slice, files), self.rule):
                for batch in block.rows.select(held).to_batches():
                    if batch.num_rows:
                        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema).select(list(self.columns))

    def _runs(self, file_slice: FileSlice, files: ExitStack) -> list[Run]:
        opened = open_slice(self.storage, file_slice, self.rule, files)
        data, deletes = self._data_schema(opened), delete_log_schema(self.schema, self.rule.ordering_fields)
        return [
            Run(
                file.path,
                file.batches(deletes if file.is_delete else data, threads=self.threads),
                deletes=file.is_delete,
                base=file.is_base,
            )
            for file in opened
        ]

    def _data_schema(self, files: Sequence[DataFile]) -> pa.Schema:
        """Columns to read from data files; the changelog column is no table column and in few files."""
        names = dict.fromkeys([RECORD_KEY, *self.rule.columns(self.schema), *self.columns])
        fields = [self.schema.field(name).with_nullable(True) for name in names]
        if OPERATION not in names and any(OPERATION in file.columns for file in files):
            fields.append(pa.field(OPERATION, pa.string()))
        return pa.schema(fields)
