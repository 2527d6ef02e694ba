"""Limit the rows of a batch where values of a Parquet file take much more memory than bytes in the file.

A dictionary page holds a large value once, however many rows repeat it; a batch holds it once per row. The limit of a
row group is computed before it is read, from what costs least: the footer, then headers of dictionary pages, then the
dictionaries themselves, read without the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.arrow.columns import pc
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.column_chunks import ColumnChunk, read_column_chunks, read_dictionary_page

_HARMLESS = 4
"""Batches of decoded values that a row group may have without its dictionaries being read."""
_FIRST_ROWS = (1, 4096)
"""Rows read to have Arrow decode a dictionary: the first, or more if nulls come first."""
_SHORT = 32
"""Bytes of fixed length that count as a number's; decimals have up to 16."""
_UNEVEN = 16
"""Ratio assumed between the longest and the mean value of a column without a dictionary."""
_PLAIN = frozenset(("PLAIN", "RLE", "BIT_PACKED"))
"""Encodings of values that take no more memory than their bytes in a page, and of levels."""
_BUFFER = 256 << 10


@dataclass(frozen=True)
class _Leaf:
    """A leaf column whose values may be large.

    Attributes:
        place: its number among the leaf columns.
        path: dotted path in the Parquet schema.
        length: bytes of each value; 0 if lengths vary.
        repeats: whether a row may have several values.
    """

    place: int
    path: str
    length: int
    repeats: bool


@dataclass(frozen=True)
class _Expanding:
    """A column chunk that may take more memory than bytes in the file.

    Attributes:
        leaf: its column.
        values: number of values.
        width: maximum bytes of a value.
        counted: bytes of all values by the size statistics of the footer, if any.
    """

    leaf: _Leaf
    values: int
    width: int
    counted: int | None = None

    @property
    def decoded(self) -> int:
        """Maximum bytes of all values in memory."""
        most = self.values * self.width
        return most if self.counted is None else min(most, self.counted)


@dataclass(frozen=True)
class RowLimits:
    """Computes how many rows of a row group a batch may have.

    Attributes:
        parquet: the open file.
        source: its bytes.
        path: its name, for messages.
        columns: names of the columns to be read.
        batch_bytes: bytes of a batch in memory.
    """

    parquet: pq.ParquetFile
    source: pa.NativeFile
    path: str
    columns: Sequence[str]
    batch_bytes: int
    _known: dict[int, int | None] = field(default_factory=dict, init=False, repr=False)
    _read_chunks: list[list[ColumnChunk]] = field(default_factory=list, init=False, repr=False)

    def rows(self, place: int) -> int | None:
        """Return the maximum rows of a batch of row group `place`; None for no limit.

        Raises:
            CorruptFileError: the footer or a page header is malformed.
        """
        if place not in self._known:
            group = self.parquet.metadata.row_group(place)
            is_small = self._is_small(group.num_rows, group.total_byte_size)
            self._known[place] = None if is_small else self._limit(place, group.num_rows)
        return self._known[place]

    def _is_small(self, rows: int, stored: int) -> bool:
        """Return whether no limit is needed, even if each value had all bytes of the row group."""
        values = max(rows, stored) if any(leaf.repeats for leaf in self._leaves) else rows
        return values * (stored + sum(leaf.length for leaf in self._leaves)) <= _HARMLESS * self.batch_bytes

    def _limit(self, place: int, rows: int) -> int | None:
        harmless = _HARMLESS * self.batch_bytes
        chunks = [found for leaf in self._leaves if (found := self._expanding(leaf, place, rows))]
        if sum(chunk.decoded for chunk in chunks) <= harmless:
            return None
        share = harmless // (2 * len(chunks))
        exact = [self._measured(chunk, place) if chunk.decoded > share else chunk for chunk in chunks]
        if sum(chunk.decoded for chunk in exact) <= harmless:
            return None
        row = sum(chunk.width * -(-chunk.values // max(1, rows)) for chunk in exact if chunk.decoded > share)
        return max(1, self.batch_bytes // max(1, row))

    def _expanding(self, leaf: _Leaf, place: int, rows: int) -> _Expanding | None:
        """Return the bounds of a column chunk; None if it hardly takes more memory than its pages."""
        if leaf.length and not leaf.repeats:
            return _Expanding(leaf, rows, leaf.length)
        if not leaf.repeats and self._is_plain(leaf, place):
            return None
        chunk = self._chunk(leaf, place)
        values = chunk.values if leaf.repeats else rows
        if leaf.length:
            return _Expanding(leaf, values, leaf.length)
        if chunk.decoded is not None:
            return _Expanding(leaf, values, chunk.stored, chunk.decoded) if chunk.decoded > 2 * chunk.stored else None
        page = read_dictionary_page(self.source, chunk, self.path)
        return None if page is None else _Expanding(leaf, values, page.size)

    def _is_plain(self, leaf: _Leaf, place: int) -> bool:
        """Return whether values are stored as they are, by what costs least: Arrow has read the footer already."""
        chunk = self.parquet.metadata.row_group(place).column(leaf.place)
        return not chunk.has_dictionary_page and _PLAIN.issuperset(chunk.encodings)

    def _measured(self, chunk: _Expanding, place: int) -> _Expanding:
        """Replace the bound of a value's length by the length of the longest value in the dictionary."""
        if chunk.leaf.length:
            return chunk
        page = read_dictionary_page(self.source, self._chunk(chunk.leaf, place), self.path)
        if page is None:  # values that share prefixes (DELTA_BYTE_ARRAY)
            return replace(chunk, width=min(chunk.width, _UNEVEN * chunk.decoded // max(1, chunk.values)))
        for rows in _FIRST_ROWS:
            found = self._dictionaries.iter_batches(rows, row_groups=[place], columns=[chunk.leaf.path])
            dictionaries = (values for batch in islice(found, 1) for values in _dictionaries(batch.column(0)))
            for dictionary in dictionaries:
                # Fewer values: the first pages have none of the dictionary.
                if len(dictionary) >= page.values:
                    return replace(chunk, width=pc.max(pc.binary_length(dictionary)).as_py() or 0)
        return replace(chunk, width=page.size)

    def _chunk(self, leaf: _Leaf, place: int) -> ColumnChunk:
        try:
            return self._chunks[place][leaf.place]
        except IndexError:
            raise CorruptFileError(
                f"{self.path}: damaged: row group {place} has no column {leaf.path!r}; restore the file"
            ) from None

    @cached_property
    def _leaves(self) -> list[_Leaf]:
        schema = self.parquet.schema
        try:
            return [leaf for place in range(len(schema.names)) if (leaf := self._leaf(schema.column(place), place))]
        except UnicodeDecodeError as error:
            raise CorruptFileError(f"{self.path}: damaged: a column's name is not text ({error})") from None

    def _leaf(self, column: pq.ColumnSchema, place: int) -> _Leaf | None:
        """Return the leaf column if it is to be read and its values may be large."""
        if column.physical_type not in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
            return None
        path, length = column.path, column.length or 0
        if 0 < length <= _SHORT or self._wanted.isdisjoint(accumulate(path.split("."), "{}.{}".format)):
            return None
        return _Leaf(place, path, length, column.max_repetition_level > 0)

    @cached_property
    def _wanted(self) -> frozenset[str]:
        return frozenset(self.columns)

    @property
    def _chunks(self) -> list[list[ColumnChunk]]:
        # No `cached_property`, which in Python 3.11 lets one thread read at a time.
        if not self._read_chunks:
            self._read_chunks.extend(read_column_chunks(self.source, self.path))
        return self._read_chunks

    @cached_property
    def _dictionaries(self) -> pq.ParquetFile:
        paths = [leaf.path for leaf in self._leaves]
        return pq.ParquetFile(self.source, metadata=self.parquet.metadata, read_dictionary=paths, buffer_size=_BUFFER)


def _dictionaries(column: pa.Array[Any]) -> Iterator[pa.Array[Any]]:
    """Yield the dictionaries of a column, which may be nested."""
    if isinstance(column, pa.DictionaryArray):
        yield column.dictionary
    elif isinstance(column, pa.MapArray):
        yield from _dictionaries(column.keys)
        yield from _dictionaries(column.items)
    elif isinstance(column, pa.ListArray):
        yield from _dictionaries(column.values)
    elif isinstance(column, pa.StructArray):
        for place in range(column.type.num_fields):
            yield from _dictionaries(column.field(place))
