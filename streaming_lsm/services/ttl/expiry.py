"""Find the partitions of a table that have expired, and say when to look again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.table.partition_metadata import (
    PARTITION_METADATA_NAME,
    parse_partition_metadata,
    print_partition_metadata,
)
from streaming_lsm.services.context import ServiceContext
from streaming_lsm.services.survey import Survey
from streaming_lsm.services.ttl.planner import (
    KEEP_BY_CREATION_TIME,
    ExpiredPartitions,
    PartitionTtl,
    select_expired,
)
from streaming_lsm.timeline.clock import Clock
from streaming_lsm.timeline.timeline import Timeline


@dataclass
class PartitionExpiry:
    """Finds the expired partitions of one table.

    Attributes:
        context: the table.
        clock: the current time.
        ttl: how long partitions live, as the options say.
    """

    context: ServiceContext
    clock: Clock
    ttl: PartitionTtl = field(init=False)
    _next_ms: int | None = 0
    _first_writes: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """Partition metadata that names a write which was undone, by path, and what is to be there."""

    def __post_init__(self) -> None:
        """Read the options."""
        self.ttl = PartitionTtl.of(self.context.options)

    def may_be_due(self) -> bool:
        """Return whether a partition may have expired since the last look; lists nothing."""
        return self.ttl.days > 0 and self._next_ms is not None and self.clock() >= self._next_ms

    def look(self) -> Survey | None:
        """List the table; None if no partition of it can expire."""
        if self.ttl.days < 1 or not self.context.config.partition_fields:
            self._next_ms = None
            return None
        return Survey.of(self.context)

    def select(self, slices: Sequence[FileSlice], timeline: Timeline) -> ExpiredPartitions:
        """Select the expired ones of the partitions that have file groups.

        Args:
            slices: the latest slice of every file group.
            timeline: as of which these are.
        """
        since: dict[str, str] = {}
        for found in slices:
            path = found.partition_path
            if self.ttl.includes(path):
                names = (file.name for file in ((found.base,) if found.base else ()) + tuple(found.logs))
                since[path] = max(since.get(path, ""), *(name.instant for name in names))
        if self.ttl.strategy == KEEP_BY_CREATION_TIME:
            since = {path: self._created(path, timeline) for path in since}
        expired = self._expired(since, timeline)
        if not expired:
            self._next_ms = expired.next_ms
        return expired

    def _expired(self, since: dict[str, str], timeline: Timeline) -> ExpiredPartitions:
        """Select the expired ones; it is looked at those alone whether the write that created them was undone."""
        self._first_writes.clear()
        checked: set[str] = set()
        while True:
            expired = select_expired(since, self.ttl, self.clock(), self.context.config.timeline_zone)
            new = expired.since.keys() - checked
            if self.ttl.strategy != KEEP_BY_CREATION_TIME or not new:
                return expired
            since |= {path: self._standing(path, timeline) for path in new}
            checked |= new

    def record_first_writes(self) -> None:
        """Record the first writes that the last selection found, where partition metadata names one that was undone.

        Files that tell them are compacted and cleaned in time. Metadata that was replaced since is left as it is.
        """
        for path, (known, data) in self._first_writes.items():
            self.context.storage.replace_if_unchanged(path, data, known)
        self._first_writes.clear()

    def deleted(self, expired: ExpiredPartitions) -> None:
        """Remember that these partitions were deleted: the next ones expire later."""
        self._next_ms = expired.next_ms

    def begin_anew(self, replaced: Mapping[str, Collection[str]], instant: str) -> None:
        """Let partitions count as created by the action that replaces them, if partitions expire by their creation.

        Called before the action is completed: one that is not completed has them expire later.

        Args:
            replaced: file ids that are replaced, by partition path.
            instant: requested time of the action.
        """
        if self.ttl.days < 1 or self.ttl.strategy != KEEP_BY_CREATION_TIME or not self.context.config.partition_fields:
            return
        for partition, ids in replaced.items():
            if ids:
                data = print_partition_metadata(instant, partition)
                self.context.storage.replace(f"{partition}/{PARTITION_METADATA_NAME}", data)

    def none(self) -> ExpiredPartitions:
        """Return that no partition expires."""
        return ExpiredPartitions({}, 0, 0, self.ttl)

    def _created(self, partition: str, timeline: Timeline) -> str:
        """Return the instant that created a partition, or that of its last overwrite or deletion."""
        created, _ = self._metadata(partition)
        return max(created, _replaced(partition, timeline))

    def _standing(self, partition: str, timeline: Timeline) -> str:
        """Return `_created`, by the oldest file of the partition if the write that created it was undone."""
        created, data = self._metadata(partition)
        # The timeline does not tell of a write that replaced the partition after it was loaded.
        is_known = created <= timeline.last_time
        if is_known and timeline.completion_time(created) is None and not _is_pending(created, timeline):
            view, entries = self.context.view(timeline), self.context.storage.list(partition)
            files = [file.name for file in view.visible_files(entries)]
            live = (name.instant for name in files if not view.is_replaced(partition, name.file_id))
            created = max(min(live, default=created), _replaced(partition, timeline))
            path = f"{partition}/{PARTITION_METADATA_NAME}"
            self._first_writes[path] = data, print_partition_metadata(created, partition)
        return max(created, _replaced(partition, timeline))

    def _metadata(self, partition: str) -> tuple[str, bytes]:
        """Read the instant of a partition's metadata, and the file's content."""
        path = f"{partition}/{PARTITION_METADATA_NAME}"
        data = self.context.storage.read(path)
        return parse_partition_metadata(data, path).instant, data


def _is_pending(requested: str, timeline: Timeline) -> bool:
    return any(found.requested == requested for found in timeline.pending)


def _replaced(partition: str, timeline: Timeline) -> str:
    """Return the last action on the timeline that replaced file groups of a partition."""
    return max(timeline.replaced_groups.get(partition, {}).values(), default="")
