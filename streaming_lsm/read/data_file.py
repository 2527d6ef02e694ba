"""The files of a slice, opened: what they are is checked, what they hold comes in the table's types."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_lsm.config import READ_THREADS
from streaming_lsm.errors import CorruptFileError, LsmError, SchemaError, StorageError, UnsupportedTable
from streaming_lsm.format.base_footer import AVRO_SCHEMA_KEY
from streaming_lsm.format.log_header import LogHeader, schema_columns
from streaming_lsm.format.names import LogKind
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.read.file_view import BaseFile, FileSlice, LogFile
from streaming_lsm.read.log_order import merge_order
from streaming_lsm.schema import META_COLUMNS, RECORD_KEY
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.failures import is_unreadable, no_more_files

BATCH_ROWS = 131072
"""Rows of a batch where few files are read at once: as many as a row group of ours has."""
_SLICE_ROWS = 1 << 20
MOST_OPEN = 100
"""Files of one slice that are open at once; their Parquet footers and batches are what a merge holds in memory."""


@dataclass(frozen=True)
class DataFile:
    """A file of a slice, checked to be what its name says.

    Attributes:
        storage: the table's files.
        path: relative to the table.
        instant: the instant of its name.
        columns: names of the Parquet columns.
        rows: their number.
        is_base: whether it is the slice's base file.
        is_delete: whether it is a delete log.
        batch_rows: rows of a batch.
        parquet: its content; None in a slice of many files, each of which is opened when it is read.
    """

    storage: Storage
    path: str
    instant: str
    columns: tuple[str, ...]
    rows: int
    is_base: bool = False
    is_delete: bool = False
    batch_rows: int = BATCH_ROWS
    parquet: pq.ParquetFile | None = None

    def batches(self, schema: pa.Schema, *, threads: bool = False) -> Generator[pa.RecordBatch, None, None]:
        """Batches as `schema`, in which the record key is; columns that the file lacks are null.

        Args:
            schema: the columns to read.
            threads: whether to decode columns side by side, for a caller that has no other use for the cores.

        Raises:
            CorruptFileError: the file is gone or damaged.
            SchemaError: a column does not fit the table's.
            StorageError: it cannot be read for now.
        """
        present = [name for name in schema.names if name in self.columns]
        found = 0
        with ExitStack() as files:
            parquet = self.parquet or _open(self.storage, self.path, files)
            try:
                for batch in parquet.iter_batches(self.batch_rows, columns=present, use_threads=threads):
                    found += batch.num_rows
                    yield _conform(batch, schema, self.path)
            except (pa.ArrowInvalid, OSError) as error:
                raise _unread(self.path, "damaged", error) from error
        if found != self.rows:  # the footer has no checksum, and Arrow ends quietly where it leads nowhere
            raise CorruptFileError(f"{self.path}: damaged: {found} of {self.rows} rows can be read; restore the file")


def open_slice(storage: Storage, file_slice: FileSlice, rule: MergeRule, files: ExitStack) -> list[DataFile]:
    """The files that take part in a merge, in merge order, the base file first.

    Every footer is read and checked here. The files of a slice of up to `MOST_OPEN` stay open; others are opened again
    when they are read.

    Args:
        rule: names the ordering fields, which delete logs must have.
        files: closes them.

    Raises:
        CorruptFileError: a file is missing, damaged, or not what its name says.
        UnsupportedTable: a log of a newer format, or one whose rows carry some columns only.
        StorageError: a file cannot be opened for now.
    """
    look = _Look(storage, files if len(file_slice.paths) <= MOST_OPEN else None, _batch_rows(len(file_slice.paths)))
    opened = [] if file_slice.base is None else [look.base(file_slice.base)]
    logs = {log.path: look.log(log) for log in file_slice.logs}
    headers = {path: header for path, (_, header) in logs.items()}
    for log in merge_order(file_slice.logs, headers):
        file = logs[log.path][0]
        if file.is_delete:
            _check_delete_log(file, rule.ordering_fields)
        else:
            _check_columns(file, schema_columns(headers[log.path].schema, log.path))
        opened.append(file)
    return opened


@dataclass(frozen=True)
class _Look:
    """Reads the footers of a slice's files; `kept` holds those that stay open, None closes each again."""

    storage: Storage
    kept: ExitStack | None
    batch_rows: int

    def base(self, base: BaseFile) -> DataFile:
        file, metadata = self._file(base.path, base.name.instant, is_base=True)
        # Spark's row writer leaves the schema out (format 10, rule 16); then there is nothing to compare with.
        schema = metadata.get(AVRO_SCHEMA_KEY.encode())
        text = None if schema is None else schema.decode("utf-8", "replace")
        _check_columns(file, () if text is None else schema_columns(text, base.path, AVRO_SCHEMA_KEY))
        return file

    def log(self, log: LogFile) -> tuple[DataFile, LogHeader]:
        file, metadata = self._file(log.path, log.name.instant, is_delete=log.name.kind is LogKind.DELETES)
        header = LogHeader.from_footer(metadata, log.name, log.path)
        if header.is_partial:
            raise UnsupportedTable(
                f"{log.path}: footer IS_PARTIAL=true: rows with a part of the columns are not read in an lsm_tree "
                "table; compact the file group with the program that wrote them"
            )
        return file, header

    def _file(
        self, path: str, instant: str, *, is_base: bool = False, is_delete: bool = False
    ) -> tuple[DataFile, dict[bytes, bytes]]:
        with ExitStack() as closed:
            parquet = _open(self.storage, path, self.kept or closed)
            metadata = parquet.metadata
            file = DataFile(
                self.storage,
                path,
                instant,
                tuple(parquet.schema_arrow.names),
                metadata.num_rows,
                is_base,
                is_delete,
                self.batch_rows,
                parquet if self.kept else None,
            )
            return file, metadata.metadata or {}


def _open(storage: Storage, path: str, files: ExitStack) -> pq.ParquetFile:
    try:
        source = files.enter_context(storage.open_input(path))
        return files.enter_context(pq.ParquetFile(source, page_checksum_verification=True))
    except FileNotFoundError:
        raise CorruptFileError(f"{path}: the file is gone though its instant is complete; restore it") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise _unread(path, "not a readable Parquet file", error) from error


def _unread(path: str, otherwise: str, error: Exception) -> LsmError:
    """What to raise when reading failed: only what the system is not to blame for is a damaged file."""
    if isinstance(error, OSError) and no_more_files(error):
        return StorageError(
            f"{path}: too many files are open ({error}): raise the limit (ulimit -n), or lower {READ_THREADS.key}; "
            f"a slice is read with about {MOST_OPEN} open files"
        )
    if isinstance(error, OSError) and is_unreadable(error):
        return StorageError(f"{path}: cannot be read now ({error}): see to the disk or the file's permissions")
    return CorruptFileError(f"{path}: {otherwise}: {error}")


def _batch_rows(files: int) -> int:
    """Rows of a batch, so that a slice of many files takes no more memory than one of a few."""
    return min(BATCH_ROWS, _SLICE_ROWS // max(1, min(files, MOST_OPEN)))


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
