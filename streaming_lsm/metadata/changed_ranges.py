"""Make the records of the partition ``column_stats`` that an action of the data table adds.

See docs/format/07-index-and-metadata.md, "Column stats".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.format.metadata.column_stats import RANGES, empty_row, range_key
from streaming_lsm.format.metadata.record_index import shards_of
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.metadata.commit import FileChanges
from streaming_lsm.metadata.file_slices import MetadataFileGroup
from streaming_lsm.storage.base import Storage

StoredRanges = Callable[[Storage, str, Sequence[str]], list[dict[str, Any]]]
"""Finds the ranges of columns in a data file; see `streaming_lsm.index.stored_ranges.stored_ranges`."""
Keyed = tuple[pa.BinaryArray, pa.StructArray]
"""Keys, ascending, and ranges."""
_THREADS = 8


def changed_ranges(changes: FileChanges, storage: Storage, columns: Sequence[str], ranges: StoredRanges) -> Keyed:
    """Find the ranges of columns in the files that an action adds, and tombstones for those that it deletes.

    Args:
        changes: the files.
        storage: the table.
        columns: the columns whose ranges are kept.
        ranges: finds them.

    Raises:
        CorruptFileError, StorageError: a new file cannot be read.
    """
    added = [(partition, name) for partition, names in changes.added.items() for name in names]

    def of_file(file: tuple[str, str]) -> list[dict[str, Any]]:
        partition, name = file
        return ranges(storage, f"{partition}/{name}" if partition else name, columns)

    with ThreadPoolExecutor(max(1, min(_THREADS, len(added)))) as threads:
        found = [(file, row) for file, rows in zip(added, threads.map(of_file, added), strict=True) for row in rows]
    deleted = [(partition, name) for partition, names in changes.deleted.items() for name in names]
    found += [
        (file, empty_row(file[1], column, is_deleted=True))
        for file in deleted
        if parse_file_name(file[1]) is not None
        for column in columns
    ]
    keys: Any = pa.array([range_key(row["columnName"], *file) for file, row in found], pa.string())
    rows: Any = pa.array([row for _, row in found], RANGES)
    order = pc.sort_indices(keys)
    return keys.take(order).cast(pa.binary()), rows.take(order)


def by_group(found: Keyed, groups: Sequence[MetadataFileGroup]) -> Iterator[tuple[MetadataFileGroup, Keyed]]:
    """Yield the ranges of each file group that has some.

    Args:
        found: keys and ranges.
        groups: all file groups of the partition.
    """
    keys, ranges = found
    texts: Any = keys.cast(pa.string())
    shards = shards_of(texts, len(groups)) if len(keys) else np.zeros(0, np.int64)
    for number, group in enumerate(groups):
        wanted = pa.array(shards == number)
        some: Any = keys.filter(wanted)
        if len(some):
            yield group, (some, ranges.filter(wanted))
