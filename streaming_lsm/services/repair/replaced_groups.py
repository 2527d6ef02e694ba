"""Find the file groups of a table without its timeline that were replaced, by their buckets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import bucket_of
from streaming_lsm.services.repair.found_files import FoundFile
from streaming_lsm.services.repair.late_writes import Group

ReplacedGroups = Mapping[str, Mapping[str, tuple[str, ...]]]
"""File ids by the requested time of the write that replaced them, then by partition path."""


def find_replaced(files: Sequence[FoundFile], config: TableConfig) -> ReplacedGroups:
    """Return the replaced file groups.

    A bucket has one live file group at a time: the write that began a later one replaced the earlier one. A write all
    of whose files in a partition begin new groups has overwritten the partition, unless it has rows of older writes:
    then the group is older, and its first slices were cleaned.
    """
    if not config.num_buckets:
        return {}
    first: dict[Group, str] = {}
    for file in files:
        first[file.group] = min(first.get(file.group, file.instant), file.instant)
    try:
        followed = _followed(first)
    except UnsupportedTable:
        return {}
    partitions, written = defaultdict(list), defaultdict(set)
    for partition, file_id in first:
        partitions[partition].append(file_id)
    merging: set[tuple[str, str]] = set()
    for file in files:
        written[file.instant, file.partition_path].add(file.group)
        if file.is_base and file.commits != {file.instant}:
            merging.add((file.instant, file.partition_path))
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    gone: dict[str, set[str]] = defaultdict(set)
    for (time, partition), ids in sorted(followed.items()):
        ids -= gone[partition]
        begins = all(first[group] == time for group in written[time, partition])
        if ids and begins and (time, partition) not in merging:
            ids |= {file_id for file_id in partitions[partition] if first[partition, file_id] < time}
            ids -= gone[partition]
        gone[partition] |= ids
        if ids:
            found.setdefault(time, {})[partition] = tuple(sorted(ids))
    return found


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


def replacement_doubts(replaced: ReplacedGroups) -> list[str]:
    """Say what is guessed of them."""
    return [
        f"{time} is taken to have replaced the file groups {', '.join(ids)} of partition {partition!r}, "
        "as their buckets have later file groups"
        for time, parts in sorted(replaced.items())
        for partition, ids in parts.items()
    ]
