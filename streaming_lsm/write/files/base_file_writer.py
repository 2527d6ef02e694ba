"""Write a base file. Key range and bloom filter, if one is asked for, are collected block by block."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.file_group.stored_row_group import StoredRowGroup
from streaming_lsm.format.actions.commit import WrittenRanges
from streaming_lsm.format.base_file_footer import base_file_footer
from streaming_lsm.format.table.file_names import BaseFileName
from streaming_lsm.schema import FILE_NAME, RECORD_KEY
from streaming_lsm.storage.base import Storage
from streaming_lsm.write.files.parquet import constant
from streaming_lsm.write.files.prepare import prepare_data_file
from streaming_lsm.write.files.sized_bloom import SizedBloomBuilder
from streaming_lsm.write.files.sorted_parquet_file import SortedParquetFile
from streaming_lsm.write.plan import FileOptions


class BaseFileWriter:
    """Writes one base file, usually from rows that ascend by record key; without `finish` the file is removed.

    Use it as ``with BaseFileWriter(…) as base: base.append(rows); size = base.finish()``.
    """

    def __init__(
        self,
        storage: Storage,
        instant: str,
        partition: str,
        name: BaseFileName,
        avro_schema: str,
        options: FileOptions,
        *,
        detect_early: bool = False,
        starts: bool = True,
        by_key: bool = True,
    ) -> None:
        """Create the marker and the file.

        Args:
            instant: requested time of the action that writes the file.
            avro_schema: Avro JSON of the file's schema with meta columns.
            detect_early: whether to look for other writes of the file group.
            starts: whether the file is the first of its file group.
            by_key: whether the rows ascend by record key; else the file cannot have copied row groups.

        Raises:
            EarlyConflict: see `check_no_earlier_write`.
            Fenced: the instant takes no more files.
        """
        self.name = name
        self.path = prepare_data_file(storage, instant, partition, str(name), detect_early=detect_early, starts=starts)
        self._avro_schema = avro_schema
        self._bloom = None if options.bloom is None else SizedBloomBuilder(options.bloom)
        self._by_key = by_key
        self._first: str | None = None
        self._last: str | None = None
        self._file = SortedParquetFile(storage, self.path, options, instant=instant, by_key=by_key)

    def __enter__(self) -> BaseFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, trace)

    @property
    def rows(self) -> int:
        """Rows taken in so far."""
        return self._file.rows

    @property
    def ranges(self) -> WrittenRanges | None:
        """Ranges of the columns of the finished file, see `SortedParquetFile`."""
        return self._file.ranges

    @property
    def size(self) -> int:
        """Bytes on disk, and an estimate of what is still held."""
        return self._file.size

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the open row group, and of the keys that wait for the bloom filter."""
        return self._file.buffered_bytes + (0 if self._bloom is None else self._bloom.held_bytes)

    def append(self, rows: pa.Table) -> None:
        """Take in rows with meta columns; ``_hoodie_file_name`` becomes this file's.

        See docs/format/01-table.md, "Record columns".

        Call it once at least, if only with no rows, so that the file has columns.

        Raises:
            ValueError: a key comes after a larger one: the footer says that they ascend, and readers rely on it.
        """
        if rows.num_rows and self._by_key:
            self._check_order(rows.column(RECORD_KEY))
        place = rows.schema.get_field_index(FILE_NAME)
        file_names: pa.Array[Any] = constant(str(self.name), rows.num_rows)
        self._file.append(rows.set_column(place, pa.field(FILE_NAME, file_names.type), file_names))
        if rows.num_rows:
            keys = rows.column(RECORD_KEY)
            if self._bloom is not None:
                self._bloom.add(keys)
            self._extend(keys)

    def _extend(self, keys: pa.ChunkedArray[Any]) -> None:
        """Extend the key range of the footer."""
        if self._by_key:
            least, most = keys[0].as_py(), keys[-1].as_py()
        else:
            least, most = pc.min_max(keys).as_py().values()
        self._first = str(least) if self._first is None else min(self._first, str(least))
        self._last = str(most) if self._last is None else max(self._last, str(most))

    def copy(self, group: StoredRowGroup) -> None:
        """Copy a row group of another base file as it is stored; ``_hoodie_file_name`` becomes this file's.

        Call `append` before, at least without rows.

        Raises:
            CorruptFileError: a page of the row group does not have its checksum.
            ValueError: its keys come before those of the rows before it.
        """
        if self._last is not None and group.first < self._last:
            raise ValueError(f"{self.path}: a row group for a sorted file whose record keys do not ascend")
        self._file.copy(group, {FILE_NAME: str(self.name)})
        if self._bloom is not None:
            self._bloom.add(group.keys())
        self._first = group.first if self._first is None else self._first
        self._last = group.last

    def _check_order(self, keys: pa.ChunkedArray[Any]) -> None:
        falls = pc.any(pc.less(keys[1:], keys[:-1])).as_py()
        if falls or (self._last is not None and str(keys[0].as_py()) < self._last):
            raise ValueError(f"{self.path}: rows for a sorted file whose record keys do not ascend")

    def finish(self) -> int:
        """Make the file durable; returns its size in bytes. One without rows has no key range.

        See docs/format/10-rules.md, "Rule 17".
        """
        bloom = None if self._bloom is None else self._bloom.finish()
        footer = base_file_footer(self._avro_schema, self._first, self._last, bloom)
        return self._file.finish(footer)
