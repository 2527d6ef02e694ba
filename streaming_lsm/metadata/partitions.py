"""Define the partitions of the metadata table that are kept up to date.

See docs/format/07-index-and-metadata.md, "Metadata table".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streaming_lsm.format.metadata import column_stats, files_partition
from streaming_lsm.format.metadata.files_partition import encode_files
from streaming_lsm.metadata.column_ranges import ranges_groups, read_ranges
from streaming_lsm.metadata.file_slices import MetadataFileGroup, MetadataFileSlice
from streaming_lsm.metadata.listing import FILES, read_files
from streaming_lsm.storage.base import Storage

Encoded = tuple[pa.BinaryArray, pa.BinaryArray]
"""Keys, ascending, and records."""


@dataclass(frozen=True)
class KeptPartition:
    """A partition that is kept up to date.

    Attributes:
        name: the partition.
        groups: its file groups, given the names of its files.
        merged: reads and merges a slice, and encodes the records for a base file of a name.
    """

    name: str
    groups: Callable[[Sequence[str]], list[MetadataFileGroup]]
    merged: Callable[[MetadataFileSlice, Storage, Callable[[str], bool], str], Encoded]


def _merged_files(found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool], name: str) -> Encoded:
    return encode_files(read_files(found, metadata, counts), name)


def _files_groups(_names: Sequence[str]) -> list[MetadataFileGroup]:
    return [FILES]


FILES_PARTITION = KeptPartition(files_partition.PARTITION, _files_groups, _merged_files)
COLUMN_STATS = KeptPartition(column_stats.PARTITION, ranges_groups, read_ranges)
KEPT = {kept.name: kept for kept in (FILES_PARTITION, COLUMN_STATS)}
"""Partitions that this package can keep up to date, by name."""
