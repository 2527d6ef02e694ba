"""Map record keys to file groups.

An `Index` serves one task and one batch; its `GroupNumbers` number file groups densely from 0 (int64). Rows are sorted,
counted and sent by this number; file names are made of the group's `BucketId`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s, pc
from streaming_lsm.format.table.file_names import BucketId


@dataclass(frozen=True)
class BucketIds:
    """`BucketId` of several rows or file groups, as columns.

    Attributes:
        partitions: partition paths.
        partition: integers (n,), indices into `partitions`.
        bucket: integers (n,), at least 0.
    """

    partitions: tuple[str, ...]
    partition: npt.NDArray[np.integer[Any]]
    bucket: npt.NDArray[np.integer[Any]]

    @staticmethod
    def of(groups: Iterable[BucketId]) -> BucketIds:
        """Make columns of the ids of `groups`."""
        pairs = list(groups)
        numbers = {path: number for number, path in enumerate(dict.fromkeys(path for path, _ in pairs))}
        partition = np.array([numbers[path] for path, _ in pairs], np.int64)
        return BucketIds(tuple(numbers), partition, np.array([bucket for _, bucket in pairs], np.int64))

    def take(self, places: npt.NDArray[np.integer[Any]]) -> BucketIds:
        """Select the ids at `places`; partition paths that none of them has are left out."""
        used, partition = np.unique(self.partition[places], return_inverse=True)
        paths = tuple(self.partitions[path] for path in used.tolist())
        return BucketIds(paths, partition.astype(np.int32), self.bucket[places])


_MOST_INDEXED_BYTES = 1 << 22
"""Bytes of the record keys that are kept, which a task sends with what it has written."""


class GroupNumbers:
    """Number the file groups that the rows of one task belong to, densely in order of arrival.

    Record keys that the record index locates in them are kept, too, as far as there is room: a write need not log the
    locations of these.
    """

    def __init__(self) -> None:
        """Start without file groups."""
        self._paths: list[str] = []
        self._path_numbers: dict[str, int] = {}
        self._partition, self._bucket = np.zeros(0, np.int32), np.zeros(0, np.int32)
        # By partition * width + bucket the number of the file group plus one, or 0: zeros that were never written to
        # take no memory.
        self._width, self._table = 1, np.zeros(0, np.int32)
        self._indexed: dict[BucketId, list[pa.StringArray]] = {}
        self._indexed_bytes = 0

    def __len__(self) -> int:
        """Count the file groups."""
        return len(self._bucket)

    def __getitem__(self, number: int) -> BucketId:
        """Return partition path and bucket of the file group `number`."""
        return self._paths[self._partition[number]], int(self._bucket[number])

    @property
    def ids(self) -> BucketIds:
        """Partition path and bucket of all file groups, by number."""
        return BucketIds(tuple(self._paths), self._partition, self._bucket)

    def add(self, ids: BucketIds) -> Int64s:
        """Number the file groups of `ids`. Those that are new follow in the order of partition and bucket.

        Returns:
            int64 (n,), the number of each id.
        """
        paths = np.array([self._path_number(path) for path in ids.partitions], np.int64)
        self._make_room(int(ids.bucket.max(initial=0)) + 1)
        cells = (paths * self._width)[ids.partition] + ids.bucket
        found = self._table.take(cells)
        if not found.all():
            self._append(np.sort(np.asarray(pc.unique(pa.array(cells[found == 0])), np.int64)))
            found = self._table.take(cells)
        numbers: Int64s = np.subtract(found, 1, dtype=np.int64)
        return numbers

    def keep_indexed(self, ids: BucketIds, keys: pa.StringArray) -> None:
        """Keep record keys that the record index locates in file groups; those for which there is no room are not.

        Args:
            ids: the file groups (n,).
            keys: the keys (n,).
        """
        if not len(keys) or self._indexed_bytes + keys.nbytes > _MOST_INDEXED_BYTES:
            return
        self._indexed_bytes += keys.nbytes
        order = np.lexsort((ids.bucket, ids.partition))
        partition, bucket = ids.partition[order], ids.bucket[order]
        begins = np.flatnonzero(np.append(True, (np.diff(partition) != 0) | (np.diff(bucket) != 0)))
        ordered: Any = keys.take(pa.array(order, pa.int64()))
        for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(keys)], strict=True):
            group = ids.partitions[partition[begin]], int(bucket[begin])
            self._indexed.setdefault(group, []).append(ordered.slice(begin, end - begin))

    def indexed(self, group: BucketId) -> pa.StringArray | None:
        """Return the keys that were kept for a file group; None if none were."""
        found: Any = self._indexed.get(group)
        return None if found is None else pa.concat_arrays(found)

    def _path_number(self, path: str) -> int:
        number = self._path_numbers.setdefault(path, len(self._paths))
        if number == len(self._paths):
            self._paths.append(path)
        return number

    def _make_room(self, buckets: int) -> None:
        """Lay the table out for all partitions and so many buckets; doubling makes that rare."""
        if buckets <= self._width and len(self._paths) * self._width <= len(self._table):
            return
        self._width = max(self._width, _power_of_two(buckets))
        self._table = np.zeros(_power_of_two(len(self._paths)) * self._width, np.int32)
        self._enter(0)

    def _append(self, cells: Int64s) -> None:
        first = len(self)
        partition, bucket = np.divmod(cells, self._width)
        self._partition = np.append(self._partition, partition.astype(np.int32))
        self._bucket = np.append(self._bucket, bucket.astype(np.int32))
        self._enter(first)

    def _enter(self, first: int) -> None:
        cells = self._partition[first:].astype(np.int64) * self._width + self._bucket[first:]
        self._table[cells] = np.arange(first + 1, len(self) + 1, dtype=np.int32)


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 0).bit_length()


def no_places() -> Int64s:
    """Return an empty array of places."""
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Settled:
    """The file groups of the rows of a run, as numbers in `GroupNumbers`.

    Attributes:
        groups: int64 (rows,), of each row.
        copied: int64 (copies,), rows that are written to a further file group: the key has a row there, too.
        copies: int64 (copies,), these file groups.
    """

    groups: Int64s
    copied: Int64s = field(default_factory=no_places)
    copies: Int64s = field(default_factory=no_places)


class Index(Protocol):
    """Maps record keys to file groups. It serves one task and one batch, as its `groups` grow with the rows."""

    @property
    def groups(self) -> GroupNumbers:
        """The file groups of all rows located so far."""
        ...

    def locate(self, keys: pa.StringArray, partitions: pa.DictionaryArray[Any, Any]) -> Int64s:
        """Take note of rows as they come, some thousand at a time.

        Args:
            keys: record keys (rows,), without nulls.
            partitions: partition paths (rows,), without nulls.

        Returns:
            int64 (rows,), what `settle` needs to know of each row.
        """
        ...

    def settle(self, keys: pa.StringArray, located: Int64s) -> Settled:
        """Find the file groups of the rows of a run, and add those that are new to `groups`.

        Args:
            keys: record keys (rows,), without nulls.
            located: int64 (rows,), what `locate` returned for them.
        """
        ...
