"""Look record keys up in the record index of the metadata table.

See docs/format/07-index-and-metadata.md, "Record index". Where it does not tell, keys are looked up in the files.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s, int64s
from streaming_lsm.index.base import no_places
from streaming_lsm.index.key_lookup import FoundGroups, KeyLookup
from streaming_lsm.index.live_file_group import LiveFileGroup
from streaming_lsm.index.live_rows import ABSENT, FurtherRows, LiveRows, find_live_rows
from streaming_lsm.metadata.record_locations import RecordIndex, known_locations, open_record_index
from streaming_lsm.metadata.shard_files import ShardFiles
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.timeline import Timeline

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Located:
    """Locations of keys: place in the keys, index of the partition path, and number of the file group, int64 (n,)."""

    place: Int64s
    partition: Int64s
    number: Int64s


@dataclass(frozen=True)
class RecordLookup:
    """Finds the file groups of record keys by the record index; picklable.

    Attributes:
        files: finds keys in the files, where the record index does not tell.
        timeline: that of the table when the write began.
        scan_share: see `RecordIndex`.
        timelines: caches the timelines of the table and of its metadata table.
        shard_files: reads the files of the record index.
        reads_rows: whether `live_rows` reads the ordering fields of rows; else they are null.
    """

    files: KeyLookup
    timeline: Timeline
    scan_share: float
    timelines: TimelineCache
    shard_files: ShardFiles
    reads_rows: bool
    _opened: list[RecordIndex | None] = field(default_factory=list, init=False, repr=False, compare=False)

    def find(self, partition: str, keys: pa.StringArray) -> FoundGroups:
        """Find the file groups of keys in a partition; see `Lookup.find`. A deleted key is absent."""
        located = self._located(keys, partition)
        if located is None:
            return self.files.find(partition, keys)
        here = located.partition == self._places.get(partition, ABSENT)
        found = np.full(len(keys), ABSENT, np.int64)
        found[located.place[here]] = located.number[here]
        return FoundGroups(found, is_indexed=True)

    def live_rows(self, keys: pa.StringArray) -> LiveRows:
        """Find the live rows of record keys in all partitions; see `find_live_rows`."""
        located = self._located(keys)
        if located is None:
            return self.files.live_rows(keys)
        if self.reads_rows:
            chosen = self._groups_of(located)
            return self._confirmed(find_live_rows(self.files.reader, chosen, self.files.width, keys), located)
        partition, number = np.full(len(keys), ABSENT, np.int64), np.full(len(keys), ABSENT, np.int64)
        partition[located.place], number[located.place] = located.partition, located.number
        schema = self.files.reader.schema
        fields = [schema.field(name) for name in self.files.reader.rule.ordering_fields]
        nulls: Any = [pa.nulls(len(keys), field.type) for field in fields]
        ordering = pa.table(nulls, schema=pa.schema([field.with_nullable(True) for field in fields]))
        further = FurtherRows(no_places(), no_places(), no_places(), ordering.slice(0, 0))
        return LiveRows(tuple(self.files.groups), partition, number, ordering, further, partition != ABSENT)

    def _confirmed(self, found: LiveRows, located: _Located) -> LiveRows:
        """Flag the live rows that are where the record index locates their keys."""
        paths = {path: place for place, path in enumerate(found.partitions)}
        place_of = np.array([paths.get(path, ABSENT) for path in self.files.groups], np.int64)
        indexed = np.zeros(len(found.partition), np.bool_)
        partition, number = found.partition[located.place], found.number[located.place]
        same = (place_of[located.partition] == partition) & (located.number == number)
        indexed[located.place] = same & (number != ABSENT)
        return replace(found, indexed=indexed)

    def _groups_of(self, located: _Located) -> Mapping[str, Mapping[int, LiveFileGroup]]:
        chosen: dict[str, dict[int, LiveFileGroup]] = {}
        paths = list(self.files.groups)
        pairs = np.unique(np.stack([located.partition, located.number]), axis=1)
        for path, number in zip(*pairs.tolist(), strict=True):
            chosen.setdefault(paths[path], {})[number] = self.files.groups[paths[path]][number]
        return chosen

    def _located(self, keys: pa.StringArray, partition: str | None = None) -> _Located | None:
        """Ask the record index; None if it does not tell, or tells of file groups that there are not.

        A partitioned record index is asked for the keys of one partition, or of all.
        """
        index = self._index()
        found = None if index is None else known_locations(index, keys, self.timelines, partition)
        if found is None:
            return None
        partitions, file_ids, _ = found.locations.columns
        codes = [int64s(column.indices) for column in (partitions, file_ids)]  # type: ignore[attr-defined]
        names: list[list[Any]] = [column.dictionary.to_pylist() for column in (partitions, file_ids)]  # type: ignore[attr-defined]
        pairs, nth = np.unique(np.stack(codes), axis=1, return_inverse=True)
        places: list[tuple[int, int]] = []
        for path, file_id in zip(*pairs.tolist(), strict=True):
            known = self._place(names[0][path], names[1][file_id])
            if known is None:
                _LOG.warning(
                    "the record index of %s has a key in file group %s of partition %r, which is none: keys are looked "
                    "up in the files",
                    *(self.timeline.storage.uri, names[1][file_id], names[0][path]),
                )
                return None
            places.append(known)
        chosen = np.array(places, np.int64).reshape(-1, 2)[nth.ravel()]
        return _Located(found.keys, chosen[:, 0], chosen[:, 1])

    def _place(self, partition: str, file_id: str) -> tuple[int, int] | None:
        """Return the index of a partition path and the number of a file group in it; None if there is no such group."""
        if partition not in self._places:
            return None
        if partition not in self._numbers:
            groups = self.files.groups[partition]
            self._numbers[partition] = {group.file_id: number for number, group in groups.items()}
        number = self._numbers[partition].get(file_id)
        return None if number is None else (self._places[partition], number)

    def _index(self) -> RecordIndex | None:
        """Return the record index, opened once for all partitions of a batch.

        Not a `cached_property`: up to Python 3.11 no other table of the process could open its own meanwhile.
        """
        if not self._opened:
            storage, caches = self.files.reader.storage, (self.timelines, self.shard_files)
            self._opened.append(open_record_index(storage, self.timeline, self.scan_share, *caches))
        return self._opened[0]

    @cached_property
    def _places(self) -> Mapping[str, int]:
        """Index of each partition path."""
        return {path: place for place, path in enumerate(self.files.groups)}

    @cached_property
    def _numbers(self) -> dict[str, dict[str, int]]:
        """Numbers of the file groups by file id, of the partitions that were asked for."""
        return {}
