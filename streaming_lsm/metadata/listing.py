"""List partitions and files of a table by its metadata table and by its folders, and compare both listings.

See docs/format/07-index-and-metadata.md, "Metadata table".

Both listings contain the files of completed actions only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, text_list
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.file_entries import FileEntries
from streaming_lsm.format.metadata.files_partition import (
    ALL_PARTITIONS_KEY,
    FILE_GROUP,
    PARTITION,
    partition_key,
    unexpected_deletes,
)
from streaming_lsm.format.metadata.group_files import DeletedKeys
from streaming_lsm.format.table.file_names import InlineLogName, parse_file_name
from streaming_lsm.metadata.file_slices import (
    METADATA_TABLE,
    MetadataFileGroup,
    MetadataFileSlice,
    StoredCells,
    counted_instants,
)
from streaming_lsm.metadata.listed_files import ListedFiles
from streaming_lsm.metadata.slice_records import records_of, slice_records
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.instant import FLAT
from streaming_lsm.timeline.partition_folders import partition_listings
from streaming_lsm.timeline.properties_file import BACKUP_PATH, PROPERTIES_PATH
from streaming_lsm.timeline.timeline import Timeline

FILES = MetadataFileGroup(PARTITION, FILE_GROUP)
"""The file group of the partition ``files``."""

PartitionFiles = dict[str, dict[str, int]]
"""Size in bytes by file name, by partition path."""

_ATTEMPTS = 3
_SOUGHT_SHARE = 0.3
"""Share of the partitions up to which their records are sought in place of reading all."""


ChoosePartitions = Callable[[Sequence[str]], Flags]
"""Tells which of some partition paths are asked for."""


def metadata_listing(storage: Storage, data: Timeline, only: Collection[str] | None = None) -> PartitionFiles:
    """List the table's files by its metadata table, those of all partitions or of some; raises as `listed_files`."""

    def chosen(paths: Sequence[str]) -> Flags:
        return np.array([only is None or path in only for path in paths], np.bool_)

    found = listed_files(storage, data, None if only is None else chosen)
    files: PartitionFiles = {path: {} for path in found.partitions}
    of_partitions = [files[path] for path in found.partitions]
    rows = zip(found.partition.tolist(), text_list(found.names), found.sizes.tolist(), strict=True)
    for partition, name, size in rows:
        of_partitions[partition][name] = size
    return files


def listed_files(storage: Storage, data: Timeline, choose: ChoosePartitions | None = None) -> ListedFiles:
    """List the table's files by its metadata table; retry if a compaction or clean deleted files of that.

    Args:
        storage: the table.
        data: its current timeline.
        choose: the partitions whose files are listed; None for all.

    Raises:
        CorruptFileError, UnsupportedTable: the metadata table is missing, or cannot be read.
    """
    metadata = Subfolder(storage, METADATA_TABLE)
    for _ in range(_ATTEMPTS - 1):
        # Compactions and a clean may have deleted files since the timeline was loaded.
        with suppress(CorruptFileError):
            return _listing(metadata, data, choose)
    return _listing(metadata, data, choose)


def _listing(metadata: Storage, data: Timeline, choose: ChoosePartitions | None) -> ListedFiles:
    timeline = data.load_inside(metadata)
    try:
        newest = MetadataFileSlice.newest(timeline, metadata.names(PARTITION), FILES)
        found = _read(list(newest.parts(metadata, counted_instants(data))), choose)
    except FileNotFoundError as error:
        file = error.filename or PARTITION
        raise CorruptFileError(f"{file} in {metadata.uri} was deleted while it was read") from None
    # Checked after the read: a metadata table that is deleted loses this file before its timeline and its records.
    if not any(metadata.exists(path) for path in (PROPERTIES_PATH, BACKUP_PATH)):
        raise CorruptFileError(f"{metadata.uri} has no {PROPERTIES_PATH}: drop the metadata table")
    return found


def _read(parts: Sequence[HFile | DeletedKeys], choose: ChoosePartitions | None) -> ListedFiles:
    """Read the files of the chosen partitions: their records alone if they are few."""
    if choose is None:
        return _files(records_of(parts))
    partitions = _files(records_of(parts, pa.array([ALL_PARTITIONS_KEY.encode()], pa.binary()))).partitions
    chosen = choose(partitions)
    if np.count_nonzero(chosen) > _SOUGHT_SHARE * len(partitions):
        whole = _files(records_of(parts))
        return whole.in_partitions(choose(whole.partitions))
    names = [path for path, is_chosen in zip(partitions, chosen.tolist(), strict=True) if is_chosen]
    keys = [ALL_PARTITIONS_KEY, *map(partition_key, names)]
    found = _files(records_of(parts, pa.array([key.encode() for key in keys], pa.binary())))
    return found.in_partitions(choose(found.partitions))


def _files(parts: Iterable[StoredCells | DeletedKeys]) -> ListedFiles:
    return ListedFiles.of_entries(_entries(parts))


def read_entries(newest: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool]) -> FileEntries:
    """Read and merge the records of the partition ``files``, without tombstones; raises as `MetadataFileSlice.parts`.

    Args:
        newest: the newest slice of `FILES`.
        metadata: storage of the metadata table.
        counts: whether the log records of an instant are valid, see `counted_instants`.
    """
    return _entries(slice_records(newest, metadata, counts))


def _entries(parts: Iterable[StoredCells | DeletedKeys]) -> FileEntries:
    decoded = []
    for part in parts:
        if isinstance(part, DeletedKeys):
            raise unexpected_deletes(part)
        decoded.append(FileEntries.decode(part.cells, part.schema_json, part.source))
    return FileEntries.merged(decoded)


def folder_listing(storage: Storage, data: Timeline) -> PartitionFiles:
    """List the data files of completed actions in the folders of the table."""
    return {
        partition: {entry.name: entry.size for entry in entries if not entry.is_dir and _is_data(entry.name, data)}
        for partition, entries in partition_listings(storage).items()
    }


def listing_differences(storage: Storage, data: Timeline) -> list[str]:
    """Compare the metadata table with the folders; return a line for each partition or file that differs."""
    listed, real = metadata_listing(storage, data), folder_listing(storage, data)
    # A rolled back write leaves its empty partition folder. Hudi deletes the folder of an emptied partition, and keeps
    # the partition in the list.
    unlisted = [partition for partition in sorted(real.keys() - listed.keys()) if real[partition]]
    lines = [f"partition {partition_key(name)} has files, but the metadata table does not list it" for name in unlisted]
    gone = [partition for partition in sorted(listed.keys() - real.keys()) if listed[partition]]
    lines += [f"partition {partition_key(name)} is in the metadata table, but has no folder" for name in gone]
    for partition in sorted(real.keys() & listed.keys()):
        lines += _differences(partition, listed[partition], real[partition])
    return lines


def _differences(partition: str, listed: Mapping[str, int], real: Mapping[str, int]) -> list[str]:
    lines = []
    for name in sorted(listed.keys() | real.keys()):
        sizes = (listed.get(name), real.get(name))
        if sizes[0] != sizes[1]:
            told = ["absent" if size is None else f"{size} bytes" for size in sizes]
            where = f"{partition_key(partition)}/{name}"
            lines.append(f"{where}: {told[0]} in the metadata table, {told[1]} in its folder")
    return lines


def _is_data(name: str, data: Timeline) -> bool:
    parsed = parse_file_name(name, rfc103_names=True)
    if parsed is None:
        return False
    # In layout 1 the name of a log file contains the base instant of its slice.
    of_slice = data.layout == FLAT and isinstance(parsed, InlineLogName)
    return of_slice or data.completion_time(parsed.instant) is not None
