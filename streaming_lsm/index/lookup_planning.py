"""Plan the look-ups of a batch, on the driver: which file groups have keys, and which ones take new keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from streaming_lsm.file_group.file_system_view import BaseFile
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import BucketId
from streaming_lsm.format.table.properties import BLOOM_INDEXES, RECORD_INDEXES
from streaming_lsm.index.group_numbering import ArrivalNumbers
from streaming_lsm.index.insert_groups import FileSizes, InsertGroups, SmallGroups
from streaming_lsm.index.key_lookup import KeyLookup, Lookup
from streaming_lsm.index.live_file_groups import LiveFileGroups
from streaming_lsm.index.lookup_index import LookupPlan
from streaming_lsm.index.record_lookup import RecordLookup
from streaming_lsm.metadata.shard_files import ShardFiles
from streaming_lsm.query.slices.slice_reader import SliceReader
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.timeline import Timeline

_MEASURED_BYTES = 1 << 20
"""Bytes of a file from which on the bytes of its rows are measured: of a small one the footer is a large part."""


def plan_lookup(
    live: LiveFileGroups,
    sizes: FileSizes,
    reader: SliceReader | None,
    width: int,
    *,
    table: TableConfig,
    timeline: Timeline,
    scan_share: float,
    timelines: TimelineCache,
    shard_files: ShardFiles,
    takes_filters: bool,
    fills: bool,
    moves: bool,
    clustered: Set[tuple[str, str]] = frozenset(),
) -> LookupPlan:
    """Plan the look-ups of a batch.

    Args:
        live: the live file groups of a table without buckets.
        sizes: the sizes of files.
        reader: reads the record keys of slices; None to take all keys as new.
        width: number of slices that are read in parallel.
        table: the table's config.
        timeline: the table's timeline.
        scan_share: see `RecordIndex`.
        timelines, shard_files: see `RecordLookup`.
        takes_filters: whether the bloom filters of base files are taken from the metadata table.
        fills: whether new keys go to small file groups first.
        moves: see `LookupPlan`.
        clustered: partition paths and file ids of groups that take no new keys, as a clustering replaces them soon.
    """
    groups, numbering = live.in_partitions(), live.numbering
    assert isinstance(numbering, ArrivalNumbers)
    small: Mapping[str, Sequence[tuple[int, int]]] = {}
    if fills:
        small = SmallGroups(groups, sizes, merges=merges_new_rows(table), without=clustered)
    inserts = InsertGroups(sizes, small, {path: numbering.count(path) for path in groups})
    if reader is None:
        return LookupPlan(inserts, None, table.has_global_index, moves)
    lookup: Lookup
    by_blooms = table.index_type in BLOOM_INDEXES
    filters_of = timeline if by_blooms and takes_filters else None
    lookup = files = KeyLookup(reader, groups, width, by_blooms, filters_of)
    if table.index_type in RECORD_INDEXES:
        lookup = RecordLookup(files, timeline, scan_share, timelines, shard_files, reads_rows=moves)
    return LookupPlan(inserts, lookup, table.has_global_index, moves)


def merges_new_rows(table: TableConfig) -> bool:
    """Test whether new rows are merged with base files though the table has logs.

    Hudi's indexes look for keys in base files only.
    """
    return not (table.has_buckets or table.has_native_logs or table.is_copy_on_write)


def merged_bases(live: LiveFileGroups, plan: LookupPlan) -> Mapping[BucketId, BaseFile]:
    """Return the base files of the groups that take new keys."""
    bases = live.bases
    small = ((path, number) for path, found in plan.inserts.small.items() for number, _ in found)
    return {group: bases[group] for group in small if group in bases}


def measured_row_bytes(stats: Iterable[WriteStat]) -> float | None:
    """Measure the bytes of a row in the files of a write; None if all of them are small."""
    large = [stat for stat in stats if stat.total_bytes >= _MEASURED_BYTES and stat.num_writes]
    rows = sum(stat.num_writes for stat in large)
    return sum(stat.total_bytes for stat in large) / rows if rows else None
