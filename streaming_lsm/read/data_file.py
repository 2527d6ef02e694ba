"""The files of a slice, opened: what they are is checked, what they hold comes in the table's types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_lsm.errors import CorruptFileError, SchemaError, UnsupportedTable
from streaming_lsm.format.base_footer import AVRO_SCHEMA_KEY
from streaming_lsm.format.log_header import LogHeader, schema_columns
from streaming_lsm.format.names import LogKind
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.read.file_view import BaseFile, FileSlice, LogFile
from streaming_lsm.read.log_order import merge_order
from streaming_lsm.schema import META_COLUMNS, RECORD_KEY
from streaming_lsm.storage.base import Storage

BATCH_ROWS = 131072
"""Rows of a batch where few files are read at once: as many as a row group of ours has."""
_SLICE_ROWS = 1 << 20
_FEWEST_ROWS = 4096


@dataclass(frozen=True)
class DataFile:
    """An open file of a slice.

    Attributes:
        path: relative to the table.
        instant: the instant of its name.
        parquet: its content.
        is_base: whether it is the slice's base file.
        is_delete: whether it is a delete log.
        batch_rows: rows of a batch.
    """

    path: str
    instant: str
    parquet: pq.ParquetFile
    is_base: bool = False
    is_delete: bool = False
    batch_rows: int = BATCH_ROWS

    @cached_property
    def columns(self) -> list[str]:
        """Names of the Parquet columns."""
        return self.parquet.schema_arrow.names

    def batches(self, schema: pa.Schema, *, threads: bool = False) -> Iterator[pa.RecordBatch]:
        """Batches as `schema`, in which the record key is; columns that the file lacks are null.

        Args:
            schema: the columns to read.
            threads: whether to decode columns side by side, for a caller that has no other use for the cores.

        Raises:
            CorruptFileError: the file is damaged.
            SchemaError: a column does not fit the table's.
        """
        present = [name for name in schema.names if name in self.columns]
        found, expected = 0, self.parquet.metadata.num_rows
        try:
            for batch in self.parquet.iter_batches(self.batch_rows, columns=present, use_threads=threads):
                found += batch.num_rows
                yield _conform(batch, schema, self.path)
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptFileError(f"{self.path}: damaged: {error}") from error
        if found != expected:  # the footer has no checksum, and Arrow ends quietly where it leads nowhere
            raise CorruptFileError(f"{self.path}: damaged: {found} of {expected} rows can be read; restore the file")


def open_slice(storage: Storage, file_slice: FileSlice, rule: MergeRule, files: ExitStack) -> list[DataFile]:
    """The files that take part in a merge, in merge order, the base file first.

    Args:
        rule: names the ordering fields, which delete logs must have.
        files: closes them.

    Raises:
        CorruptFileError: a file is missing, damaged, or not what its name says.
        UnsupportedTable: a log of a newer format, or one whose rows carry some columns only.
    """
    opened, batch_rows = [], _batch_rows(len(file_slice.paths))
    if file_slice.base is not None:
        opened.append(_open_base(file_slice.base, _open(storage, file_slice.base.path, files), batch_rows))
    logs = {log.path: _open(storage, log.path, files) for log in file_slice.logs}
    headers = {log.path: _header(log, logs[log.path]) for log in file_slice.logs}
    for log in merge_order(file_slice.logs, headers):
        is_delete = log.name.kind is LogKind.DELETES
        file = DataFile(log.path, log.name.instant, logs[log.path], is_delete=is_delete, batch_rows=batch_rows)
        if is_delete:
            _check_delete_log(file, rule.ordering_fields)
        else:
            _check_columns(file, schema_columns(headers[log.path].schema, log.path))
        opened.append(file)
    return opened


def _open(storage: Storage, path: str, files: ExitStack) -> pq.ParquetFile:
    try:
        source = files.enter_context(storage.open_input(path))
        return files.enter_context(pq.ParquetFile(source, page_checksum_verification=True))
    except FileNotFoundError:
        raise CorruptFileError(f"{path}: the file is gone though its instant is complete; restore it") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFileError(f"{path}: not a readable Parquet file: {error}") from error


def _batch_rows(files: int) -> int:
    """Rows of a batch, so that a slice of many files takes no more memory than one of a few."""
    return max(_FEWEST_ROWS, min(BATCH_ROWS, _SLICE_ROWS // max(1, files)))


def _open_base(base: BaseFile, parquet: pq.ParquetFile, batch_rows: int) -> DataFile:
    file = DataFile(base.path, base.name.instant, parquet, is_base=True, batch_rows=batch_rows)
    # Spark's row writer leaves the schema out (format 10, rule 16); then there is nothing to compare with.
    schema = (parquet.metadata.metadata or {}).get(AVRO_SCHEMA_KEY.encode())
    text = None if schema is None else schema.decode("utf-8", "replace")
    _check_columns(file, () if text is None else schema_columns(text, base.path, AVRO_SCHEMA_KEY))
    return file


def _header(log: LogFile, parquet: pq.ParquetFile) -> LogHeader:
    header = LogHeader.from_footer(parquet.metadata.metadata, log.name, log.path)
    if header.is_partial:
        raise UnsupportedTable(
            f"{log.path}: footer IS_PARTIAL=true: rows with a part of the columns are not read in an lsm_tree table; "
            "compact the file group with the program that wrote them"
        )
    return header


def _check_columns(file: DataFile, promised: Sequence[str]) -> None:
    """The file has the columns that its footer's schema has (format 03, Data log schema)."""
    missing = [name for name in (RECORD_KEY, *promised) if name not in file.columns]
    if missing:
        raise CorruptFileError(
            f"{file.path}: no column {missing[0]!r}, which a file with rows of this table has: it is damaged, or a "
            "delete log under the name of a data file; restore it"
        )


def _check_delete_log(file: DataFile, ordering_fields: Sequence[str]) -> None:
    """The file has the record key, what orders a delete, and no other meta column (format 03, Delete log schema)."""
    missing = [name for name in (RECORD_KEY, *ordering_fields) if name not in file.columns]
    if missing:
        raise CorruptFileError(f"{file.path}: no column {missing[0]!r}, which a delete log of this table has")
    strange = [name for name in META_COLUMNS if name != RECORD_KEY and name in file.columns]
    if strange:
        raise CorruptFileError(
            f"{file.path}: has a column {strange[0]!r}, as data logs do, under the name of a delete log; restore it"
        )


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
