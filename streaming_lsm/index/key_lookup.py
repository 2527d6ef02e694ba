"""Look record keys up among those of the file groups of a table without buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s, pc
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.key_filters import KeyFilters, WantedKeys
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.log.key_entries import KeyEntry
from streaming_lsm.index.base import no_places
from streaming_lsm.index.live_file_group import LiveFileGroup
from streaming_lsm.index.live_rows import ABSENT, PRUNED_KEYS, LiveRows, find_live_rows
from streaming_lsm.metadata.file_blooms import file_blooms
from streaming_lsm.query.prune.looked_up import KeyPruner
from streaming_lsm.query.slices.slice_reader import SliceReader
from streaming_lsm.query.slices.stored_keys import find_stored_keys
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.parallel import read_in_threads
from streaming_lsm.timeline.timeline import Timeline


@dataclass(frozen=True)
class FoundGroups:
    """The file groups of the record keys of a partition.

    Attributes:
        number: int64 (keys,), numbers of file groups, `ABSENT` for a key that none has.
        again: int64 (m,), places of the keys that have a row in a further file group, as often as they have.
        others: int64 (m,), the numbers of these file groups.
        is_indexed: whether the record index has the file groups of `number` already.
    """

    number: Int64s
    again: Int64s = field(default_factory=no_places)
    others: Int64s = field(default_factory=no_places)
    is_indexed: bool = False


class Lookup(Protocol):
    """Finds the file groups of record keys; picklable, so that tasks can use it."""

    def find(self, partition: str, keys: pa.StringArray) -> FoundGroups:
        """Find the file groups of keys in a partition.

        Args:
            partition: partition path.
            keys: record keys (n,), ascending, each once.

        Raises:
            CorruptFileError: a file is missing or damaged.
        """
        ...

    def live_rows(self, keys: pa.StringArray) -> LiveRows:
        """Find the live rows of record keys in all partitions; see `find_live_rows`."""
        ...


@dataclass(frozen=True)
class KeyLookup:
    """Finds the file groups of record keys; picklable, so that tasks can use it.

    Attributes:
        reader: reads the slices of the table.
        groups: the live file groups of each partition by number.
        width: number of slices that are read in parallel.
        by_blooms: whether bloom filters of base files are used; see `find_stored_keys`.
        filters_of: timeline of the table when the write began, if the filters are those of the metadata table.
    """

    reader: SliceReader
    groups: Mapping[str, Mapping[int, LiveFileGroup]]
    width: int = 1
    by_blooms: bool = False
    filters_of: Timeline | None = None

    def find(self, partition: str, keys: pa.StringArray) -> FoundGroups:
        """Find the file groups of keys in a partition; see `Lookup.find`.

        A deleted key still has one. Of a key that several file groups have it is the one with its row: another index
        did not find a deleted row, whose file group may still have the key. Several have one if it was inserted again.
        """
        groups = self.groups.get(partition, {})
        found = np.full(len(keys), ABSENT, np.int64)
        if not groups or not len(keys):
            return FoundGroups(found)
        wanted = WantedKeys.of(keys) if len(keys) <= PRUNED_KEYS else None
        slices = {number: group.as_slice(partition) for number, group in sorted(groups.items(), reverse=True)}
        if wanted is not None and self.filters_of is not None:
            slices = _admitted(slices, file_blooms(self.reader.storage, self.filters_of, _bases(slices)), wanted)
        repeated = np.zeros(len(keys), np.bool_)
        find = partial(find_stored_keys, self.reader, keys=keys, wanted=wanted, by_blooms=self.by_blooms)
        for number, places in zip(
            slices, read_in_threads(find, list(slices.values()), self.reader.storage, self.width), strict=True
        ):
            repeated[places[found[places] != ABSENT]] = True
            found[places] = number
        if not repeated.any():
            return FoundGroups(found)
        places = np.flatnonzero(repeated)
        of_rows, numbers = self._of_rows(slices, keys.take(pa.array(places, pa.int64())))
        of_rows = places[of_rows]
        found[of_rows] = numbers  # of several the last one counts
        is_other = found[of_rows] != numbers
        others = np.unique(np.stack([of_rows[is_other], numbers[is_other]]), axis=1)
        return FoundGroups(found, *others)

    def _of_rows(self, slices: Mapping[int, FileSlice], keys: pa.StringArray) -> tuple[Int64s, Int64s]:
        """Return the rows of keys: places of their keys, and numbers of their file groups, int64 each."""
        reader = replace(self.reader, columns=(RECORD_KEY,), pruner=KeyPruner(WantedKeys.of(keys)))
        places, numbers = [no_places()], [no_places()]
        for number, one in slices.items():
            for batch in reader.read(one):
                here = np.asarray(pc.index_in(batch.column(0), value_set=keys).drop_null(), np.int64)
                places.append(here)
                numbers.append(np.full(len(here), number, np.int64))
        return np.concatenate(places), np.concatenate(numbers)

    def live_rows(self, keys: pa.StringArray) -> LiveRows:
        """Find the live rows of record keys in all partitions; see `find_live_rows`."""
        return find_live_rows(self.reader, self.groups, self.width, keys)


def _bases(slices: Mapping[int, FileSlice]) -> list[tuple[str, str]]:
    """Return partition path and name of the base file of slices that have no logs."""
    return [(one.partition_path, str(one.base.name)) for one in slices.values() if one.base and not one.logs]


def _admitted(
    slices: Mapping[int, FileSlice], blooms: Mapping[tuple[str, str], BloomFilter], wanted: WantedKeys
) -> dict[int, FileSlice]:
    """Leave out slices whose only file has none of the keys by its bloom filter."""
    if not blooms:
        return dict(slices)
    filters = KeyFilters.of([KeyEntry(1, None, bloom) for bloom in blooms.values()])
    admits = dict(zip(blooms, filters.may_hold(wanted).tolist(), strict=True))
    return {
        number: one
        for number, one in slices.items()
        if one.logs or one.base is None or admits.get((one.partition_path, str(one.base.name)), True)
    }
