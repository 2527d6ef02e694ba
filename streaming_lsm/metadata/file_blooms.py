"""Merge the records of the partition ``bloom_filters`` of the metadata table, and look them up.

See docs/format/07-index-and-metadata.md, "Bloom filters of the metadata table".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import flags, pc
from streaming_lsm.errors import CorruptFileError, TableNotFound, UnsupportedTable
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.metadata.bloom_filters import (
    FILE_ID,
    FILTERS,
    PARTITION,
    decode_filters,
    filter_key,
    filter_row,
)
from streaming_lsm.format.metadata.group_files import DeletedKeys
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.creation import PARTITIONS_KEY
from streaming_lsm.metadata.file_slices import METADATA_TABLE, StoredCells
from streaming_lsm.metadata.slice_records import sought_records
from streaming_lsm.metadata.unread import warn_unread
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline


def file_blooms(
    storage: Storage, data: Timeline, files: Sequence[tuple[str, str]]
) -> Mapping[tuple[str, str], BloomFilter]:
    """Look up the bloom filters of base files.

    Args:
        storage: the table.
        data: its current timeline.
        files: partition path and name of each file.

    Returns:
        Filters by partition path and name; a file that is missing may have any key. Empty without such a partition of
        the metadata table, or, with a warning, if it cannot be read.
    """
    if not files or PARTITION not in listed(load_properties(storage).get(PARTITIONS_KEY, "")):
        return {}
    by_key = {filter_key(*file): file for file in files}
    metadata = Subfolder(storage, METADATA_TABLE)
    try:
        timeline = data.load_inside(metadata)
        parts = sought_records(metadata, timeline, data, pa.array(by_key, pa.string()), PARTITION, FILE_ID)
        found: tuple[Any, Any] = newest_filters(parts)
        rows = zip(*(column.to_pylist() for column in found), strict=True)
        return {by_key[key.decode()]: _decoded(row) for key, row in rows}
    except (CorruptFileError, UnsupportedTable, TableNotFound, OSError) as error:
        warn_unread(storage, PARTITION, "no base file is left out by it", error)
        return {}


def _decoded(row: Mapping[str, Any]) -> BloomFilter:
    return BloomFilter.decode(row["bloomFilter"].decode("ascii", "replace"), row["type"], PARTITION)


def newest_filters(parts: Iterable[StoredCells | DeletedKeys]) -> tuple[pa.BinaryArray, pa.StructArray]:
    """Decode filters, and reduce them to the newest of each key, without those of deleted files.

    Args:
        parts: in merge order.

    Returns:
        Keys, ascending, and filters.

    Raises:
        CorruptFileError, UnsupportedTable: a record cannot be read.
    """
    found: list[tuple[Any, Any]] = [(pa.array([], pa.binary()), pa.array([], FILTERS))]
    for part in parts:
        if isinstance(part, DeletedKeys):
            tombstone = filter_row("", "", b"", is_deleted=True)
            found.append((part.keys.cast(pa.binary()), pa.array([tombstone] * len(part.keys), FILTERS)))
        else:
            found.append((part.cells.keys, decode_filters(part.cells, part.schema_json, part.source)))
    keys, filters = (pa.concat_arrays(column) for column in zip(*found, strict=True))
    order = pc.sort_indices(keys)  # stable: of equal keys the newest is the last
    keys, filters = keys.take(order), filters.take(order)
    is_last = np.append(flags(pc.not_equal(keys[1:], keys[:-1])), np.ones(min(len(keys), 1), np.bool_))
    kept = pa.array(is_last & ~flags(filters.field("isDeleted")))
    return keys.filter(kept), filters.filter(kept)
