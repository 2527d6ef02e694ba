"""Make ranges of columns in the files that an action of the data table adds, and tombstones of those that it deletes.

See docs/format/07-index-and-metadata.md, "Column stats".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.format.actions.commit import WrittenRanges
from streaming_lsm.format.metadata.column_stats import empty_row, range_key
from streaming_lsm.format.metadata.record_index import shards_of
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.metadata.commit import FileChanges, NewRecords
from streaming_lsm.metadata.file_slices import MetadataFileGroup
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.parallel import read_in_threads

StoredRanges = Callable[[Storage, str, Sequence[str]], list[dict[str, Any]]]
"""Finds the ranges of columns in a data file; see `streaming_lsm.index.stored_ranges.stored_ranges`."""
PartitionRows = Sequence[tuple[str, dict[str, Any]]]
"""Partition paths and ranges, values of the type `column_stats.RANGES`."""


def added_ranges(
    changes: FileChanges,
    storage: Storage,
    columns: Sequence[str],
    ranges: StoredRanges,
    written: Mapping[str, WrittenRanges],
    threads: int,
) -> PartitionRows:
    """Find the ranges of columns in the files that an action adds.

    Args:
        changes: the files.
        storage: the table.
        columns: the columns whose ranges are kept.
        ranges: finds them in a file.
        written: what the writers of files tell of them, by path.
        threads: number of threads that read files; 0 for a default.

    Raises:
        CorruptFileError, StorageError, UnsupportedTable: the ranges of a new file cannot be found.
    """
    wanted = set(columns)
    paths = [
        (partition, f"{partition}/{name}" if partition else name)
        for partition, names in changes.added.items()
        for name in names
    ]
    told = {path: found for _, path in paths if (found := written.get(path)) and wanted <= set(found.columns)}
    unread = [path for _, path in paths if path not in told]
    rows: dict[str, Sequence[Mapping[str, Any]]] = {
        path: [row for row in found.rows if row["columnName"] in wanted] for path, found in told.items()
    }
    read = read_in_threads(lambda path: ranges(storage, path, columns), unread, storage, threads)
    rows |= zip(unread, read, strict=True)
    return [(partition, dict(row)) for partition, path in paths for row in rows[path]]


def deleted_ranges(changes: FileChanges, columns: Sequence[str]) -> PartitionRows:
    """Make tombstones of the ranges of columns in the files that an action deletes."""
    return [
        (partition, empty_row(name, column, is_deleted=True))
        for partition, names in changes.deleted.items()
        for name in names
        if parse_file_name(name) is not None
        for column in columns
    ]


def keyed_rows(rows: PartitionRows) -> tuple[pa.StringArray, list[dict[str, Any]]]:
    """Return the keys of ranges of files, ascending, and the ranges."""
    keyed = sorted(
        ((range_key(row["columnName"], partition, row["fileName"]), row) for partition, row in rows),
        key=lambda found: found[0],
    )
    keys: Any = pa.array([key for key, _ in keyed], pa.string())
    return keys, [row for _, row in keyed]


def shares(keys: pa.StringArray, groups: Sequence[MetadataFileGroup]) -> list[tuple[MetadataFileGroup, Any]]:
    """Return the file groups that have some of the keys, each with the flags of its keys, bool (n,).

    Args:
        keys: n keys.
        groups: all file groups of the partition.
    """
    if len(groups) == 1 or not len(keys):
        return [(group, pa.array(np.ones(len(keys), np.bool_))) for group in groups if len(keys)]
    shards = shards_of(keys, len(groups))
    return [(group, pa.array(shards == number)) for number, group in enumerate(groups) if (shards == number).any()]


def split_records(
    keys: pa.StringArray, values: pa.BinaryArray, groups: Sequence[MetadataFileGroup]
) -> list[NewRecords]:
    """Split encoded records by file group; a group without records is left out.

    Args:
        keys: ascending.
        values: the encoded records.
        groups: all file groups of the partition.
    """
    texts: Any = keys
    records: Any = values
    return [
        NewRecords(group, texts.filter(wanted).cast(pa.binary()), records.filter(wanted))
        for group, wanted in shares(keys, groups)
    ]
