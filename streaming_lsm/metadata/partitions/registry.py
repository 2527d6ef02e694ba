"""List the kinds of partitions of the metadata table that this package keeps up to date, beside ``files``.

To add a kind, write its module by `streaming_lsm.metadata.partitions.base`, and register it here.
"""

from __future__ import annotations

from collections.abc import Sequence

from streaming_lsm.format.metadata.files_partition import PARTITION
from streaming_lsm.metadata.partitions.base import PartitionKind
from streaming_lsm.metadata.partitions.bloom_filters import BloomFiltersKind
from streaming_lsm.metadata.partitions.column_stats import ColumnStatsKind
from streaming_lsm.metadata.partitions.expression_index import ExpressionIndexKind
from streaming_lsm.metadata.partitions.partition_stats import PartitionStatsKind
from streaming_lsm.metadata.partitions.record_index import RecordIndexKind
from streaming_lsm.metadata.partitions.secondary_index import SecondaryIndexKind

KINDS: Sequence[PartitionKind] = (
    ColumnStatsKind(),
    PartitionStatsKind(),
    BloomFiltersKind(),
    RecordIndexKind(),
    SecondaryIndexKind(),
    ExpressionIndexKind(),
)
"""In the order in which partitions are created, opened and recorded."""


def is_known(name: str) -> bool:
    """Return whether this package writes files in a partition of this name."""
    return name == PARTITION or any(kind.owns(name) for kind in KINDS)
