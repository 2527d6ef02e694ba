"""Represent the records of the metadata table's partition ``files``.

See docs/format/07-index-and-metadata.md, "Files payload". A *tombstone* is an entry that deletes a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetadataFileInfo:
    """Entry of a file in a partition, or of a partition in the table (size 0).

    Attributes:
        size: size in bytes.
        is_deleted: whether the entry is a tombstone.
    """

    size: int
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class FilesRecord:
    """Record of the partition ``files``: names with their entries; in a log only the changed ones.

    Attributes:
        all_partitions: whether the names are partitions, as in the record that lists all partitions.
    """

    files: Mapping[str, MetadataFileInfo]
    all_partitions: bool = False
