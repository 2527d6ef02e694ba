"""The indexes of a table, and how it is clustered, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping

from streaming_lsm.config import (
    CLUSTER_COLUMNS,
    CLUSTER_LAYOUT,
    CLUSTER_TARGET_BYTES,
    INDEX_TYPE,
    PARTITIONED_RECORD_INDEX,
    RECORD_INDEX,
    SECONDARY_INDEX_COLUMN,
    SMALL_FILE_BYTES,
)
from streaming_lsm.format.table.properties import GLOBAL_INDEXES, RECORD_INDEXES

INDEX_TABLES = ("indexes", "indexes, copy on write")
"""The kinds of tables that have all indexes."""
_OTHERS = ("RECORD_INDEX", "RECORD_LEVEL_INDEX", "GLOBAL_SIMPLE", "GLOBAL_BLOOM")


def draw_index_type(chance: random.Random, drawn: str) -> str:
    """Draw the type of the index of a table without buckets.

    Args:
        drawn: the one that looks keys up in files of a partition, which one table in three has.
    """
    return drawn if chance.random() < 0.34 else chance.choice(_OTHERS)


def draw_indexes(chance: random.Random, options: Mapping[str, object]) -> dict[str, object]:
    """Draw the form of the record index of a table that has all indexes, and a column of a secondary index.

    With a record index over all partitions there is a secondary index, which needs it.
    """
    over_all, column = chance.random() < 0.7, chance.choice(("qty", "qty", "ts"))
    chosen = {key: value for key, value in options.items() if key != PARTITIONED_RECORD_INDEX.key}
    index_type = chosen.get(INDEX_TYPE.key)
    if index_type == "RECORD_LEVEL_INDEX" or (not over_all and index_type != "RECORD_INDEX"):
        return {**chosen, PARTITIONED_RECORD_INDEX.key: True}
    return {**chosen, RECORD_INDEX.key: True, SECONDARY_INDEX_COLUMN.key: column, **_FEW_GROUPS}


_FEW_GROUPS = {
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
}


def has_indexes(options: Mapping[str, object]) -> bool:
    """Whether the metadata table of a table has more than the list of files."""
    return any("index" in key and "metadata" in key for key in options) or options.get(INDEX_TYPE.key) in RECORD_INDEXES


def has_global_index(options: Mapping[str, object]) -> bool:
    """Whether keys are looked up in all partitions of a table."""
    return options.get(INDEX_TYPE.key) in GLOBAL_INDEXES


def clustering_options(chance: random.Random) -> dict[str, object]:
    """Draw how a table is clustered, and whether it has many small file groups."""
    columns = chance.choice(({}, {CLUSTER_COLUMNS.key: "qty"}, {CLUSTER_COLUMNS.key: "ts,qty"}))
    return {
        **columns,
        CLUSTER_LAYOUT.key: chance.choice(("linear", "z-order")),
        CLUSTER_TARGET_BYTES.key: chance.choice((1, 4_000, 1 << 30)),
        SMALL_FILE_BYTES.key: chance.choice((0, 0, 4_000, 100 << 20)),
    }
