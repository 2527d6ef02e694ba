"""Open the Parquet files of file slices, check their footers, and read them as batches in the table's types.

A data file is a base file, a native data log or a native delete log. Data logs have the table's columns, delete logs
the record key and the ordering fields only.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_lsm.arrow.columns import strings
from streaming_lsm.casts import cast_array
from streaming_lsm.config import READ_THREADS
from streaming_lsm.errors import CorruptFileError, LsmError, SchemaError, StorageError, UnsupportedTable
from streaming_lsm.file_group.file_system_view import BaseFile, LogFile
from streaming_lsm.file_group.gone_files import gone_file
from streaming_lsm.file_group.key_filters import WantedKeys
from streaming_lsm.file_group.key_index import KeyIndex
from streaming_lsm.file_group.row_limits import RowLimits
from streaming_lsm.format.base_file_footer import AVRO_SCHEMA_KEY
from streaming_lsm.format.column_versions import FileNames, StoredNames, names_at
from streaming_lsm.format.log.native_footer import LogHeader, schema_columns
from streaming_lsm.format.table.file_names import LogFileName
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.schema import COMMIT_TIME, META_COLUMNS, RECORD_KEY
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.failures import is_unreadable, no_more_files

BATCH_ROWS = 131072
"""Maximum rows of a batch when few files are read at once; it may span several row groups."""
BATCH_BYTES = 32 << 20
"""Approximate bytes of a batch in memory when few files are read at once; batches of wide rows have fewer rows."""
MAX_OPEN_FILES = 100
"""Maximum files of one slice open at once; a merge holds the Parquet footer and a batch of each in memory."""
_KEY_AND_ORDERING = 2
"""Columns of a delete log that are read where the table has one ordering field."""
_LARGE_FILE = 8 << 20
_BUFFER = 256 << 10
"""Bytes read at a time from each column of a large file."""


@dataclass(frozen=True)
class OpenFile:
    """A Parquet file whose footer was read, and its bytes, which stay readable after a clean deleted the file."""

    parquet: pq.ParquetFile
    source: pa.NativeFile


@dataclass(frozen=True)
class DataFile:
    """A file of a slice whose footer was checked against its name.

    Attributes:
        storage: the table's files.
        path: relative to the table.
        instant: the instant of its name.
        columns: the names that the table has now for the Parquet columns.
        rows: number of rows.
        is_base: whether it is the slice's base file.
        is_delete: whether it is a delete log.
        batch_rows: maximum rows of a batch.
        batch_bytes: approximate bytes of a batch.
        opened: the open file; None in a slice of many files, each of which is opened when it is read.
        commits: instants whose rows are read, by `_hoodie_commit_time`; None for all.
        declared: whether the sorting columns of its footer declare that the rows ascend by record key.
        stored_groups: number of row groups that the file has.
        groups: the row groups that are read; None for all.
        key_range: bounds of its record keys, by its statistics; None if a row group has none, or there is no row.
        index: where its record keys may be, if its footer is kept; it is opened when it is read then.
        keys: the record keys whose rows are read; None for all.
        until: of deletes that a compaction wrote again, the time of the newest one; else empty.
        names: how columns are named in the file, if some were renamed since.
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
    opened: OpenFile | None = None
    commits: frozenset[str] | None = None
    declared: bool = False
    stored_groups: int = 0
    groups: tuple[int, ...] | None = None
    key_range: tuple[str, str] | None = None
    index: KeyIndex | None = None
    keys: pa.StringArray | None = None
    until: str = ""
    names: StoredNames | None = None

    @property
    def time(self) -> str:
        """The time of the records of a delete log, which do not say their own."""
        return self.until or self.instant

    @cached_property
    def key_index(self) -> KeyIndex | None:
        """The index of its record keys, by its footer; None of a file that is neither open nor kept."""
        if self.index is not None or self.opened is None:
            return self.index
        metadata = self.opened.parquet.metadata
        return KeyIndex.of(metadata, key_column(metadata), key_ranges(metadata))

    def part(self, groups: Sequence[int]) -> DataFile:
        """Return the file reduced to some of its row groups; it must be open."""
        assert self.opened is not None
        rows = sum(self.opened.parquet.metadata.row_group(number).num_rows for number in groups)
        return replace(self, groups=tuple(groups), rows=rows)

    def named(self, file_names: FileNames | None) -> DataFile:
        """Return the file with the names that its columns have now."""
        names = names_at(file_names, self.instant)
        return self if names is None else replace(self, names=names, columns=names.current(self.columns))

    def admitting(self, wanted: WantedKeys, numbers: Sequence[int]) -> list[int]:
        """Return those of some row groups that may hold a key, by ranges and bloom filters; raises as `of_keys`."""
        index = self.key_index
        if index is None:
            return list(numbers)
        source = None if self.opened is None else self.opened.source
        return index.admitting(self.storage, self.path, wanted, numbers, source)

    def of_keys(self, wanted: WantedKeys) -> DataFile | None:
        """Return the file reduced to rows of some keys; None if it has none of them.

        Raises:
            CorruptFileError: the file is missing, or a bloom filter is damaged.
        """
        index = self.key_index
        if index is None:
            return replace(self, keys=wanted.keys)
        numbers = range(self.stored_groups) if self.groups is None else self.groups
        groups = self.admitting(wanted, numbers)
        rows = sum(index.metadata.row_group(number).num_rows for number in groups)
        return replace(self, keys=wanted.keys, groups=tuple(groups), rows=rows) if groups else None

    def batches(self, schema: pa.Schema, *, threads: bool = False) -> Generator[pa.RecordBatch, None, None]:
        """Read the file as batches of `schema`; columns that the file lacks are null.

        Args:
            schema: the columns to read, the record key among them.
            threads: whether to decode columns in parallel, for a caller that leaves cores idle.

        Raises:
            CorruptFileError: the file is missing or damaged.
            SchemaError: a column cannot be cast to its type in `schema`.
            StorageError: the file cannot be read at present.
        """
        wanted = schema.names if self.commits is None else [*schema.names, COMMIT_TIME]
        there = set(self.columns)
        present = [name for name in dict.fromkeys(wanted) if name in there]
        stored = present if self.names is None else self.names.stored(present)
        found = 0
        with ExitStack() as files:
            opened = self.opened or open_parquet(
                self.storage, self.path, files, None if self.index is None else self.index.metadata
            )
            try:
                for read in self._read(opened, stored, threads):
                    batch = read if self.names is None else self.names.batch(read)
                    found += batch.num_rows
                    yield conform(self._with_marks(self._selected(batch), schema), schema, self.path)
            except (pa.ArrowInvalid, OSError) as error:
                raise _unread(self.path, "damaged", error) from error
        if found != self.rows:  # the footer has no checksum, and Arrow ends without an error at a wrong offset
            raise CorruptFileError(f"{self.path}: damaged: {found} of {self.rows} rows can be read; restore the file")

    def record_keys(self) -> Iterator[pa.StringArray]:
        """Read the record keys of the row groups that are read, of all their rows; raises as `batches`."""
        whole = replace(self, keys=None, commits=None)
        return (strings(batch.column(0)) for batch in whole.batches(pa.schema([(RECORD_KEY, pa.string())])))

    def ascends(self, *, distinct: bool = False) -> bool:
        """Return whether the rows ascend by record key; all keys are read unless the footer declares it.

        Args:
            distinct: whether every key must be unique too, which a footer cannot declare.
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

    def _selected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Select the rows of `keys` and `commits`."""
        if self.keys is not None:
            batch = batch.filter(pc.is_in(batch.column(RECORD_KEY), self.keys))
        if self.commits is not None:
            batch = batch.filter(pc.is_in(batch.column(COMMIT_TIME), pa.array(sorted(self.commits), pa.string())))
        return batch

    def _with_marks(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Keep the deletes without ordering value of a delete log if the ordering column was widened since.

        In an int column, and in no wider one, 0 means none (docs/format/10-rules.md, "Rule 5").
        """
        if not self.is_delete or batch.num_columns != _KEY_AND_ORDERING:
            return batch
        column: Any = batch.column(1)
        if column.type != pa.int32() or schema.field(batch.schema.names[1]).type == pa.int32():
            return batch
        values = pc.if_else(pc.equal(column, pa.scalar(0, pa.int32())), pa.scalar(None, pa.int32()), column)
        return batch.set_column(1, batch.schema.names[1], values)

    def _read(self, opened: OpenFile, columns: list[str], threads: bool) -> Iterator[pa.RecordBatch]:
        """Read the file in batches of about `batch_bytes` in memory.

        The footer gives the stored size of a row group, all columns together. The ratio of bytes in memory, of the
        requested columns, to stored bytes is measured while reading; so the first row group is read by itself.
        Where values may take far more memory than stored bytes, `RowLimits` limits the rows before they are read.
        """
        parquet = opened.parquet
        limits = RowLimits(parquet, opened.source, self.path, columns, self.batch_bytes)
        numbers = range(parquet.metadata.num_row_groups) if self.groups is None else self.groups
        groups = [parquet.metadata.row_group(number) for number in numbers]
        stored = [max(1, group.total_byte_size) for group in groups]
        widths = [max(1.0, size / max(1, group.num_rows)) for size, group in zip(stored, groups, strict=True)]
        begin, ratio = 0, 1.0
        while begin < len(groups):
            rows, end = self._rows(widths[begin] * ratio, limits.rows(numbers[begin])), begin + 1
            while begin and end < len(groups) and self._rows(widths[end] * ratio, limits.rows(numbers[end])) == rows:
                end += 1
            held = 0
            stretch = list(numbers[begin:end])
            for batch in parquet.iter_batches(rows, row_groups=stretch, columns=columns, use_threads=threads):
                held += batch.nbytes
                yield batch
            begin, ratio = end, held / sum(stored[begin:end])

    def _rows(self, width: float, limit: int | None) -> int:
        # A power of two, so that row groups of similar width share one call, and batches end where row groups end.
        most = min(int(self.batch_bytes / max(1.0, width)), limit or self.batch_rows)
        return min(self.batch_rows, 1 << max(1, most).bit_length() - 1)


def _is_declared_ascending(parquet: pq.ParquetFile) -> bool:
    """Return whether the sorting columns of every row group declare ascending record keys."""
    places = [place for place, name in enumerate(parquet.schema.names) if name == RECORD_KEY]
    groups = (parquet.metadata.row_group(place) for place in range(parquet.metadata.num_row_groups))
    return all(
        bool(order) and not order[0].descending and order[0].column_index in places
        for order in (group.sorting_columns for group in groups)
    )


def key_ranges(metadata: pq.FileMetaData) -> list[tuple[str, str]]:
    """Return bounds of the record keys of each row group; nothing if one has no statistics of the key."""
    found: list[tuple[str, str]] = []
    if not metadata.num_row_groups:
        return found
    place = key_column(metadata)
    if place is None:
        return found
    for number in range(metadata.num_row_groups):
        keys = metadata.row_group(number).column(place).statistics
        if keys is None or not keys.has_min_max or not isinstance(keys.min, str) or not isinstance(keys.max, str):
            return []
        found.append((keys.min, keys.max))
    return found


def key_column(metadata: pq.FileMetaData) -> int | None:
    """Return the place of the column of the record keys; None if the schema has no such column of texts.

    PyArrow ends the process when it is asked for a column of a row group whose type is not that of the schema, as in a
    damaged footer, so that no other column is looked at.
    """
    columns = (metadata.schema.column(number) for number in range(metadata.num_columns))
    found = ((n, column.physical_type) for n, column in enumerate(columns) if column.path == RECORD_KEY)
    return next((place for place, kind in found if kind == "BYTE_ARRAY"), None)


def _whole_range(ranges: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None


def open_base(storage: Storage, base: BaseFile, files: ExitStack, file_names: FileNames | None = None) -> DataFile:
    """Open a base file alone; raises as `open_slice`."""
    return FooterReader(storage).base(base, files).named(file_names)


def open_log(
    storage: Storage, log: LogFile, rule: MergeRule, files: ExitStack, file_names: FileNames | None = None
) -> tuple[DataFile, LogHeader]:
    """Open a native log alone, partial rows allowed; raises as `open_slice`."""
    file, header = FooterReader(storage, partial=True).log(log, files)
    return checked(file, header, rule, file_names), header


def checked(file: DataFile, header: LogHeader, rule: MergeRule, file_names: FileNames | None) -> DataFile:
    """Check the columns of a log, and give them the names that they have now."""
    named = file.named(file_names)
    if file.is_delete:
        _check_delete_log(named, rule.ordering_fields)
    else:
        _check_columns(file, schema_columns(header.schema, file.path))
    return named


@dataclass(frozen=True)
class FooterReader:
    """Opens files, and reads and checks their footers; the callers give what closes a file.

    Attributes:
        storage: the table's files.
        partial: whether logs with partial rows are accepted.
    """

    storage: Storage
    partial: bool = False

    def base(self, base: BaseFile, files: ExitStack) -> DataFile:
        """Open a base file; raises as `open_slice`."""
        file, metadata = self._file(base.path, base.name.instant, files, is_base=True)
        # Spark's row writer leaves the schema out (docs/format/10-rules.md, "Rule 16").
        schema = metadata.get(AVRO_SCHEMA_KEY.encode())
        text = None if schema is None else schema.decode("utf-8", "replace")
        _check_columns(file, () if text is None else schema_columns(text, base.path, AVRO_SCHEMA_KEY))
        return file

    def log(self, log: LogFile, files: ExitStack) -> tuple[DataFile, LogHeader]:
        """Open a native log, whose columns are not checked yet; raises as `open_slice`."""
        file, metadata = self._file(log.path, log.name.instant, files, is_delete=log.is_delete)
        assert isinstance(log.name, LogFileName)
        header = LogHeader.from_footer(metadata, log.name, log.path)
        if header.is_partial and not self.partial:
            raise UnsupportedTable(
                f"{log.path}: footer IS_PARTIAL=true: partial rows are not supported in an lsm_tree table; compact "
                "the file group with the program that wrote them"
            )
        return replace(file, until=header.until) if header.until and log.is_delete else file, header

    def _file(
        self, path: str, instant: str, files: ExitStack, *, is_base: bool = False, is_delete: bool = False
    ) -> tuple[DataFile, dict[bytes, bytes]]:
        opened = open_parquet(self.storage, path, files)
        parquet, metadata = opened.parquet, opened.parquet.metadata
        file = DataFile(
            storage=self.storage,
            path=path,
            instant=instant,
            columns=tuple(parquet.schema_arrow.names),
            rows=metadata.num_rows,
            is_base=is_base,
            is_delete=is_delete,
            opened=opened,
            declared=_is_declared_ascending(parquet),
            stored_groups=metadata.num_row_groups,
            key_range=_whole_range(key_ranges(metadata)),
        )
        return file, metadata.metadata or {}


def open_parquet(storage: Storage, path: str, files: ExitStack, known: pq.FileMetaData | None = None) -> OpenFile:
    """Open a Parquet file, whose footer is read unless it is known.

    Raises:
        CorruptFileError: it is missing or no readable Parquet file.
        StorageError: it cannot be opened at present.
    """
    try:
        source = files.enter_context(storage.open_input(path))
        # Without a buffer Arrow reads a whole row group at once; with `pre_buffer` it reads the whole file and keeps
        # it until the file is closed. Both pay off on remote storage only.
        buffer = _BUFFER if source.size() > _LARGE_FILE else 0
        parquet = pq.ParquetFile(
            source, metadata=known, page_checksum_verification=True, buffer_size=buffer, pre_buffer=False
        )
        return OpenFile(files.enter_context(parquet), source)
    except FileNotFoundError:
        raise gone_file(storage, path) from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError, OSError) as error:
        raise _unread(path, "not a readable Parquet file", error) from error


def _unread(path: str, otherwise: str, error: Exception) -> LsmError:
    """Map a failed read to an error: `StorageError` for an error of the system, `CorruptFileError` otherwise."""
    if isinstance(error, OSError) and no_more_files(error):
        return StorageError(
            f"{path}: too many files are open ({error}): raise the limit (ulimit -n), or lower {READ_THREADS.key}; "
            f"a slice is read with about {MAX_OPEN_FILES} open files"
        )
    if isinstance(error, OSError) and is_unreadable(error):
        return StorageError(f"{path}: cannot be read now ({error}): check the disk and the file's permissions")
    return CorruptFileError(f"{path}: {otherwise}: {error}")


def _check_columns(file: DataFile, promised: Sequence[str]) -> None:
    """Check that a file has the columns of its footer's schema (docs/format/03-native-logs.md, "Data log schema")."""
    there = set(file.columns)
    missing = [name for name in (RECORD_KEY, *promised) if name not in there]
    if missing:
        raise CorruptFileError(
            f"{file.path}: no column {missing[0]!r}, which data files of this table have: the file is damaged, or a "
            "delete log under the name of a data file; restore it"
        )


def _check_delete_log(file: DataFile, ordering_fields: Sequence[str]) -> None:
    """Check that a delete log has the record key and the ordering fields, and no other meta column.

    See docs/format/03-native-logs.md, "Delete log schema".
    """
    missing = [name for name in (RECORD_KEY, *ordering_fields) if name not in file.columns]
    if missing:
        raise CorruptFileError(
            f"{file.path}: no column {missing[0]!r}, which delete logs of this table have; restore the file"
        )
    strange = [name for name in META_COLUMNS if name != RECORD_KEY and name in file.columns]
    if strange:
        raise CorruptFileError(
            f"{file.path}: has a column {strange[0]!r}, as data logs have, under the name of a delete log; restore it"
        )


def conform(batch: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.RecordBatch:
    """Cast a batch to the columns and types of `schema`; columns that it lacks are null.

    Raises:
        SchemaError: a column cannot be cast.
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
        return cast_array(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"{path}: column {field.name!r} has type {column.type}, which cannot be cast to the table's {field.type}"
        ) from error
