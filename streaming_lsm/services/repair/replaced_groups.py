"""Find the file groups of a table without its timeline that were replaced, by their buckets.

An action that replaces file groups need not write a file: a deletion of a partition writes none, and an overwrite of
the table none in the partitions that it empties. Of it the table has its requested file, if that is left, or nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import bucket_of
from streaming_lsm.services.repair.found_files import FoundFile
from streaming_lsm.services.repair.late_writes import Group
from streaming_lsm.services.repair.plan import Evidence
from streaming_lsm.timeline.clock import next_time

ReplacedGroups = Mapping[str, Mapping[str, tuple[str, ...]]]
"""File ids by the requested time of the action that replaced them, then by partition path."""

_REPLACE = "replacecommit"


def find_replaced(files: Sequence[FoundFile], evidence: Evidence, config: TableConfig) -> ReplacedGroups:
    """Return the replaced file groups.

    A bucket has one live file group at a time: the earlier one was replaced when a later one was begun, or before. A
    write all of whose files in a partition begin new groups has overwritten the partition, unless it has rows of older
    writes: then the group is older, and its first slices were cleaned. A write of which it is known that it replaces
    nothing follows another action, which has: a replacecommit that is left, or one that is made.

    Without buckets only the plans of clusterings tell, as far as they are left.

    Args:
        files: the data files that are kept, and those of archived writes.
        evidence: what else is left of the table.
        config: the table's config.
    """
    if not config.num_buckets:
        return _clustered(files, evidence)
    first: dict[Group, str] = {}
    last: dict[Group, str] = {}
    for file in files:
        first[file.group] = min(first.get(file.group, file.instant), file.instant)
        last[file.group] = max(last.get(file.group, ""), file.instant)
    try:
        followed = _followed(first)
    except UnsupportedTable:
        return {}
    return _Finder(files, evidence, config, first, last).find(followed)


def _clustered(files: Iterable[FoundFile], evidence: Evidence) -> ReplacedGroups:
    """Return the file groups of clusterings that have written files."""
    written = {file.instant for file in files}
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for time, groups in evidence.clustered.items():
        if time in written and time not in evidence.uncommitted:
            of_partition = found.setdefault(time, {})
            for partition, file_id in sorted(groups):
                of_partition[partition] = (*of_partition.get(partition, ()), file_id)
    return found


def clustering_doubts(files: Iterable[FoundFile], evidence: Evidence, config: TableConfig) -> list[str]:
    """Name the writes that may be clusterings of which nothing is left, in a table without buckets.

    All of their files are base files that begin file groups, and have rows of other writes.
    """
    if config.num_buckets:
        return []
    first: dict[Group, str] = {}
    of_write: dict[str, list[FoundFile]] = defaultdict(list)
    for file in files:
        first[file.group] = min(first.get(file.group, file.instant), file.instant)
        of_write[file.instant].append(file)
    return [
        f"{time} may be a clustering, of which no plan is left: then the file groups that it replaced are live again, "
        "and their rows are there twice: see which files have its rows, and move the older ones away"
        for time, written in sorted(of_write.items())
        if time not in evidence.clustered
        and all(file.is_base and file.commits - {time} and first[file.group] == time for file in written)
    ]


def _followed(first: Mapping[Group, str]) -> dict[tuple[str, str], set[str]]:
    """Return the file ids whose buckets have later file groups, by the write that began the next one and partition."""
    buckets: dict[tuple[str, int], list[Group]] = defaultdict(list)
    for group in sorted(first, key=lambda group: (first[group], group)):
        buckets[group[0], bucket_of(group[1])].append(group)
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for groups in buckets.values():
        for old, new in pairwise(groups):
            found[first[new], new[0]].add(old[1])
    return found


@dataclass
class _Finder:
    """Attributes replaced file groups to actions, the oldest first.

    Attributes:
        files: the data files that are kept, and those of archived writes.
        evidence: what else is left of the table.
        config: the table's config.
        first: the instant that began each file group.
        last: the instant of the last file of each.
    """

    files: Sequence[FoundFile]
    evidence: Evidence
    config: TableConfig
    first: Mapping[Group, str]
    last: Mapping[Group, str]
    _found: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    _gone: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _written: dict[tuple[str, str], set[Group]] = field(default_factory=lambda: defaultdict(set))
    _partitions: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _left: set[str] = field(default_factory=set)
    """Replacecommits that are left and were not undone."""

    def __post_init__(self) -> None:
        """Index the files, and read what decision records say."""
        for partition, file_id in self.first:
            self._partitions[partition].append(file_id)
        for file in self.files:
            self._written[file.instant, file.partition_path].add(file.group)
        decided, evidence = self.evidence.decided, self.evidence
        for record in decided.values():
            assert record.completed is not None
            if record.completed.action == _REPLACE:
                for partition, ids in (CommitMetadata.decode(record.data, record.path).replaced or {}).items():
                    self._gone[partition].update(ids)
        left = {time for time, action in evidence.pending.items() if action.action == _REPLACE}
        self._left = left - decided.keys() - evidence.uncommitted.keys()

    def find(self, followed: Mapping[tuple[str, str], set[str]]) -> ReplacedGroups:
        """Return the replaced file groups, given those whose buckets have later ones."""
        based = {(file.instant, file.partition_path) for file in self.files if file.is_base}
        merging = {
            (file.instant, file.partition_path)
            for file in self.files
            if file.is_base and file.commits != {file.instant}
        }
        for (time, partition), followed_ids in sorted(followed.items()):
            ids = followed_ids - self._gone[partition]
            if not ids:
                continue
            has_overwritten = self.config.is_copy_on_write or (time, partition) in based  # overwrites write no logs
            if not has_overwritten or not self._may_replace(time):
                self._replace_before(time, partition, ids)
                continue
            begins = all(self.first[group] == time for group in self._written[time, partition])
            if begins and (time, partition) not in merging:
                ids |= self._begun(partition, time)
            self._add(time, partition, ids)
        return self._found

    def _may_replace(self, time: str) -> bool:
        """Return whether a write may be an overwrite, as nothing says what else it is; archived ones are not made."""
        if time in self.evidence.decided:
            return False
        left = self.evidence.pending.get(time)
        return left is None or left.completes_as == _REPLACE or time <= self.evidence.last_archived

    def _replace_before(self, time: str, partition: str, ids: set[str]) -> None:
        """Attribute file groups to an action before a write: the first one after which none of its groups is written.

        Later ones would replace groups, too, that may have been begun after it.
        """
        since = max(self.evidence.last_archived, *(self.last[partition, file_id] for file_id in ids))
        known = sorted(self._left | self._found.keys(), key=lambda by: (not self._written[by, partition], by))
        choices = [*(by for by in known if since < by < time), self._made(partition, since, time)]
        by = next((by for by in choices if self._is_whole(partition, min(by, time))), choices[0])
        older = self._begun(partition, min(by, time)) if self._is_whole(partition, min(by, time)) else set()
        self._add(by, partition, ids | older)

    def _made(self, partition: str, since: str, until: str) -> str:
        """Return the requested time of an action of which nothing is left."""
        last = since
        while (later := self._last(partition, self._begun(partition, _after(last)))) > last:
            last = later
        taken = {*self.evidence.taken, *(file.instant for file in self.files)}
        made = next_time(0, last if last < until else since, self.config.timeline_zone)
        while made in taken:
            made = next_time(0, made, self.config.timeline_zone)
        return made

    def _is_whole(self, partition: str, by: str) -> bool:
        """Return whether an action may have replaced all groups of a partition: none is written later."""
        return self._last(partition, self._begun(partition, by)) < by

    def _begun(self, partition: str, before: str) -> set[str]:
        """Return the file ids that were begun before a time and not replaced yet."""
        ids = {file_id for file_id in self._partitions[partition] if self.first[partition, file_id] < before}
        return ids - self._gone[partition]

    def _last(self, partition: str, ids: Iterable[str]) -> str:
        return max((self.last[partition, file_id] for file_id in ids), default="")

    def _add(self, time: str, partition: str, ids: Collection[str]) -> None:
        self._gone[partition].update(ids)
        replaced = self._found.setdefault(time, {})
        replaced[partition] = tuple(sorted({*replaced.get(partition, ()), *ids}))


def _after(time: str) -> str:
    """Return a text that is greater than a time and all that are not later."""
    return f"{time}0"


def replacement_doubts(replaced: ReplacedGroups, known: Collection[str], clustered: Collection[str] = ()) -> list[str]:
    """Say what is guessed of them.

    Args:
        replaced: the replaced file groups.
        known: requested times of actions of which something is left; the others are made.
        clustered: requested times of clusterings whose plans are left.
    """
    return [
        f"{time} is taken to have replaced the file groups {', '.join(ids)} of partition {partition!r}, "
        + ("as its plan says" if time in clustered else "as their buckets have later file groups")
        + ("" if time in known else "; its time is made")
        for time, parts in sorted(replaced.items())
        for partition, ids in parts.items()
    ]
