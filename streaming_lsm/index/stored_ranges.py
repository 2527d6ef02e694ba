"""Find the ranges of columns in data files, for the partition ``column_stats`` of the metadata table.

See docs/format/07-index-and-metadata.md, "Column stats". Each column of a file gets a range: Hudi takes one without
for a column of nulls. Where the statistics of Parquet do not bound a column, its values are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.arrow.columns import pc
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.file_group.data_file import OpenFile, open_parquet
from streaming_lsm.format.avro.record_reader import decode_data_block
from streaming_lsm.format.log.inline_blocks import BlockType, Header, read_blocks
from streaming_lsm.format.metadata.column_stats import empty_row, range_row
from streaming_lsm.format.table.file_names import BaseFileName, InlineLogName, LogFileName, LogKind, parse_file_name
from streaming_lsm.query.prune.statistics import file_bounds
from streaming_lsm.storage.base import Storage


@dataclass(frozen=True)
class _Range:
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
        Values of the type `RANGES`, one for each of the columns that the file has and that is not nested; those of a
        file without rows, such as a delete log, are empty.

    Raises:
        CorruptFileError: the file is missing or damaged.
        StorageError: it cannot be opened at present.
        UnsupportedTable: a column is of a type, or a block of a kind, without ranges.
    """
    name = parse_file_name(path.rpartition("/")[2])
    if isinstance(name, LogFileName) and name.kind is LogKind.DELETES:
        return [empty_row(str(name), column) for column in columns]
    if isinstance(name, InlineLogName):
        batches = list(inline_batches(storage.read(path, None), path, columns))
        if not batches:
            return [empty_row(str(name), column) for column in columns]
        found = _of_batches(batches, path)
    elif isinstance(name, BaseFileName) or (isinstance(name, LogFileName) and name.kind is LogKind.DATA):
        found = _of_parquet(storage, path, columns)
    else:
        return []
    return [range_row(str(name), column, (one.low, one.high), one.values, one.nulls) for column, one in found.items()]


def _of_parquet(storage: Storage, path: str, columns: Sequence[str]) -> dict[str, _Range]:
    with ExitStack() as files:
        opened = open_parquet(storage, path, files)
        schema = opened.parquet.schema_arrow
        names = [name for name in columns if name in schema.names and not pa.types.is_nested(schema.field(name).type)]
        found = _of_statistics(opened, path, schema, names)
        for name in names:
            if name not in found:
                found[name] = _of_values(opened, schema.field(name), path)
    return {name: found[name] for name in names}


def _of_statistics(opened: OpenFile, path: str, schema: pa.Schema, names: Sequence[str]) -> dict[str, _Range]:
    found = {}
    for name, of_groups in file_bounds(opened, path, schema, names).items():
        valued = ~of_groups.all_null
        lows, highs = (bound.filter(pa.array(valued)) for bound in (of_groups.low, of_groups.high))
        bounded = not (lows.null_count or highs.null_count) or pa.types.is_floating(schema.field(name).type)
        if (of_groups.nulls >= 0).all() and bounded:
            counts = int(of_groups.rows.sum()), int(of_groups.nulls.sum())
            found[name] = _Range(pc.min(lows), pc.max(highs), *counts)
    return found


def _of_values(opened: OpenFile, field: pa.Field[Any], path: str) -> _Range:
    found: _Range | None = None
    try:
        for batch in opened.parquet.iter_batches(columns=[field.name]):
            one = _range(batch.column(0))
            found = one if found is None else _united(found, one)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFileError(f"{path}: damaged: {error}") from error
    except pa.ArrowNotImplementedError as error:
        raise _no_range(field.name, field.type, path) from error
    none = pa.scalar(None, field.type)
    return _Range(none, none, 0, 0) if found is None else found


def _range(values: Any) -> _Range:
    span = pc.min_max(values)
    return _Range(span["min"], span["max"], len(values), values.null_count)


def _united(one: _Range, other: _Range) -> _Range:
    kind = one.low.type
    lows, highs = (pa.array([a, b], kind) for a, b in ((one.low, other.low), (one.high, other.high)))
    counts = one.values + other.values, one.nulls + other.nulls
    return _Range(pc.min(lows), pc.max(highs), *counts)


def _of_batches(batches: Sequence[pa.RecordBatch], path: str) -> dict[str, _Range]:
    """Find the ranges of all columns that are not nested; a column that a block lacks is null there."""
    found: dict[str, _Range] = {}
    try:
        rows = pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UnsupportedTable(f"{path}: blocks whose columns have no common type: {error}") from error
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not pa.types.is_nested(field.type):
            try:
                found[field.name] = _range(column)
            except pa.ArrowNotImplementedError as error:
                raise _no_range(field.name, field.type, path) from error
    return found


def inline_batches(data: bytes, path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the blocks of an inline log; raises `CorruptFileError` and `UnsupportedTable`."""
    for block in read_blocks(data, path):
        if block.type is BlockType.AVRO_DATA:
            schema = block.header.get(Header.SCHEMA)
            if schema is None:
                raise CorruptFileError(f"{path}: a block at offset {block.offset} has no SCHEMA; restore the file")
            yield decode_data_block(schema, block.content, path, columns)
        elif block.type is BlockType.PARQUET_DATA:
            yield from _parquet_block(bytes(block.content), path, columns)
        elif block.type not in (BlockType.DELETE, BlockType.COMMAND):
            raise UnsupportedTable(f"{path}: the ranges of a block of the type {block.type.name} are not known")


def _parquet_block(content: bytes | memoryview, path: str, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        there = file.schema_arrow.names
        yield from file.iter_batches(columns=[name for name in columns if name in there])
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFileError(f"{path}: a damaged Parquet block: {error}") from error


def _no_range(column: str, kind: pa.DataType, path: str) -> UnsupportedTable:
    return UnsupportedTable(f"{path}: column {column!r} of type {kind} has no range")
