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
    LOCATIONS,
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
    keys: list[Any] = []
    locations: list[pa.RecordBatch] = []
    seen: Any = pa.array([], pa.binary())
    for part in reversed(list(found.parts(metadata, counts))):
        if isinstance(part, DeletedKeys):
            texts: Any = part.keys
            seen = pa.concat_arrays([seen, texts.cast(pa.binary())])
            continue
        cells = list(part.cells())
        of_part: Any = pa.concat_arrays([pa.array([], pa.binary()), *(some.keys for some in cells)])
        is_new = pc.invert(pc.is_in(of_part, value_set=seen))
        decoded = [decode_locations(some, part.schema_json, part.source) for some in cells]
        keys.append(of_part.filter(is_new))
        locations += pa.Table.from_batches(decoded, LOCATIONS).filter(is_new).to_batches()
        seen = pa.concat_arrays([seen, of_part])
    return pa.concat_arrays([pa.array([], pa.binary()), *keys]), locations


def merged_slice(
    found: MetadataFileSlice, metadata: Storage, counts: Callable[[str], bool], file_name: str | None
) -> Encoded:
    """Merge a slice, and encode its records for a base file, or as in a log.

    What is merged is large in memory, and released as early as it can be.
    """
    keys: list[Any] = [pa.array([], pa.binary())]
    records: list[Any] = [pa.array([], pa.binary())]
    seen: Any = pa.array([], pa.binary())
    old = None if found.base is None else f"{PARTITION}/{found.base}"
    for part in reversed(list(found.parts(metadata, counts))):
        texts: Any = part.keys.cast(pa.binary()) if isinstance(part, DeletedKeys) else None
        if not isinstance(part, DeletedKeys):
            cells = deque(part.cells())
            texts = pa.concat_arrays([keys[0], *(some.keys for some in cells)])
            is_new = pc.invert(pc.is_in(texts, value_set=seen))
            name = str(found.base) if part.source == old else None
            keys.append(texts.filter(is_new))
            start = 0
            while cells:
                some = cells.popleft()
                renamed: Any = _renamed(some, part, name, file_name)
                records.append(renamed.filter(is_new.slice(start, len(renamed))))
                start += len(renamed)
        seen = pa.concat_arrays([seen, texts])
    seen = texts = None
    whole: Any = pa.concat_arrays(keys)
    keys.clear()
    order = sort_keys(KeyWords.of(whole.cast(pa.string())), runs=True).order
    joined: Any = pa.concat_arrays(records)
    records.clear()
    return take(whole, order), take(joined, order)  # type: ignore[return-value]


def _renamed(cells: Cells, part: HFile, old: str | None, new: str | None) -> pa.BinaryArray:
    """Return the records of cells, encoded for a base file of another name."""
    if part.schema_json == metadata_schema():
        found = renamed_values(cells, old, new)
        if found is not None:
            return found
    return encode_locations(decode_locations(cells, part.schema_json, part.source), new)
