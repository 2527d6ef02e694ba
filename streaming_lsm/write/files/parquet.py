"""Define meta columns, footer and writer settings that sorted base files and logs share."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any, BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_lsm.arrow.columns import Column
from streaming_lsm.schema import COMMIT_SEQNO, RECORD_KEY, with_meta
from streaming_lsm.write.buffer.dedup import FileGroupChanges
from streaming_lsm.write.plan import FileOptions, WritePlan

PARQUET_CODECS: dict[str, Literal["zstd", "snappy", "gzip", "lz4", "none"]] = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "lz4": "lz4",
    "uncompressed": "none",
}
"""The names that pyarrow has for the values of ``hoodie.parquet.compression.codec``."""


_HAS_BLOOMS = "bloom_filter_options" in signature(pq.ParquetWriter.__init__).parameters
"""Whether this PyArrow writes bloom filters, as 24 was the first to."""
_KEY_BLOOM_FPP = 0.03
"""False positive probability for which a filter of a full row group of 16,384 keys takes 16 KiB."""
_BITS_PER_KEY = -8 / math.log(1 - _KEY_BLOOM_FPP ** (1 / 8))
_LEAST_BLOOM = 32
_SAMPLE, _SMALL_SAMPLE, _SAMPLE_BYTES = 1024, 64, 1 << 20
_FEW_ROWS = 256
_LOOK_EVERY = 1024


class SequenceNumbers:
    """Generates sequence numbers, ``<instant>_<task>_<n>``; n counts on over all files of a task.

    See docs/format/10-rules.md, "Rule 27".
    """

    def __init__(self, instant: str, task: int) -> None:
        """Start from 0, for one task at one instant."""
        self._prefix = f"{instant}_{task}_"
        self._next = 0

    def take(self, count: int) -> pa.StringArray:
        """Return the next `count` numbers."""
        numbers = pa.array(np.arange(self._next, self._next + count)).cast(pa.string())
        self._next += count
        # The published stubs take no texts among the arrays.
        joined: pa.StringArray = pc.binary_join_element_wise(self._prefix, numbers, "")  # type: ignore[call-overload]
        return joined


def add_meta_columns(
    rows: pa.Table, keys: pa.StringArray, *, instant: str, sequence: SequenceNumbers, partition: str, file_name: str
) -> pa.Table:
    """Put the five meta columns before the columns of `rows`; those of one value take no room.

    See docs/format/01-table.md, "Record columns".
    """
    count = rows.num_rows
    meta = [constant(instant, count), sequence.take(count), keys, constant(partition, count)]
    columns: list[Column] = [*meta, constant(file_name, count), *rows.columns]
    fields = [
        pa.field(field.name, column.type, field.nullable)
        for field, column in zip(with_meta(rows.schema), columns, strict=True)
    ]
    return pa.table(columns, schema=pa.schema(fields))


def constant(value: str, count: int) -> pa.DictionaryArray[Any, Any]:
    """Create a column of `count` times the same text as a dictionary, which takes little memory."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32), pa.int32()), pa.array([value]))


def open_writer(
    sink: BinaryIO | pa.NativeFile,
    rows: pa.Table,
    options: FileOptions,
    dictionary: Sequence[str] | None = None,
    collected: list[pq.FileMetaData] | None = None,
    *,
    by_key: bool = True,
) -> pq.ParquetWriter:
    """Open a writer of rows. No Arrow schema is stored, see `SortedParquetFile.finish`.

    Args:
        rows: the first rows, which decide which columns get a dictionary, and how often pages are looked at.
        dictionary: the leaf columns that get one; None to choose by `rows`.
        collected: receives the file's metadata when the writer is closed.
        by_key: whether the rows ascend by record key, which the footer says then.
    """
    schema = rows.schema
    return pq.ParquetWriter(
        sink,
        schema,
        compression=PARQUET_CODECS[options.codec],
        use_dictionary=list(_dictionary_columns(rows) if dictionary is None else dictionary),  # type: ignore[arg-type]  # the stubs miss the list
        data_page_size=options.page_bytes,
        write_batch_size=_values_between_looks(rows, options.page_bytes),
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=pq.SortingColumn.from_ordering(schema, [(RECORD_KEY, "ascending")]) if by_key else None,
        store_schema=False,
        metadata_collector=collected,
        **_bloom_options(rows, options),
    )


def _bloom_options(rows: pa.Table, options: FileOptions) -> dict[str, Any]:
    """Ask for a bloom filter of the record keys that is sized for the row groups; see `FileOptions.key_bloom`.

    See docs/format/03-native-logs.md, "Bloom filters of row groups".
    """
    keys = _bloom_keys(rows, options)
    return {"bloom_filter_options": {RECORD_KEY: {"ndv": keys, "fpp": _KEY_BLOOM_FPP}}} if keys else {}


def bloom_bytes(rows: pa.Table, options: FileOptions) -> int:
    """Return the bytes of the bloom filter of a row group, if the file's first rows are `rows`: a power of two."""
    bits = int(_BITS_PER_KEY * _bloom_keys(rows, options))
    return max(_LEAST_BLOOM, 1 << (bits // 8 - 1).bit_length()) if bits else 0


def _bloom_keys(rows: pa.Table, options: FileOptions) -> int:
    """Return the number of keys that the bloom filters are sized for; 0 without them."""
    has_them = options.key_bloom and _HAS_BLOOMS and RECORD_KEY in rows.schema.names
    return max(1, min(options.row_group_rows, rows.num_rows)) if has_them else 0


def constant_column(field: pa.Field[Any], value: str, rows: int, options: FileOptions) -> bytes:
    """Write a Parquet file of one column and one row group that holds one text in all rows."""
    sink = io.BytesIO()
    column = constant(value, rows)
    table = pa.table([column], schema=pa.schema([pa.field(field.name, column.type, field.nullable)]))
    pq.write_table(
        table,
        sink,
        row_group_size=max(1, rows),
        compression=PARQUET_CODECS[options.codec],
        use_dictionary=True,
        write_page_index=True,
        write_page_checksum=True,
        store_schema=False,
    )
    return sink.getvalue()


def _dictionary_columns(rows: pa.Table) -> Iterator[str]:
    """Select the leaf columns to be dictionary encoded: all but those whose values hardly repeat.

    For them it takes up to half as long again to write a file, which is larger then.
    """
    width = rows.nbytes // max(1, rows.num_rows)
    count = max(_SMALL_SAMPLE, min(_SAMPLE, _SAMPLE_BYTES // max(1, width)))
    places = np.unique(np.linspace(0, max(0, rows.num_rows - 1), count).astype(np.int64))
    sample = rows.take(pa.array(places, pa.int64())) if rows.num_rows > _FEW_ROWS else None
    for field in rows.schema:
        if field.name in (RECORD_KEY, COMMIT_SEQNO):
            continue
        if sample is None or pa.types.is_nested(field.type) or _repeats(sample.column(field.name), rows.num_rows):
            yield from _leaves(field.name, field.type)


def _repeats(sample: pa.ChunkedArray[Any], rows: int) -> bool:
    """Estimate whether at most a quarter of `rows` values are distinct, from the equal pairs of a sample."""
    if pa.types.is_dictionary(sample.type):
        return True
    repeated = len(sample) - pc.count_distinct(sample, mode="all").as_py()
    return len(sample) ** 2 * 4 <= 2 * repeated * rows


def _values_between_looks(rows: pa.Table, page_bytes: int) -> int:
    """Compute the number of values between page-size checks; it is smaller for large values."""
    widest = max((column.nbytes for column in rows.columns), default=0) // max(1, rows.num_rows)
    return max(1, min(_LOOK_EVERY, page_bytes // max(1, widest)))


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_map(kind):
        yield f"{path}.key_value.key"
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_struct(kind):
        for child in kind.fields:
            yield from _leaves(f"{path}.{child.name}", child.type)
    else:
        yield path


def block_with_meta(plan: WritePlan, block: FileGroupChanges, sequence: SequenceNumbers, part: int = 0) -> pa.Table:
    """Add the meta columns of a log to the block's rows; a base file writer sets its own file name.

    See docs/format/01-table.md, "Record columns".

    Args:
        plan: the batch being written.
        block: the rows.
        sequence: numbers them.
        part: see `WritePlan.file_id`.
    """
    return add_meta_columns(
        block.rows,
        block.keys,
        instant=plan.instant,
        sequence=sequence,
        partition=block.group[0],
        file_name=plan.file_id(block.group, part),
    )
