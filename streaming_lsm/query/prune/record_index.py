"""Prune file slices by the record index of the metadata table, before any file is opened.

See docs/format/07-index-and-metadata.md, "Record index". Hudi does not index keys that its bucket index inserts into
logs, and does not store which index a table has: slices whose file ids are those of buckets are not pruned.
"""

from __future__ import annotations

from collections.abc import Sequence

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.table.file_names import bucket_of
from streaming_lsm.metadata.record_locations import FoundKeys


def have_buckets(slices: Sequence[FileSlice]) -> bool:
    """Return whether the file groups of a table are buckets, as far as their ids tell."""
    try:
        return all(bucket_of(found.file_id) >= 0 for found in slices)
    except UnsupportedTable:
        return False


def slices_of_keys(slices: Sequence[FileSlice], every: Sequence[FileSlice], found: FoundKeys) -> list[FileSlice] | None:
    """Return the slices in which keys have a row; None if a location is of no file group: the index is damaged.

    Args:
        slices: the slices to prune.
        every: all slices of the table.
        found: locations of the keys.
    """
    partitions, file_ids, _ = found.locations.columns
    pairs = set(zip(partitions.to_pylist(), file_ids.to_pylist(), strict=True))
    if pairs - {(one.partition_path, one.file_id) for one in every}:
        return None
    return [one for one in slices if (one.partition_path, one.file_id) in pairs]
