"""Compare the partitions ``column_stats`` and ``partition_stats`` with the ranges of columns in data files.

See docs/format/07-index-and-metadata.md, "Column stats", "Partition stats". A range may be wider than the values: then
it costs time. It is wrong if it is narrower, or tells of no nulls where there are some, as a filter finds fewer rows
then. Bounds whose order depends on the program that compares them are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import take
from streaming_lsm.arrow.columns import Flags, Int64s, flags, int64s, pc
from streaming_lsm.file_group.file_system_view import FileSystemView
from streaming_lsm.format.metadata import column_stats, partition_stats
from streaming_lsm.format.metadata.column_stats import NO_TYPE, RANGES, bounds_of
from streaming_lsm.format.metadata.files_partition import partition_key
from streaming_lsm.format.metadata.record_index import shards_of
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.metadata.changed_ranges import added_ranges, keyed_rows
from streaming_lsm.metadata.column_ranges import decoded_ranges, newest_ranges
from streaming_lsm.metadata.commit import FileChanges
from streaming_lsm.metadata.file_slices import MetadataFileSlice
from streaming_lsm.metadata.followed_columns import flat_columns
from streaming_lsm.metadata.index_definitions import ranged_columns
from streaming_lsm.metadata.partition_ranges import of_types, united_ranges
from streaming_lsm.metadata.partitions.partition_stats import united_by_partition
from streaming_lsm.metadata.slice_records import numbered_groups, slice_records
from streaming_lsm.schema import META_COLUMNS
from streaming_lsm.services.indexes.findings import (
    LEFT_OVER,
    MISSING,
    WRONG,
    Checked,
    CheckedState,
    IndexFinding,
    shown,
)
from streaming_lsm.storage.base import FileEntry

_FILES = 2_000
"""Files whose ranges are compared at a time."""
_NAMED = 4


class _Stored:
    """Ranges that an index has.

    Attributes:
        keys: their keys, each once.
        ranges: of the type `RANGES`.
        seen: which were compared.
    """

    def __init__(self, keys: Any, ranges: Any) -> None:
        self.keys, self.ranges = keys, ranges
        self.seen: Flags = np.zeros(len(keys), np.bool_)

    @classmethod
    def of_files(cls, state: CheckedState) -> _Stored:
        found = list(_decoded(state, column_stats.PARTITION, column_stats.FILE_ID))
        parts = [newest_ranges(*one) for one in found]
        return cls._joined([_of_group(*one, number, len(found)) for number, one in enumerate(parts)])

    @classmethod
    def of_partitions(cls, state: CheckedState) -> _Stored:
        found = _decoded(state, partition_stats.PARTITION, partition_stats.FILE_ID)
        return cls._joined([united_ranges(*one) for one in found])

    @classmethod
    def _joined(cls, parts: Sequence[tuple[Any, Any]]) -> _Stored:
        keys, ranges = (pa.concat_arrays(list(column)) for column in zip(*parts, strict=True))
        return cls(keys.cast(pa.string()), ranges)

    def of(self, keys: Any) -> tuple[Flags, Any]:
        """Return which keys have a range, bool (n,), and the ranges of those."""
        at = pc.index_in(keys, value_set=self.keys)
        places = int64s(at.drop_null())
        self.seen[places] = True
        return flags(pc.is_valid(at)), take(self.ranges, places)


def _of_group(keys: Any, ranges: Any, number: int, groups: int) -> tuple[Any, Any]:
    """Leave out the ranges of keys of other file groups, which no reader finds."""
    texts = keys.cast(pa.string())
    wanted = pa.array(shards_of(texts, groups) == number) if len(texts) else pa.array([], pa.bool_())
    return texts.filter(wanted), ranges.filter(wanted)


def _decoded(state: CheckedState, partition: str, file_id: str) -> Iterator[tuple[Any, Any]]:
    names = state.metadata.names(partition)
    for group in numbered_groups(partition, file_id, names):
        newest = MetadataFileSlice.newest(state.timeline, names, group)
        yield decoded_ranges(slice_records(newest, state.metadata, state.counts))


class _Differences:
    """Counts ranges that differ, and names the first."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[int, list[str]]] = {}

    def add(self, kind: str, names: Sequence[str], count: int) -> None:
        """Count ranges of a kind, of which the first ones at least are named."""
        before, named = self.found.get(kind, (0, []))
        self.found[kind] = before + count, sorted([*named, *names])[:_NAMED]

    def findings(self, index: str, what: Mapping[str, str]) -> Iterable[IndexFinding]:
        """Return what differs, with a text for each kind."""
        for kind, (count, names) in self.found.items():
            if count:
                yield IndexFinding(index, kind, f"{count:,} {what[kind]}: {shown(names, count)}", count)


def check_column_stats(state: CheckedState) -> Checked:
    """Compare the ranges of columns in all files of completed actions.

    Raises:
        CorruptFileError, UnsupportedTable, TableNotFound, OSError: the index cannot be read; or a data file.
    """
    columns = ranged_columns(state.storage, state.properties)
    stored, different = _Stored.of_files(state), _Differences()
    for files in _batches(state):
        rows = _rows(state, files, columns)
        keys, expected = keyed_rows(rows)
        has, told = stored.of(keys)
        kept: Any = pa.array(expected, RANGES)
        # A file without rows may be older than the column.
        _name(different, MISSING, kept, ~has & (_ordinals(kept) != NO_TYPE))
        there = kept.filter(pa.array(has))
        _name(different, WRONG, there, _misleads(there, told, state, counts=True))
    _left_over(stored, state, different, columns)
    what = {
        MISSING: "ranges of columns in files are not in it",
        WRONG: "ranges tell less than the files have",
        LEFT_OVER: "ranges are of files that are gone",
    }
    return Checked(len(stored.keys), tuple(different.findings(column_stats.PARTITION, what)))


def check_partition_stats(state: CheckedState) -> Checked:
    """Compare the ranges of columns in partitions with those of the files of their newest slices.

    Raises:
        CorruptFileError, UnsupportedTable, TableNotFound, OSError: the index cannot be read; or a data file.
    """
    columns = ranged_columns(state.storage, state.properties)
    stored, different = _Stored.of_partitions(state), _Differences()
    types = flat_columns(state.avro) if state.avro else {}
    for partition in sorted(state.files):
        files = {partition: newest_files(state, partition)}
        keys, expected = united_by_partition(of_types(_rows(state, files, columns), types))
        has, told = stored.of(pc.cast(keys, pa.string()))
        kept: Any = expected
        _name(different, MISSING, kept, ~has & (_ordinals(kept) != NO_TYPE), of_partitions=True)
        there = kept.filter(pa.array(has))
        _name(different, WRONG, there, _misleads(there, told, state, counts=False), of_partitions=True)
    what = {
        MISSING: "ranges of columns in partitions are not in it",
        WRONG: "ranges are narrower than those of the partition's files",
    }
    return Checked(len(stored.keys), tuple(different.findings(partition_stats.PARTITION, what)))


def _rows(state: CheckedState, files: Mapping[str, Mapping[str, int]], columns: Sequence[str]) -> Any:
    return added_ranges(FileChanges(files), state.storage, columns, state.readers.ranges, {}, state.threads)


def _batches(state: CheckedState) -> Iterator[Mapping[str, Mapping[str, int]]]:
    """Yield a share of the files at a time, without those that a pending clean may have deleted."""
    batch: dict[str, dict[str, int]] = {}
    count = 0
    for partition, sizes in sorted(state.files.items()):
        for name, size in sizes.items():
            if (f"{partition}/{name}" if partition else name) in state.doomed or parse_file_name(name) is None:
                continue
            batch.setdefault(partition, {})[name] = size
            count += 1
            if count == _FILES:
                yield batch
                batch, count = {}, 0
    if batch:
        yield batch


def newest_files(state: CheckedState, partition: str) -> dict[str, int]:
    """Return the files of the newest slices of a partition."""
    folder = f"{partition}/" if partition else ""
    sizes = state.files[partition]
    entries = [FileEntry(folder + name, size, is_dir=False, modified_ms=0) for name, size in sizes.items()]
    slices = FileSystemView(state.storage, state.data).slices_in(partition, entries)
    names = [path.rpartition("/")[2] for found in slices for path in found.paths]
    return {name: sizes[name] for name in names}


def _ordinals(ranges: Any) -> Int64s:
    return int64s(pc.fill_null(pc.struct_field(ranges.field("valueType"), "typeOrdinal"), -1))


def _misleads(expected: Any, told: Any, state: CheckedState, *, counts: bool) -> Flags:
    """Flag ranges by which a filter may skip values, bool (n,).

    Args:
        expected: ranges as the files have them, n.
        told: those of the index, of the same keys, n.
        state: tells the types of columns.
        counts: whether numbers of values and nulls are compared, too.
    """
    wrong = np.zeros(len(expected), np.bool_)
    if counts:
        for name in ("valueCount", "nullCount"):
            wrong |= flags(pc.fill_null(pc.not_equal(expected.field(name), told.field(name)), False))
        # Hudi takes a range without bounds for nulls.
        wrong |= flags(pc.is_valid(expected.field("minValue"))) & ~flags(pc.is_valid(told.field("minValue")))
    types = flat_columns(state.avro) if state.avro else {}
    names = expected.field("columnName")
    for column in pc.unique(names).to_pylist():
        kind = pa.string() if column in META_COLUMNS else types.get(column)
        # Floats have the widest bounds here; Hudi knows them.
        if kind is None or pa.types.is_floating(kind):
            continue
        places = np.flatnonzero(flags(pc.equal(names, column)))
        low, high = bounds_of(take(expected, places), kind)  # type: ignore[arg-type]
        told_low, told_high = bounds_of(take(told, places), kind)  # type: ignore[arg-type]
        narrow = pc.or_(_holds(pc.greater(told_low, low)), _holds(pc.less(told_high, high)))
        wrong[places[flags(narrow)]] = True
    return wrong


def _holds(condition: Any) -> Any:
    return pc.fill_null(condition, False)


def _name(different: _Differences, kind: str, ranges: Any, wanted: Flags, *, of_partitions: bool = False) -> None:
    places = np.flatnonzero(wanted)
    first: Any = take(ranges, places[:_NAMED])
    named = []
    for row in zip(first.field("columnName").to_pylist(), first.field("fileName").to_pylist(), strict=True):
        file = partition_key(row[1]) if of_partitions else row[1]
        named.append(f"{row[0]} of {file}")
    different.add(kind, named, len(places))


def _left_over(stored: _Stored, state: CheckedState, different: _Differences, columns: Sequence[str]) -> None:
    """Count ranges of the columns that were not compared, of files that the table does not have.

    Ranges of other columns, which were dropped, renamed, or are not followed any more, stay: no reader asks for them.
    """
    left: Any = take(stored.ranges, np.flatnonzero(~stored.seen))
    left = left.filter(pc.is_in(left.field("columnName"), value_set=pa.array(columns, pa.string())))
    known = {name for sizes in state.files.values() for name in sizes}
    known |= {path.rpartition("/")[2] for path in state.doomed}
    gone = flags(pc.invert(pc.is_in(left.field("fileName"), value_set=pa.array(known, pa.string()))))
    _name(different, LEFT_OVER, left, gone)
