"""Look up record keys in the partition ``record_index`` of the metadata table.

See docs/format/07-index-and-metadata.md, "Record index". A *shard* is a file group of the partition; a hash of the key
tells which. In a partitioned record index each partition of the table has shards of its own, and a key may have a
location in several. The newest record of a key in the file slice of its shard is its location; a delete hides older
ones.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import take
from streaming_lsm.arrow.columns import Int64s, int64s, pc
from streaming_lsm.arrow.ranges import places_in
from streaming_lsm.errors import CorruptFileError, TableNotFound, UnsupportedTable
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.record_index import PARTITION, shards_of
from streaming_lsm.format.table.file_names import LogFileName
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.commit import DELTA_COMMIT
from streaming_lsm.metadata.creation import PARTITIONS_KEY
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileSlice, counted_instants
from streaming_lsm.metadata.record_shards import Hash, by_partition
from streaming_lsm.metadata.shard_files import ShardFile, ShardFiles
from streaming_lsm.metadata.shard_search import (
    FoundCells,
    FoundKeys,
    aligned,
    decoded,
    joined,
    newest_found,
    spread,
    take_rows,
)
from streaming_lsm.metadata.state import check_replacements, check_up_to_date
from streaming_lsm.metadata.unread import warn_unread
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.parallel import read_in_threads
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.instant import FLAT
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline

_LARGE_LOG = 1 << 20
"""Bytes of a log from which it is not read as a whole for a look-up: blocks are requested one by one."""
_FAULTS = (CorruptFileError, UnsupportedTable, TableNotFound, OSError)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecordIndex:
    """The record index of a table as of a state of its timeline.

    Attributes:
        metadata: storage of the metadata table.
        timeline: its timeline.
        data: timeline of the table; writes that are not completed on it do not count.
        shards: file slices of the shards in order of their numbers, by partition path of the table in a partitioned
            record index, under None in a global one.
        known_until: completion time until which writes may have been merged into the base files.
        scan_share: share of a file's keys from which it is read whole.
        large: names of logs of which only the blocks are read that may have a key.
        files: reads the files.
        hash: computes the shards of keys.
    """

    metadata: Storage
    timeline: Timeline
    data: Timeline
    shards: Mapping[str | None, Sequence[MetadataFileSlice]]
    known_until: str
    scan_share: float
    large: frozenset[str]
    files: ShardFiles
    hash: Hash = shards_of

    @classmethod
    def open(
        cls,
        storage: Storage,
        data: Timeline,
        scan_share: float,
        timelines: TimelineCache,
        files: ShardFiles | None = None,
        hash: Hash = shards_of,
    ) -> RecordIndex | None:
        """Find the shards of a table's record index; None if the table has none.

        Args:
            storage: the table.
            data: its timeline, without restrictions.
            scan_share, hash: see the attributes.
            timelines: caches the timeline of the metadata table.
            files: reads the files; None to keep none of them.

        Raises:
            CorruptFileError: the metadata table has fallen behind, or a file of it is missing.
            UnsupportedTable: the table has no completion times, as up to version 6.
            TableNotFound: the metadata table is missing.
        """
        if PARTITION not in listed(load_properties(storage).get(PARTITIONS_KEY, "")):
            return None
        if data.layout == FLAT:
            raise UnsupportedTable(f"{PARTITION} of a table without completion times, as up to version 6")
        metadata = Subfolder(storage, METADATA_TABLE)
        timeline = timelines.load(metadata, data.layout)
        check_up_to_date(timeline, data)
        check_replacements(timeline, data, PARTITION)
        entries = metadata.list(PARTITION)
        names = [entry.name for entry in entries]
        slices = MetadataFileSlice.newest_of_all(timeline, names, PARTITION, all_groups=True)
        large = frozenset(entry.name for entry in entries if entry.size > _LARGE_LOG)
        until = max((timeline.completion_time(one.base.instant) or "" for one in slices if one.base), default="")
        check_merged(timeline, counted_instants(data), until)
        of_ids = {one.group.file_id: one for one in slices}
        shards = {path: [of_ids[one] for one in ids] for path, ids in by_partition(of_ids).items()}
        native = {str(log) for one in slices for log in one.logs if isinstance(log, LogFileName)}
        files = ShardFiles() if files is None else files
        files.forget_older(timeline, slices)
        return cls(metadata, timeline, data, shards, until, scan_share, large & native, files, hash)

    @property
    def is_partitioned(self) -> bool:
        """Whether each partition of the table has shards of its own."""
        return None not in self.shards

    def find(self, keys: pa.StringArray, partition: str | None = None) -> FoundKeys:
        """Look up keys in all partitions of the table.

        Args:
            keys: record keys without nulls, in any order; each distinct key is looked up once.
            partition: the only partition path in whose shards a partitioned record index looks; None for all.

        Raises:
            CorruptFileError, UnsupportedTable: a file cannot be read.
            FileNotFoundError: a file was deleted meanwhile.
        """
        distinct = pc.unique(keys)
        asked = [shards for path, shards in self.shards.items() if partition is None or path in (None, partition)]
        parts = self._look_up([(distinct, shards) for shards in asked])
        found = joined([part for of_shards in parts for part in of_shards])
        if len(distinct) == len(keys):
            return found
        # The locations of each distinct key, for each of its occurrences.
        nth = int64s(pc.index_in(keys, value_set=distinct))
        first, last = (np.searchsorted(found.keys, nth, side) for side in ("left", "right"))
        counts = last - first
        places = places_in(first, counts)
        return FoundKeys(np.repeat(np.arange(len(keys)), counts), take_rows(found.locations, places))

    def locate(self, keys: pa.StringArray, partitions: pa.DictionaryArray[Any, Any] | None = None) -> pa.RecordBatch:
        """Look up the location of each key.

        Args:
            keys: record keys (n,), without nulls.
            partitions: partition path of each key (n,), without nulls; only a partitioned record index needs it.

        Returns:
            The columns `LOCATED`, n rows, null where a key is absent.

        Raises:
            CorruptFileError, UnsupportedTable, FileNotFoundError: see `find`.
            ValueError: a partitioned record index was asked without partitions.
        """
        if not self.is_partitioned:
            return aligned(self.find(keys), len(keys))
        if partitions is None:
            raise ValueError(f"{PARTITION} has file groups for each partition: give those of the keys")
        codes = int64s(partitions.indices)
        places = [np.flatnonzero(codes == code) for code in range(len(partitions.dictionary))]
        asked = [
            (place, pc.unique(take(keys, place)), self.shards[path])
            for place, path in zip(places, partitions.dictionary.to_pylist(), strict=True)
            if path in self.shards and len(place)
        ]
        parts = self._look_up([(distinct, shards) for _, distinct, shards in asked])
        placed = [
            spread(joined(found), place, int64s(pc.index_in(take(keys, place), value_set=distinct)))
            for (place, distinct, _), found in zip(asked, parts, strict=True)
        ]
        return aligned(joined(placed), len(keys))

    def is_current(self, now: Timeline) -> bool:
        """Whether no file that was read has keys of writes that are not completed on `data`.

        Args:
            now: the timeline, loaded after the index was read.
        """
        known = {action.requested for action in self.data.instants if action.is_completed}
        later = [action for action in now.instants if action.is_completed and action.requested not in known]
        newest = max(known, default="")
        # With the newest action still there, no later one was archived.
        return (not newest or now.has(newest)) and all((action.completed or "") > self.known_until for action in later)

    def _look_up(self, asked: Sequence[tuple[Any, Sequence[MetadataFileSlice]]]) -> list[list[FoundKeys]]:
        """Look up distinct keys in shards; return what each look-up has found, in parts that are not `joined` yet."""
        tasks: list[_Task] = []
        for number, (keys, shards) in enumerate(asked):
            of_keys = self.hash(keys, len(shards)) if len(keys) else np.zeros(0, np.int64)
            order = np.argsort(of_keys, kind="stable")
            ends = np.searchsorted(of_keys[order], np.arange(len(shards) + 1))
            for shard, (first, last) in enumerate(pairwise(ends.tolist())):
                if last > first:
                    places = order[first:last]
                    tasks.append(_Task(number, shards, shard, places, keys.take(pa.array(places)).cast(pa.binary())))
        counts = counted_instants(self.data)

        def run(task: _Task) -> tuple[list[FoundKeys | FoundCells], list[_LastKey]]:
            found = task.shards[task.shard]
            parts = list(self.files.read(found, self.metadata, self.timeline, counts, self.large))
            lasts = [(task.shard, part.source, key) for part in parts if (key := _last_key(part))]
            return [some.at(task.places) for some in newest_found(parts, task.keys, self.scan_share)], lasts

        found: list[list[FoundKeys | FoundCells]] = [[] for _ in asked]
        lasts: dict[int, list[_LastKey]] = defaultdict(list)
        for task, (of_task, of_files) in zip(tasks, read_in_threads(run, tasks, self.metadata), strict=True):
            found[task.number] += of_task
            lasts[len(task.shards)] += of_files
        for count, of_files in lasts.items():
            self._check_shards(of_files, count)
        return [list(decoded(of_keys)) for of_keys in found]

    def _check_shards(self, lasts: Sequence[_LastKey], count: int) -> None:
        """Check that files have keys of their shards, or else the number of shards is wrong."""
        shards = self.hash(pa.array([key.decode(errors="replace") for *_, key in lasts], pa.string()), count)
        for (shard, source, key), is_of in zip(lasts, shards.tolist(), strict=True):
            if is_of != shard:
                raise CorruptFileError(
                    f"{source}: key {key!r:.80} is not of shard {shard} of {count}: drop {PARTITION}"
                )


_LastKey = tuple[int, str, bytes]
"""The last key of a file, after the number of its shard and the name of the file."""


def _last_key(part: ShardFile) -> bytes:
    """Return the last key of a file with locations; empty without one."""
    if isinstance(part, HFile):
        return part.last_key
    last: bytes = b"" if part.cells is None or not len(part.keys) else part.keys[-1].as_py()
    return last


@dataclass(frozen=True)
class _Task:
    """Describes the look-up in one shard.

    Attributes:
        number: which of the look-ups.
        shards: all shards of the partition.
        shard: number of the shard.
        places: indices of the keys among all keys of the look-up.
        keys: the keys, as bytes.
    """

    number: int
    shards: Sequence[MetadataFileSlice]
    shard: int
    places: Int64s
    keys: Any


def record_locations(
    storage: Storage,
    data: Timeline,
    keys: pa.StringArray,
    scan_share: float,
    timelines: TimelineCache,
    files: ShardFiles,
) -> FoundKeys | None:
    """Look up the locations of record keys as of a timeline; see `open_record_index` and `known_locations`.

    Args:
        storage: the table.
        data: its timeline, without restrictions.
        keys: record keys without nulls.
        scan_share: see `RecordIndex`.
        timelines: caches the timelines of the table and of its metadata table.
        files: reads the files of the record index.
    """
    index = open_record_index(storage, data, scan_share, timelines, files)
    return None if index is None else known_locations(index, keys, timelines)


def open_record_index(
    storage: Storage, data: Timeline, scan_share: float, timelines: TimelineCache, files: ShardFiles
) -> RecordIndex | None:
    """Open the record index of a table as of a timeline; see `record_locations`.

    Returns:
        None if the table has none, or, with a warning, it cannot be read.
    """
    try:
        return RecordIndex.open(storage, data, scan_share, timelines, files)
    except _FAULTS as error:
        warn_unread(storage, PARTITION, "no key is looked up", error)
        return None


def known_locations(
    index: RecordIndex, keys: pa.StringArray, timelines: TimelineCache, partition: str | None = None
) -> FoundKeys | None:
    """Look up the locations of record keys.

    Args:
        index: the record index.
        keys: record keys without nulls.
        timelines: caches the timelines of the table and of its metadata table.
        partition: see `RecordIndex.find`.

    Returns:
        None if they are not known: with a warning, the index cannot be read, or it tells a later state.
    """
    data, storage = index.data, index.data.storage
    try:
        found = index.find(keys, partition)
        # A record index that is dropped is removed from the properties first.
        if index.is_current(timelines.load(storage, data.layout)) and PARTITION in listed(
            load_properties(storage).get(PARTITIONS_KEY, "")
        ):
            return found
        _LOG.debug("%s of %s tells a later state than the one that is read", PARTITION, storage.uri)
    except _FAULTS as error:
        warn_unread(storage, PARTITION, "no key is looked up", error)
    return None


def check_merged(timeline: Timeline, counts: Callable[[str], bool], until: str) -> None:
    """Check that base files have no records of writes that are not completed, such as one that is rolled back.

    Args:
        timeline: timeline of the metadata table.
        counts: see `counted_instants`.
        until: completion time until which delta commits may have been merged.
    """
    for write in timeline.completed_writes:
        if write.action == DELTA_COMMIT and (write.completed or "") < until and not counts(write.requested):
            raise CorruptFileError(f"{METADATA_TABLE}/{write.path} was compacted, and its action is not completed")
