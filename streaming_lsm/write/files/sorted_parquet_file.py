"""Write a sorted Parquet file row group by row group."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.file_group.stored_row_group import StoredRowGroup
from streaming_lsm.format.actions.commit import WrittenRanges
from streaming_lsm.index.written_ranges import written_ranges
from streaming_lsm.lock.heartbeat import check_still_inflight
from streaming_lsm.storage.base import Storage
from streaming_lsm.write.files.copied_row_group import CopiedRowGroup, only_chunk, with_copied
from streaming_lsm.write.files.parquet import bloom_bytes, constant_column, open_writer
from streaming_lsm.write.plan import FileOptions

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class SortedParquetFile:
    """Writes one Parquet file from rows that ascend by record key.

    It is durable once `finish` returned; then `ranges` are those of its columns, if they are wanted and known without
    reading it. Leaving the context without that removes it::

        with SortedParquetFile(storage, path, options) as file:
            file.append(rows)
            size = file.finish(footer)
    """

    def __init__(
        self,
        storage: Storage,
        path: str,
        options: FileOptions,
        *,
        instant: str | None = None,
        by_key: bool = True,
    ) -> None:
        """Create the file, empty.

        Args:
            instant: checked to be inflight when the file is visible, because a task that was stopped after its marker
                may create the file after the commit. In an object store the file is visible when it is finished: there
                the task checks all its files at its end.
            by_key: whether the rows ascend by record key; a base file of the default layout need not.

        Raises:
            FileExistsError: the file exists.
            Fenced: the instant is not inflight any more; the file is deleted.
        """
        self.path = path
        self.rows = 0
        self._options = options
        self._by_key = by_key
        with ExitStack() as created:
            self._sink: BinaryIO = created.enter_context(storage.create(path))
            if instant is not None and storage.is_file_system:
                check_still_inflight(storage, instant)
            self._created = created.pop_all()
        # Arrow counts the bytes of what it writes: a row group is copied through the same file object as it writes to.
        self._held = _HeldEnd(self._sink)
        self._native = pa.PythonFile(self._held, mode="w")
        self._writer: pq.ParquetWriter | None = None
        self._collected: list[pq.FileMetaData] = []
        self.ranges: WrittenRanges | None = None
        self._groups: list[CopiedRowGroup | None] = []
        self._fields = pa.schema([])
        self._open: list[pa.Table] = []
        self._open_rows = 0
        self._encoded = 0
        self._bloom_bytes = 0
        self.buffered_bytes = 0

    def __enter__(self) -> SortedParquetFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the file unless it was finished."""
        unfinished = error or RuntimeError(f"{self.path} was left unfinished")
        if self._writer is not None:
            # The file is deleted next, so errors while closing are ignored; one that cannot be closed has no metadata.
            with suppress(OSError, pa.ArrowException, RuntimeError):
                self._writer.close()
        self._created.__exit__(type(unfinished), unfinished, unfinished.__traceback__)

    @property
    def size(self) -> int:
        """Bytes on disk, and an estimate of what the rows of the open row group and the bloom filters will take."""
        written = self._sink.tell()
        rows = self.buffered_bytes * written // self._encoded if self._encoded else self.buffered_bytes
        return written + rows + (len(self._groups) + bool(self._open_rows)) * self._bloom_bytes

    def append(self, rows: pa.Table) -> None:
        """Append rows. Full row groups are written; the others are held in memory (`buffered_bytes`)."""
        self._fields = rows.schema
        self._open.append(rows)
        self._open_rows += rows.num_rows
        self.buffered_bytes += rows.nbytes
        self.rows += rows.num_rows
        while self._open_rows >= self._options.row_group_rows:
            self._flush(self._options.row_group_rows)
        if self._open_rows and self.buffered_bytes >= self._options.row_group_bytes:
            self._flush(self._open_rows)

    def _flush(self, rows: int) -> None:
        table = pa.concat_tables(self._open)
        if self._writer is None:  # opened with the first rows, by which encodings are chosen
            self._writer = open_writer(
                self._native, table, self._options, collected=self._collected, by_key=self._by_key
            )
            self._bloom_bytes = bloom_bytes(table, self._options)
        group, rest = table.slice(0, rows), table.slice(rows)
        self._writer.write_table(group, row_group_size=max(1, rows))
        self._groups.append(None)
        self._open = [rest] if rest.num_rows else []
        self._open_rows = rest.num_rows
        left = rest.nbytes if rest.num_rows else 0
        self._encoded += self.buffered_bytes - left
        self.buffered_bytes = left

    def copy(self, group: StoredRowGroup, texts: Mapping[str, str]) -> None:
        """Copy a row group as it is stored, after the rows so far; the file's columns are those of the row group.

        `append` must have been called before, at least without rows.

        Args:
            group: the row group.
            texts: columns that get another value, the same in all rows.

        Raises:
            CorruptFileError: a page does not have its checksum.
        """
        if self._open_rows:
            self._flush(self._open_rows)
        if self._writer is None:
            dictionary = [chunk.path for chunk in group.chunks if chunk.has_dictionary]
            self._writer = open_writer(self._native, self._open[0], self._options, dictionary)
        fields = self._fields
        made = {
            name: constant_column(fields.field(name), text, group.rows, self._options) for name, text in texts.items()
        }
        copied = CopiedRowGroup.of(group.footer.group(group.number))
        for chunk in group.chunks:
            if chunk.path in made:
                copied.add(self._native, *only_chunk(made[chunk.path]))
            else:
                copied.add(self._native, chunk, group.pages(chunk), group.read)
        self._groups.append(copied)
        self.rows += group.rows

    def finish(self, footer: Mapping[str, str]) -> int:
        """Write the open row group and the footer, and flush the file to disk.

        The entries are added to the open writer, because pyarrow drops a schema's own together with the Arrow schema,
        which is left out so that every reader sees Parquet's types.

        Args:
            footer: key-value metadata. `append` must have been called before, at least without rows, for the columns.

        Returns:
            The file's size in bytes.
        """
        if self._writer is None and not self._open:
            raise RuntimeError(f"{self.path}: a file without columns cannot be finished")
        if self._open_rows:
            self._flush(self._open_rows)
        elif self._writer is None:
            self._writer = open_writer(
                self._native, self._open[0], self._options, collected=self._collected, by_key=self._by_key
            )
        assert self._writer is not None
        self._writer.add_key_value_metadata(dict(footer))
        writer, self._writer = self._writer, None
        copied = any(self._groups)
        self._held.hold = copied
        writer.close()
        if copied:
            self._sink.write(with_copied(self._held.taken(), int(self._sink.tell()), self._groups))
        size = int(self._sink.tell())
        self._created.close()
        if self._options.ranged and not copied:
            self.ranges = written_ranges(self._collected[0], self.path.rpartition("/")[2], self._options.ranged)
        return size


class _HeldEnd(io.RawIOBase):
    """A file that is written to; what comes after `hold` was set stays in memory."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self._end = bytearray()
        self.hold = False

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: ReadableBuffer) -> int:
        """Write, or keep in memory."""
        if not self.hold:
            return self._file.write(data)
        self._end += data
        return memoryview(data).nbytes

    def taken(self) -> bytes:
        """Return what was kept in memory."""
        return bytes(self._end)
