"""Parse and print ``.hoodie_partition_metadata``, which marks a folder as a partition.

See docs/format/01-table.md, "Partition metadata".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.java_properties import parse_properties, print_properties

PARTITION_METADATA_NAME = ".hoodie_partition_metadata"


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Content of ``.hoodie_partition_metadata``.

    Attributes:
        instant: instant that created the partition.
        depth: number of segments of the partition path; 0 for an unpartitioned table.
    """

    instant: str
    depth: int


def print_partition_metadata(
    instant: str, partition_path: str, *comments: str, more: Mapping[str, str] | None = None
) -> bytes:
    """Print the file, which is written before the first data file of a partition.

    Args:
        instant: requested time of the action that makes the partition.
        partition_path: the partition.
        comments: lines at the top.
        more: further entries, which other programs ignore.
    """
    depth = len(partition_path.split("/")) if partition_path else 0
    values = {"commitTime": instant, "partitionDepth": str(depth), **(more or {})}
    return print_properties(values, ["partition metadata", *comments])


def parse_partition_metadata(data: bytes, source: str) -> PartitionMetadata:
    """Parse the file.

    Raises:
        CorruptFileError: one of the two keys is missing or not a number.
    """
    values = parse_properties(data, source)
    for key in ("commitTime", "partitionDepth"):
        value = values.get(key, "")
        if not (value.isascii() and value.isdigit() and len(value) <= 32):
            raise CorruptFileError(f"{source}: {key}={value!r:.80} is not a number; delete or restore the file")
    return PartitionMetadata(values["commitTime"], int(values["partitionDepth"]))
