"""Select the file slices that a clustering sorts together (docs/format/06-services.md, "Clustering"); no file access.

As in Hudi, the slices of a partition with small base files are cut into input groups, the larger slices first.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.actions.clustering_plan import ClusteredSlice, ClusteringPlan, InputGroup
from streaming_lsm.services.clustering.rules import ClusteringRules
from streaming_lsm.services.context import FileGroupId

OrderOf = Callable[[str], str | None]
"""Returns the order of rows that a clustering has made, by its requested time; None for other actions."""
_MIB = 1 << 20


@dataclass(frozen=True)
class ClusteringSelection:
    """The input groups of a clustering, and the numbers of file groups left out by reason.

    Attributes:
        plan: the plan.
        file_groups: number of live file groups.
        busy: number of those in a pending plan.
        outside: number of those in partitions that the options leave out.
        large: number of those whose base file is not small.
        settled: number of those that a clustering has sorted so before, together, and that nothing has changed since.
        left: number of those beyond the largest number of input groups, or alone in one where that is left out.
    """

    plan: ClusteringPlan
    file_groups: int
    busy: int = 0
    outside: int = 0
    large: int = 0
    settled: int = 0
    left: int = 0

    @property
    def reasons(self) -> str:
        """The numbers of file groups left out by reason, as text."""
        counts = {
            "are in a pending plan already": self.busy,
            "are in other partitions than the options choose": self.outside,
            "have large base files": self.large,
            "are clustered already": self.settled,
            "are left for the next clustering": self.left,
        }
        said = [f"{count} {reason}" for reason, count in counts.items() if count]
        return f"of {self.file_groups} file groups " + (", ".join(said) or "none is left out")

    def __str__(self) -> str:
        groups = len(self.plan.groups)
        return f"{len(self.plan.file_groups)} file groups to cluster in {groups} input groups; {self.reasons}"


def select_groups(
    slices: Sequence[FileSlice], busy: Container[FileGroupId], rules: ClusteringRules, order_of: OrderOf
) -> ClusteringSelection:
    """Choose from the latest slices what a clustering sorts together.

    Args:
        slices: the latest slice of every file group, ordered by partition.
        busy: file groups in a pending plan.
        rules: how.
        order_of: tells clusterings before.
    """
    free = [found for found in slices if (found.partition_path, found.file_id) not in busy]
    chosen = rules.partitions.choose({found.partition_path for found in free})
    inside = [found for found in free if found.partition_path in chosen]
    small = [found for found in inside if found.base is None or found.base.size < rules.small_bytes]
    groups: list[list[FileSlice]] = []
    settled = 0
    for _, members in groupby(small, key=lambda found: found.partition_path):
        for group in _cut(list(members), rules.group_bytes):
            if _is_settled(group, rules, order_of):
                settled += len(group)
            elif len(group) > 1 or rules.single:
                groups.append(group)
    taken = groups[: rules.groups]
    clustered = sum(map(len, taken))
    return ClusteringSelection(
        ClusteringPlan(tuple(_input_group(group, rules.target_bytes) for group in taken), rules.params),
        file_groups=len(slices),
        busy=len(slices) - len(free),
        outside=len(free) - len(inside),
        large=len(inside) - len(small),
        settled=settled,
        left=len(small) - settled - clustered,
    )


def _cut(members: Sequence[FileSlice], most: int) -> Iterator[list[FileSlice]]:
    """Cut the slices of a partition into groups of `most` bytes, the larger slices first."""
    group: list[FileSlice] = []
    total = 0
    for found in sorted(members, key=lambda one: (-_size(one), one.file_id)):
        size = _size(found)
        if group and total + size > most:
            yield group
            group, total = [], 0
        group.append(found)
        total += size
    if group:
        yield group


def _size(found: FileSlice) -> int:
    return (found.base.size if found.base else 0) + sum(log.size for log in found.logs)


def _is_settled(group: Sequence[FileSlice], rules: ClusteringRules, order_of: OrderOf) -> bool:
    """Return whether one clustering of this order wrote all slices, and nothing has been written to them since."""
    first = group[0]
    if any(found.base is None or found.base_instant != first.base_instant for found in group):
        return False
    if not all(found.is_kept(log) for found in group for log in found.logs):
        return False
    return order_of(first.base_instant) == rules.order


def _input_group(group: Sequence[FileSlice], target: int) -> InputGroup:
    size = sum(map(_size, group))
    logs = [log.size for found in group for log in found.logs]
    metrics = {
        "TOTAL_IO_READ_MB": float(size // _MIB),
        "TOTAL_IO_WRITE_MB": float(size // _MIB),
        "TOTAL_IO_MB": float(2 * size // _MIB),
        "TOTAL_LOG_FILES": float(len(logs)),
        "TOTAL_LOG_FILES_SIZE": float(sum(logs)),
    }
    return InputGroup(tuple(map(clustered_slice, group)), max(1, -(-size // target)), metrics)


def clustered_slice(found: FileSlice) -> ClusteredSlice:
    """Return how a plan names a slice with all its files."""
    logs = sorted(found.logs, key=lambda log: log.name.sort_key)
    base = str(found.base.name) if found.base else None
    return ClusteredSlice(found.partition_path, found.file_id, base, tuple(str(log.name) for log in logs))
