"""One file slice → its live records, ascending by record key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.read.data_file import open_slice
from streaming_lsm.read.file_view import FileSlice
from streaming_lsm.read.slice_merge import SliceMerge
from streaming_lsm.schema import RECORD_KEY
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
        spill_folder: a folder on a local disk for slices of many files; None means the system's for temporary files.
    """

    storage: Storage
    schema: pa.Schema
    rule: MergeRule
    columns: tuple[str, ...]
    threads: bool = False
    spill_folder: str | None = None

    @property
    def output_schema(self) -> pa.Schema:
        """Schema of the batches that `read` yields."""
        return pa.schema([self.schema.field(name) for name in self.columns])

    def read(self, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        """Live records of one slice.

        Raises:
            CorruptFileError: a file is missing, damaged, or not what its name says.
            UnsupportedTable: a file has a feature that is not supported.
            StorageError: a file cannot be opened for now, or there is no room for what has to be spilled.
        """
        # Arrow forgets the number of rows when it makes a batch of no columns, and keeps it in a selection.
        held = self.columns or (RECORD_KEY,)
        schema = pa.schema([self.schema.field(name) for name in held])
        with ExitStack() as files:
            opened = open_slice(self.storage, file_slice, self.rule, files)
            for block in self._merge.blocks(opened):
                for batch in block.rows.select(held).to_batches():
                    if batch.num_rows:
                        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema).select(list(self.columns))

    @property
    def _merge(self) -> SliceMerge:
        names = dict.fromkeys([RECORD_KEY, *self.rule.columns(self.schema), *self.columns])
        needed = pa.schema([self.schema.field(name) for name in names])
        return SliceMerge(self.rule, needed, self.spill_folder, self.threads)
