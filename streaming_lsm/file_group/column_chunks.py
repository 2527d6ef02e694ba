"""Read the sizes of Parquet column chunks from the bytes of the footer and of dictionary page headers.

A *column chunk* holds the values of one leaf column in one row group; its *dictionary page* holds each distinct value
once.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm.file_group.footer_fields import (
    Fields,
    Wanted,
    decode_fields,
    malformed,
    read_at,
    read_chunks,
    size_of,
    struct_of,
)

_PAGE_HEADER_BYTES = 256
_DICTIONARY_PAGE = 2
# num_values, total_uncompressed_size, data_page_offset, dictionary_page_offset,
# size_statistics.unencoded_byte_array_data_bytes
_COLUMN_META: Wanted = {5: {}, 6: {}, 9: {}, 11: {}, 16: {1: {}}}
_PAGE_TYPE, _PAGE_DICTIONARY = 1, 7
_PAGE_HEADER: Wanted = {2: {}, _PAGE_DICTIONARY: {1: {}}}  # uncompressed_page_size, num_values


@dataclass(frozen=True)
class ColumnChunk:
    """Facts of a column chunk, as its footer states them.

    Attributes:
        begin: offset of its first page.
        values: number of values, nulls included.
        stored: uncompressed bytes of its pages.
        decoded: bytes of its values when each is stored by itself; None if the writer did not count them.
    """

    begin: int
    values: int
    stored: int
    decoded: int | None


@dataclass(frozen=True)
class DictionaryPage:
    """Sizes in the header of a dictionary page.

    Attributes:
        values: number of distinct values.
        size: uncompressed bytes, which no value exceeds.
    """

    values: int
    size: int


def read_column_chunks(source: pa.NativeFile, path: str) -> list[list[ColumnChunk]]:
    """Decode the column chunks of each row group from the footer.

    Args:
        source: the open Parquet file.
        path: its name, for messages.

    Raises:
        CorruptFileError: the footer is malformed.
    """
    return read_chunks(source, path, _COLUMN_META, _column_chunk)


def read_dictionary_page(source: pa.NativeFile, chunk: ColumnChunk, path: str) -> DictionaryPage | None:
    """Decode the header of a column chunk's first page; None if it is not a dictionary page.

    Raises:
        CorruptFileError: the header is malformed.
    """
    what = f"the page header at offset {chunk.begin}"
    if not 0 <= chunk.begin < source.size():
        raise malformed(path, what, ValueError("beyond the end of the file"))
    data = read_at(source, _PAGE_HEADER_BYTES, chunk.begin)
    try:
        # Headers of data pages have statistics, which may be longer than `data`.
        if decode_fields(data, path, what, {_PAGE_TYPE: {}}, last=_PAGE_TYPE)[_PAGE_TYPE] != _DICTIONARY_PAGE:
            return None
        header = decode_fields(data, path, what, _PAGE_HEADER, last=_PAGE_DICTIONARY)
        return DictionaryPage(size_of(struct_of(header[_PAGE_DICTIONARY])[1]), size_of(header[2]))
    except (KeyError, TypeError) as error:
        raise malformed(path, what, error) from None


def _column_chunk(facts: Fields) -> ColumnChunk:
    begin = size_of(facts[9])
    dictionary = size_of(facts.get(11, 0))
    sizes = struct_of(facts.get(16, {}))
    return ColumnChunk(
        # As Arrow does: some writers give the offset of the dictionary page as that of the first data page.
        begin=dictionary if 0 < dictionary < begin else begin,
        values=size_of(facts[5]),
        stored=size_of(facts[6]),
        decoded=size_of(sizes[1]) if 1 in sizes else None,
    )
