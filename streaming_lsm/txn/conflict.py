"""Detect conflicts between writes at the commit (docs/format/06-services.md, "Concurrency").

A write *conflicts* with another one that was completed after it began if both changed one *unit*: a bucket of a
partition where the table has a bucket index. Without one, two writes may each have found a key to be new, and insert it
into file groups of their own: the unit is a partition, or with a global index the table. Compactions do not conflict
with writes of merge-on-read tables: by their completion times the logs of a write belong to the slice that the
compaction made. A clustering changes no row: it conflicts with writes of the file groups that it replaces only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from streaming_lsm.errors import ClusteringConflict, WriteConflict
from streaming_lsm.format.actions.clustering_plan import CLUSTER, clustered_groups
from streaming_lsm.format.actions.commit import CommitMetadata, WriteStat
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import bucket_of
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline

FileGroup = tuple[str, str]
"""Partition path and file id."""


class Unit(NamedTuple):
    """Names what two writes may not both change.

    Attributes:
        partition: partition path; empty for the whole table.
        bucket: the bucket; None for all file groups of the partition.
        is_table: whether the unit is the whole table.
    """

    partition: str
    bucket: int | None = None
    is_table: bool = False

    def __str__(self) -> str:
        if self.is_table:
            return "file groups, in which its global index looks up every key"
        return (
            f"partition {self.partition!r}"
            if self.bucket is None
            else (f"bucket {self.bucket} of partition {self.partition!r}")
        )


def unit_of(table: TableConfig, group: FileGroup) -> Unit:
    """Return the unit that a file group belongs to.

    Raises:
        UnsupportedTable: the table has a bucket index, and the file id no bucket.
    """
    if table.has_global_index:
        return Unit("", is_table=True)
    partition, file_id = group
    return Unit(partition, bucket_of(file_id) if table.has_buckets else None)


@dataclass(frozen=True)
class Changed:
    """The file groups that a write changed.

    Attributes:
        groups: them by the unit to which they belong.
        bases: those of which it wrote a base file.
    """

    groups: Mapping[Unit, frozenset[FileGroup]]
    bases: frozenset[FileGroup]

    @classmethod
    def of(cls, stats: Iterable[WriteStat], table: TableConfig) -> Changed:
        """Return what the files of a write changed."""
        found = {((stat.partition_path, stat.file_id), stat.log_version is None) for stat in stats}
        groups: dict[Unit, frozenset[FileGroup]] = {}
        for group, _ in found:
            unit = unit_of(table, group)
            groups[unit] = groups.get(unit, frozenset()) | {group}
        return cls(groups, frozenset(group for group, is_base in found if is_base))

    @property
    def file_groups(self) -> frozenset[FileGroup]:
        """All of them."""
        return frozenset[FileGroup]().union(*self.groups.values())


@dataclass(frozen=True)
class Replacing:
    """The file groups that a write replaces.

    Every other write of their partitions conflicts with it: its rows would be lost, or stay beside what replaces them.

    Attributes:
        file_ids: their ids by partition path.
        is_all: whether the write replaces all file groups of the table.
    """

    file_ids: Mapping[str, Collection[str]] = field(default_factory=dict)
    is_all: bool = False

    def meets(self, commit: CommitMetadata) -> str | None:
        """Return the first partition of a commit that the write replaces; None if there is none."""
        partitions = {*(stat.partition_path for stat in commit.stats), *(commit.replaced or ())}
        return min((found for found in partitions if self.is_all or found in self.file_ids), default=None)


def check_conflicts(
    stats: Iterable[WriteStat],
    before: Timeline,
    now: Timeline,
    *,
    requested: str,
    table: TableConfig,
    non_blocking: bool,
    replacing: Replacing | None = None,
) -> None:
    """Check a write against all that was completed since it began; a clustering that is pending counts, too.

    So does what was requested after it: a write that is made alone is requested, and waits, before it begins. Its files
    would be the older ones, though it was made on top of the others.

    Args:
        stats: the files of the write.
        before: the timeline when it began.
        now: the timeline just before it is completed.
        requested: its requested time.
        table: tells the units.
        non_blocking: whether several writes may append to one file group.
        replacing: the file groups that the write replaces.

    Raises:
        WriteConflict: another write changed a file group, or a partition of which this one replaces file groups.
        ClusteringConflict: a clustering or another replace action replaced a file group, or is about to.
    """
    known = frozenset(before.completed_writes)
    others = [write for write in now.completed_writes if write not in known or write.requested > requested]
    pending = _may_cluster(now)
    late = [write for write in before.completed_writes if write.requested > requested]
    others += _archived((*before.pending, *late), now)
    if not others and not pending:
        return
    own = Changed.of(stats, table)
    replacing = replacing or Replacing()
    for clustering in pending:
        _refuse_clustered(own, replacing, now, clustering)
    for other in others:
        commit = now.read_commit(other)
        overwritten = None if _is_compaction(commit) else replacing.meets(commit)
        if overwritten is not None:
            raise WriteConflict(
                f"{other.path} in {now.storage.uri} has changed partition {overwritten!r}, of which this write "
                "replaces file groups, since this write began: write the batch again"
            )
        replaced = min(_replaced(own, commit), default=None)
        if replaced is not None:
            raise ClusteringConflict(_text(now, other, unit_of(table, replaced), "replaced"))
        is_clustering = commit.operation_type == CLUSTER
        # Beside a compaction or clustering a base file that began earlier would be the older one. So would be the
        # records of its keys in the record index, and in secondary indexes, beside those of the clustering.
        older = own.file_groups if is_clustering and other.requested > requested else own.bases
        logs_only = non_blocking or _is_compaction(commit) or is_clustering
        live = _changed_live(now, commit, table)
        changed = next(_both_changed(own, live, logs_only=logs_only, older=older), None)
        if changed is not None:
            raise WriteConflict(_text(now, other, changed, "changed"))


def check_clustered(clustered: Set[FileGroup], now: Timeline, planned: str) -> None:
    """Check before a clustering is completed that nothing was written to its file groups since it was planned.

    Writes of this package that meet the plan are refused; those of another program may not be.

    Args:
        clustered: the file groups that it replaces.
        now: the timeline just before it is completed.
        planned: its requested time.

    Raises:
        ClusteringConflict: a file group was changed or replaced since.
    """
    for write in now.newest_first():
        if (write.completed or "") <= planned:
            return
        commit = now.read_commit(write)
        changed = (commit.file_groups | commit.replaced_groups) & clustered
        if changed:
            partition, file_id = min(changed)
            raise ClusteringConflict(
                f"{write.path} in {now.storage.uri} has changed file group {file_id} of partition {partition!r} since "
                f"the clustering {planned} was planned: delete its requested and inflight file to cancel it"
            )


def _archived(others: Iterable[Instant], now: Timeline) -> list[Instant]:
    """Return the writes among `others` that are archived, as one that was pending when another began may be."""
    active = {instant.requested for instant in now.instants}
    gone = (write.requested for write in others if write.requested not in active)
    return [write for requested in gone if (write := now.history.write(requested)) is not None]


def _refuse_clustered(own: Changed, replacing: Replacing, now: Timeline, pending: Instant) -> None:
    changed = {(partition, file_id) for partition, ids in replacing.file_ids.items() for file_id in ids}
    both = (changed | own.file_groups) & _planned(now, pending)
    if both:
        partition, file_id = min(both)
        raise ClusteringConflict(
            f"{pending.path} in {now.storage.uri} is about to replace file group {file_id} of partition "
            f"{partition!r}, which this write changes: write the batch again when it is done; if its process is gone, "
            "run `lsm cluster`"
        )


def _replaced(own: Changed, commit: CommitMetadata) -> Iterator[FileGroup]:
    replaced = commit.replaced_groups
    return (group for group in own.file_groups if group in replaced)


def _changed_live(now: Timeline, commit: CommitMetadata, table: TableConfig) -> Changed:
    """Return what a commit changed whose rows were not replaced since: a compaction of a replaced group is in no way.

    The rows of a file group that a clustering replaced are in others now: a key among them may be new to this write.
    """
    replaced = now.replaced_groups
    by = [replaced.get(stat.partition_path, {}).get(stat.file_id) for stat in commit.stats]
    kept = {None, *_clusterings(now, frozenset(by))}
    return Changed.of((stat for stat, write in zip(commit.stats, by, strict=True) if write in kept), table)


def _clusterings(now: Timeline, requested: Set[str | None]) -> Iterator[str]:
    """Yield those of the requested times of some completed writes that are clusterings."""
    for write in now.completed_writes if requested - {None} else ():
        if write.requested in requested and now.read_commit(write).operation_type == CLUSTER:
            yield write.requested


def clustered_in_pending(now: Timeline) -> frozenset[FileGroup]:
    """Return the file groups that pending clusterings are about to replace, of which no write may change one."""
    found: frozenset[FileGroup] = frozenset()
    for pending in _may_cluster(now):
        found |= _planned(now, pending)
    return found


def _may_cluster(now: Timeline) -> list[Instant]:
    return [found for found in now.pending if found.action in ("clustering", "replacecommit")]


def _planned(now: Timeline, pending: Instant) -> frozenset[FileGroup]:
    path = pending.at(State.REQUESTED).path
    with suppress(FileNotFoundError):  # completed or cancelled since
        return clustered_groups(now.storage.read(path), path)
    return frozenset()


def _both_changed(
    own: Changed, other: Changed, *, logs_only: bool, older: Set[FileGroup] = frozenset()
) -> Iterator[Unit]:
    """Yield the units that both changed; with `logs_only` those in which the own logs may not follow the other's.

    Args:
        older: file groups to which the write may not add files that were requested before those of the other one.
    """
    for unit in sorted(own.groups.keys() & other.groups.keys(), key=str):
        both = own.groups[unit] & other.groups[unit]
        # A bucket has one file group.
        differ = unit.bucket is not None and own.groups[unit] != other.groups[unit]
        # An own base file would be superseded, with its rows, by one that was requested later: of the other write, or
        # of a compaction of its logs.
        if not logs_only or differ or both & older:
            yield unit


def _is_compaction(commit: CommitMetadata) -> bool:
    return commit.compacted or commit.keeps_rows


def _text(now: Timeline, other: Instant, unit: Unit, did: str) -> str:
    return (
        f"{other.path} in {now.storage.uri} has {did} {unit}, which this write changes, since this write began: write "
        "the batch again"
    )
