"""Which file group holds a bucket: the number that begins the file id says it (format 07, Simple bucket index)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streaming_lsm.errors import ConfigError, UnsupportedTable
from streaming_lsm.format.commit import WriteStat
from streaming_lsm.format.names import BaseFileName, bucket_of, parse_file_name
from streaming_lsm.read.file_view import BaseFile, FileSlice, FileView
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

Bucket = tuple[str, int]
"""Partition path and bucket number."""


@dataclass(frozen=True, slots=True)
class LiveGroup:
    """A live file group.

    Attributes:
        file_id: its id.
        base: its newest base file.
        logs: completion times of the log files on top of it, one for each file.
    """

    file_id: str
    base: BaseFile | None = None
    logs: tuple[str, ...] = ()


class BucketIndex:
    """Live file groups by partition path and bucket; listed once, then kept up to date from the commits."""

    def __init__(self, num_buckets: int) -> None:
        """An index without file groups for a table of `num_buckets` per partition."""
        self._num_buckets = num_buckets
        self._groups: dict[Bucket, LiveGroup] = {}
        self._seen: frozenset[Instant] | None = None

    @property
    def file_ids(self) -> Mapping[Bucket, str]:
        """File id of each bucket that has a file group."""
        return {bucket: group.file_id for bucket, group in self._groups.items()}

    @property
    def bases(self) -> Mapping[Bucket, BaseFile]:
        """Newest base file of each bucket that has one."""
        return {bucket: group.base for bucket, group in self._groups.items() if group.base}

    @property
    def most_logs(self) -> int:
        """Log files of the file slice that has most of them."""
        return max((len(group.logs) for group in self._groups.values()), default=0)

    def most_logs_with(self, stats: Iterable[WriteStat]) -> int:
        """The same once the files of `stats` are committed."""
        counts = {bucket: len(group.logs) for bucket, group in self._groups.items()}
        for stat in stats:
            bucket = (stat.partition_path, bucket_of(stat.file_id))
            counts[bucket] = counts.get(bucket, 0) + (stat.log_version is not None)
        return max(counts.values(), default=0)

    def refresh(self, view: FileView) -> None:
        """Take in what was committed since the last call.

        Raises:
            ConfigError: a bucket number that the table's bucket count does not allow.
            UnsupportedTable: two file groups with one bucket number.
        """
        timeline = view.timeline
        writes = frozenset(timeline.completed_writes)
        # Unknown until this is through: what fails half-way is made up for by listing everything the next time.
        seen, self._seen = self._seen, None
        unseen = sorted(writes - (seen or frozenset()), key=lambda write: write.completed or "")
        if seen is None or _changes_groups(timeline, unseen, seen - writes):
            self._groups = {}
            for found in view.slices():
                self._add_slice(found, timeline)
        else:
            for write in unseen:
                for stat in timeline.read_commit(write).stats:
                    self._add_file(write, stat)
        self._seen = writes

    def _add_slice(self, found: FileSlice, timeline: Timeline) -> None:
        logs = tuple(timeline.completion_time(log.name.instant) or "" for log in found.logs)
        self._put(found.partition_path, LiveGroup(found.file_id, found.base, logs))

    def _add_file(self, write: Instant, stat: WriteStat) -> None:
        known = self._put(stat.partition_path, LiveGroup(stat.file_id))
        name = parse_file_name(stat.file_name)
        base, logs = known.base, known.logs
        if not isinstance(name, BaseFileName):
            logs = (*logs, write.completed or "")
        elif base is None or base.name.instant < name.instant:
            # A base file absorbs what was completed before its instant (format 10, rule 8).
            base = BaseFile(stat.path, name, stat.total_bytes)
            logs = tuple(time for time in logs if time >= name.instant)
        self._groups[stat.partition_path, bucket_of(stat.file_id)] = LiveGroup(stat.file_id, base, logs)

    def _put(self, partition: str, group: LiveGroup) -> LiveGroup:
        """The known group of the bucket, else this one from now on."""
        bucket = bucket_of(group.file_id)
        if bucket >= self._num_buckets:
            raise ConfigError(
                f"file group {group.file_id} in partition {partition!r} has bucket {bucket}, but the number of "
                f"buckets is {self._num_buckets}: give the one that the table was written with "
                "(hoodie.bucket.index.num.buckets; a table made here keeps it as lsm.bucket.index.num.buckets)"
            )
        known = self._groups.setdefault((partition, bucket), group)
        if known.file_id != group.file_id:
            raise UnsupportedTable(
                f"partition {partition!r} has two file groups for bucket {bucket}: {known.file_id} and {group.file_id}"
            )
        return known


def _changes_groups(timeline: Timeline, unseen: Iterable[Instant], vanished: Iterable[Instant]) -> bool:
    """Whether writes took files away: by replacing file groups, or by being undone (a restore, not an archival)."""
    return any(write.action == "replacecommit" for write in unseen) or any(
        write.requested >= timeline.first for write in vanished
    )
