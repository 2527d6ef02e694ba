"""Read the records of file slices of the metadata table, as cells, in merge order.

See docs/format/07-index-and-metadata.md, "File groups of the metadata table". A slice has a base file and a log for
each commit since; files of one schema are read together, so that many small logs are decoded at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from streaming_lsm.arrow.columns import flags, pc
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.metadata.group_files import DeletedKeys
from streaming_lsm.format.metadata.record_index import shards_of
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.metadata.file_slices import MetadataFileGroup, MetadataFileSlice, StoredCells, counted_instants
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.timeline import Timeline


def slice_records(
    found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool], keys: pa.BinaryArray | None = None
) -> Iterator[StoredCells | DeletedKeys]:
    """Read records of a slice in merge order.

    Args:
        found: the slice.
        metadata: storage of the metadata table.
        counts: whether the log records of an instant are valid, see `counted_instants`.
        keys: the keys of the records; None for all.

    Raises:
        CorruptFileError, UnsupportedTable: a file cannot be read.
        FileNotFoundError: a file was deleted meanwhile.
    """
    return records_of(found.records(metadata, counts), keys)


def records_of(
    parts: Iterable[HFile | DeletedKeys | StoredCells], keys: pa.BinaryArray | None = None
) -> Iterator[StoredCells | DeletedKeys]:
    """Read records of the opened files of a slice, see `MetadataFileSlice.records`; else as `slice_records`."""

    def kind(file: HFile | DeletedKeys | StoredCells) -> object:
        return file if isinstance(file, DeletedKeys) else file.schema_json

    for _, run in groupby(parts, key=kind):
        files = list(run)
        first = files[0]
        if isinstance(first, DeletedKeys):
            yield first
            continue
        cells = [part for file in files if not isinstance(file, DeletedKeys) for part in _cells(file, keys)]
        if cells:
            yield StoredCells(cells[0] if len(cells) == 1 else Cells.joined(cells), first.schema_json, first.source)


def _cells(file: HFile | StoredCells, keys: pa.BinaryArray | None) -> Iterable[Cells]:
    if isinstance(file, HFile):
        return file.cells() if keys is None else file.seek(keys)
    return [file.cells if keys is None else file.cells.at(flags(pc.is_in(file.cells.keys, value_set=keys)))]


def sought_records(
    metadata: Storage, timeline: Timeline, data: Timeline, keys: pa.StringArray, partition: str, file_id: str
) -> Iterator[StoredCells | DeletedKeys]:
    """Read the records of some keys of a partition, those of each file group in merge order.

    Args:
        metadata: storage of the metadata table.
        timeline: its timeline.
        data: timeline of the data table.
        keys: the keys.
        partition: the partition.
        file_id: see `numbered_groups`.

    Raises:
        CorruptFileError, UnsupportedTable, FileNotFoundError: see `slice_records`; or a file group is missing.
    """
    names = metadata.names(partition)
    groups, counts = numbered_groups(partition, file_id, names), counted_instants(data)
    shards = shards_of(keys, len(groups))
    for number, group in enumerate(groups):
        wanted: Any = keys.filter(pa.array(shards == number)).cast(pa.binary())
        if len(wanted):
            yield from slice_records(MetadataFileSlice.newest(timeline, names, group), metadata, counts, wanted)


def numbered_groups(partition: str, file_id: str, names: Sequence[str]) -> list[MetadataFileGroup]:
    """Return the file groups of a partition that hashes keys to them, by the names of its files.

    Args:
        partition: the partition.
        file_id: form of the file ids, in which a number is filled.
        names: names of its files.

    Raises:
        CorruptFileError: there are none, or one is missing.
    """
    known = {name.file_id for text in names if (name := parse_file_name(text)) is not None}
    expected = [file_id.format(number) for number in range(len(known))]
    if not known or set(expected) != known:
        raise CorruptFileError(f"{partition} has the file groups {', '.join(sorted(known)) or 'none'}; drop it")
    return [MetadataFileGroup(partition, file_id) for file_id in expected]
