"""Look up the ranges of columns in data files, by the partition ``column_stats`` of the metadata table.

See docs/format/07-index-and-metadata.md, "Column stats". From table version 8 on a data file never changes, and neither
do its ranges: those of some files may be missing, but none is out of date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, flags, int64s, pc
from streaming_lsm.errors import CorruptFileError, TableNotFound, UnsupportedTable
from streaming_lsm.format.metadata.column_stats import (
    FILE_ID,
    PARTITION,
    RANGES,
    decode_ranges,
    empty_row,
    encode_ranges,
    range_key,
)
from streaming_lsm.format.metadata.group_files import DeletedKeys
from streaming_lsm.format.metadata.parts import renamed_values
from streaming_lsm.format.metadata.schema import metadata_schema
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.creation import PARTITIONS_KEY
from streaming_lsm.metadata.file_slices import METADATA_TABLE, StoredCells
from streaming_lsm.metadata.slice_records import sought_records
from streaming_lsm.metadata.unread import warn_unread
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline


@dataclass(frozen=True)
class FoundRanges:
    """Ranges of one column in some of the files that were asked for.

    Attributes:
        files: index of the file of each range, int64 (n,); a file may have none, or several.
        ranges: of the type `RANGES`, n.
    """

    files: Int64s
    ranges: pa.StructArray


def column_ranges(
    storage: Storage,
    data: Timeline,
    files: Sequence[tuple[str, str]],
    columns: Sequence[str],
    partition: str = PARTITION,
    file_id: str = FILE_ID,
) -> Mapping[str, FoundRanges]:
    """Look up the ranges of columns in files.

    Args:
        storage: the table.
        data: its current timeline.
        files: partition path and name of each file.
        columns: the columns.
        partition, file_id: the partition of the ranges, and the form of its file ids; by default ``column_stats``.

    Returns:
        Ranges by column. Empty without such a partition, or, with a warning, if it cannot be read.
    """
    if not files or not columns or partition not in listed(load_properties(storage).get(PARTITIONS_KEY, "")):
        return {}
    keys: pa.StringArray = pa.array([range_key(column, *file) for column in columns for file in files], pa.string())
    try:
        parts = list(_found(Subfolder(storage, METADATA_TABLE), data, keys, partition, file_id))
    except (CorruptFileError, UnsupportedTable, TableNotFound, OSError) as error:
        warn_unread(storage, partition, "no file is skipped by it", error)
        return {}
    places = np.concatenate([np.zeros(0, np.int64), *(place for place, _ in parts)])
    ranges = pa.concat_arrays([pa.array([], RANGES), *(found for _, found in parts)])
    found = {}
    for number, column in enumerate(columns):
        of_column = np.flatnonzero(places // len(files) == number)
        found[column] = FoundRanges(places[of_column] % len(files), ranges.take(pa.array(of_column)))  # type: ignore[arg-type]
    return found


def _found(
    metadata: Storage, data: Timeline, keys: pa.StringArray, partition: str, file_id: str
) -> Iterator[tuple[Int64s, pa.StructArray]]:
    """Yield ranges, and the index of the key of each."""
    timeline = data.load_inside(metadata)
    for part in sought_records(metadata, timeline, data, keys, partition, file_id):
        if not isinstance(part, DeletedKeys):  # of files that are gone
            places = int64s(pc.index_in(part.cells.keys.cast(pa.string()), value_set=keys))
            yield places, decode_ranges(part.cells, part.schema_json, part.source)


def decoded_ranges(parts: Iterable[StoredCells | DeletedKeys]) -> tuple[pa.BinaryArray, pa.StructArray]:
    """Decode ranges in merge order.

    Args:
        parts: of one slice.

    Returns:
        Keys and ranges, ordered by key; those of a key in merge order. Deleted keys have tombstones.

    Raises:
        CorruptFileError, UnsupportedTable: a record cannot be read.
    """
    found: list[tuple[Any, Any]] = []
    for part in parts:
        if isinstance(part, DeletedKeys):
            tombstones = pa.array([empty_row("", "", is_deleted=True)] * len(part.keys), RANGES)
            found.append((part.keys.cast(pa.binary()), tombstones))
        else:
            found.append((part.cells.keys, decode_ranges(part.cells, part.schema_json, part.source)))
    keys: Any = pa.concat_arrays([pa.array([], pa.binary()), *(key for key, _ in found)])
    ranges: Any = pa.concat_arrays([pa.array([], RANGES), *(one for _, one in found)])
    order = pc.sort_indices(keys)  # stable
    return keys.take(order), ranges.take(order)


def merged_ranges(
    parts: Iterable[StoredCells | DeletedKeys], old: str | None, new: str
) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Reduce the ranges of files to the newest of each key, without those of deleted files, encoded for a base file.

    Records are copied as they are encoded, except for the name of their base file.

    Args:
        parts: of one slice, in merge order.
        old: name of the slice's base file; None without one.
        new: name of the base file.

    Raises:
        CorruptFileError, UnsupportedTable: a record cannot be read.
    """
    none: Any = pa.array([], pa.binary())
    keys, values, deleted = [none], [none], [np.zeros(0, np.bool_)]
    for part in parts:
        if isinstance(part, DeletedKeys):
            texts: Any = part.keys
            keys.append(texts.cast(pa.binary()))
            values.append(pa.repeat(pa.scalar(b""), len(texts)))
            deleted.append(np.ones(len(texts), np.bool_))
            continue
        ranges: Any = decode_ranges(part.cells, part.schema_json, part.source)
        renamed = renamed_values(part.cells, old, new) if part.schema_json == metadata_schema() else None
        keys.append(part.cells.keys)
        values.append(encode_ranges(ranges, new) if renamed is None else renamed)
        deleted.append(flags(ranges.field("isDeleted")))
    all_keys, records, gone = pa.concat_arrays(keys), pa.concat_arrays(values), np.concatenate(deleted)
    order = np.asarray(pc.sort_indices(all_keys))  # stable
    ordered: Any = all_keys.take(pa.array(order))
    kept = _is_last(ordered) & ~gone[order]
    return ordered.filter(pa.array(kept)), records.take(pa.array(order[kept]))


def newest_ranges(keys: pa.BinaryArray, ranges: pa.StructArray) -> tuple[pa.BinaryArray, pa.StructArray]:
    """Reduce the ranges of files to the newest of each key, without those of deleted files; see `decoded_ranges`."""
    all_keys: Any = keys
    rows: Any = ranges
    kept = pa.array(_is_last(keys) & ~flags(rows.field("isDeleted")))
    return all_keys.filter(kept), rows.filter(kept)


def _is_last(keys: Any) -> Flags:
    """Flag the last of equal keys, bool (n,); they are ascending."""
    found: Flags = np.append(flags(pc.not_equal(keys[1:], keys[:-1])), np.ones(min(len(keys), 1), np.bool_))
    return found
