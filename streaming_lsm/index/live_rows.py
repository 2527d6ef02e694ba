"""Find the live rows of record keys in all partitions, for a global index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, pc
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.key_filters import WantedKeys
from streaming_lsm.index.base import no_places
from streaming_lsm.index.live_file_group import LiveFileGroup
from streaming_lsm.merge.rule import MergeRule
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
        ordering: their ordering fields (rows,).
    """

    place: Int64s
    partition: Int64s
    group: Int64s
    ordering: pa.Table

    def take(self, rows: Int64s) -> FurtherRows:
        """Select rows."""
        ordering = self.ordering.take(pa.array(rows, pa.int64()))
        return FurtherRows(self.place[rows], self.partition[rows], self.group[rows], ordering)

    @staticmethod
    def joined(parts: Sequence[FurtherRows]) -> FurtherRows:
        """Join rows; there is one part at least."""
        return FurtherRows(
            place=np.concatenate([part.place for part in parts]),
            partition=np.concatenate([part.partition for part in parts]),
            group=np.concatenate([part.group for part in parts]),
            ordering=pa.concat_tables([part.ordering for part in parts]),
        )


@dataclass(frozen=True)
class LiveRows:
    """Locates the live rows of some record keys.

    Attributes:
        partitions: partition paths.
        partition: int64 (keys,), indices into `partitions`; `ABSENT` for a key without a live row.
        number: int64 (keys,), numbers of their file groups in the partition; `ABSENT`, too.
        ordering: their ordering fields, a row for each key; null for a key without a live row.
        further: the further rows of keys that have several.
        indexed: bool (keys,), whether the record index has this location; None if it was not asked.
    """

    partitions: tuple[str, ...]
    partition: Int64s
    number: Int64s
    ordering: pa.Table
    further: FurtherRows
    indexed: Flags | None = None


def find_live_rows(
    reader: SliceReader, groups: Mapping[str, Mapping[int, LiveFileGroup]], width: int, keys: pa.StringArray
) -> LiveRows:
    """Find the live rows of record keys in file groups.

    Of a key that is live in several file groups, as after writes with an index that is not global, the row with the
    smallest ordering value is found, and of equal ones that of the last partition path; the others are `further` rows.

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
    read = read_in_threads(lambda one: _rows(reader, one, keys), [one for _, _, one in slices], reader.storage, width)
    found = [
        FurtherRows(places, np.full(len(places), place, np.int64), np.full(len(places), group, np.int64), rows)
        for (place, group, _), (places, rows) in zip(slices, read, strict=True)
    ]
    none = FurtherRows(no_places(), no_places(), no_places(), reader.output_schema.empty_table())
    every = FurtherRows.joined([none, *found])
    every = replace(every, ordering=every.ordering.select(list(fields)))
    chosen, others = _first_and_further(every, reader.rule, len(keys))
    partition, numbers = (
        np.where(chosen == ABSENT, ABSENT, np.append(column, ABSENT)[chosen])
        for column in (every.partition, every.group)
    )
    taken = every.ordering.take(pa.array(chosen, pa.int64(), mask=chosen == ABSENT))
    return LiveRows(paths, partition, numbers, taken, every.take(others))


def _first_and_further(rows: FurtherRows, rule: MergeRule, count: int) -> tuple[Int64s, Int64s]:
    """Choose the row of each key, int64 (count,), `ABSENT` for a key without one, and list the others.

    Rows of one key in one file group are one.
    """
    chosen = np.full(count, ABSENT, np.int64)
    chosen[rows.place] = np.arange(len(rows.place))
    if len(np.unique(rows.place)) == len(rows.place):
        return chosen, no_places()
    ranks = rule.ranks(rows.ordering)
    ranks = np.zeros(len(rows.place), np.int64) if ranks is None else ranks
    last_first = -np.arange(len(rows.place))
    order = np.lexsort((last_first, ranks, rows.place))
    places, ids = rows.place[order], np.stack([rows.place, rows.partition, rows.group])[:, order]
    is_first = np.append(True, places[1:] != places[:-1])
    chosen[places[is_first]] = order[is_first]
    _, distinct = np.unique(ids, axis=1, return_index=True)
    # The file group of the row that was chosen is left out.
    same = (rows.partition == rows.partition[chosen[rows.place]]) & (rows.group == rows.group[chosen[rows.place]])
    others = np.sort(order[distinct])
    return chosen, others[~same[others]]


def _rows(reader: SliceReader, one: FileSlice, keys: pa.StringArray) -> tuple[Int64s, pa.Table]:
    """Return the places in `keys` of the live rows of a slice, and their columns."""
    rows = pa.Table.from_batches(reader.read(one), reader.output_schema)
    places = pc.index_in(rows.column(RECORD_KEY), value_set=keys)
    known = rows.filter(pc.is_valid(places))
    return np.asarray(places.drop_null(), np.int64), known
