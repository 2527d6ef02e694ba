"""Merge file slices of the partition ``record_index``, and distribute their records to more file groups.

See docs/format/07-index-and-metadata.md, "Record index". Records are copied as they are encoded, except for the name of
their base file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from streaming_lsm.arrow.buffers import take
from streaming_lsm.arrow.columns import pc
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.hfile.reader import HFile, count_entries
from streaming_lsm.format.metadata.group_files import DeletedKeys, base_name
from streaming_lsm.format.metadata.parts import named_values, renamed_values
from streaming_lsm.format.metadata.record_index import (
    PARTITION,
    decode_locations,
    encode_locations,
    shards_of,
)
from streaming_lsm.format.metadata.schema import metadata_schema
from streaming_lsm.keys.words import KeyWords, sort_keys
from streaming_lsm.metadata.commit import NewRecords
from streaming_lsm.metadata.file_slices import MetadataFileGroup, MetadataFileSlice
from streaming_lsm.storage.base import Storage

Encoded = tuple[pa.BinaryArray, pa.BinaryArray]
"""Keys, ascending, and records."""
_NONE: Any = pa.nulls(0, pa.binary())


def count_keys(found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool]) -> int:
    """Count the keys in the base file of a slice; those in the logs of one without, even if several have one."""
    if found.base is None:
        parts = found.parts(metadata, counts)
        return sum(part.entry_count for part in parts if isinstance(part, HFile))
    path = f"{PARTITION}/{found.base}"
    return count_entries(metadata.open_input(path), path)


def split(merged: Encoded, shard: int, shards: int, file_ids: Sequence[str], instant: str) -> Iterator[NewRecords]:
    """Distribute the records of a shard to those that take its place among more shards; keys are not decoded.

    Args:
        merged: keys and records of the shard, encoded as in logs.
        shard: its number among `shards`.
        shards: number of shards before, of which the new number is a multiple: as a shard is the remainder of a hash by
            their number, the keys of a shard go to every `shards`-th of the new ones, and to no others.
        file_ids: of all new shards.
        instant: instant of their base files.

    Raises:
        CorruptFileError: a key is not of the shard.
    """
    keys, values = merged
    texts: Any = keys.cast(pa.string())
    numbers = shards_of(texts, len(file_ids))
    if (numbers % shards != shard).any():
        raise CorruptFileError(f"{PARTITION} has keys in shard {shard} that are not of it: drop {PARTITION}")
    for new in range(shard, len(file_ids), shards):
        wanted = pa.array(numbers == new)
        named = named_values(values.filter(wanted), str(base_name(file_ids[new], instant)))
        yield NewRecords(MetadataFileGroup(PARTITION, file_ids[new]), keys.filter(wanted), named)


def newest_locations(
    found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool]
) -> tuple[pa.BinaryArray, list[pa.RecordBatch]]:
    """Read the newest location of each key of a shard that is not deleted.

    Args:
        found: slice of the shard.
        metadata: storage of the metadata table.
        counts: whether the log records of an instant are valid, see `counted_instants`.

    Returns:
        Keys in no order, and their locations, with the columns `LOCATIONS`, in the same order.

    Raises:
        CorruptFileError, UnsupportedTable: a file cannot be read.
        FileNotFoundError: a file was deleted meanwhile.
    """
    keys: list[Any] = [_NONE]
    locations: list[pa.RecordBatch] = []
    for part, cells, is_newest in _newest_cells(found, metadata, counts):
        keys.append(cells.keys.filter(is_newest))
        locations.append(decode_locations(cells, part.schema_json, part.source).filter(is_newest))
    return pa.concat_arrays(keys), locations


def merged_slice(
    found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool], file_name: str | None
) -> Encoded:
    """Merge a slice, and encode its records for a base file, or as in a log."""
    old = None if found.base is None else f"{PARTITION}/{found.base}"
    parts: Iterator[tuple[Any, Any]] = (
        (
            cells.keys.filter(is_newest),
            _renamed(cells, part, str(found.base) if part.source == old else None, file_name).filter(is_newest),
        )
        for part, cells, is_newest in _newest_cells(found, metadata, counts)
    )
    keys, records = map(pa.concat_arrays, zip((_NONE, _NONE), *parts, strict=True))
    order = sort_keys(KeyWords.of(keys.cast(pa.string())), runs=True).order
    return take(keys, order), take(records, order)  # type: ignore[return-value]


def _newest_cells(
    found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool]
) -> Iterator[tuple[HFile, Cells, Any]]:
    """Yield the cells of a slice, the newest file first, and flag those that are the newest of a key and not deleted.

    They are large in memory, and not held after they were yielded.
    """
    seen: list[Any] = [_NONE]
    for part in reversed(list(found.parts(metadata, counts))):
        if isinstance(part, DeletedKeys):
            deleted: Any = part.keys
            seen.append(deleted.cast(pa.binary()))
            continue
        held = deque(part.cells())
        keys = pa.concat_arrays([_NONE, *(cells.keys for cells in held)])
        is_newest: Any = pc.invert(pc.is_in(keys, value_set=pa.concat_arrays(seen)))
        seen.append(keys)
        start = 0
        while held:
            cells = held.popleft()
            yield part, cells, is_newest.slice(start, len(cells))
            start += len(cells)


def _renamed(cells: Cells, part: HFile, old: str | None, new: str | None) -> pa.BinaryArray:
    """Return the records of cells, encoded for a base file of another name."""
    if part.schema_json == metadata_schema():
        found = renamed_values(cells, old, new)
        if found is not None:
            return found
    return encode_locations(decode_locations(cells, part.schema_json, part.source), new)
