"""Detect conflicts between writes at the commit (docs/format/06-services.md, "Concurrency").

A write *conflicts* with another one that was completed after it began if both changed one file group: for a bucket
index, one bucket of a partition. Compactions do not conflict with writes of merge-on-read tables: by their completion
times the logs of a write belong to the slice that the compaction made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from streaming_lsm.errors import ClusteringConflict, WriteConflict
from streaming_lsm.format.actions.commit import CommitMetadata, WriteStat
from streaming_lsm.format.table.file_names import BucketId, bucket_of
from streaming_lsm.timeline.instant import Instant
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


def check_conflicts(stats: Iterable[WriteStat], before: Timeline, now: Timeline, *, non_blocking: bool) -> None:
    """Check a write against all that was completed since it began; a clustering that is pending counts, too.

    Args:
        stats: the files of the write.
        before: the timeline when it began.
        now: the timeline just before it is completed.
        non_blocking: whether several writes may append to one file group.

    Raises:
        WriteConflict: another write changed a file group.
        ClusteringConflict: a clustering or another replace action replaced a file group, or is about to.
    """
    known = frozenset(before.completed_writes)
    others = [write for write in now.completed_writes if write not in known]
    pending = next((found for found in now.pending if found.action == "clustering"), None)
    if not others and pending is None:
        return
    own = Changed.of(stats)
    if pending is not None and own.file_ids:
        raise ClusteringConflict(
            f"{pending.path} in {now.storage.uri} is pending: write the batch again when it is done"
        )
    for other in others:
        commit = now.read_commit(other)
        replaced = _first(_replaced(own, commit))
        if replaced is not None:
            raise ClusteringConflict(_text(now, other, replaced, "replaced"))
        changed = None if _is_compaction(commit) else _first(_both_changed(own, commit, non_blocking=non_blocking))
        if changed is not None:
            raise WriteConflict(_text(now, other, changed, "changed"))


def _replaced(own: Changed, commit: CommitMetadata) -> Iterator[BucketId]:
    for partition, file_ids in (commit.replaced or {}).items():
        yield from (bucket for bucket, own_id in own.file_ids.items() if bucket[0] == partition and own_id in file_ids)


def _both_changed(own: Changed, commit: CommitMetadata, *, non_blocking: bool) -> Iterator[BucketId]:
    other = Changed.of(commit.stats)
    for bucket, file_id in own.file_ids.items():
        other_id = other.file_ids.get(bucket)
        if other_id is None:
            continue
        # Of two base files the one requested first would be superseded, with its rows.
        if not non_blocking or other_id != file_id or bucket in own.bases & other.bases:
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
