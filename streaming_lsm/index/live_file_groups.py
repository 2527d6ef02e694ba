"""List the live file groups of a table, each by its partition path and its number in the partition.

The numbers are those of `GroupNumbering`: buckets, or for a table without buckets the order in which the groups came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.file_group.file_system_view import BaseFile, FileSlice, FileSystemView
from streaming_lsm.file_group.lost_files import checked_slices
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.actions.file_state import FileState
from streaming_lsm.format.table.file_names import (
    BucketId,
)
from streaming_lsm.index.group_numbering import GroupNumbering
from streaming_lsm.index.live_file_group import LiveFileGroup
from streaming_lsm.index.partition_groups import PackedGroups, PartitionGroups
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

MOST_NEWEST = 64
"""Most logs of a file group among which a write looks for those that its accumulated key entries cover."""
_LATEST = "9" * 17


class LiveFileGroups:
    """Holds the live file groups by partition path and number. They are listed once, then updated from the commits.

    Attributes:
        numbering: numbers the groups.
    """

    def __init__(self, numbering: GroupNumbering) -> None:
        """Start without file groups."""
        self.numbering = numbering
        self._seen: frozenset[Instant] | None = None
        self._pending: frozenset[str] = frozenset()
        self._clear()

    def _clear(self) -> None:
        self._groups: dict[BucketId, LiveFileGroup] = {}
        self._state = FileState()
        # Kept with each group: a batch asks for them, and a table may have hundreds of thousands of groups.
        self._file_ids: dict[BucketId, str] = {}
        self._bases: dict[BucketId, BaseFile] = {}
        self._kept_deletes: dict[BucketId, tuple[str, ...]] = {}
        self._newest_logs: dict[BucketId, tuple[str, ...]] = {}
        self._changed: set[BucketId] = set()
        self._in_partitions: dict[str, dict[int, LiveFileGroup]] = {}
        self._packed: dict[str, PackedGroups] = {}
        self._touched: set[str] = set()
        self._with_rows_in_logs: set[BucketId] = set()
        self._groups_by_logs: Counter[int] = Counter()

    @property
    def are_listed(self) -> bool:
        """Whether `refresh` has listed the groups, so that the next one reads only new commits."""
        return self._seen is not None

    @property
    def file_ids(self) -> Mapping[BucketId, str]:
        """File id of each group."""
        return self._file_ids.copy()

    @property
    def bases(self) -> Mapping[BucketId, BaseFile]:
        """Newest base file of each group that has one."""
        return self._bases.copy()

    @property
    def kept_deletes(self) -> Mapping[BucketId, tuple[str, ...]]:
        """Paths of the logs of kept deletes by group (docs/format/06-services.md, "Kept deletes")."""
        return self._kept_deletes.copy()

    @property
    def newest_logs(self) -> Mapping[BucketId, tuple[str, ...]]:
        """Paths of the newest logs of each bucket that has some, the oldest first; at most `MOST_NEWEST`."""
        for bucket in self._changed:
            self._newest_logs[bucket] = tuple(path for _, path in self._groups[bucket].logs[-MOST_NEWEST:])
        self._changed.clear()
        return self._newest_logs.copy()

    @property
    def have_rows_in_logs(self) -> bool:
        """Whether a file slice has log files besides those of kept deletes."""
        return bool(self._with_rows_in_logs)

    @property
    def most_logs(self) -> int:
        """Largest number of log files in one file slice."""
        return max(self._groups_by_logs, default=0)

    def ids_in(self, partitions: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        """Return the file ids of each partition that has file groups, by path; of some partitions or of all."""
        chosen = None if partitions is None else frozenset(partitions)
        found: dict[str, list[str]] = {}
        for (partition, _), file_id in self._file_ids.items():
            if chosen is None or partition in chosen:
                found.setdefault(partition, []).append(file_id)
        return {partition: tuple(sorted(ids)) for partition, ids in sorted(found.items())}

    def most_logs_with(self, stats: Iterable[WriteStat]) -> int:
        """Compute `most_logs` as it is once the files of `stats` are committed."""
        new = Counter((s.partition_path, s.file_id) for s in stats if s.log_version is not None)
        known = {group: found for group in new if (found := self._group(*group)) is not None}
        grown = [count + (len(known[bucket].logs) if bucket in known else 0) for bucket, count in new.items()]
        return max(self.most_logs, *grown, 0)

    def with_slices(self, stats: Iterable[WriteStat]) -> tuple[WriteStat, ...]:
        """Add to the stats of logs the slices that they are written to, from which Hudi's CDC query reads rows before.

        See docs/format/02-timeline.md, "HoodieWriteStat".
        """
        logs: dict[tuple[str, str], tuple[str, ...]] = {}
        found: list[WriteStat] = []
        for stat in stats:
            group = (stat.partition_path, stat.file_id)
            known = self._group(*group)
            if stat.log_files is not None:
                before = logs.get(group, () if known is None else known.log_names)
                logs[group] = (*before, *stat.log_files)
                base = "" if known is None or known.base is None else str(known.base.name)
                instant = stat.prev_commit if known is None else known.base_instant or stat.prev_commit
                stat = replace(stat, prev_commit=instant, base_file=base, log_files=logs[group])
            found.append(stat)
        return tuple(found)

    def state_with(self, stats: Iterable[WriteStat], replaced: Mapping[str, Iterable[str]] | None = None) -> FileState:
        """Compute the state of all latest slices as it is once the files of `stats` are committed.

        Args:
            replaced: file groups that the same action replaces, by partition path; it writes no files of them.
        """
        grown: dict[tuple[str, str], LiveFileGroup] = {}
        for stat in stats:
            group = (stat.partition_path, stat.file_id)
            known = grown.get(group) or self._group(*group) or LiveFileGroup(stat.file_id)
            grown[group] = known.with_file(stat, _LATEST)
        state = self._state
        for group, after in grown.items():
            state = state.changed(*after.changed_paths(self._group(*group) or LiveFileGroup(after.file_id)))
        for partition, file_ids in (replaced or {}).items():
            gone = (self._group(partition, file_id) for file_id in file_ids)
            state = state.changed([path for group in gone if group is not None for path in group.paths], ())
        return state

    def _group(self, partition: str, file_id: str) -> LiveFileGroup | None:
        number = self.numbering.find(partition, file_id)
        found = None if number is None else self._groups.get((partition, number))
        return found if found is not None and found.file_id == file_id else None

    def in_partitions(self) -> PartitionGroups:
        """Return the groups of each partition by their numbers, as they are now."""
        for partition in self._touched:
            self._packed[partition] = PackedGroups(self._in_partitions[partition].copy())
        self._touched.clear()
        return PartitionGroups(self._packed)

    def refresh(self, view: FileSystemView) -> None:
        """Apply the commits completed since the last call.

        Raises:
            CorruptFileError: folders were listed, and a committed file is missing.
            ConfigError: see `GroupNumbering.number`.
            UnsupportedTable: two file groups with one bucket number.
        """
        timeline = view.timeline
        writes = frozenset(timeline.completed_writes)
        # Unknown until this is through: what fails half-way is made up for by listing everything the next time.
        seen, self._seen = self._seen, None
        unseen = sorted(writes - (seen or frozenset()), key=lambda write: write.completed or "")
        # One that was pending may have been completed and archived since.
        gone = self._pending - {instant.requested for instant in timeline.instants}
        if seen is None or gone or _may_have_missed(seen, writes) or _changes_groups(timeline, unseen, seen - writes):
            self._clear()
            for found in checked_slices(view):
                self._add_slice(found, timeline)
        else:
            for write in unseen:
                commit = timeline.read_commit(write)
                for stat in commit.stats:
                    group = (stat.partition_path, stat.file_id)
                    # A compaction may be completed after its file group was replaced, by an action that is archived.
                    is_gone = view.is_replaced(*group) or (commit.keeps_rows and self._group(*group) is None)
                    if not is_gone:
                        self._add_file(write, stat)
        self._seen = writes
        self._pending = frozenset(pending.requested for pending in timeline.pending if pending.is_write)

    def _add_slice(self, found: FileSlice, timeline: Timeline) -> None:
        logs = tuple((timeline.completion_time(log.name.instant) or "", log.path) for log in found.logs)
        group = LiveFileGroup(found.file_id, found.base, logs, tuple(log.size for log in found.logs))
        self._put(found.partition_path, group)
        self._state = self._state.changed((), group.paths)

    def _add_file(self, write: Instant, stat: WriteStat) -> None:
        known = self._put(stat.partition_path, LiveFileGroup(stat.file_id))
        group = known.with_file(stat, write.completed or "")
        self._state = self._state.changed(*group.changed_paths(known))
        self._store((stat.partition_path, self.numbering.number(stat.partition_path, stat.file_id)), group)

    def _store(self, bucket: BucketId, group: LiveFileGroup) -> None:
        known = self._groups.get(bucket)
        if known is not None:
            count = len(known.logs)
            self._groups_by_logs[count] -= 1
            if not self._groups_by_logs[count]:
                del self._groups_by_logs[count]
        self._groups_by_logs[len(group.logs)] += 1
        self._changed.add(bucket)
        self._groups[bucket], self._file_ids[bucket] = group, group.file_id
        self._in_partitions.setdefault(bucket[0], {})[bucket[1]] = group
        self._touched.add(bucket[0])
        if group.base is not None:
            self._bases[bucket] = group.base
        self._store_kept(bucket, group)

    def _store_kept(self, bucket: BucketId, group: LiveFileGroup) -> None:
        kept = group.kept_deletes
        if kept:
            self._kept_deletes[bucket] = kept
        else:
            self._kept_deletes.pop(bucket, None)
        if len(group.logs) > len(kept):
            self._with_rows_in_logs.add(bucket)
        else:
            self._with_rows_in_logs.discard(bucket)

    def _put(self, partition: str, group: LiveFileGroup) -> LiveFileGroup:
        """Return the known group of the number; if there is none, add this one."""
        bucket = self.numbering.number(partition, group.file_id)
        known = self._groups.get((partition, bucket))
        if known is None:
            self._store((partition, bucket), group)
            return group
        if known.file_id != group.file_id:
            raise UnsupportedTable(
                f"partition {partition!r} has two file groups for bucket {bucket}: {known.file_id} and {group.file_id}"
            )
        return known


def _may_have_missed(seen: frozenset[Instant], writes: frozenset[Instant]) -> bool:
    """Test whether none of the seen writes is left: others may have been completed and archived since.

    Archival leaves the newest ones, unless nobody looked for long; nothing is left of an empty table, either. Or the
    table was deleted, and another one created in its place.
    """
    return seen != writes and seen.isdisjoint(writes)


def _changes_groups(timeline: Timeline, unseen: Iterable[Instant], vanished: Iterable[Instant]) -> bool:
    """Test whether writes removed files: by replacing file groups, or as they were undone. Archival removes none.

    The timeline may begin after a write that was undone: only the history tells which were archived.
    """
    return any(write.action == "replacecommit" for write in unseen) or any(
        write.requested >= timeline.first or not _is_archived(timeline, write) for write in vanished
    )


def _is_archived(timeline: Timeline, write: Instant) -> bool:
    try:
        found = timeline.history.write(write.requested)
    except (CorruptFileError, FileNotFoundError):  # who needs its rows tells so, and writes go on
        return True
    return found is not None and found.completed == write.completed
