"""Create the index of a table for one task."""

from __future__ import annotations

from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.index.base import Index
from streaming_lsm.index.bucket import BucketIndex
from streaming_lsm.index.lookup_index import LookupIndex, LookupPlan
from streaming_lsm.index.partition_index import PartitionIndex


def index_of(table: TableConfig, lookup: LookupPlan | None = None) -> Index:
    """Create the index that the table's properties ask for; no file group is numbered yet.

    Args:
        table: the table's config.
        lookup: where the keys of a table without buckets are.
    """
    if lookup is not None:
        return LookupIndex(lookup) if lookup.settles else PartitionIndex()
    return BucketIndex(table.record_key_fields, table.hash_fields, table.num_buckets)
