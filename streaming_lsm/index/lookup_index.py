"""Index of a table without buckets: the file group of a key is looked up, and chosen if the key is new.

See docs/indexes.md. `LookupPlan` is made by the driver, `LookupIndex` serves one task.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s, pc
from streaming_lsm.arrow.ranges import places_in
from streaming_lsm.index.base import BucketIds, GroupNumbers, Settled, no_places
from streaming_lsm.index.insert_groups import InsertGroups
from streaming_lsm.index.key_lookup import FoundGroups, Lookup
from streaming_lsm.index.live_rows import ABSENT, FurtherRows
from streaming_lsm.keys.dictionaries import codes_of, texts_of
from streaming_lsm.query.wanted_keys import ascending_keys


@dataclass(frozen=True)
class LookupPlan:
    """Tells the tasks of a batch where its keys are and where new ones go; picklable.

    Attributes:
        inserts: chooses file groups for new keys.
        lookup: finds the file groups of keys; None for an operation that takes all keys as new.
        is_global: whether keys are looked up in all partitions.
        settles: whether the task finds file groups; else it leaves that to the one that it sends its rows to.
        moves: whether the row of a key moves to the partition of the event that wins, with a global index.
    """

    inserts: InsertGroups
    lookup: Lookup | None = None
    is_global: bool = False
    moves: bool = True
    settles: bool = True

    @property
    def keeps_partitions(self) -> bool:
        """Whether the row of a key stays in its partition, whatever its partition columns become."""
        return self.lookup is not None and self.is_global and not self.moves


class LiveKeys(NamedTuple):
    """Locates the rows of some record keys.

    Attributes:
        partition: int64 (keys,), partitions as `LookupIndex` numbers them; `ABSENT` for a key without a row.
        group: int64 (keys,), file groups by `GroupNumbers`; `ABSENT`, too.
        ordering: the ordering fields of the rows, null for a key without one.
        further: the further rows of keys that have several, with such partitions and file groups.
    """

    partition: Int64s
    group: Int64s
    ordering: pa.Table
    further: FurtherRows


class LookupIndex:
    """Looks the keys of one task up in the partitions of their rows, all events of some keys at a time.

    Tasks that agree on where new keys go, as `InsertGroups` knows how many there are, may settle a key several times.

    Attributes:
        groups: the file groups of all rows settled so far.
    """

    def __init__(self, plan: LookupPlan) -> None:
        """Create the index of one task."""
        self._plan = plan
        self._partitions: dict[str, int] = {}
        self._inserted: dict[str, int] = {}
        self.groups = GroupNumbers()

    def locate(self, keys: pa.StringArray, partitions: pa.DictionaryArray[Any, Any]) -> Int64s:  # noqa: ARG002
        """Number the partition of each row; `settle` finds its file group. See `Index.locate`."""
        return self._numbers_of(texts_of(partitions))[codes_of(partitions)]

    def located(self, groups: BucketIds, numbers: Int64s) -> Int64s:
        """Number the partitions of rows that another task has located; see `PartitionIndex`.

        Args:
            groups: what it has numbered.
            numbers: int64 (rows,), indices into `groups`.
        """
        found: Int64s = self._numbers_of(groups.partitions)[groups.partition[numbers]]
        return found

    def _numbers_of(self, partitions: Iterable[str]) -> Int64s:
        known = [self._partitions.setdefault(path, len(self._partitions)) for path in partitions]
        return np.array(known, np.int64)

    def find_live(self, keys: pa.StringArray) -> LiveKeys:
        """Find the live rows of record keys, which ascend, each once, in all partitions.

        Raises:
            CorruptFileError: see `Lookup.live_rows`.
        """
        assert self._plan.lookup is not None
        found = self._plan.lookup.live_rows(keys)
        here = np.flatnonzero(found.partition != ABSENT)
        partition, group = np.full(len(keys), ABSENT, np.int64), np.full(len(keys), ABSENT, np.int64)
        further = found.further
        if len(here):
            numbers = self._numbers_of(found.partitions)
            partition[here] = numbers[found.partition[here]]
            group[here] = self.groups.add(BucketIds(found.partitions, found.partition[here], found.number[here]))
            of_further = self.groups.add(BucketIds(found.partitions, further.partition, further.group))
            further = replace(further, partition=numbers[further.partition], group=of_further)
        if found.indexed is not None:
            told = np.flatnonzero(found.indexed)
            ids = BucketIds(found.partitions, found.partition[told], found.number[told])
            self.groups.keep_indexed(ids, keys.take(pa.array(told, pa.int64())))
        return LiveKeys(partition, group, found.ordering, further)

    def settle(self, keys: pa.StringArray, located: Int64s) -> Settled:
        """Find the file groups of the rows of a run; see `Index.settle`.

        Raises:
            CorruptFileError: see `Lookup.find`.
        """
        groups = np.zeros(len(keys), np.int64)
        copied, copies = [no_places()], [no_places()]
        paths = list(self._partitions)
        for place in np.unique(located).tolist():
            rows = np.flatnonzero(located == place)
            mine = keys if len(rows) == len(keys) else keys.take(pa.array(rows, pa.int64()))
            found = self._settle_in(paths[place], mine)
            groups[rows] = found.groups
            copied.append(rows[found.copied])
            copies.append(found.copies)
        return Settled(groups, np.concatenate(copied), np.concatenate(copies))

    def _settle_in(self, partition: str, keys: pa.StringArray) -> Settled:
        unique = ascending_keys(keys)
        lookup = self._plan.lookup
        if lookup is None:
            found = FoundGroups(np.full(len(unique), ABSENT, np.int64))
        else:
            found = lookup.find(partition, unique)
        number = found.number
        if found.is_indexed:
            told = np.flatnonzero(number != ABSENT)
            self.groups.keep_indexed(_ids(partition, number[told]), unique.take(pa.array(told, pa.int64())))
        new = np.flatnonzero(number == ABSENT)
        if len(new):
            before = self._inserted.get(partition, 0)
            targets = self._plan.inserts.targets(partition, len(new), before)
            number[new] = targets.of(unique.take(pa.array(new, pa.int64())))
            self._inserted[partition] = before + len(new)
        places: Int64s = np.asarray(pc.index_in(keys, value_set=unique), np.int64)
        copied, nth = pairs_of(places, found.again)
        copies = self.groups.add(_ids(partition, found.others[nth]))
        return Settled(self.groups.add(_ids(partition, number))[places], copied, copies)


def _ids(partition: str, numbers: Int64s) -> BucketIds:
    """Return the ids of file groups of one partition."""
    return BucketIds((partition,), np.zeros(len(numbers), np.int64), numbers)


def pairs_of(places: Int64s, again: Int64s) -> tuple[Int64s, Int64s]:
    """Join rows with the further file groups of their keys.

    Args:
        places: int64 (rows,), the key of each row.
        again: int64 (m,), the key of each further file group.

    Returns:
        int64 each, a row and the index of a file group, for each pair that has a key in common.
    """
    if not len(again):
        return no_places(), no_places()
    order = np.argsort(places, kind="stable")
    begins, ends = (np.searchsorted(places[order], again, side) for side in ("left", "right"))
    counts = ends - begins
    return order[places_in(begins, counts)], np.repeat(np.arange(len(again)), counts)
