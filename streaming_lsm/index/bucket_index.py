"""Which file group holds a bucket: the number that begins the file id says it (format 07, Simple bucket index)."""

from __future__ import annotations

from collections.abc import Iterable

from streaming_lsm.errors import ConfigError, UnsupportedTable
from streaming_lsm.format.names import bucket_of


class BucketIndex:
    """Live file groups by partition path and bucket; grows with every commit."""

    def __init__(self, num_buckets: int) -> None:
        """An index without file groups for a table of `num_buckets` per partition."""
        self._num_buckets = num_buckets
        self._file_ids: dict[tuple[str, int], str] = {}

    @property
    def file_ids(self) -> dict[tuple[str, int], str]:
        """A copy: (partition path, bucket) → file id."""
        return dict(self._file_ids)

    def add(self, groups: Iterable[tuple[str, str]]) -> None:
        """Take in file groups as (partition path, file id).

        Raises:
            ConfigError: a bucket number that the table's bucket count does not allow.
            UnsupportedTable: two file groups with one bucket number.
        """
        for partition, file_id in groups:
            bucket = bucket_of(file_id)
            if bucket >= self._num_buckets:
                raise ConfigError(
                    f"file group {file_id} in partition {partition!r} has bucket {bucket}, but the table's "
                    f"lsm.bucket.index.num.buckets is {self._num_buckets}; restore the number it was written with"
                )
            known = self._file_ids.setdefault((partition, bucket), file_id)
            if known != file_id:
                raise UnsupportedTable(
                    f"partition {partition!r} has two file groups for bucket {bucket}: {known} and {file_id}"
                )
