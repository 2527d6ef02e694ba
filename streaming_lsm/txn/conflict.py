"""Detect conflicts between writes at the commit (docs/format/06-services.md, "Concurrency").

A write *conflicts* with another one that was completed after it began if both changed one file group: for a bucket
index, one bucket of a partition. Compactions do not conflict with writes of merge-on-read tables: by their completion
times the logs of a write belong to the slice that the compaction made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from streaming_lsm.errors import ClusteringConflict, WriteConflict
from streaming_lsm.format.actions.clustering_plan import clustered_groups
from streaming_lsm.format.actions.commit import CommitMetadata, WriteStat
from streaming_lsm.format.table.file_names import BucketId, bucket_of
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline


@dataclass(frozen=True)
class Changed:
    """The file groups that a write changed, by partition path and bucket.

    Attributes:
        file_ids: their ids.
        bases: those of which it wrote a base file.
    """

    file_ids: dict[BucketId, str]
    bases: frozenset[BucketId]

    @classmethod
    def of(cls, stats: Iterable[WriteStat]) -> Changed:
        """Return what the files of a write changed."""
        found = [((stat.partition_path, bucket_of(stat.file_id)), stat) for stat in stats]
        bases = frozenset(bucket for bucket, stat in found if stat.log_version is None)
        return cls({bucket: stat.file_id for bucket, stat in found}, bases)


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
        non_blocking: whether several writes may append to one file group.
        replacing: the file groups that the write replaces.

    Raises:
        WriteConflict: another write changed a file group, or a partition of which this one replaces file groups.
        ClusteringConflict: a clustering or another replace action replaced a file group, or is about to.
    """
    known = frozenset(before.completed_writes)
    others = [write for write in now.completed_writes if write not in known or write.requested > requested]
    pending = [found for found in now.pending if found.action in ("clustering", "replacecommit")]
    late = [write for write in before.completed_writes if write.requested > requested]
    others += _archived((*before.pending, *late), now)
    if not others and not pending:
        return
    own = Changed.of(stats)
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
        replaced = _first(_replaced(own, commit))
        if replaced is not None:
            raise ClusteringConflict(_text(now, other, replaced, "replaced"))
        # Beside a compaction a base file that began earlier would be the older one.
        logs_only = non_blocking or _is_compaction(commit)
        changed = _first(_both_changed(own, _changed_live(now, commit), logs_only=logs_only))
        if changed is not None:
            raise WriteConflict(_text(now, other, changed, "changed"))


def _archived(others: Iterable[Instant], now: Timeline) -> list[Instant]:
    """Return the writes among `others` that are archived, as one that was pending when another began may be."""
    active = {instant.requested for instant in now.instants}
    gone = (write.requested for write in others if write.requested not in active)
    return [write for requested in gone if (write := now.history.write(requested)) is not None]


def _refuse_clustered(own: Changed, replacing: Replacing, now: Timeline, pending: Instant) -> None:
    path = pending.at(State.REQUESTED).path
    with suppress(FileNotFoundError):  # completed or cancelled since
        clustered = clustered_groups(now.storage.read(path), path)
        changed = {(bucket[0], file_id) for bucket, file_id in own.file_ids.items()}
        changed |= {(partition, file_id) for partition, ids in replacing.file_ids.items() for file_id in ids}
        both = changed & clustered
        if both:
            partition, file_id = min(both)
            raise ClusteringConflict(
                f"{pending.path} in {now.storage.uri} is about to replace file group {file_id} of partition "
                f"{partition!r}, which this write changes: write the batch again when it is done"
            )


def _replaced(own: Changed, commit: CommitMetadata) -> Iterator[BucketId]:
    for partition, file_ids in (commit.replaced or {}).items():
        yield from (bucket for bucket, own_id in own.file_ids.items() if bucket[0] == partition and own_id in file_ids)


def _changed_live(now: Timeline, commit: CommitMetadata) -> Changed:
    """Return what a commit changed that was not replaced since: a compaction of a replaced group is in no way."""
    replaced = now.replaced_groups
    return Changed.of(stat for stat in commit.stats if stat.file_id not in replaced.get(stat.partition_path, ()))


def _both_changed(own: Changed, other: Changed, *, logs_only: bool) -> Iterator[BucketId]:
    """Yield the buckets that both changed; with `logs_only` those in which the own logs may not follow the other's."""
    for bucket, file_id in own.file_ids.items():
        other_id = other.file_ids.get(bucket)
        if other_id is None:
            continue
        # An own base file would be superseded, with its rows, by one that was requested later: of the other write, or
        # of a compaction of its logs.
        if not logs_only or other_id != file_id or bucket in own.bases:
            yield bucket


def _is_compaction(commit: CommitMetadata) -> bool:
    return commit.compacted or commit.operation_type in ("COMPACT", "LOG_COMPACT")


def _first(found: Iterator[BucketId]) -> BucketId | None:
    return min(found, default=None)


def _text(now: Timeline, other: Instant, bucket: BucketId, did: str) -> str:
    partition, number = bucket
    return (
        f"{other.path} in {now.storage.uri} has {did} bucket {number} of partition {partition!r}, which this write "
        "changes, since this write began: write the batch again"
    )
