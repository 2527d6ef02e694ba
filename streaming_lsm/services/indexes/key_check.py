"""Compare the partition ``record_index`` with the record keys that have a row.

See docs/format/07-index-and-metadata.md, "Record index". The keys of each shard are joined with those of the table that
its hash gives to the shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import take
from streaming_lsm.arrow.columns import Flags, Int64s, flags, int64s, pc
from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.metadata.record_index import LOCATIONS, PARTITION
from streaming_lsm.metadata.changed_keys import GroupKeys
from streaming_lsm.metadata.file_slices import MetadataFileSlice
from streaming_lsm.metadata.record_locations import RecordIndex
from streaming_lsm.metadata.record_merging import newest_locations
from streaming_lsm.metadata.record_shards import ShardedKeys
from streaming_lsm.services.indexes.findings import (
    DAMAGED,
    LEFT_OVER,
    MISSING,
    WRONG,
    Checked,
    CheckedState,
    IndexFinding,
    shown,
)
from streaming_lsm.timeline.cache import TimelineCache

_NAMED = 4
_SCAN_SHARE = 0.3


def check_record_index(state: CheckedState) -> Checked:
    """Compare the locations of all keys with the file groups that have rows of them.

    Raises:
        CorruptFileError, UnsupportedTable, TableNotFound, OSError: the index cannot be read; or a data file.
    """
    index = RecordIndex.open(state.storage, state.data, _SCAN_SHARE, TimelineCache())
    if index is None:
        return Checked(0)
    live = list(state.readers.keys.live(state.storage, state))
    join, records = _Join(), 0
    for path, shards in index.shards.items():
        of_path = [(place, one.live) for place, one in enumerate(live) if path in (None, one.partition)]
        keys = ShardedKeys(of_path, len(shards), index.hash)
        for number, shard in enumerate(shards):
            told, groups = _told(shard, state, live)
            join.misplaced(told, index.hash(told, len(shards)) != number, shard)
            join.add(keys, number, told, groups)
            records += len(told)
    if index.is_partitioned:
        for one in live:
            if one.partition not in index.shards:
                join.missing.add(_whole(one.live), np.ones(len(one.live), np.bool_))
    return Checked(records, tuple(join.findings()))


def _whole(keys: Any) -> Any:
    return pa.concat_arrays([pa.array([], pa.string()), *keys.chunks])


def _told(shard: MetadataFileSlice, state: CheckedState, live: Sequence[GroupKeys]) -> tuple[Any, Int64s]:
    """Return the keys of a shard, and the place in `live` of the file group of each, -1 if there is no such group."""
    keys, locations = newest_locations(shard, state.metadata, state.counts)
    table = pa.Table.from_batches(locations, LOCATIONS).combine_chunks()
    # No path and no file id has this character.
    ids = pc.binary_join_element_wise(table.column("partition"), table.column("file_id"), "\0")
    found: Any = ids.combine_chunks().dictionary_encode()
    known = {f"{one.partition}\0{one.file_id}": place for place, one in enumerate(live)}
    places = np.array([known.get(one, -1) for one in found.dictionary.to_pylist()], np.int64)
    texts: Any = keys.cast(pa.string())
    return texts, places[int64s(found.indices)] if len(texts) else np.zeros(0, np.int64)


class _Named:
    """Counts keys, and names the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self.names: list[str] = []

    def add(self, keys: Any, wanted: Flags) -> None:
        """Add the keys that are flagged."""
        places = np.flatnonzero(wanted)
        self.count += len(places)
        if len(places):
            chosen = (
                pc.sort_indices(take(keys, places))[:_NAMED] if len(places) > _NAMED else pa.array(range(len(places)))
            )
            first = take(keys, places[np.asarray(chosen)]).to_pylist()
            self.names = sorted([*self.names, *(repr(key)[:80] for key in first)])[:_NAMED]


class _Join:
    """Joins the keys of shards with those of the table, and counts what differs."""

    def __init__(self) -> None:
        self.missing, self.wrong, self.left_over, self.misplaced_keys = _Named(), _Named(), _Named(), _Named()
        self.repeated: list[str] = []
        self.shards: list[str] = []

    def add(self, keys: ShardedKeys, number: int, told: Any, groups: Int64s) -> None:
        """Join the keys of a shard.

        Args:
            keys: keys of the table.
            number: the shard.
            told: keys of the index in it.
            groups: the file group of each, int64 (told,).
        """
        try:
            real, expected = keys.sorted(number)
        except UnsupportedTable as error:  # several rows of a key, of which the index has one
            self.repeated.append(str(error))
            return
        at = pc.index_in(real, value_set=told)
        has = flags(pc.is_valid(at))
        places = int64s(at.drop_null())
        self.missing.add(real, ~has)
        differs = np.zeros(len(real), np.bool_)
        differs[has] = groups[places] != expected[has]
        self.wrong.add(real, differs)
        alive = np.zeros(len(told), np.bool_)
        alive[places] = True
        self.left_over.add(told, ~alive)

    def misplaced(self, keys: Any, wrong: Flags, shard: MetadataFileSlice) -> None:
        """Count keys that are not of the shard that has them."""
        if wrong.any():
            self.misplaced_keys.add(keys, wrong)
            self.shards.append(shard.group.file_id)

    def findings(self) -> Iterable[IndexFinding]:
        """Return what differs."""
        for named, kind, what in (
            (self.missing, MISSING, "keys with a row are not in it"),
            (self.wrong, WRONG, "keys have their row in another file group"),
            (self.left_over, LEFT_OVER, "keys have no row"),
            (self.misplaced_keys, DAMAGED, f"keys are of another shard than {', '.join(self.shards[:1])}"),
        ):
            if named.count:
                first = shown(named.names, named.count)
                yield IndexFinding(PARTITION, kind, f"{named.count:,} {what}: {first}", named.count)
        if self.repeated:
            yield IndexFinding(PARTITION, WRONG, self.repeated[0], len(self.repeated))
