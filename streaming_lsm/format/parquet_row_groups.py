"""Copy row groups of one Parquet file into another one without decoding their pages.

A *chunk* is the pages of one column in one row group; its pages do not depend on their place in the file, but the
footer and the offset index hold their offsets. Field numbers are those of Parquet's `parquet.thrift`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streaming_lsm.format.parquet_thrift import (
    I32,
    I64,
    Field,
    Struct,
    decode,
    encode,
    inner,
    integer,
    list_of,
    structs,
)

MAGIC = b"PAR1"
_TAIL = 8
_SCHEMA, _ROWS, _GROUPS = 2, 3, 4
_COLUMNS, _BYTES, _GROUP_ROWS, _GROUP_OFFSET, _COMPRESSED, _ORDINAL = 1, 2, 3, 5, 6, 7
_FILE_OFFSET, _META, _OFFSET_INDEX, _COLUMN_INDEX = 2, 3, 4, 6
_PATH, _CODEC, _UNPACKED_SIZE, _SIZE, _DATA, _DICTIONARY, _BLOOM = 3, 4, 6, 7, 9, 11, (14, 15)
_INDEX_PAGE = 10
_PAGE_SIZE, _CRC = 3, 4

ReadAt = Callable[[int, int], bytes]
"""Reads a number of bytes at an offset."""


@dataclass(frozen=True)
class Chunk:
    """The pages of one column in one row group, with their metadata and indexes.

    Attributes:
        column: the struct ColumnChunk of the file that holds it.
    """

    column: Struct

    @property
    def path(self) -> str:
        """The path of the leaf column, with dots between its names."""
        path = inner(self.column, _META)[_PATH].value
        return ".".join(name.decode() for name in path if isinstance(name, bytes)) if isinstance(path, list) else ""

    @property
    def has_dictionary(self) -> bool:
        """Whether it has a dictionary page."""
        return _DICTIONARY in inner(self.column, _META)

    @property
    def codec(self) -> int:
        """Parquet's number of the compression codec."""
        return integer(inner(self.column, _META), _CODEC)

    @property
    def start(self) -> int:
        """Offset of the first page."""
        meta = inner(self.column, _META)
        return min(integer(meta, _DATA), integer(meta, _DICTIONARY) or integer(meta, _DATA))

    @property
    def size(self) -> int:
        """Bytes of all pages, headers included."""
        return integer(inner(self.column, _META), _SIZE)

    @property
    def unpacked_size(self) -> int:
        """Bytes of all pages before compression, headers included."""
        return integer(inner(self.column, _META), _UNPACKED_SIZE)

    def pages(self, read: ReadAt) -> bytes:
        """Read the pages and compare them with their checksums.

        Raises:
            ValueError: a page is damaged, or the chunk does not end where its last page does.
        """
        data = read(self.start, self.size)
        place = 0
        while place < len(data):
            header, place = decode(data, place)
            end = place + integer(header, _PAGE_SIZE)
            if _CRC in header and zlib.crc32(memoryview(data)[place:end]) != integer(header, _CRC) & 0xFFFFFFFF:
                raise ValueError(f"column {self.path!r}: a page does not have its checksum")
            place = end
        if place != self.size or len(data) != self.size:
            raise ValueError(f"column {self.path!r}: its pages end elsewhere than the footer says")
        return data

    def moved(self, start: int) -> Struct:
        """Build the struct ColumnChunk of the chunk at another offset, without its page index and bloom filter."""
        meta, shift = dict(inner(self.column, _META)), start - self.start
        for number in (_DATA, _DICTIONARY, _INDEX_PAGE):
            if number in meta:
                meta[number] = Field(I64, integer(meta, number) + shift)
        for number in _BLOOM:
            meta.pop(number, None)
        return {_FILE_OFFSET: Field(I64, 0), _META: Field(self.column[_META].kind, meta)}

    def bloom(self, read: ReadAt) -> bytes | None:
        """Read the bloom filter with its header; None without one, or if the footer does not give its length."""
        meta = inner(self.column, _META)
        offset, length = (integer(meta, number) for number in _BLOOM)
        return read(offset, length) if offset and length else None

    def indexes(self, read: ReadAt, start: int) -> tuple[bytes, bytes] | None:
        """Read the column index and the offset index, the latter for the chunk at offset `start`; None without both."""
        if _COLUMN_INDEX not in self.column or _OFFSET_INDEX not in self.column:
            return None
        column, offsets = (
            read(integer(self.column, number), integer(self.column, number + 1))
            for number in (_COLUMN_INDEX, _OFFSET_INDEX)
        )
        index = decode(offsets)[0]
        places = [{**place, 1: Field(I64, integer(place, 1) + start - self.start)} for place in structs(index, 1)]
        return column, encode({**index, 1: list_of(places)})


@dataclass(frozen=True)
class StoredFooter:
    """The footer of a Parquet file.

    Attributes:
        metadata: the struct FileMetaData.
    """

    metadata: Struct

    @staticmethod
    def read(read: ReadAt, size: int) -> StoredFooter:
        """Read a file's footer.

        Args:
            read: reads the file.
            size: the file's size in bytes.

        Raises:
            ValueError: it is damaged.
        """
        length = int.from_bytes(read(size - _TAIL, _TAIL)[:4], "little")
        return StoredFooter(decode(read(size - _TAIL - length, length))[0])

    @property
    def schema(self) -> Field:
        """The list of SchemaElement."""
        return self.metadata[_SCHEMA]

    def group(self, number: int) -> Struct:
        """Return the struct RowGroup of a row group."""
        return structs(self.metadata, _GROUPS)[number]

    def chunks(self, number: int) -> list[Chunk]:
        """List the chunks of a row group."""
        return [Chunk(column) for column in structs(self.group(number), _COLUMNS)]

    def with_groups(self, groups: Sequence[Struct | None]) -> bytes:
        """Encode the footer with other row groups between its own.

        Args:
            groups: all row groups in order; None for the next one of its own.
        """
        own = iter(structs(self.metadata, _GROUPS))
        found = [next(own) if group is None else group for group in groups]
        numbered = [
            {**group, _ORDINAL: Field(group[_ORDINAL].kind, place)} if _ORDINAL in group else group
            for place, group in enumerate(found)
        ]
        rows = sum(integer(group, _GROUP_ROWS) for group in found)
        footer = encode({**self.metadata, _ROWS: Field(I64, rows), _GROUPS: list_of(numbered)})
        return footer + len(footer).to_bytes(4, "little") + MAGIC


def moved_group(group: Struct, columns: Sequence[Struct], chunks: Sequence[Chunk], start: int) -> Struct:
    """Build the struct RowGroup of copied chunks.

    Args:
        group: the row group that they were copied from.
        columns: the structs ColumnChunk in the new file.
        chunks: the same chunks where they were copied from.
        start: offset of the first chunk in the new file.
    """
    sizes = {
        _BYTES: sum(chunk.unpacked_size for chunk in chunks),
        _GROUP_OFFSET: start,
        _COMPRESSED: sum(chunk.size for chunk in chunks),
    }
    return {
        number: Field(field.kind, sizes[number]) if number in sizes else field
        for number, field in {**group, _COLUMNS: list_of(columns)}.items()
    }


def with_bloom(column: Struct, offset: int, length: int) -> Struct:
    """Add the place of the bloom filter to a struct ColumnChunk."""
    meta = {**inner(column, _META), _BLOOM[0]: Field(I64, offset), _BLOOM[1]: Field(I32, length)}
    return {**column, _META: Field(column[_META].kind, meta)}


def with_index(column: Struct, column_index: tuple[int, int], offset_index: tuple[int, int]) -> Struct:
    """Add the places of the page index, (offset, length), to a struct ColumnChunk."""
    return {
        **{number: field for number, field in column.items() if number < _OFFSET_INDEX},
        _OFFSET_INDEX: Field(I64, offset_index[0]),
        _OFFSET_INDEX + 1: Field(I32, offset_index[1]),
        _COLUMN_INDEX: Field(I64, column_index[0]),
        _COLUMN_INDEX + 1: Field(I32, column_index[1]),
        **{number: field for number, field in column.items() if number > _COLUMN_INDEX + 1},
    }
