"""Keep the partition ``record_index`` of the metadata table up to date: the file group of each record key.

See docs/format/07-index-and-metadata.md, "Record index". The records of a write are a location of each key that it has
written, but for keys whose location was looked up in the index and stays, and deletes of keys that have no row any
more. Compactions and cleans do not change locations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.arrow.buffers import take
from streaming_lsm.arrow.columns import Int64s, flags, int64s, pc, without
from streaming_lsm.config import Options
from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.metadata.group_files import base_name, check_file_id
from streaming_lsm.format.metadata.record_index import (
    PARTITION,
    shard_file_id,
)
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.format.table.properties import BUCKET_INDEX, GLOBAL_INDEXES, INDEX_TYPE_KEY
from streaming_lsm.metadata.changed_keys import GroupKeys, KeysSince, Texts
from streaming_lsm.metadata.commit import NewRecords
from streaming_lsm.metadata.creation import DEFINITIONS_KEY
from streaming_lsm.metadata.file_slices import MetadataFileGroup, MetadataFileSlice, counted_instants, is_first
from streaming_lsm.metadata.partitions.base import (
    Encoded,
    NewPartition,
    NothingToIndex,
    RecordedAction,
    Snapshot,
    TableContext,
)
from streaming_lsm.metadata.record_locations import RecordIndex
from streaming_lsm.metadata.record_merging import count_keys, merged_slice, split
from streaming_lsm.metadata.record_shards import Places, ShardedKeys, Sizing, by_partition, of_shards
from streaming_lsm.metadata.state import check_rows_known
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.clock import instant_ms
from streaming_lsm.timeline.timeline import Timeline

_NONE: Texts = pa.chunked_array([], pa.string())
_OWN_TOKEN = "0-0-0"
_NOWHERE = -1
"""Place of a key that the index does not locate."""
_TAKES_KEYS_AS_NEW = frozenset({"INSERT", "BULK_INSERT", "INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE"})
"""Operations that look no key up: a key may get a second row, unless its bucket tells where it is."""


@dataclass(frozen=True)
class RecordIndexPartition:
    """The partition of a table; see `KeptPartition`.

    Attributes:
        context: the table.
        shards: file ids of the shards, see `by_partition`.
        zone: time zone of the table's instants.
        may_repeat: whether a record key may have rows in several partitions of the table.
        has_buckets: whether the writer's index is that of buckets.
        definition: see `KeptPartition`.
        begun: instants of the logs of partitions of the table without a base file, by partition path.
    """

    context: TableContext
    shards: Mapping[str | None, Sequence[str]]
    zone: str
    may_repeat: bool
    has_buckets: bool
    definition: str | None
    begun: Mapping[str | None, frozenset[str]] = field(default_factory=dict)
    name = PARTITION
    columns: Sequence[str] = ()

    @property
    def groups(self) -> Sequence[MetadataFileGroup]:
        """The file groups of all shards."""
        return [MetadataFileGroup(PARTITION, file_id) for shards in self.shards.values() for file_id in shards]

    def records(self, action: RecordedAction) -> list[NewRecords]:
        """Return the locations of keys that a write adds or updates, and deletes of those that it removes."""
        running, commit, context = action.instant, action.row_changes, self.context
        if commit is None:
            return []
        data = check_rows_known(context.load_timeline, action.data, running, commit, PARTITION)
        counts = counted_instants(data)
        unsettled = frozenset(path for path, instants in self.begun.items() if not any(map(counts, instants)))
        found = list(context.readers.keys.changed(context.storage, data, running, commit))
        is_unknown = commit.operation_type in _TAKES_KEYS_AS_NEW and not self.has_buckets
        may_repeat = is_unknown or (self.may_repeat and None in self.shards)
        return self.located(found, self._elsewhere(found, data) if may_repeat else {}, unsettled)

    def located(
        self,
        found: Sequence[GroupKeys],
        elsewhere: Mapping[str | None, Texts],
        unsettled: Set[str | None] = frozenset(),
    ) -> list[NewRecords]:
        """Return the records of keys of the table's file groups.

        Args:
            found: the keys.
            elsewhere: keys that are not deleted, as another file group has a row of them; under None for a global
                index, else by partition path of the table.
            unsettled: partition paths whose shards were made by actions that are not completed, and may be undone.
        """
        if None in self.shards:
            return self._changed(found, self.shards[None], elsewhere.get(None, _NONE))
        of_paths = defaultdict(list)
        for one in found:
            of_paths[one.partition].append(one)
        return [
            new
            for path in sorted(of_paths)
            for new in self._of_partition(path, of_paths[path], elsewhere, is_settled=path not in unsettled)
        ]

    def _of_partition(
        self, path: str, of_path: Sequence[GroupKeys], elsewhere: Mapping[str | None, Texts], *, is_settled: bool
    ) -> list[NewRecords]:
        """Return the records of the shards of a partition.

        A new one gets shards, all of which get a log. So do those that are not settled: their number would be another
        one if what made them is undone.
        """
        shards = self.shards.get(path)
        if shards is not None and is_settled:
            return self._changed(of_path, shards, elsewhere.get(path, _NONE))
        if shards is None:
            count = _sizing(self.context.options, is_partitioned=True).shards(sum(len(one.live) for one in of_path))
            shards = _new_shards(count, path)
        new = {one.group.file_id: one for one in self._changed(of_path, shards, elsewhere.get(path, _NONE))}
        none: Any = pa.array([], pa.binary())
        return [new.get(name) or NewRecords(MetadataFileGroup(PARTITION, name), none, none) for name in shards]

    def _changed(self, found: Sequence[GroupKeys], shards: Sequence[str], elsewhere: Texts) -> list[NewRecords]:
        """Return the records of shards; keys that are `elsewhere` are not deleted."""
        places = _places(found, self.zone)
        added = ShardedKeys(((number, one.added) for number, one in enumerate(found)), len(shards))
        alive = _whole(one.live for one in found)
        dead = _whole(one.dead for one in found)
        dead = without(without(dead, alive), elsewhere)
        deleted = dict(of_shards(dead, len(shards)))
        of_shard = [added.sorted(shard) for shard in range(len(shards))]
        values = places.encode(np.concatenate([numbers for _, numbers in of_shard]), None)
        ends = np.cumsum([0, *(len(keys) for keys, _ in of_shard)]).tolist()
        records = []
        for shard, file_id in enumerate(shards):
            texts: Any = of_shard[shard][0].cast(pa.binary())
            if len(texts) or shard in deleted:
                group = MetadataFileGroup(PARTITION, file_id)
                encoded = values.slice(ends[shard], len(texts))
                records.append(NewRecords(group, texts, encoded, deleted.get(shard)))
        return records

    def _elsewhere(self, found: Sequence[GroupKeys], data: Timeline) -> Mapping[str | None, Texts]:
        """Ask the index for keys without a row in file groups of a write that have one in others; see `located`.

        Raises:
            UnsupportedTable: a key that it wrote has a row in another file group, too.
        """
        if not found:
            return {}
        context = self.context
        scan_share = context.options[config.RECORD_INDEX_SCAN_SHARE]
        index = RecordIndex.open(context.storage, data, scan_share, context.timelines, context.shard_files)
        if index is None:
            return {}
        live, dead = (_whole(parts) for parts in zip(*((one.live, one.dead) for one in found), strict=True))
        sizes = [len(one.live) for one in found] + [len(one.dead) for one in found]
        number, keys = np.repeat(np.tile(np.arange(len(found)), 2), sizes), pa.concat_arrays([live, dead])
        place = _located(index, keys, number, found)
        codes = int64s(keys.dictionary_encode().indices) * (len(found) + 1)
        is_other = (place != _NOWHERE) & (place != number)
        # A row that the write has removed from there does not count.
        is_other &= ~np.isin(codes + place, (codes + number)[len(live) :])
        repeated = live.filter(pa.array(is_other[: len(live)]))
        if len(repeated):
            raise _repeated(repeated[0].as_py())
        left, owners = dead.filter(pa.array(is_other[len(live) :])), number[len(live) :][is_other[len(live) :]]
        if not index.is_partitioned:
            return {None: pa.chunked_array([left])}
        paths = np.array([one.partition for one in found], object)[owners]
        return {path: pa.chunked_array([left.filter(pa.array(paths == path))]) for path in set(paths.tolist())}

    def merged(
        self, found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool], base_name: str
    ) -> Encoded:
        """Merge a slice: the newest location of each key that is not deleted."""
        return merged_slice(found, metadata, counts, base_name)

    def grown(
        self, slices: Sequence[MetadataFileSlice], metadata: Storage, counts: Callable[[str], bool], instant: str
    ) -> Iterator[NewRecords]:
        """Distribute the keys of shards larger than the options say to a multiple of them, a shard at a time."""
        of_ids = {one.group.file_id: one for one in slices}
        for path, file_ids in by_partition(of_ids).items():
            sizing, shards = _sizing(self.context.options, is_partitioned=path is not None), len(file_ids)
            keys = sum(count_keys(of_ids[file_id], metadata, counts) for file_id in file_ids)
            more = sizing.grown(keys, shards)
            if more > shards:
                new = [shard_file_id(number, path) for number in range(more)]
                for number, file_id in enumerate(file_ids):
                    one = of_ids[file_id]
                    yield from split(merged_slice(one, metadata, counts, None), number, shards, new, instant)


@dataclass
class _CatchUp:
    """Compares the keys of file groups of the table with those that they had; see `CatchUp`.

    Attributes:
        kept: the partition, whose `shards` grow with new partitions of the table.
        known: keys by partition path and file id: all keys, and what was logged since, live and dead.
    """

    kept: RecordIndexPartition
    known: dict[tuple[str, str], tuple[Texts, list[tuple[Texts, Texts]]]]

    def __call__(self, before: Snapshot, after: Snapshot) -> list[NewRecords]:
        context = self.kept.context
        # Read to the end before anything is taken over: it is read again if a file is gone.
        since = list(context.readers.keys.since(context.storage, before, after))
        found = [self._difference(one) for one in since]
        self._check_repeated(found)
        new = self.kept.located(found, self._elsewhere(found))
        made = [one.group.file_id for one in new]
        self.kept = replace(self.kept, shards=by_partition({*made, *(group.file_id for group in self.kept.groups)}))
        return new

    def _difference(self, since: KeysSince) -> GroupKeys:
        """Return the keys that a file group has got, or may have, and those that it has lost; they are known then."""
        one, group = since.keys, (since.keys.partition, since.keys.file_id)
        if not since.is_whole:
            self.known.setdefault(group, (_NONE, []))[1].append((one.live, one.dead))
            return one
        had = self._keys(group)
        self.known[group] = one.live, []
        return replace(one, live=without(one.live, had), dead=without(had, one.live))

    def _keys(self, group: tuple[str, str]) -> Texts:
        keys, logged = self.known.get(group, (_NONE, []))
        for live, dead in logged:
            keys = pa.chunked_array([*without(without(keys, dead), live).chunks, *live.chunks], pa.string())
        return keys

    def _check_repeated(self, found: Sequence[GroupKeys]) -> None:
        """Check that no key that was added has a row in another file group; raises `UnsupportedTable`."""
        for _, repeated in self._others((one, one.live) for one in found):
            if len(repeated):
                raise _repeated(repeated[0].as_py())

    def _elsewhere(self, found: Sequence[GroupKeys]) -> Mapping[str | None, Texts]:
        """Return keys without a row in file groups that have one in others; see `RecordIndexPartition.located`."""
        kept: dict[str | None, list[Any]] = defaultdict(list)
        for path, keys in self._others((one, one.dead) for one in found):
            kept[path] += keys.chunks
        return {path: pa.chunked_array(chunks, pa.string()) for path, chunks in kept.items()}

    def _others(self, keys: Iterable[tuple[GroupKeys, Texts]]) -> Iterator[tuple[str | None, Texts]]:
        """Yield those of some keys of file groups of which another one has a row, and the path of their index."""
        asked = [(one, of_group) for one, of_group in keys if len(of_group)]
        for group in self.known if asked else ():
            path = None if None in self.kept.shards else group[0]
            others = _whole(
                of_group
                for one, of_group in asked
                if (one.partition, one.file_id) != group and path in (None, one.partition)
            )
            if len(others):
                known = self._keys(group)
                yield path, known.filter(pc.is_in(known, value_set=others))


class RecordIndexKind:
    """See `PartitionKind`."""

    def owns(self, name: str) -> bool:
        """Return whether a partition is ``record_index``."""
        return name == PARTITION

    def asked(self, options: Options) -> Mapping[str, bool]:
        """Return what the options say of the partition."""
        given = [o for o in (config.RECORD_INDEX, config.PARTITIONED_RECORD_INDEX) if options.is_set(o)]
        return {PARTITION: any(options[option] for option in given)} if given else {}

    def open(self, name: str, context: TableContext, properties: Mapping[str, str]) -> RecordIndexPartition:
        """Open the partition of a table.

        Raises:
            CorruptFileError: a file group is missing.
            UnsupportedTable: the options ask for the other form, or the partition lacks keys: Hudi does not index what
                its bucket index inserts into logs.
        """
        options = context.options
        timeline, names = context.load_timeline(), context.metadata.names(name)
        slices = {one.group.file_id: one for one in MetadataFileSlice.newest_of_all(timeline, names, name)}
        shards = by_partition(slices)
        parsed = [found for text in names if (found := parse_file_name(text)) is not None]
        if self.asked(options).get(name) and options[config.PARTITIONED_RECORD_INDEX] == (None in shards):
            raise UnsupportedTable("the options ask for another form, global or by partition")
        foreign = [found for found in parsed if str(found.token) != _OWN_TOKEN and not is_first(found.instant)]
        if (
            foreign
            and _index_type(options, properties) == BUCKET_INDEX
            and properties["hoodie.table.type"] == "MERGE_ON_READ"
        ):
            raise UnsupportedTable(f"another program wrote {foreign[0]}, which may lack keys that are in logs only")
        begun = {
            path: frozenset(log.instant for file_id in file_ids for log in slices[file_id].logs)
            for path, file_ids in shards.items()
            if all(slices[file_id].base is None for file_id in file_ids)
        }
        kept = _partition(context, shards, properties, PARTITION if DEFINITIONS_KEY in properties else None)
        return replace(kept, begun=begun)

    def build(self, name: str, context: TableContext, snapshot: Snapshot) -> NewPartition:
        """Build the partition, with the locations of all keys that have a row.

        Raises:
            CorruptFileError: a data file cannot be read.
            UnsupportedTable: a key has several rows in a global index; or a key that no HFile can have.
        """
        by_path = context.options[config.PARTITIONED_RECORD_INDEX]
        found = list(context.readers.keys.live(context.storage, snapshot))
        paths: Sequence[str | None] = sorted({one.partition for one in found}) if by_path else [None]
        if not paths:
            raise NothingToIndex("the table has no partition yet: write rows first")
        sizing, built = _sizing(context.options, is_partitioned=by_path), []
        for path in paths:
            of_path = [one for one in found if path is None or one.partition == path]
            count = sizing.shards(sum(len(one.live) for one in of_path))
            groups = [MetadataFileGroup(name, file_id) for file_id in _new_shards(count, path)]
            keys = ShardedKeys(((number, one.live) for number, one in enumerate(of_path)), count)
            built.append(_Shards(groups, keys, _places(of_path, _zone(snapshot.properties))))
        records = (new for shards in built for new in shards.records(snapshot.instant))
        groups = [group for shards in built for group in shards.groups]
        made = by_partition(group.file_id for group in groups)
        kept = _partition(context, made, snapshot.properties, name)
        catch_up = _CatchUp(kept, {(one.partition, one.file_id): (one.live, []) for one in found})
        return NewPartition(groups, records, catch_up, _definition(by_path))


@dataclass(frozen=True)
class _Shards:
    """Shards that are built: their file groups, the keys by shard, and the file groups of the keys."""

    groups: Sequence[MetadataFileGroup]
    keys: ShardedKeys
    places: Places

    def records(self, instant: str) -> Iterator[NewRecords]:
        """Yield the records of each shard that has some."""
        for shard, group in enumerate(self.groups):
            keys, numbers = self.keys.sorted(shard)
            if len(keys):
                texts: Any = keys.cast(pa.binary())
                yield NewRecords(group, texts, self.places.encode(numbers, str(base_name(group.file_id, instant))))


def _definition(by_path: bool) -> dict[str, Any]:
    return {
        "indexName": PARTITION,
        "indexType": PARTITION,
        "indexFunction": "",
        "sourceFields": [],
        "indexOptions": {"isPartitioned": str(by_path).lower()},
        "version": "V1",
    }


def _sizing(options: Options, *, is_partitioned: bool) -> Sizing:
    limits = (
        (config.PARTITIONED_MIN_GROUPS, config.PARTITIONED_MAX_GROUPS)
        if is_partitioned
        else (config.RECORD_INDEX_MIN_GROUPS, config.RECORD_INDEX_MAX_GROUPS)
    )
    least, most = (options[limit] for limit in limits)
    return Sizing(least, most, options[config.RECORD_INDEX_GROWTH], options[config.RECORD_INDEX_GROUP_BYTES])


def _index_type(options: Options, properties: Mapping[str, str]) -> str | None:
    """Return the type of the writer's index: that of the options, or else the one that the table keeps."""
    kept = properties.get(INDEX_TYPE_KEY)
    return kept if kept and not options.is_set(config.INDEX_TYPE) else options[config.INDEX_TYPE]


def _may_repeat(options: Options, properties: Mapping[str, str]) -> bool:
    """Whether a record key may have rows in several partitions: the writer's index is none over all partitions."""
    is_global = _index_type(options, properties) in GLOBAL_INDEXES
    return bool(properties.get("hoodie.table.partition.fields")) and not is_global


def _partition(
    context: TableContext,
    shards: Mapping[str | None, Sequence[str]],
    properties: Mapping[str, str],
    definition: str | None,
) -> RecordIndexPartition:
    options = context.options
    has_buckets = _index_type(options, properties) == BUCKET_INDEX
    may_repeat = _may_repeat(options, properties)
    return RecordIndexPartition(context, shards, _zone(properties), may_repeat, has_buckets, definition)


def _new_shards(count: int, path: str | None) -> list[str]:
    """Return the file ids of new shards; raises `UnsupportedTable` if files cannot have names with the path."""
    made = [shard_file_id(number, path) for number in range(count)]
    check_file_id(made[-1], f"partition path {path!r:.80}")
    return made


def _zone(properties: Mapping[str, str]) -> str:
    return properties.get("hoodie.table.timeline.timezone", "LOCAL").upper()


def _places(found: Sequence[GroupKeys], zone: str) -> Places:
    return Places(
        [one.partition for one in found],
        [one.file_id for one in found],
        [_milliseconds(one.instant, zone) for one in found],
    )


def _milliseconds(instant: str, zone: str) -> int:
    try:
        return instant_ms(instant, zone)
    except ValueError:  # a special instant of Hudi
        return 0


def _whole(parts: Iterable[Texts]) -> Any:
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.string()).combine_chunks()


def _located(index: RecordIndex, keys: Any, number: Int64s, found: Sequence[GroupKeys]) -> Int64s:
    """Return where the index locates keys, int64 (keys,): in one of the file groups, in another one, or `_NOWHERE`.

    Args:
        index: the index.
        keys: the keys.
        number: the file group of each key, int64 (keys,), which tells its partition.
        found: the file groups; their number stands for another one.
    """
    paths: Any = take(pa.array([one.partition for one in found], pa.string()), number)
    located = index.locate(keys, paths.dictionary_encode() if index.is_partitioned else None)
    known = {(one.partition, one.file_id): place for place, one in enumerate(found)}
    partitions, file_ids = (located.column(place) for place in (0, 1))
    codes = [np.where(flags(pc.is_valid(c)), int64s(pc.fill_null(c.indices, 0)), 0) for c in (partitions, file_ids)]  # type: ignore[attr-defined]
    names: list[list[Any]] = [c.dictionary.to_pylist() or [""] for c in (partitions, file_ids)]  # type: ignore[attr-defined]
    pairs = codes[0] * len(names[1]) + codes[1]
    distinct, nth = np.unique(pairs, return_inverse=True)
    split = [divmod(pair, len(names[1])) for pair in distinct.tolist()]
    places = np.array([known.get((names[0][path], names[1][one]), len(found)) for path, one in split], np.int64)
    return np.where(flags(pc.is_valid(file_ids)), places[nth], _NOWHERE)


def _repeated(key: str) -> UnsupportedTable:
    return UnsupportedTable(
        f"record key {key!r:.80} has several rows, in different partitions or file groups, of which a record index has "
        f"one: if they are in different partitions, set {config.PARTITIONED_RECORD_INDEX.key}=true for one of each"
    )
