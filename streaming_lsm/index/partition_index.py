"""Index of a task that sends its rows to one that looks their keys up: it tells their partitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s
from streaming_lsm.index.base import BucketIds, GroupNumbers, Settled
from streaming_lsm.keys.dictionaries import codes_of, texts_of


class PartitionIndex:
    """Numbers each partition as if it were one file group.

    Attributes:
        groups: the partitions of all rows located so far.
    """

    def __init__(self) -> None:
        """Start without partitions."""
        self.groups = GroupNumbers()

    def locate(self, keys: pa.StringArray, partitions: pa.DictionaryArray[Any, Any]) -> Int64s:
        """Number the partition of each row; see `Index.locate`."""
        return self.groups.add(
            BucketIds(tuple(texts_of(partitions)), codes_of(partitions), np.zeros(len(keys), np.int64))
        )

    def settle(self, keys: pa.StringArray, located: Int64s) -> Settled:  # noqa: ARG002
        """Return `located`; see `Index.settle`."""
        return Settled(located)
