"""Name the indexes that this package keeps up to date, and the options that ask for them.

An *index* is a partition of the metadata table; ``files``, the listing of the table's files, is the one that all others
need. See docs/format/07-index-and-metadata.md, "Metadata table".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streaming_lsm import config
from streaming_lsm.config import Option, Options
from streaming_lsm.format.metadata import (
    bloom_filters,
    column_stats,
    expression_index,
    files_partition,
    partition_stats,
    record_index,
    secondary_index,
)
from streaming_lsm.metadata.partitions.registry import KINDS

FILES = files_partition.PARTITION
COLUMN_STATS = column_stats.PARTITION
PARTITION_STATS = partition_stats.PARTITION
BLOOM_FILTERS = bloom_filters.PARTITION
RECORD_INDEX = record_index.PARTITION
SECONDARY = secondary_index.PREFIX
"""Prefix of the names of secondary indexes."""
EXPRESSION = expression_index.PREFIX
"""Prefix of the names of expression indexes."""

OPTIONS: Mapping[str, Option[bool]] = {
    FILES: config.METADATA_ENABLE,
    COLUMN_STATS: config.METADATA_COLUMN_STATS,
    PARTITION_STATS: config.METADATA_PARTITION_STATS,
    BLOOM_FILTERS: config.METADATA_BLOOM_FILTERS,
    RECORD_INDEX: config.RECORD_INDEX,
}
"""The option that asks for each index, in the order in which they are made."""


def is_refused(name: str, options: Options) -> bool:
    """Return whether options say that there is to be no such index, so that the next write with them drops it."""
    if options.is_set(config.METADATA_ENABLE) and not options[config.METADATA_ENABLE]:
        return True
    return any(kind.asked(options).get(name) is False for kind in KINDS)


def with_dependents(names: Sequence[str], registered: Sequence[str]) -> list[str]:
    """Return names, and those of registered indexes that are dropped with one of them: all with ``files``."""
    if FILES in names:
        return list(registered)
    needed = {PARTITION_STATS: COLUMN_STATS} | {name: RECORD_INDEX for name in registered if name.startswith(SECONDARY)}
    return [*names, *(name for name in registered if name not in names and needed.get(name) in names)]


def in_order(names: Sequence[str]) -> list[str]:
    """Return names in the order in which indexes are made; unknown ones last."""
    return [name for name in OPTIONS if name in names] + [name for name in names if name not in OPTIONS]
