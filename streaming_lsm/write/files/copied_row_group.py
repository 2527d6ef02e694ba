"""Row groups that are copied into a Parquet file, and the file's end with them: page index and footer."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm.file_group.stored_row_group import CopyRules
from streaming_lsm.format.parquet_row_groups import (
    Chunk,
    ReadAt,
    StoredFooter,
    moved_group,
    with_bloom,
    with_index,
)
from streaming_lsm.format.parquet_thrift import Struct, decode
from streaming_lsm.schema import FILE_NAME
from streaming_lsm.write.files.parquet import constant_column, open_writer
from streaming_lsm.write.plan import FileOptions

_TAIL = 8


@dataclass
class CopiedRowGroup:
    """A row group that was copied, chunk by chunk.

    Attributes:
        source: the struct RowGroup in the file that it was copied from.
        chunks: its chunks where they were copied from.
        columns: the structs ColumnChunk in the new file.
        indexes: column index and offset index of each column; None for a column without.
        blooms: the bloom filter of each column; None for a column without.
        start: offset of the first chunk in the new file.
    """

    source: Struct
    chunks: list[Chunk]
    columns: list[Struct]
    indexes: list[tuple[bytes, bytes] | None]
    blooms: list[bytes | None]
    start: int = -1

    @staticmethod
    def of(source: Struct) -> CopiedRowGroup:
        """Begin the copy of a row group."""
        return CopiedRowGroup(source, [], [], [], [])

    def add(self, file: pa.NativeFile, chunk: Chunk, pages: bytes, read: ReadAt) -> None:
        """Write the pages of the next chunk.

        Args:
            file: the new file.
            chunk: the chunk, of any file.
            pages: its pages.
            read: reads the file that the chunk is of.
        """
        place = int(file.tell())
        self.start = place if self.start < 0 else self.start
        file.write(pages)
        self.chunks.append(chunk)
        self.columns.append(chunk.moved(place))
        self.indexes.append(chunk.indexes(read, place))
        self.blooms.append(chunk.bloom(read))

    def finished(self, place: int) -> tuple[bytes, Struct]:
        """Return blooms and page indexes, which will be at offset `place`, and the struct RowGroup in the new file."""
        written, columns = bytearray(), []
        for column, index, bloom in zip(self.columns, self.indexes, self.blooms, strict=True):
            if bloom is not None:
                column = with_bloom(column, place + len(written), len(bloom))
                written += bloom
            if index is None:
                columns.append(column)
                continue
            of_columns, of_offsets = index
            begin = place + len(written)
            middle = begin + len(of_columns)
            written += of_columns + of_offsets
            columns.append(with_index(column, (begin, len(of_columns)), (middle, len(of_offsets))))
        return bytes(written), moved_group(self.source, columns, self.chunks, self.start)


def copy_rules(schema: pa.Schema, options: FileOptions) -> CopyRules:
    """Compute what row groups have in common with a new base file that may copy them."""
    sink = io.BytesIO()
    open_writer(sink, schema.empty_table(), options).close()
    empty = sink.getvalue()
    footer = StoredFooter.read(lambda offset, size: empty[offset : offset + size], len(empty))
    chunk, _, _ = only_chunk(constant_column(schema.field(FILE_NAME), "", 1, options))
    return CopyRules(footer.schema, chunk.codec, options.row_group_rows)


def only_chunk(content: bytes) -> tuple[Chunk, bytes, ReadAt]:
    """Return the one chunk of a Parquet file in memory, its pages, and what reads the file."""

    def read(offset: int, size: int) -> bytes:
        return content[offset : offset + size]

    (chunk,) = StoredFooter.read(read, len(content)).chunks(0)
    return chunk, chunk.pages(read), read


def with_copied(end: bytes, place: int, groups: Sequence[CopiedRowGroup | None]) -> bytes:
    """Add copied row groups to the end of a Parquet file.

    Args:
        end: what Arrow writes after the last row group: page indexes and footer.
        place: its offset in the file.
        groups: all row groups in order; None for each that Arrow wrote.
    """
    begin = len(end) - _TAIL - int.from_bytes(end[-_TAIL:-4], "little")
    written = bytearray(end[:begin])
    found: list[Struct | None] = []
    for group in groups:
        if group is None:
            found.append(None)
            continue
        index, struct = group.finished(place + len(written))
        written += index
        found.append(struct)
    return bytes(written) + StoredFooter(decode(end, begin)[0]).with_groups(found)
