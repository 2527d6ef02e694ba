"""Unite ranges of columns to those of partitions, and look these up in the partition ``partition_stats``.

See docs/format/07-index-and-metadata.md, "Partition stats". A range whose bounds are *tight* takes the place of all
before it; another one is united with those before, so that bounds become wider, and never miss a file whatever the
order in which writes complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, flags, int64s, pc
from streaming_lsm.errors import CorruptFileError, TableNotFound, UnsupportedTable
from streaming_lsm.format.metadata.column_stats import NO_TYPE, RANGES, bounds_of, ordered_bounds, range_key, range_row
from streaming_lsm.format.metadata.partition_stats import FILE_ID, PARTITION
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.changed_ranges import PartitionRows
from streaming_lsm.metadata.column_ranges import FoundRanges, decoded_ranges
from streaming_lsm.metadata.commit import DELTA_COMMIT
from streaming_lsm.metadata.creation import PARTITIONS_KEY
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileSlice, counted_instants
from streaming_lsm.metadata.slice_records import numbered_groups, slice_records
from streaming_lsm.metadata.state import check_up_to_date
from streaming_lsm.metadata.unread import warn_unread
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.instant import FLAT
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline

_UNTYPED, _NONE = -1, -1
_SUMS = ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")


def partition_ranges(
    storage: Storage, data: Timeline, partitions: Sequence[str], columns: Sequence[str]
) -> Mapping[str, FoundRanges]:
    """Look up the ranges of columns in partitions, over all files of their newest slices.

    Args:
        storage: the table.
        data: its timeline, whose newest slices are read.
        partitions: partition paths.
        columns: the columns.

    Returns:
        Ranges by column, with the index of the partition in place of that of the file. Empty without such a partition
        of the metadata table, if it tells of newer slices, or, with a warning, if it cannot be read.
    """
    if not partitions or not columns or PARTITION not in listed(load_properties(storage).get(PARTITIONS_KEY, "")):
        return {}
    keys = [range_key(column, partition) for column in columns for partition in partitions]
    try:
        found = _found(Subfolder(storage, METADATA_TABLE), data, pa.array(keys, pa.string()))
    except (CorruptFileError, UnsupportedTable, TableNotFound, OSError) as error:
        warn_unread(storage, PARTITION, "no partition is skipped by it", error)
        return {}
    if found is None:
        return {}
    at, ranges = found
    places = int64s(pc.index_in(at.cast(pa.string()), value_set=pa.array(keys, pa.string())))
    by_column = {}
    for number, column in enumerate(columns):
        chosen = np.flatnonzero(places // len(partitions) == number)
        by_column[column] = FoundRanges(places[chosen] % len(partitions), ranges.take(pa.array(chosen)))
    return by_column


def _found(metadata: Storage, data: Timeline, keys: pa.StringArray) -> tuple[Any, Any] | None:
    timeline, names, counts = data.load_inside(metadata), metadata.names(PARTITION), counted_instants(data)
    if data.layout != FLAT:  # which has no completion times
        check_up_to_date(timeline, data)
    (group,) = numbered_groups(PARTITION, FILE_ID, names)
    newest = MetadataFileSlice.newest(timeline, names, group)
    base = newest.base.instant if newest.base else ""
    for write in timeline.completed_writes:
        # A base file has the ranges of newer slices, too, if it was made after `data` was loaded.
        if write.action == DELTA_COMMIT and (write.completed or "") < base and not counts(write.requested):
            return None
    wanted: Any = keys.cast(pa.binary())
    return united_ranges(*decoded_ranges(slice_records(newest, metadata, counts, wanted)))


def of_types(rows: PartitionRows, types: Mapping[str, pa.DataType]) -> PartitionRows:
    """Convert ranges that older files have in other types, so that all of a column are of one type.

    Args:
        rows: partition paths and ranges of files.
        types: types of the table's columns.

    Raises:
        UnsupportedTable: a bound is none of the column's type in the table.
    """
    found: list[tuple[str, dict[str, Any]]] = []
    by_column: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for partition, row in rows:
        by_column.setdefault(row["columnName"], []).append((partition, row))
    for column, some in by_column.items():
        valued = [(partition, row) for partition, row in some if row["minValue"]]
        several = len({(row["valueType"]["typeOrdinal"], row["valueType"]["additionalInfo"]) for _, row in valued}) > 1
        found += _converted(column, valued, types.get(column)) if several else some
    return found


def _converted(
    column: str, some: Sequence[tuple[str, dict[str, Any]]], kind: pa.DataType | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    ranges: Any = pa.array([row for _, row in some], RANGES)
    lows, highs = bounds_of(ranges, kind) if kind is not None else (pa.nulls(len(some)), pa.nulls(len(some)))
    for (partition, row), low, high in zip(some, lows, highs, strict=True):
        if not (low.is_valid and high.is_valid):
            raise UnsupportedTable(f"column {column!r}: {row['fileName']} has a bound that is no {kind}")
        yield partition, range_row(row["fileName"], column, (low, high), row["valueCount"], row["nullCount"])


def united_ranges(keys: pa.BinaryArray, ranges: pa.StructArray) -> tuple[pa.BinaryArray, pa.StructArray]:
    """Unite the ranges of each key, as Hudi merges them.

    A tombstone and a tight range take the place of what is before them, and so does what follows a tombstone.

    Args:
        keys: ascending.
        ranges: those of a key in merge order, of the type `RANGES`.

    Returns:
        Keys, ascending, each once, and their ranges; those whose newest one is a tombstone are left out.

    Raises:
        UnsupportedTable: ranges of one key have bounds of different types.
    """
    all_keys: Any = keys
    rows: Any = ranges
    if not len(keys):
        return keys, ranges
    begins = np.append(np.ones(1, np.bool_), flags(pc.not_equal(all_keys[1:], all_keys[:-1])))
    deleted, tight = flags(rows.field("isDeleted")), flags(rows.field("isTightBound"))
    resets = begins | deleted | tight | np.append(np.zeros(1, np.bool_), deleted[:-1])
    number = np.cumsum(begins) - 1
    last_reset = np.zeros(number[-1] + 1, np.int64)
    np.maximum.at(last_reset, number[resets], np.flatnonzero(resets))
    kept = (np.arange(len(number)) >= last_reset[number]) & ~deleted
    return _grouped(all_keys.filter(pa.array(kept)), rows.filter(pa.array(kept)))


def _grouped(keys: Any, ranges: Any) -> tuple[Any, Any]:
    """Unite all ranges of each key."""
    if not len(keys):
        return keys, ranges
    begins = np.append(np.ones(1, np.bool_), flags(pc.not_equal(keys[1:], keys[:-1])))
    firsts, number = np.flatnonzero(begins), np.cumsum(begins) - 1
    if begins.all():
        return keys, ranges
    types = ranges.field("valueType")
    ordinals = int64s(pc.fill_null(pc.struct_field(types, "typeOrdinal"), _UNTYPED))
    typed = ordinals != NO_TYPE
    # The first range of a type, if there is one: ranges without rows have none.
    place_of_type = _first(typed, number, firsts)
    infos = pc.fill_null(pc.struct_field(types, "additionalInfo"), "")
    same = (ordinals == ordinals[place_of_type][number]) & flags(
        pc.equal(infos, infos.take(pa.array(place_of_type[number])))
    )
    if (typed & (~same | (ordinals == _UNTYPED))).any():
        column = ranges.field("columnName")[int(np.flatnonzero(typed & (~same | (ordinals == _UNTYPED)))[0])]
        raise UnsupportedTable(f"{PARTITION}: column {column} has ranges of different types; drop the partition")
    lows, highs = _ends(ranges, number, ordinals, typed)
    columns = {name: ranges.field(name).take(pa.array(firsts)) for name in RANGES.names}
    columns["valueType"] = types.take(pa.array(place_of_type))
    columns["minValue"], columns["maxValue"] = (
        ranges.field(name).take(places) for name, places in (("minValue", lows), ("maxValue", highs))
    )
    for name in _SUMS:
        columns[name] = pa.array(np.add.reduceat(int64s(pc.fill_null(ranges.field(name), 0)), firsts))
    columns["isTightBound"] = pa.array(np.zeros(len(firsts), np.bool_))
    united = pa.StructArray.from_arrays([columns[name] for name in RANGES.names], fields=list(RANGES.fields))
    return keys.take(pa.array(firsts)), united


def _first(wanted: Flags, number: Int64s, firsts: Int64s) -> Int64s:
    """Return the place of the first wanted range of each key; that of its first one if there is none."""
    found = firsts.copy()
    places = np.flatnonzero(wanted)[::-1]
    found[number[places]] = places
    return found


def _ends(ranges: Any, number: Int64s, ordinals: Int64s, typed: Flags) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Return the places of the smallest and of the largest bound of each key, null without one.

    There is none either where a range has values, and no bounds.
    """
    counts = [int64s(pc.fill_null(ranges.field(name), _UNTYPED)) for name in ("valueCount", "nullCount")]
    valued = typed & ((counts[0] != counts[1]) | (counts[1] < 0))
    ends = []
    for name, order in (("minValue", "ascending"), ("maxValue", "descending")):
        found = np.full(number[-1] + 1, _NONE, np.int64)
        for places, values in ordered_bounds(ranges, name, ordinals):
            table = pa.table({"key": pa.array(number[places]), "value": values})
            order_of = np.asarray(pc.sort_indices(table, sort_keys=[("key", "ascending"), ("value", order)]))
            ordered = places[order_of[::-1]]
            found[number[ordered]] = ordered
        found[number[valued & ~flags(pc.is_valid(ranges.field(name)))]] = _NONE
        ends.append(found)
    return pa.array(ends[0], mask=ends[0] < 0), pa.array(ends[1], mask=ends[1] < 0)
