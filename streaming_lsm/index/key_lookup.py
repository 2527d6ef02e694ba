"""Look record keys up among those of the file groups of a table without buckets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.key_filters import WantedKeys
from streaming_lsm.index.live_file_groups import LiveFileGroup
from streaming_lsm.query.slices.slice_reader import SliceReader
from streaming_lsm.query.slices.stored_keys import find_stored_keys

PRUNED_KEYS = 1 << 16
"""Keys up to which files and row groups are pruned by them. More are in most row groups."""
ABSENT = -1
"""The number of the file group of a key that no file group has."""


@dataclass(frozen=True)
class KeyLookup:
    """Finds the file groups of record keys; picklable, so that tasks can use it.

    Attributes:
        reader: reads the slices of the table.
        groups: the live file groups of each partition by number.
        width: number of slices that are read in parallel.
        by_blooms: whether bloom filters of base files are used; see `find_stored_keys`.
    """

    reader: SliceReader
    groups: Mapping[str, Mapping[int, LiveFileGroup]]
    width: int = 1
    by_blooms: bool = False

    def find(self, partition: str, keys: pa.StringArray) -> Int64s:
        """Find the file group of each key in a partition.

        Args:
            partition: partition path.
            keys: record keys (n,), ascending, each once.

        Returns:
            int64 (n,), numbers of file groups, `ABSENT` for a key of neither a row nor a delete. Of a key that several
            file groups have it is the smallest.

        Raises:
            CorruptFileError: a file is missing or damaged.
        """
        groups = self.groups.get(partition, {})
        found = np.full(len(keys), ABSENT, np.int64)
        if not groups or not len(keys):
            return found
        wanted = WantedKeys.of(keys) if len(keys) <= PRUNED_KEYS else None
        slices = {number: group.as_slice(partition) for number, group in sorted(groups.items(), reverse=True)}
        for number, places in zip(slices, self._each(list(slices.values()), keys, wanted), strict=True):
            found[places] = number
        return found

    def _each(self, slices: list[FileSlice], keys: pa.StringArray, wanted: WantedKeys | None) -> Iterator[Int64s]:
        """Yield the places in `keys` of those that each slice has."""

        def places(one: FileSlice) -> Int64s:
            return find_stored_keys(self.reader, one, keys, wanted, by_blooms=self.by_blooms)

        if self.width == 1 or len(slices) == 1:
            yield from map(places, slices)
            return
        with ThreadPoolExecutor(self.width) as threads:
            yield from threads.map(places, slices)
