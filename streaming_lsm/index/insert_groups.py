"""Choose the file groups that take the new keys of a batch, for tables without buckets.

Small file groups are filled first; what does not fit goes to new ones. A key goes to one of the chosen groups by its
hash, so that all tasks of a batch send it to the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s
from streaming_lsm.index.live_file_group import LiveFileGroup
from streaming_lsm.keys.bucket import java_string_hash


@dataclass(frozen=True)
class FileSizes:
    """Sizes by which new rows are distributed.

    Attributes:
        small_bytes: bytes of a file slice below which its group takes new rows.
        file_bytes: bytes of a file at which the next file group is begun.
        row_bytes: estimated bytes of a row in a file.
    """

    small_bytes: int
    file_bytes: int
    row_bytes: float

    @property
    def file_rows(self) -> int:
        """Rows of a full file."""
        return max(1, int(self.file_bytes / max(self.row_bytes, 1e-3)))

    def room(self, size: int) -> int:
        """Return the rows that a file group of `size` bytes has room for."""
        return max(1, int((self.file_bytes - size) / max(self.row_bytes, 1e-3)))


def small_groups(
    groups: Mapping[int, LiveFileGroup], sizes: FileSizes, *, merges: bool = False
) -> list[tuple[int, int]]:
    """Return number and bytes of the file groups of a partition that take new rows, the smallest first.

    Args:
        groups: those of the partition by number.
        sizes: say which ones are small.
        merges: whether new rows are merged with the base file of their group in a table that has logs, too: only one
            group without logs is chosen then, as its updates are merged with them.
    """
    found = sorted(
        (group.size, number)
        for number, group in groups.items()
        if group.size < sizes.small_bytes and not (merges and (group.logs or group.base is None))
    )
    return [(number, size) for size, number in (found[:1] if merges else found)]


@dataclass(frozen=True)
class SmallGroups(Mapping[str, Sequence[tuple[int, int]]]):
    """The file groups of each partition that take new rows, chosen when they are asked for; see `small_groups`.

    Attributes:
        groups: the file groups of each partition by number.
        sizes, merges: see `small_groups`.
        without: partition paths and file ids of groups that take none.
    """

    groups: Mapping[str, Mapping[int, LiveFileGroup]]
    sizes: FileSizes
    merges: bool = False
    without: Set[tuple[str, str]] = frozenset()
    _chosen: dict[str, Sequence[tuple[int, int]]] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, partition: str) -> Sequence[tuple[int, int]]:
        if partition not in self._chosen:
            self._chosen[partition] = self._choose(partition)
        return self._chosen[partition]

    def _choose(self, partition: str) -> Sequence[tuple[int, int]]:
        found = self.groups[partition]
        if self.without:
            found = {number: one for number, one in found.items() if (partition, one.file_id) not in self.without}
        return small_groups(found, self.sizes, merges=self.merges)

    def __iter__(self) -> Iterator[str]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)


@dataclass(frozen=True)
class TargetGroups:
    """The file groups of a partition that take its new keys.

    Attributes:
        numbers: int64 (groups,).
        ends: int64 (groups,), the sums of the rows that each of them and those before it take.
        taken: rows that they have from keys that were settled before.
    """

    numbers: Int64s
    ends: Int64s
    taken: int = 0

    def of(self, keys: pa.StringArray) -> Int64s:
        """Return the group of each key, int64 (keys,), by its hash."""
        places = self.taken + java_string_hash(keys).astype(np.int64) % (self.ends[-1] - self.taken)
        found: Int64s = self.numbers[np.searchsorted(self.ends, places, side="right")]
        return found


@dataclass(frozen=True)
class InsertGroups:
    """Chooses the file groups for new keys; picklable.

    Attributes:
        sizes: the sizes of files.
        small: number and bytes of the file groups of each partition that take new rows, the smallest first.
        free: the first number of each partition that no file group has.
        rows: new rows that a partition is expected to get; None if one task has all rows of the batch, counts them, and
            settles each key once.
    """

    sizes: FileSizes
    small: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    free: Mapping[str, int] = field(default_factory=dict)
    rows: int | None = None

    def targets(self, partition: str, count: int, before: int = 0) -> TargetGroups:
        """Choose the groups for new rows of a partition, beginning with the one that those before have not filled.

        Args:
            partition: partition path.
            count: the new rows.
            before: new rows of the partition that this task has settled before.
        """
        # One task divides a new group by its real size; several agree on as many groups as the expected rows need.
        total = before + count
        taken, left, most = (before, total, total) if self.rows is None else (0, self.rows, self.sizes.file_rows)
        numbers: list[int] = []
        weights: list[int] = []
        for number, size in self.small.get(partition, ()):
            if numbers and left <= 0:
                break
            room = self.sizes.room(size)
            numbers.append(number)
            weights.append(max(1, min(room, left)))
            left -= room
        first = self.free.get(partition, 0)
        while left > 0 or not numbers:
            rows = min(left, most)
            numbers.append(first)
            weights.append(max(1, rows))
            left -= rows
            first += 1
        return TargetGroups(np.array(numbers, np.int64), np.cumsum(np.array(weights, np.int64)), taken)
