"""Look up the ranges of columns in data files, by the partition ``column_stats`` of the metadata table.

See docs/format/07-index-and-metadata.md, "Column stats". From table version 8 on a data file never changes, and neither
do its ranges: those of some files may be missing, but none is out of date.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s, flags, int64s, pc
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
from streaming_lsm.format.metadata.record_index import shards_of
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.creation import PARTITIONS_KEY
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileGroup, MetadataFileSlice, counted_instants
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline

_LOG = logging.getLogger(__name__)


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
    storage: Storage, data: Timeline, files: Sequence[tuple[str, str]], columns: Sequence[str]
) -> Mapping[str, FoundRanges]:
    """Look up the ranges of columns in files.

    Args:
        storage: the table.
        data: its current timeline.
        files: partition path and name of each file.
        columns: the columns.

    Returns:
        Ranges by column. Empty without such a partition, or, with a warning, if it cannot be read.
    """
    if not files or not columns or PARTITION not in listed(load_properties(storage).get(PARTITIONS_KEY, "")):
        return {}
    keys: pa.StringArray = pa.array([range_key(column, *file) for column in columns for file in files], pa.string())
    try:
        parts = list(_found(Subfolder(storage, METADATA_TABLE), data, keys))
    except (CorruptFileError, UnsupportedTable, TableNotFound, OSError) as error:
        _LOG.warning(
            "%s/%s/%s is not read, no file is skipped by it: %s", storage.uri, METADATA_TABLE, PARTITION, error
        )
        return {}
    places = np.concatenate([np.zeros(0, np.int64), *(place for place, _ in parts)])
    ranges = pa.concat_arrays([pa.array([], RANGES), *(found for _, found in parts)])
    found = {}
    for number, column in enumerate(columns):
        of_column = np.flatnonzero(places // len(files) == number)
        found[column] = FoundRanges(places[of_column] % len(files), ranges.take(pa.array(of_column)))  # type: ignore[arg-type]
    return found


def _found(metadata: Storage, data: Timeline, keys: pa.StringArray) -> Iterator[tuple[Int64s, pa.StructArray]]:
    """Yield ranges, and the index of the key of each."""
    timeline, names = Timeline.load(metadata, data.layout), metadata.names(PARTITION)
    groups = ranges_groups(names)
    shards = shards_of(keys, len(groups))
    counts: Callable[[str], bool] = counted_instants(data)
    for number, group in enumerate(groups):
        wanted: Any = keys.filter(pa.array(shards == number)).cast(pa.binary())
        if not len(wanted):
            continue
        for file in MetadataFileSlice.newest(timeline, names, group).parts(metadata, counts):
            if isinstance(file, DeletedKeys):  # of files that are gone
                continue
            for cells in file.seek(wanted):
                places = int64s(pc.index_in(cells.keys.cast(pa.string()), value_set=keys))
                yield places, decode_ranges(cells, file.schema_json, file.source)


def read_ranges(
    found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool], base_name: str
) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Read and merge the ranges of a slice: the newest of each key, without those of deleted files.

    Args:
        found: the slice.
        metadata: storage of the metadata table.
        counts: whether the log records of an instant are valid, see `counted_instants`.
        base_name: name of the base file for which they are encoded.

    Returns:
        Keys, ascending, and encoded records.

    Raises:
        CorruptFileError, UnsupportedTable: a file cannot be read.
    """
    parts: list[tuple[Any, Any]] = []
    for file in found.parts(metadata, counts):
        if isinstance(file, DeletedKeys):
            tombstones = pa.array([empty_row("", "", is_deleted=True)] * len(file.keys), RANGES)
            parts.append((file.keys.cast(pa.binary()), tombstones))
        else:
            parts += [(cells.keys, decode_ranges(cells, file.schema_json, file.source)) for cells in file.cells()]
    keys: Any = pa.concat_arrays([pa.array([], pa.binary()), *(key for key, _ in parts)])
    ranges: Any = pa.concat_arrays([pa.array([], RANGES), *(one for _, one in parts)])
    order = np.asarray(pc.sort_indices(keys))  # stable: of equal keys the newest is the last
    keys, ranges = keys.take(order), ranges.take(order)
    is_last = np.append(flags(pc.not_equal(keys[1:], keys[:-1])), np.ones(min(len(keys), 1), np.bool_))
    kept = pa.array(is_last & ~flags(ranges.field("isDeleted")))
    return keys.filter(kept), encode_ranges(ranges.filter(kept), base_name)


def ranges_groups(names: Sequence[str]) -> list[MetadataFileGroup]:
    """Return the file groups of the partition, by the names of its files.

    Raises:
        CorruptFileError: there are none, or one is missing.
    """
    known = {name.file_id for text in names if (name := parse_file_name(text)) is not None}
    expected = [FILE_ID.format(number) for number in range(len(known))]
    if not known or set(expected) != known:
        raise CorruptFileError(f"{PARTITION} has the file groups {', '.join(sorted(known)) or 'none'}; drop it")
    return [MetadataFileGroup(PARTITION, file_id) for file_id in expected]
