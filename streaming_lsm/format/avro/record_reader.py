"""Decode the Avro records of an inline log to Arrow columns, all records at once.

See docs/format/04-inline-logs.md, "Contents".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import Array, array_of, nulls
from streaming_lsm.arrow.columns import Int64s, UInt8s
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.avro.cursor import Cursor
from streaming_lsm.format.avro.item_chains import Step, follow
from streaming_lsm.format.avro.schema_tree import RecordPlan, record_plan
from streaming_lsm.format.avro.value_reader import read_record
from streaming_lsm.format.avro.varints import Stretch

BLOCK_VERSION = 3
"""Version of the content of a data block."""

_READ_VERSIONS = (0, 1, 2, 3)  # of the same layout: Hudi 1.2 reads a record count in each of these versions
_HEAD = struct.Struct(">ii")
_LENGTH_BYTES = 4
# Limits of a part, the records decoded at a time, so that its columns fit the CPU cache.
_PART_ROWS = 8192
_PART_BYTES = 1 << 21


def decode_data_block(
    schema_json: str, content: memoryview | bytes, source: str, columns: Sequence[str] | None = None
) -> pa.RecordBatch:
    """Decode the rows of an Avro data or CDC block (docs/format/04-inline-logs.md, "Contents").

    Args:
        schema_json: Avro JSON of the records: the block's SCHEMA.
        content: the block's content.
        source: the block, for messages.
        columns: columns to decode, all by default; columns that the schema does not have are ignored.

    Raises:
        CorruptFileError: the content does not match the layout or the schema.
        SchemaError: the schema is malformed, or has a type that is not supported.
        UnsupportedTable: the content has an unknown version, or is too large for one batch.
    """
    if len(content) < _HEAD.size:
        raise CorruptFileError(f"{source}: a data block of only {len(content)} bytes; restore the file")
    version, count = _HEAD.unpack_from(content)
    if version not in _READ_VERSIONS:
        raise UnsupportedTable(f"{source}: data block version {version}; this release reads {_READ_VERSIONS}")
    starts, ends = record_starts(content, _HEAD.size, count, source)
    return decode_records(
        schema_json=schema_json, content=content, starts=starts, ends=ends, source=source, columns=columns
    )


def record_starts(content: memoryview | bytes, offset: int, count: int, source: str) -> tuple[Int64s, Int64s]:
    """Find the starts and ends of length-prefixed records, which fill the content from `offset` to its end.

    See docs/format/04-inline-logs.md, "Contents".

    Returns:
        int64 (count,) each.

    Raises:
        CorruptFileError: the lengths do not add up to the end of the content.
    """
    room = len(content) - offset
    if not 0 <= count <= room // (_LENGTH_BYTES + 1):
        raise CorruptFileError(f"{source}: {count} records in {room} bytes; restore the file")
    if not count and not room:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    heads = follow(_over_records(content), offset, len(content), count)
    if len(heads) <= count or heads[-1] != len(content):
        raise CorruptFileError(
            f"{source}: the length of record {len(heads) - 1} of {count} does not lead to the next; restore the file"
        )
    return heads[:-1] + _LENGTH_BYTES, heads[1:]


def _over_records(content: memoryview | bytes) -> Step:
    last = len(content) - _LENGTH_BYTES
    lengths = np.ndarray((last + 1,), ">i4", content, 0, (1,))  # item i has bytes i to i + 3

    def step(at: Int64s) -> Int64s:
        length = lengths[np.minimum(at, last)].astype(np.int64)
        behind = at + length
        behind += _LENGTH_BYTES
        behind[(length <= 0) | (behind > len(content)) | (at > last)] = -1
        return behind

    return step


def decode_records(
    schema_json: str,
    content: memoryview | bytes,
    starts: Int64s,
    ends: Int64s,
    source: str,
    columns: Sequence[str] | None = None,
    *,
    unions: bool = False,
) -> pa.RecordBatch:
    """Decode Avro datums without container to Arrow columns.

    Args:
        schema_json: Avro JSON of the records.
        content: bytes with the datums; neighbouring datums should be near each other.
        starts: start of each datum, int64 (n,).
        ends: end of each datum, int64 (n,).
        source: the file, for messages.
        columns: columns to decode, all by default; columns that the schema does not have are ignored.
        unions: see `arrow_fields`.

    Returns:
        n rows, in the types of `arrow_fields`.

    Raises:
        CorruptFileError: a datum does not match the schema, or does not end at its end position.
        SchemaError: the schema is malformed, or has a type that is not supported.
        UnsupportedTable: a column has more bytes or items than one batch can hold.
    """
    plan = record_plan(schema_json, source, columns, unions=unions)
    data = np.frombuffer(content, np.uint8)
    if len(starts) and not (starts.min() >= 0 and (starts <= ends).all() and ends.max() <= len(data)):
        raise CorruptFileError(f"{source}: a record is outside of the {len(data)} bytes; restore the file")
    parts = [
        _decode_part(plan=plan, data=data, starts=starts[part], ends=ends[part], first=part.start, source=source)
        for part in parts_of(starts, ends)
    ]
    columns_found = [_joined([part[place] for part in parts], field, source) for place, field in enumerate(plan.schema)]
    rows: Any = array_of(pa.struct(list(plan.schema)), len(starts), [None], columns_found)
    return pa.RecordBatch.from_struct_array(rows)


def parts_of(starts: Int64s, ends: Int64s) -> Iterator[slice]:
    """Split datums into parts of limited rows and, except for single-row parts, limited bytes.

    Args:
        starts: start of each datum, int64 (n,).
        ends: end of each datum, int64 (n,).
    """
    through, first = np.cumsum(ends - starts), 0
    while first < len(starts):
        begun = int(through[first - 1]) if first else 0
        last = min(first + _PART_ROWS, int(np.searchsorted(through, begun + _PART_BYTES, "right")))
        yield slice(first, max(last, first + 1))
        first = max(last, first + 1)


def _decode_part(plan: RecordPlan, data: UInt8s, starts: Int64s, ends: Int64s, first: int, source: str) -> list[Array]:
    low, high = int(starts.min()), int(ends.max())
    records = np.arange(first, first + len(starts))
    cursor = Cursor(Stretch.copy_of(data[low:high]), starts - low, ends - low, records, source)
    found = read_record(plan.fields, cursor)
    if (left := cursor.at != cursor.end).any():
        cursor.refuse(left, plan.fields[-1].path if plan.fields else "", "has bytes behind it that no column takes")
    in_bytes = {place: nth for nth, place in enumerate(sorted(plan.places))}
    return [found[in_bytes[place]] for place in plan.places]


def _joined(parts: list[Array], field: pa.Field[Any], source: str) -> Array:
    if not parts:
        return nulls(0, field.type)
    try:
        whole: Array = pa.concat_arrays(parts) if len(parts) > 1 else parts[0]
    except pa.ArrowInvalid as error:
        raise UnsupportedTable(
            f"{source}: column {field.name!r} is too large for one batch ({error}); decode fewer records at a time"
        ) from error
    return whole
