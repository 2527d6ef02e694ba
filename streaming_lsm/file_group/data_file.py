"""The files of a slice, opened: what they are is checked, what they hold comes in the table's types."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_lsm.config import READ_THREADS
from streaming_lsm.errors import CorruptFileError, LsmError, SchemaError, StorageError, UnsupportedTable
from streaming_lsm.file_group.file_system_view import BaseFile, FileSlice, LogFile
from streaming_lsm.file_group.log_order import logs_of_commits, merge_order
from streaming_lsm.format.base_file_footer import AVRO_SCHEMA_KEY
from streaming_lsm.format.log.native_footer import LogHeader, schema_columns
from streaming_lsm.format.table.file_names import LogFileName
from streaming_lsm.keys.java_text import to_java_text
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.schema import COMMIT_TIME, META_COLUMNS, RECORD_KEY
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.failures import is_unreadable, no_more_files

BATCH_ROWS = 131072
"""Rows of a batch where few files are read at once: as many as a row group of ours has."""
_SLICE_ROWS = 1 << 20
BATCH_BYTES = 32 << 20
"""Bytes of a batch in memory, about, where few files are read at once: rows are fewer where they are wider."""
_SLICE_BYTES = 256 << 20
MAX_OPEN_FILES = 100
"""Files of one slice that are open at once; their Parquet footers and batches are what a merge holds in memory."""
_LARGE_FILE = 8 << 20
_BUFFER = 256 << 10
"""Bytes of each column of a large file that are read at a time."""


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
        batch_rows: rows of a batch, at most.
        batch_bytes: bytes of a batch, about.
        parquet: its content; None in a slice of many files, each of which is opened when it is read.
        commits: instants whose rows are read, by their commit time; None for all.
        declared: whether its footer says that the rows ascend by record key.
    """

    storage: Storage
    path: str
    instant: str
    columns: tuple[str, ...]
    rows: int
    is_base: bool = False
    is_delete: bool = False
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    parquet: pq.ParquetFile | None = None
    commits: frozenset[str] | None = None
    declared: bool = False

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
        wanted = schema.names if self.commits is None else [*schema.names, COMMIT_TIME]
        there = set(self.columns)
        present = [name for name in dict.fromkeys(wanted) if name in there]
        found = 0
        with ExitStack() as files:
            parquet = self.parquet or _open(self.storage, self.path, files)
            try:
                for batch in self._read(parquet, present, threads):
                    found += batch.num_rows
                    yield conform(self._of_commits(batch), schema, self.path)
            except (pa.ArrowInvalid, OSError) as error:
                raise _unread(self.path, "damaged", error) from error
        if found != self.rows:  # the footer has no checksum, and Arrow ends quietly where it leads nowhere
            raise CorruptFileError(f"{self.path}: damaged: {found} of {self.rows} rows can be read; restore the file")

    def ascends(self, *, distinct: bool = False) -> bool:
        """Whether the rows ascend by record key; where the footer does not say so, all keys are read to find out.

        Args:
            distinct: whether no key may come twice, either; the footer says nothing of that.
        """
        if self.declared and not distinct:
            return True
        falls = pc.less_equal if distinct else pc.less
        last: pa.Array[Any] = pa.array([], pa.string())
        for batch in self.batches(pa.schema([(RECORD_KEY, pa.string())])):
            keys = pa.concat_arrays([last, batch.column(RECORD_KEY)])
            if pc.any(falls(keys[1:], keys[:-1])).as_py():
                return False
            last = keys[-1:]
        return True

    def _of_commits(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.commits is None:
            return batch
        return batch.filter(pc.is_in(batch.column(COMMIT_TIME), pa.array(sorted(self.commits), pa.string())))

    def _read(self, parquet: pq.ParquetFile, columns: list[str], threads: bool) -> Iterator[pa.RecordBatch]:
        """The file's batches, of as many rows as have about `batch_bytes` in memory.

        The footer tells how wide rows are in the file, all columns together. (It tells more of each column, but asking
        for that ends the process on some damaged files.) How much of it the columns in question take, and how much
        larger they are in memory, is seen as the file is read; so the first row group is read by itself.
        """
        groups = [parquet.metadata.row_group(place) for place in range(parquet.metadata.num_row_groups)]
        stored = [max(1, group.total_byte_size) for group in groups]
        widths = [max(1.0, size / max(1, group.num_rows)) for size, group in zip(stored, groups, strict=True)]
        begin, ratio = 0, 1.0
        while begin < len(groups):
            rows, end = self._rows(widths[begin] * ratio), begin + 1
            while begin and end < len(groups) and self._rows(widths[end] * ratio) == rows:
                end += 1
            held = 0
            stretch = list(range(begin, end))
            for batch in parquet.iter_batches(rows, row_groups=stretch, columns=columns, use_threads=threads):
                held += batch.nbytes
                yield batch
            begin, ratio = end, held / sum(stored[begin:end])

    def _rows(self, width: float) -> int:
        # A power of two, so that row groups of about one width are read in one go, and batches end where they do.
        return min(self.batch_rows, 1 << max(1, int(self.batch_bytes / max(1.0, width))).bit_length() - 1)


def _is_declared_ascending(parquet: pq.ParquetFile) -> bool:
    """Whether every row group is said to ascend by record key."""
    places = [place for place, name in enumerate(parquet.schema.names) if name == RECORD_KEY]
    groups = (parquet.metadata.row_group(place) for place in range(parquet.metadata.num_row_groups))
    return all(
        bool(order) and not order[0].descending and order[0].column_index in places
        for order in (group.sorting_columns for group in groups)
    )


def open_slice(
    storage: Storage,
    file_slice: FileSlice,
    rule: MergeRule,
    files: ExitStack,
    batch_bytes: int = BATCH_BYTES,
    commits: frozenset[str] | None = None,
) -> list[DataFile]:
    """The files that take part in a merge, in merge order, the base file first.

    Every footer is read and checked here. The files of a slice of up to `MAX_OPEN_FILES` stay open; others are opened
    again when they are read.

    Args:
        rule: names the ordering fields, which delete logs must have.
        files: closes them.
        batch_bytes: bytes of a file's batch, about and at most; less where a slice has many files.
        commits: instants whose rows take part, for an incremental read; None for all.

    Raises:
        CorruptFileError: a file is missing, damaged, or not what its name says.
        UnsupportedTable: a log of a newer format, or one whose rows carry some columns only.
        StorageError: a file cannot be opened for now.
    """
    count = max(1, min(len(file_slice.paths), MAX_OPEN_FILES))
    kept = files if len(file_slice.paths) <= MAX_OPEN_FILES else None
    # So that a slice of many files takes no more memory than one of a few.
    look = _FooterReader(storage, kept, min(BATCH_ROWS, _SLICE_ROWS // count), min(batch_bytes, _SLICE_BYTES // count))
    opened = [] if file_slice.base is None else [look.base(file_slice.base)]
    found = [look.log(log) for log in file_slice.logs]
    if commits is not None:
        found = logs_of_commits(found, _said, commits)
        opened = [replace(base, commits=commits) for base in opened]
    for file, header in merge_order(found, _said):
        log = _checked(file, header, rule)
        opened.append(replace(log, commits=commits) if header.compacted and not log.is_delete else log)
    return opened


def _said(log: tuple[DataFile, LogHeader]) -> tuple[str, tuple[str, ...]]:
    return log[0].instant, log[1].compacted


def open_base(storage: Storage, base: BaseFile, files: ExitStack) -> DataFile:
    """A base file by itself; raises as `open_slice`."""
    return _FooterReader(storage, files).base(base)


def open_log(storage: Storage, log: LogFile, rule: MergeRule, files: ExitStack) -> tuple[DataFile, LogHeader]:
    """A native log by itself, which may have a part of the columns; raises as `open_slice`."""
    file, header = _FooterReader(storage, files, partial=True).log(log)
    return _checked(file, header, rule), header


def _checked(file: DataFile, header: LogHeader, rule: MergeRule) -> DataFile:
    if file.is_delete:
        _check_delete_log(file, rule.ordering_fields)
    else:
        _check_columns(file, schema_columns(header.schema, file.path))
    return file


@dataclass(frozen=True)
class _FooterReader:
    """Reads the footers of a slice's files; `kept` holds those that stay open, None closes each again.

    Logs whose rows have a part of the columns are refused but where `partial` is set.
    """

    storage: Storage
    kept: ExitStack | None
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    partial: bool = False

    def base(self, base: BaseFile) -> DataFile:
        file, metadata = self._file(base.path, base.name.instant, is_base=True)
        # Spark's row writer leaves the schema out (docs/format/10-rules.md, "Rule 16"); then there is nothing to
        # compare with.
        schema = metadata.get(AVRO_SCHEMA_KEY.encode())
        text = None if schema is None else schema.decode("utf-8", "replace")
        _check_columns(file, () if text is None else schema_columns(text, base.path, AVRO_SCHEMA_KEY))
        return file

    def log(self, log: LogFile) -> tuple[DataFile, LogHeader]:
        file, metadata = self._file(log.path, log.name.instant, is_delete=log.is_delete)
        assert isinstance(log.name, LogFileName)
        header = LogHeader.from_footer(metadata, log.name, log.path)
        if header.is_partial and not self.partial:
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
                storage=self.storage,
                path=path,
                instant=instant,
                columns=tuple(parquet.schema_arrow.names),
                rows=metadata.num_rows,
                is_base=is_base,
                is_delete=is_delete,
                batch_rows=self.batch_rows,
                batch_bytes=self.batch_bytes,
                parquet=parquet if self.kept else None,
                declared=_is_declared_ascending(parquet),
            )
            return file, metadata.metadata or {}


def _open(storage: Storage, path: str, files: ExitStack) -> pq.ParquetFile:
    try:
        source = files.enter_context(storage.open_input(path))
        # Without a buffer all of a row group's bytes are read at once, and with `pre_buffer` those of the whole file,
        # which stay until it is closed. Both help with storage far away.
        buffer = _BUFFER if source.size() > _LARGE_FILE else 0
        parquet = pq.ParquetFile(source, page_checksum_verification=True, buffer_size=buffer, pre_buffer=False)
        return files.enter_context(parquet)
    except FileNotFoundError:
        raise CorruptFileError(
            f"{path}: the file is gone though its instant is complete: if a clean deleted it while it was to be read, "
            "read again (hoodie.clean.commits.retained keeps more), else restore it"
        ) from None
    except (pa.ArrowInvalid, OSError) as error:
        raise _unread(path, "not a readable Parquet file", error) from error


def _unread(path: str, otherwise: str, error: Exception) -> LsmError:
    """What to raise when reading failed: only what the system is not to blame for is a damaged file."""
    if isinstance(error, OSError) and no_more_files(error):
        return StorageError(
            f"{path}: too many files are open ({error}): raise the limit (ulimit -n), or lower {READ_THREADS.key}; "
            f"a slice is read with about {MAX_OPEN_FILES} open files"
        )
    if isinstance(error, OSError) and is_unreadable(error):
        return StorageError(f"{path}: cannot be read now ({error}): see to the disk or the file's permissions")
    return CorruptFileError(f"{path}: {otherwise}: {error}")


def _check_columns(file: DataFile, promised: Sequence[str]) -> None:
    """The file has the columns that its footer's schema has (docs/format/03-native-logs.md, "Data log schema")."""
    there = set(file.columns)
    missing = [name for name in (RECORD_KEY, *promised) if name not in there]
    if missing:
        raise CorruptFileError(
            f"{file.path}: no column {missing[0]!r}, which a file with rows of this table has: it is damaged, or a "
            "delete log under the name of a data file; restore it"
        )


def _check_delete_log(file: DataFile, ordering_fields: Sequence[str]) -> None:
    """The file has the record key, what orders a delete, and no other meta column.

    See docs/format/03-native-logs.md, "Delete log schema".
    """
    missing = [name for name in (RECORD_KEY, *ordering_fields) if name not in file.columns]
    if missing:
        raise CorruptFileError(f"{file.path}: no column {missing[0]!r}, which a delete log of this table has")
    strange = [name for name in META_COLUMNS if name != RECORD_KEY and name in file.columns]
    if strange:
        raise CorruptFileError(
            f"{file.path}: has a column {strange[0]!r}, as data logs do, under the name of a delete log; restore it"
        )


def conform(batch: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.RecordBatch:
    """`batch` with the columns of `schema` in its types; those that it lacks are null.

    Raises:
        SchemaError: a column of another type, which cannot be cast.
    """
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
        if pa.types.is_floating(column.type) and pa.types.is_string(field.type):
            return to_java_text(column)  # as Hudi prints them
        promoted = pa.types.is_integer(column.type) and pa.types.is_floating(field.type)
        return pc.cast(column, field.type, safe=not promoted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(f"{path}: column {field.name!r} is {column.type}, the table has {field.type}") from error
