"""Look up record keys in the partition ``record_index`` of the metadata table.

See docs/format/07-index-and-metadata.md, "Record index". A *shard* is a file group of the partition; a hash of the key
tells which. In a partitioned record index each partition of the table has shards of its own, and a key may have a
location in several. The newest record of a key in the file slice of its shard is its location; a delete hides older
ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import take
from streaming_lsm.arrow.columns import Flags, Int64s, flags, int64s, pc
from streaming_lsm.arrow.ranges import places_in
from streaming_lsm.errors import CorruptFileError, TableNotFound, UnsupportedTable
from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.hfile.reader import LAST_KEY, HFile
from streaming_lsm.format.metadata.record_index import PARTITION, decode_locations, shards_of
from streaming_lsm.format.table.file_names import LogFileName
from streaming_lsm.format.table.properties import listed
from streaming_lsm.metadata.commit import DELTA_COMMIT
from streaming_lsm.metadata.creation import PARTITIONS_KEY
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileSlice, counted_instants
from streaming_lsm.metadata.record_shards import Hash, by_partition
from streaming_lsm.metadata.shard_files import LOCATED, LoggedKeys, ShardFile, ShardFiles, encoded, whole
from streaming_lsm.metadata.state import check_replacements, check_up_to_date
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.parallel import read_in_threads
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.instant import FLAT
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline

_LARGE_LOG = 1 << 20
"""Bytes of a log from which it is not read as a whole for a look-up: blocks are requested one by one."""
_FEW_CELLS, _MOST_TOGETHER = 1 << 11, 1 << 16
"""Cells of a file up to which they are decoded with those of other files, and cells that are decoded together."""
_FAULTS = (CorruptFileError, UnsupportedTable, TableNotFound, OSError)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundKeys:
    """Locations of some record keys.

    Attributes:
        keys: index of the key of each location, ascending, int64 (n,); in a partitioned index a key may have several.
        locations: the columns `LOCATED`, n rows.
    """

    keys: Int64s
    locations: pa.RecordBatch

    def at(self, places: Int64s) -> FoundKeys:
        """Return the locations with the places of their keys in place of their indices."""
        return FoundKeys(places[self.keys], self.locations)


@dataclass(frozen=True)
class _FoundCells:
    """Cells of some record keys in an HFile, few enough to decode them with those of other files.

    Attributes:
        keys: see `FoundKeys`.
        cells: the cells, n.
        schema_json: Avro JSON of their values.
        source: name of the HFile, for messages. The HFile itself is closed again, as there may be thousands.
    """

    keys: Int64s
    cells: Cells
    schema_json: str
    source: str

    def at(self, places: Int64s) -> _FoundCells:
        """See `FoundKeys.at`."""
        return replace(self, keys=places[self.keys])


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
        found = _joined([part for of_shards in parts for part in of_shards])
        if len(distinct) == len(keys):
            return found
        # The locations of each distinct key, for each of its occurrences.
        nth = int64s(pc.index_in(keys, value_set=distinct))
        first, last = (np.searchsorted(found.keys, nth, side) for side in ("left", "right"))
        counts = last - first
        places = places_in(first, counts)
        return FoundKeys(np.repeat(np.arange(len(keys)), counts), _rows(found.locations, places))

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
            return _aligned(self.find(keys), len(keys))
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
        spread = [
            _spread(_joined(found), place, int64s(pc.index_in(take(keys, place), value_set=distinct)))
            for (place, distinct, _), found in zip(asked, parts, strict=True)
        ]
        return _aligned(_joined(spread), len(keys))

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
        """Look up distinct keys in shards; return what each shard has, its keys as indices of those that were asked."""
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

        def run(task: _Task) -> list[FoundKeys | _FoundCells]:
            found = task.shards[task.shard]
            parts = list(self.files.read(found, self.metadata, self.timeline, counts, self.large))
            self._check_shard(parts, task)
            return [some.at(task.places) for some in _newest(parts, task.keys, self.scan_share)]

        found: list[list[FoundKeys | _FoundCells]] = [[] for _ in asked]
        for task, of_task in zip(tasks, read_in_threads(run, tasks, self.metadata), strict=True):
            found[task.number] += of_task
        return [list(_decoded(of_keys)) for of_keys in found]

    def _check_shard(self, parts: Sequence[ShardFile], task: _Task) -> None:
        """Check that files have keys of their shard, or else the number of shards is wrong."""
        lasts = [(part.source, key) for part in parts if (key := _last_key(part))]
        count = len(task.shards)
        shards = self.hash(pa.array([key.decode(errors="replace") for _, key in lasts], pa.string()), count)
        for place in np.flatnonzero(shards != task.shard).tolist():
            source, key = lasts[place]
            raise CorruptFileError(
                f"{source}: key {key!r:.80} is not of shard {task.shard} of {count}: drop {PARTITION}"
            )


def _last_key(part: ShardFile) -> bytes:
    """Return the last key of a file with locations; empty without one."""
    if isinstance(part, HFile):
        return part.info.get(LAST_KEY, b"")[2:]
    last: bytes = b"" if part.locations is None or not len(part.keys) else part.keys[-1].as_py()
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
        _warn(storage, error)
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
        _warn(storage, error)
    return None


def _warn(storage: Storage, error: Exception) -> None:
    _LOG.warning("%s/%s/%s is not read, no key is looked up: %s", storage.uri, METADATA_TABLE, PARTITION, error)


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


def _decoded(found: Iterable[FoundKeys | _FoundCells]) -> Iterator[FoundKeys]:
    """Decode cells of several files together, as a call takes longer than a hundred cells."""
    waiting: list[_FoundCells] = []
    for some in found:
        if isinstance(some, FoundKeys):
            yield some
            continue
        count = sum(len(one.cells) for one in waiting)
        if waiting and (waiting[0].schema_json != some.schema_json or count + len(some.cells) > _MOST_TOGETHER):
            yield _decoded_together(waiting)
            waiting = []
        waiting.append(some)
    if waiting:
        yield _decoded_together(waiting)


def _decoded_together(found: Sequence[_FoundCells]) -> FoundKeys:
    schema, source = found[0].schema_json, f"{len(found)} files of {PARTITION}"
    try:
        locations = encoded([decode_locations(Cells.joined([some.cells for some in found]), schema, source)])
    except (CorruptFileError, UnsupportedTable):
        for some in found:  # one of them names the file
            decode_locations(some.cells, schema, some.source)
        raise
    return FoundKeys(np.concatenate([some.keys for some in found]), locations)


def _newest(parts: Sequence[ShardFile], keys: Any, scan_share: float) -> Iterator[FoundKeys | _FoundCells]:
    """Find the newest record of each key in the files of a shard; one that a delete hides is not found."""
    left: Int64s = np.arange(len(keys))
    for part in _adjacent(reversed(parts)):
        if not len(left):
            return
        wanted = keys if len(left) == len(keys) else keys.take(pa.array(left))
        seen, found = _in_file(part, wanted, scan_share) if isinstance(part, HFile) else _in_logs(part, wanted)
        yield found.at(left)
        left = left[~seen]


def _adjacent(parts: Iterable[ShardFile]) -> Iterator[HFile | Sequence[LoggedKeys]]:
    """Yield HFiles, and the small logs between them together, which are searched at once."""
    logs: list[LoggedKeys] = []
    for part in parts:
        if isinstance(part, LoggedKeys):
            logs.append(part)
            continue
        if logs:
            yield logs
            logs = []
        yield part
    if logs:
        yield logs


def _in_logs(logs: Sequence[LoggedKeys], wanted: Any) -> tuple[Flags, FoundKeys]:
    """Search keys in logs, the newest first: flag those that one has, and return the locations."""
    nth = pc.index_in(wanted, value_set=pa.concat_arrays([log.keys for log in logs]))
    seen = flags(nth.is_valid())
    places, rows = np.flatnonzero(seen), int64s(nth.drop_null())
    ends = np.cumsum([len(log.keys) for log in logs])
    of_log = np.searchsorted(ends, rows, "right")
    is_deleted = np.array([log.locations is None for log in logs])
    # Deletes have no rows among the locations.
    before = np.cumsum([0, *(len(log.keys) if log.locations is None else 0 for log in logs)])[:-1]
    is_located = ~is_deleted[of_log]
    locations = whole(pa.Table.from_batches([log.locations for log in logs if log.locations is not None], LOCATED))
    return seen, FoundKeys(places[is_located], _rows(locations, (rows - before[of_log])[is_located]))


def _in_file(file: HFile, wanted: Any, scan_share: float) -> tuple[Flags, FoundKeys | _FoundCells]:
    """Search keys in an HFile: flag those that it has, and return the locations, or the cells of few keys."""
    seen: Flags = np.zeros(len(wanted), np.bool_)
    is_many = len(wanted) > scan_share * file.entry_count
    cells = list((file.scan if is_many else file.seek)(wanted))
    if not cells:
        return seen, _joined([])
    found: Any = pa.concat_arrays([some.keys for some in cells])
    places = int64s(pc.index_in(found, value_set=wanted))
    seen[places] = True
    if len(found) <= _FEW_CELLS:
        return seen, _FoundCells(places, Cells.joined(cells), file.schema_json, file.source)
    return seen, FoundKeys(places, encoded([decode_locations(some, file.schema_json, file.source) for some in cells]))


def _joined(parts: Sequence[FoundKeys]) -> FoundKeys:
    """Join locations, ascending by key."""
    keys = np.concatenate([np.zeros(0, np.int64), *(part.keys for part in parts)])
    locations = whole(pa.Table.from_batches([part.locations for part in parts], LOCATED))
    order = np.argsort(keys, kind="stable")
    return FoundKeys(keys[order], _rows(locations, order))


def _spread(found: FoundKeys, places: Int64s, nth: Int64s) -> FoundKeys:
    """Return the location of each key at `places`, given which of the distinct keys it is; a key has at most one."""
    at = np.minimum(np.searchsorted(found.keys, nth), max(len(found.keys) - 1, 0))
    has = found.keys[at] == nth if len(found.keys) else np.zeros(len(nth), np.bool_)
    return FoundKeys(places[has], _rows(found.locations, at[has]))


def _aligned(found: FoundKeys, count: int) -> pa.RecordBatch:
    """Return a row for each of `count` keys, null without a location."""
    rows, absent = np.zeros(count, np.int64), np.ones(count, np.bool_)
    rows[found.keys], absent[found.keys] = np.arange(len(found.keys)), False
    if not len(found.keys):
        return pa.RecordBatch.from_arrays([pa.nulls(count, field.type) for field in LOCATED], names=LOCATED.names)
    columns = [take(column, rows, absent) for column in found.locations.columns]
    return pa.RecordBatch.from_arrays(columns, names=LOCATED.names)


def _rows(batch: pa.RecordBatch, places: Int64s) -> pa.RecordBatch:
    indices: Any = pa.array(places)
    return batch.take(indices)
