"""Encode and decode the records of the metadata table's partition ``record_index``, which locate record keys.

See docs/format/07-index-and-metadata.md, "Record index". The key of a record is the record key. A *location* says in
which partition and file group a row is, and which instant first wrote it.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import Array, take
from streaming_lsm.arrow.columns import Flags, Int64s, flags, int64s, pc
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.metadata.parts import check_valid, decode_part, encode_part
from streaming_lsm.format.metadata.schema import RecordType
from streaming_lsm.keys.bucket import java_string_hash
from streaming_lsm.keys.partition_path import escape_partition_value, unescape_partition_value

PARTITION = "record_index"

_LOCATION: list[pa.Field[Any]] = [
    pa.field("partition", pa.string(), nullable=False),
    pa.field("file_id", pa.string(), nullable=False),
    pa.field("instant_ms", pa.int64(), nullable=False),
]
LOCATIONS = pa.schema(_LOCATION)
"""Columns of locations: partition path, empty for an unpartitioned table; file id; epoch milliseconds of the instant
that first wrote the record."""

_PART = "recordIndexMetadata"
_INFO = pa.struct(
    [
        ("partitionName", pa.string()),
        ("fileIdHighBits", pa.int64()),
        ("fileIdLowBits", pa.int64()),
        ("fileIndex", pa.int32()),
        ("fileId", pa.string()),
        ("instantTime", pa.int64()),
        ("fileIdEncoding", pa.int32()),
        ("position", pa.int64()),
    ]
)
_UUID, _TEXT = 0, 1
_NO_INDEX = -1
_64_BITS = 2**64 - 1
_SHARD = re.compile(r"record-index-(?:([^-]*)-)?(\d{4,})-0")
_ALSO_ESCAPED = str.maketrans({"-": "%2D", "_": "%5F"})
_UUID_FILE_ID = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-(0|[1-9][0-9]{0,8}))?")


def shard_file_id(number: int, partition: str | None = None) -> str:
    """Return the file id of a file group of the partition.

    Args:
        number: its number, from 0.
        partition: in a partitioned record index the partition path of the table whose keys it has; else None.
    """
    if partition is None:
        return f"record-index-{number:04d}-0"
    return f"record-index-{escape_partition_value(partition).translate(_ALSO_ESCAPED)}-{number:04d}-0"


def parse_shard(file_id: str) -> tuple[str | None, int] | None:
    """Parse a file id of `shard_file_id`; return its partition path and number, None for another file id."""
    match = _SHARD.fullmatch(file_id)
    if match is None:
        return None
    return None if match[1] is None else unescape_partition_value(match[1]), int(match[2])


def shards_of(keys: pa.StringArray, shards: int) -> Int64s:
    """Return the file group of the partition in which each key is, int64 (n,), by Hudi's hash.

    Args:
        keys: record keys without nulls.
        shards: file groups of the partition.
    """
    # Java's absolute value of the smallest int is itself.
    hashes = np.abs(java_string_hash(keys).astype(np.int32)).astype(np.int64)
    found: Int64s = np.abs(np.fmod(hashes, shards))
    return found


def encode_locations(locations: pa.RecordBatch, file_name: str | None) -> pa.BinaryArray:
    """Encode locations, the values of HFile cells.

    Args:
        locations: has the columns `LOCATIONS`.
        file_name: name of their base file; None in logs.
    """
    count = locations.num_rows
    ids: Any = locations.column("file_id").dictionary_encode()
    known = [file_id_fields(text) for text in ids.dictionary.to_pylist()]
    fields: Any = pa.array(known, pa.struct([field for field in _INFO.fields if field.name in _ID_FIELDS]))
    of_ids: Any = take(fields, np.asarray(ids.indices))
    of_id = dict(zip(_ID_FIELDS, of_ids.flatten(), strict=True)) if count else {}
    columns = {
        "partitionName": locations.column("partition"),
        "instantTime": locations.column("instant_ms"),
        "position": pa.nulls(count, pa.int64()),
        **of_id,
    }
    parts = [columns.get(field.name, pa.nulls(count, field.type)) for field in _INFO.fields]
    values = pa.StructArray.from_arrays(parts, fields=_INFO.fields)
    return encode_part(_PART, values, pa.repeat(pa.scalar(RecordType.RECORD_INDEX, pa.int32()), count), file_name)


_ID_FIELDS = ("fileIdHighBits", "fileIdLowBits", "fileIndex", "fileId", "fileIdEncoding")


def file_id_fields(file_id: str) -> dict[str, object]:
    """Return the fields of a record that tell a file id: the halves of a UUID and an index, or else its text."""
    match = _UUID_FILE_ID.fullmatch(file_id)
    if match is None:
        return dict(zip(_ID_FIELDS, (-1, -1, _NO_INDEX, file_id, _TEXT), strict=True))
    bits = uuid.UUID(match[1]).int
    index = _NO_INDEX if match[2] is None else int(match[2])
    return dict(zip(_ID_FIELDS, (_signed(bits >> 64), _signed(bits & _64_BITS), index, "", _UUID), strict=True))


def _signed(bits: int) -> int:
    """Convert unsigned 64 bits to Java's signed long."""
    return bits - 2**64 if bits >= 2**63 else bits


def decode_locations(cells: Cells, schema_json: str, source: str) -> pa.RecordBatch:
    """Decode the locations in cells.

    Args:
        cells: cells of an HFile of the partition.
        schema_json: the ``schema`` of the HFile.
        source: name of the file, for messages.

    Returns:
        The columns `LOCATIONS`.

    Raises:
        CorruptFileError: a record is damaged.
        UnsupportedTable: a record is of another type, or has a file id of an unknown encoding.
    """
    _, parts = decode_part(cells, schema_json, _PART, _INFO, (RecordType.RECORD_INDEX,), source)
    check_valid(parts, cells, _PART, source)
    info: Any = parts
    columns = dict(zip((field.name for field in _INFO.fields), info.flatten(), strict=True))
    for name in ("partitionName", "instantTime", "fileIdEncoding"):
        check_valid(columns[name], cells, f"{_PART}.{name}", source)
    encodings = int64s(columns["fileIdEncoding"])
    is_text = encodings == _TEXT
    if (unknown := ~is_text & (encodings != _UUID)).any():
        raise UnsupportedTable(
            f"{source}: file ids of encoding {encodings[unknown][0]} in the record index; 0 and 1 are read"
        )
    ids = _file_ids(columns, is_text, source)
    return pa.RecordBatch.from_arrays([columns["partitionName"], ids, columns["instantTime"]], schema=LOCATIONS)


def _file_ids(columns: dict[str, Any], is_text: Flags, source: str) -> Array:
    """Build the file ids; few are distinct, and only those are made one by one."""
    numbers = ("fileIdHighBits", "fileIdLowBits", "fileIndex")
    has_all = np.logical_and.reduce([flags(pc.is_valid(columns[name])) for name in numbers])
    if not (np.where(is_text, flags(pc.is_valid(columns["fileId"])), has_all)).all():
        raise CorruptFileError(f"{source}: a metadata record without a file id; restore the file")
    rows = np.stack([int64s(columns[name]) for name in numbers], axis=1)
    distinct, nth = np.unique(rows[~is_text].view(f"V{rows.dtype.itemsize * 3}").ravel(), return_inverse=True)
    made = [file_id_of(*found) for found in distinct.view(np.int64).reshape(-1, 3).tolist()]
    ids = take(pa.array(made, pa.string()), nth)
    if not is_text.any():
        return ids
    places = np.where(is_text, 0, np.cumsum(~is_text) - 1)
    from_numbers = take(ids, places, is_text)
    found: Array = pc.if_else(pa.array(is_text), columns["fileId"], from_numbers)
    return found


def file_id_of(high: int, low: int, index: int) -> str:
    """Return the file id of the halves of a UUID, as Java's longs, and an index or -1."""
    bits = (high & _64_BITS) << 64 | low & _64_BITS
    text = str(uuid.UUID(int=bits))
    return text if index == _NO_INDEX else f"{text}-{index}"
