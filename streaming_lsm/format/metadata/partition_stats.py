"""Name the partition ``partition_stats`` of the metadata table, whose records are ranges of columns in partitions.

See docs/format/07-index-and-metadata.md, "Partition stats". Its records are encoded as those of ``column_stats``.
"""

from __future__ import annotations

PARTITION = "partition_stats"
FILE_ID = "partition-stats-{:04d}-0"
"""File id of the file group of a number; there is one."""
