"""Find the ranges of columns in data files, for the partition ``column_stats`` of the metadata table.

See docs/format/07-index-and-metadata.md, "Column stats". The range of a column is left out where it is not known, as
those of binary columns, or where a value may lie outside of it: floats may be NaN, which the statistics of Parquet do
not count. A reader then reads the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.data_file import open_parquet
from streaming_lsm.format.avro.record_reader import decode_data_block
from streaming_lsm.format.log.inline_blocks import BlockType, Header, read_blocks
from streaming_lsm.format.metadata.column_stats import empty_row, range_row
from streaming_lsm.format.table.file_names import BaseFileName, InlineLogName, LogFileName, LogKind, parse_file_name
from streaming_lsm.query.prune.statistics import file_bounds
from streaming_lsm.storage.base import Storage


class _Range(NamedTuple):
    """Smallest and largest value of a column, null without a value, and how many values and nulls there are."""

    low: pa.Scalar[Any]
    high: pa.Scalar[Any]
    values: int
    nulls: int


def stored_ranges(storage: Storage, path: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Find the ranges of columns in a data file.

    Args:
        storage: the table.
        path: of a base file or a log.
        columns: names of columns.

    Returns:
        Values of the type `RANGES`; those of a file without rows, such as a delete log, are empty.

    Raises:
        CorruptFileError: the file is missing or damaged.
        StorageError: it cannot be opened at present.
    """
    name = parse_file_name(path.rpartition("/")[2])
    if isinstance(name, LogFileName) and name.kind is LogKind.DELETES:
        return [empty_row(str(name), column) for column in columns]
    if isinstance(name, InlineLogName):
        batches = list(_batches(storage.read(path, None), path, columns))
        if not batches:
            return [empty_row(str(name), column) for column in columns]
        found = _of_batches(batches)
    elif isinstance(name, BaseFileName) or (isinstance(name, LogFileName) and name.kind is LogKind.DATA):
        found = _of_parquet(storage, path, columns)
    else:
        return []
    rows = (range_row(str(name), column, (one.low, one.high), one.values, one.nulls) for column, one in found.items())
    return [row for row in rows if row is not None]


def _of_parquet(storage: Storage, path: str, columns: Sequence[str]) -> dict[str, _Range]:
    with ExitStack() as files:
        opened = open_parquet(storage, path, files)
        schema = opened.parquet.schema_arrow
        names = [name for name in columns if name in schema.names and not pa.types.is_nested(schema.field(name).type)]
        bounds = file_bounds(opened, path, schema, names)
    found = {}
    for name, of_groups in bounds.items():
        valued = ~of_groups.all_null
        lows, highs = (bound.filter(pa.array(valued)) for bound in (of_groups.low, of_groups.high))
        if (of_groups.nulls >= 0).all() and not (lows.null_count or highs.null_count):
            counts = int(of_groups.rows.sum()), int(of_groups.nulls.sum())
            found[name] = _Range(pc.min(lows), pc.max(highs), *counts)
    return found


def _of_batches(batches: Sequence[pa.RecordBatch]) -> dict[str, _Range]:
    types: dict[str, pa.DataType] = {}
    for batch in batches:
        types |= {field.name: field.type for field in batch.schema}
    found = {}
    for name, kind in types.items():
        if all(name in batch.schema.names and batch.schema.field(name).type == kind for batch in batches):
            column: Any = pa.Table.from_batches([batch.select([name]) for batch in batches]).column(0)
            if not pa.types.is_nested(kind):
                span = pc.min_max(column)
                found[name] = _Range(span["min"], span["max"], len(column), column.null_count)
    return found


def _batches(data: bytes, path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for block in read_blocks(data, path):
        if block.type is BlockType.AVRO_DATA:
            schema = block.header.get(Header.SCHEMA)
            if schema is None:
                raise CorruptFileError(f"{path}: a block at offset {block.offset} has no SCHEMA; restore the file")
            yield decode_data_block(schema, block.content, path, columns)
        elif block.type not in (BlockType.DELETE, BlockType.COMMAND):
            # Rows of which no range is known.
            yield pa.RecordBatch.from_arrays([], [])
