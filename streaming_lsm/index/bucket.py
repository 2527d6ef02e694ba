"""Simple bucket index: the file group of a key follows from the hash of the key.

See docs/format/07-index-and-metadata.md, "Simple bucket index".
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s
from streaming_lsm.index.base import BucketIds, GroupNumbers, Settled
from streaming_lsm.keys.bucket import bucket_ids
from streaming_lsm.keys.dictionaries import codes_of, texts_of


class BucketIndex:
    """Assigns each key to one of a fixed number of buckets per partition; a bucket is one file group.

    Attributes:
        groups: the file groups of all rows located so far.
    """

    def __init__(self, record_key_fields: tuple[str, ...], hash_fields: tuple[str, ...], num_buckets: int) -> None:
        """Create the index of a table; for the arguments see `bucket_ids`."""
        self._record_key_fields, self._hash_fields = record_key_fields, hash_fields
        self._num_buckets = num_buckets
        self.groups = GroupNumbers()

    def locate(self, keys: pa.StringArray, partitions: pa.DictionaryArray[Any, Any]) -> Int64s:
        """Find the file group of each row, which `settle` leaves as it is; see `Index.locate`.

        Raises:
            ConfigError, RecordError: see `bucket_ids`.
        """
        bucket = bucket_ids(keys, self._record_key_fields, self._hash_fields, self._num_buckets)
        return self.groups.add(BucketIds(tuple(texts_of(partitions)), codes_of(partitions), bucket))

    def settle(self, keys: pa.StringArray, located: Int64s) -> Settled:  # noqa: ARG002
        """Return `located`; see `Index.settle`."""
        return Settled(located)
