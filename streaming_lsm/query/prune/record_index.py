"""Prune file slices by the record index of the metadata table, before any file is opened.

See docs/format/07-index-and-metadata.md, "Record index". Hudi does not index keys that its bucket index inserts into
logs, and does not store which index a table has: slices whose file ids are those of buckets are not pruned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streaming_lsm.arrow.columns import text_list
from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.latest_slices import FileSlices
from streaming_lsm.format.table.file_names import bucket_of
from streaming_lsm.metadata.shard_search import FoundKeys


def have_buckets(slices: Sequence[FileSlice]) -> bool:
    """Return whether the file groups of a table are buckets, as far as their ids tell."""
    try:
        return all(bucket_of(file_id) >= 0 for file_id in text_list(FileSlices.of(slices).file_ids))
    except UnsupportedTable:
        return False


def slices_of_keys(slices: Sequence[FileSlice], every: Sequence[FileSlice], found: FoundKeys) -> list[FileSlice] | None:
    """Return the slices in which keys have a row; None if a location is of no file group: the index is damaged.

    Args:
        slices: the slices to prune.
        every: all slices of the table, or of the partitions that were listed.
        found: locations of the keys.
    """
    partitions, file_ids, _ = (column.to_pylist() for column in found.locations.columns)
    pairs: set[tuple[Any, Any]] = set(zip(partitions, file_ids, strict=True))
    whole = FileSlices.of(every)
    if whole.left_out:
        listed = frozenset(whole.partitions)
        pairs = {(partition, file_id) for partition, file_id in pairs if partition in listed}
    if pairs - whole.groups_among(pairs):
        return None
    return [one for one in slices if (one.partition_path, one.file_id) in pairs]
