"""Encode and decode the files of the metadata table's partition ``files``, which lists the files of each partition.

See docs/format/07-index-and-metadata.md, "Files payload", "File groups of the metadata table".

The partition has one file group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, int64s, is_utf8
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.metadata.group_files import DeletedKeys
from streaming_lsm.format.metadata.parts import decode_part, encode_part, encode_rows
from streaming_lsm.format.metadata.records import FilesRecord
from streaming_lsm.format.metadata.schema import RecordType
from streaming_lsm.schema import map_type

PARTITION = "files"
FILE_GROUP = "files-0000-0"

ALL_PARTITIONS_KEY = "__all_partitions__"
"""Key of the record in ``files`` that lists the partitions."""

UNPARTITIONED_KEY = "."
"""Partition of an unpartitioned table, as a key and in the list of partitions."""

Records = Mapping[str, FilesRecord]
"""Records by key."""

_PART = "filesystemMetadata"
_FILE = pa.struct([pa.field("size", pa.int64(), nullable=False), pa.field("isDeleted", pa.bool_(), nullable=False)])
_FILES = map_type(pa.string(), _FILE, nullable=False)
_FEW_FILES = 256
"""Entries that are encoded one by one."""
_TYPES = (RecordType.ALL_PARTITIONS, RecordType.FILES)


def partition_key(partition: str) -> str:
    """Return the key of a partition's record in ``files``, which is also its name in the list of partitions."""
    return partition or UNPARTITIONED_KEY


def partition_path(key: str) -> str:
    """Return the partition path of a key, the inverse of `partition_key`."""
    return "" if key == UNPARTITIONED_KEY else key


def encode_files(records: Records, file_name: str | None) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Encode records; return their keys and values, ascending by key.

    Args:
        records: the records.
        file_name: name of their base file; None in logs.

    Raises:
        UnsupportedTable: a name is not valid UTF-8.
    """
    entries = sorted((key.encode("utf-8", "surrogateescape"), record) for key, record in records.items())
    types = np.array([record.all_partitions for _, record in entries], np.bool_)
    ends = np.cumsum([0, *(len(record.files) for _, record in entries)])
    found = [entry for _, record in entries for entry in record.files.items()]
    try:
        keys = pa.array([key.decode() for key, _ in entries], pa.string())
        names = pa.array([name for name, _ in found], pa.string())
        if len(found) <= _FEW_FILES:
            # As columns they would take milliseconds.
            rows = (
                {name: {"size": info.size, "isDeleted": info.is_deleted} for name, info in record.files.items()}
                for _, record in entries
            )
            encoded: pa.BinaryArray = keys.cast(pa.binary())  # type: ignore[assignment]
            return encoded, encode_rows(_PART, rows, _types(types).tolist(), file_name)
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        raise UnsupportedTable(f"{error.object!r:.80} is not UTF-8, which names in a metadata table must be") from None
    sizes = np.array([info.size for _, info in found], np.int64)
    deleted = np.array([info.is_deleted for _, info in found], np.bool_)
    return encode_maps(keys, types, ends, names, sizes, deleted, file_name)


def _types(lists: Flags) -> Int64s:
    return np.where(lists, RecordType.ALL_PARTITIONS, RecordType.FILES).astype(np.int64)


def encode_maps(
    keys: pa.StringArray,
    lists: Flags,
    ends: Int64s,
    names: pa.StringArray,
    sizes: Int64s,
    deleted: Flags,
    file_name: str | None,
) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Encode records given as columns; return their keys and values.

    Args:
        keys: their keys, ascending (records,).
        lists: whether a record lists partitions (records,).
        ends: where the entries of a record begin, and those of the last one end, int64 (records + 1,).
        names, sizes, deleted: name, size in bytes and whether it is a tombstone, of each entry (entries,).
        file_name: name of their base file; None in logs.
    """
    files = pa.StructArray.from_arrays([pa.array(sizes, pa.int64()), pa.array(deleted, pa.bool_())], fields=list(_FILE))
    # The published stubs lack this form.
    maps = cast("Any", pa.MapArray).from_arrays(pa.array(ends, pa.int32()), names, files, _FILES)
    encoded: pa.BinaryArray = keys.cast(pa.binary())  # type: ignore[assignment]
    return encoded, encode_part(_PART, maps, pa.array(_types(lists), pa.int32()), file_name)


def unexpected_deletes(found: DeletedKeys) -> CorruptFileError:
    """Build the error for deletes, which the partition never has."""
    return CorruptFileError(f"{found.source}: deletes, which {PARTITION} has not: drop the metadata table")


def decode_maps(cells: Cells, schema_json: str, source: str) -> tuple[pa.StringArray, Flags, Any]:
    """Decode records as columns, in the order of the cells.

    Args:
        cells: cells of HFiles of the partition.
        schema_json: the ``schema`` of the HFiles.
        source: name of the file, for messages.

    Returns:
        Their keys, whether they list partitions, and their entries: maps from names to structs of size and isDeleted.

    Raises:
        CorruptFileError: a record is damaged, or of another type.
    """
    types, maps = decode_part(cells, schema_json, _PART, _FILES, _TYPES, source)
    return _texts(cells, source), int64s(types) == RecordType.ALL_PARTITIONS, maps


def _texts(cells: Cells, source: str) -> pa.StringArray:
    keys = cells.keys
    try:
        return cast("pa.StringArray", keys.cast(pa.string()))
    except pa.ArrowInvalid:
        key = keys.filter(pa.array(~is_utf8(keys)))[0].as_py()
        raise CorruptFileError(f"{source}: HFile key {key!r:.80} is not UTF-8; restore the file") from None
