"""Find the live rows of record keys in all partitions, for a global index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, pc
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.key_filters import WantedKeys
from streaming_lsm.index.base import no_places
from streaming_lsm.index.live_file_group import LiveFileGroup
from streaming_lsm.query.prune.looked_up import KeyPruner
from streaming_lsm.query.slices.slice_reader import SliceReader
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.parallel import read_in_threads

PRUNED_KEYS = 1 << 16
"""Keys up to which files and row groups are pruned by them. More are in most row groups."""
ABSENT = -1
"""The number of the file group of a key that no file group has."""


@dataclass(frozen=True)
class FurtherRows:
    """Locates the rows of keys that have several, without those that `LiveRows` locates.

    Attributes:
        place: int64 (rows,), places in the keys.
        partition: int64 (rows,), their partitions.
        group: int64 (rows,), their file groups.
    """

    place: Int64s
    partition: Int64s
    group: Int64s

    @staticmethod
    def none() -> FurtherRows:
        """Return no rows."""
        return FurtherRows(no_places(), no_places(), no_places())

    @staticmethod
    def of(parts: Sequence[Int64s]) -> FurtherRows:
        """Join rows, int64 (3, rows) each; several of one key and file group are one."""
        return FurtherRows(*np.unique(np.concatenate(parts, axis=1), axis=1)) if parts else FurtherRows.none()


@dataclass(frozen=True)
class LiveRows:
    """Locates the live rows of some record keys.

    Attributes:
        partitions: partition paths.
        partition: int64 (keys,), indices into `partitions`; `ABSENT` for a key without a live row.
        number: int64 (keys,), numbers of their file groups in the partition; `ABSENT`, too.
        ordering: their ordering fields, a row for each key; null for a key without a live row.
        indexed: bool (keys,), whether the record index has this location; None if it was not asked.
        further: the further rows of keys that have several.
    """

    partitions: tuple[str, ...]
    partition: Int64s
    number: Int64s
    ordering: pa.Table
    indexed: Flags | None = None
    further: FurtherRows = field(default_factory=FurtherRows.none)


def find_live_rows(
    reader: SliceReader, groups: Mapping[str, Mapping[int, LiveFileGroup]], width: int, keys: pa.StringArray
) -> LiveRows:
    """Find the live rows of record keys in file groups.

    Of a key that is live in several file groups, as after writes with an index that is not global, the row in the last
    partition path is found; the others are `further` rows.

    Args:
        reader: reads the slices of the table.
        groups: the file groups of each partition by number.
        width: number of slices that are read in parallel.
        keys: ascending, each once.

    Raises:
        CorruptFileError: a file is missing or damaged.
    """
    fields = reader.rule.ordering_fields
    reader = replace(reader, columns=(RECORD_KEY, *fields))
    if len(keys) <= PRUNED_KEYS:
        reader = replace(reader, pruner=KeyPruner(WantedKeys.of(keys)))
    paths = tuple(sorted(groups))
    slices = [
        (place, number, group.as_slice(path))
        for place, path in enumerate(paths)
        for number, group in sorted(groups[path].items())
    ]
    partition, numbers = np.full(len(keys), ABSENT, np.int64), np.full(len(keys), ABSENT, np.int64)
    row = np.full(len(keys), ABSENT, np.int64)
    tables, count = [reader.output_schema.empty_table()], 0
    further: list[Int64s] = []
    read = read_in_threads(lambda one: _rows(reader, one, keys), [one for _, _, one in slices], reader.storage, width)
    for (place, group, _), (places, rows) in zip(slices, read, strict=True):
        known = np.unique(places[numbers[places] != ABSENT])
        if len(known):
            further.append(np.stack([known, partition[known], numbers[known]]))
        partition[places], numbers[places] = place, group
        row[places] = np.arange(count, count + len(places))
        tables.append(rows)
        count += len(places)
    taken = pa.concat_tables(tables).select(list(fields)).take(pa.array(row, pa.int64(), mask=row == ABSENT))
    return LiveRows(paths, partition, numbers, taken, further=FurtherRows.of(further))


def _rows(reader: SliceReader, one: FileSlice, keys: pa.StringArray) -> tuple[Int64s, pa.Table]:
    """Return the places in `keys` of the live rows of a slice, and their columns."""
    rows = pa.Table.from_batches(reader.read(one), reader.output_schema)
    places = pc.index_in(rows.column(RECORD_KEY), value_set=keys)
    known = rows.filter(pc.is_valid(places))
    return np.asarray(places.drop_null(), np.int64), known
