"""One file slice → its live records, ascending by record key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_lsm.errors import CorruptFileError, SchemaError
from streaming_lsm.format.log_header import LogHeader
from streaming_lsm.format.names import LogKind
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.runs import Run, merge_runs
from streaming_lsm.read.file_view import FileSlice, LogFile
from streaming_lsm.read.log_order import merge_order
from streaming_lsm.schema import OPERATION, RECORD_KEY, delete_log_schema
from streaming_lsm.storage.base import Storage

BATCH_ROWS = 65536


@dataclass(frozen=True)
class SliceReader:
    """Reads file slices of one table; picklable, so that it travels to executors.

    Attributes:
        storage: the table's files.
        schema: columns of a data file as the reader wants them, meta columns included.
        rule: the table's merge semantics.
        columns: the columns to return, in this order.
    """

    storage: Storage
    schema: pa.Schema
    rule: MergeRule
    columns: tuple[str, ...]

    @property
    def output_schema(self) -> pa.Schema:
        """Schema of the batches that `read` yields."""
        return pa.schema([self.schema.field(name) for name in self.columns])

    def read(self, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        """Live records of one slice.

        Raises:
            CorruptFileError: a file is missing, damaged, or not what its name says.
        """
        with ExitStack() as files:
            for block in merge_runs(self._runs(file_slice, files), self.rule):
                for batch in block.select(self.columns).to_batches():
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=self.output_schema)

    def _runs(self, file_slice: FileSlice, files: ExitStack) -> list[Run]:
        opened = {path: self._open(path, files) for path in file_slice.paths}
        data, deletes = self._data_schema(opened.values()), self._delete_schema()
        runs = []
        if file_slice.base is not None:
            path = file_slice.base.path
            runs.append(Run(path, _batches(opened[path], data, path), base=True))
        for log in self._merge_order(file_slice, opened):
            is_delete = log.name.kind is LogKind.DELETES
            batches = _batches(opened[log.path], deletes if is_delete else data, log.path)
            runs.append(Run(log.path, batches, deletes=is_delete))
        return runs

    def _merge_order(self, file_slice: FileSlice, opened: dict[str, pq.ParquetFile]) -> list[LogFile]:
        headers = {
            log.path: LogHeader.from_footer(opened[log.path].metadata.metadata, log.name, log.path)
            for log in file_slice.logs
        }
        return merge_order(file_slice.logs, headers)

    def _data_schema(self, files: Iterable[pq.ParquetFile]) -> pa.Schema:
        """Columns to read from data files; the changelog column is no table column and in few files."""
        names = dict.fromkeys([RECORD_KEY, *self.rule.columns(self.schema), *self.columns])
        fields = [self.schema.field(name).with_nullable(True) for name in names]
        if OPERATION not in names and any(OPERATION in file.schema_arrow.names for file in files):
            fields.append(pa.field(OPERATION, pa.string()))
        return pa.schema(fields)

    def _delete_schema(self) -> pa.Schema:
        return delete_log_schema(self.schema, self.rule.ordering_fields)

    def _open(self, path: str, files: ExitStack) -> pq.ParquetFile:
        try:
            source = files.enter_context(self.storage.open_input(path))
            return files.enter_context(pq.ParquetFile(source, page_checksum_verification=True))
        except FileNotFoundError:
            raise CorruptFileError(f"{path}: the file is gone though its instant is complete; restore it") from None
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptFileError(f"{path}: not a readable Parquet file: {error}") from error


def _batches(file: pq.ParquetFile, schema: pa.Schema, path: str) -> Iterator[pa.RecordBatch]:
    """Batches of a file, as `schema`; columns the file lacks are null."""
    present = [name for name in schema.names if name in file.schema_arrow.names]
    if RECORD_KEY not in present:
        raise CorruptFileError(f"{path}: no column {RECORD_KEY}")
    found, expected = 0, file.metadata.num_rows
    try:
        for batch in file.iter_batches(BATCH_ROWS, columns=present):
            found += batch.num_rows
            yield _conform(batch, schema, path)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFileError(f"{path}: damaged: {error}") from error
    if found != expected:  # the footer has no checksum, and Arrow ends quietly where it leads nowhere
        raise CorruptFileError(f"{path}: damaged: {found} of {expected} rows can be read; restore the file")


def _conform(batch: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        elif batch.column(index).type.equals(field.type):
            arrays.append(batch.column(index))
        else:
            arrays.append(_cast(batch.column(index), field, path))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(column: pa.Array[Any], field: pa.Field[Any], path: str) -> pa.Array[Any]:
    try:
        return pc.cast(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(f"{path}: column {field.name!r} is {column.type}, the table has {field.type}") from error
