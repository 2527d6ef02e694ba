"""Number the file groups of each partition: rows, file names and stats of a write refer to a group by its number.

See docs/format/07-index-and-metadata.md, "Simple bucket index", for tables with buckets.
"""

from __future__ import annotations

from typing import Protocol

from streaming_lsm.errors import ConfigError, UnsupportedTable
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import bucket_of


class GroupNumbering(Protocol):
    """Numbers the file groups of each partition."""

    def number(self, partition: str, file_id: str) -> int:
        """Return the number of a file group, which gets one if it has none.

        Raises:
            ConfigError: a bucket number that the table's number of buckets does not allow.
            UnsupportedTable: the file id of a table with buckets has none.
        """
        ...

    def find(self, partition: str, file_id: str) -> int | None:
        """Return the number of a file group; None if it has none."""
        ...


class BucketNumbers:
    """Numbers file groups by bucket, with which their file ids begin."""

    def __init__(self, num_buckets: int) -> None:
        """Create the numbering of a table of `num_buckets` per partition."""
        self._num_buckets = num_buckets

    def number(self, partition: str, file_id: str) -> int:
        """Return the bucket; see `GroupNumbering.number`."""
        bucket = bucket_of(file_id)
        if bucket >= self._num_buckets:
            raise ConfigError(
                f"file group {file_id} in partition {partition!r} has bucket {bucket}, but the number of "
                f"buckets is {self._num_buckets}: give the one that the table was written with "
                "(hoodie.bucket.index.num.buckets; a table made here keeps it as lsm.bucket.index.num.buckets)"
            )
        return bucket

    def find(self, partition: str, file_id: str) -> int | None:  # noqa: ARG002
        """Return the bucket; None if the file id has none."""
        try:
            return bucket_of(file_id)
        except UnsupportedTable:
            return None


class ArrivalNumbers:
    """Numbers the file groups of a table without buckets as they come; another process has other numbers."""

    def __init__(self) -> None:
        """Start without file groups."""
        self._numbers: dict[str, dict[str, int]] = {}

    def number(self, partition: str, file_id: str) -> int:
        """Return the number of a file group; a new one gets the next of its partition."""
        known = self._numbers.setdefault(partition, {})
        return known.setdefault(file_id, len(known))

    def find(self, partition: str, file_id: str) -> int | None:
        """Return the number of a file group; None if it has none."""
        return self._numbers.get(partition, {}).get(file_id)

    def count(self, partition: str) -> int:
        """Return how many numbers a partition has given: the next free one."""
        return len(self._numbers.get(partition, {}))


def numbering_of(table: TableConfig) -> GroupNumbering:
    """Create the numbering of a table."""
    return BucketNumbers(table.num_buckets) if table.has_buckets else ArrivalNumbers()
