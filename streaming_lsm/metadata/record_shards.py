"""Distribute record keys to the file groups of the partition ``record_index``, and encode their locations.

See docs/format/07-index-and-metadata.md, "Record index", "File groups of the metadata table".
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import offsets_of, take
from streaming_lsm.arrow.columns import Int64s, pc
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.hfile.cells import MAX_ROW_BYTES
from streaming_lsm.format.metadata.record_index import (
    LOCATIONS,
    PARTITION,
    encode_locations,
    parse_shard,
    shards_of,
)
from streaming_lsm.keys.words import KeyWords, sort_keys
from streaming_lsm.metadata.changed_keys import Texts

Hash = Callable[[pa.StringArray, int], Int64s]
"""Computes the shard of each key, int64 (keys,), given the number of shards; `shards_of` is Hudi's."""
RECORD_BYTES = 48
"""Bytes of a record by which Hudi chooses the number of file groups."""


@dataclass(frozen=True)
class Sizing:
    """Choose the number of file groups of a new record index, as Hudi does.

    Attributes:
        least, most: limits of the number.
        growth: factor by which the keys are expected to become more.
        group_bytes: size of a file group in bytes.
    """

    least: int
    most: int
    growth: float
    group_bytes: int

    @property
    def keys_of_shard(self) -> int:
        """Keys of a file group of the size that the options say."""
        return max(self.group_bytes // RECORD_BYTES, 1)

    def shards(self, keys: int) -> int:
        """Return the number of file groups for so many keys."""
        if self.least == self.most:
            return self.least
        # Hudi computes in single precision.
        expected = math.ceil(float(np.float32(keys) * np.float32(self.growth)))
        return max(self.least, min(self.most, expected // self.keys_of_shard), 1)

    def grown(self, keys: int, shards: int) -> int:
        """Return the number of file groups in place of some, for so many keys: a multiple if they have too many."""
        if keys <= shards * self.keys_of_shard:
            return shards
        return shards * max(1, min(math.ceil(self.shards(keys) / shards), self.most // shards))


@dataclass(frozen=True)
class Places:
    """File groups of the table, as columns of locations.

    Attributes:
        partitions, file_ids: partition path and file id, (groups,).
        instants_ms: instant of the rows, int64 (groups,), epoch milliseconds.
    """

    partitions: Sequence[str]
    file_ids: Sequence[str]
    instants_ms: Sequence[int]

    def encode(self, groups: Int64s, file_name: str | None) -> pa.BinaryArray:
        """Encode the locations of keys.

        Args:
            groups: the file group of each key, int64 (keys,).
            file_name: name of their base file; None in logs.
        """
        columns = [
            take(pa.array(values, field.type), groups)
            for values, field in zip((self.partitions, self.file_ids, self.instants_ms), LOCATIONS, strict=True)
        ]
        return encode_locations(pa.RecordBatch.from_arrays(columns, schema=LOCATIONS), file_name)


def by_partition(file_ids: Iterable[str]) -> dict[str | None, list[str]]:
    """Group file ids of shards by partition path of the table, in order of their numbers; under None of a global index.

    Raises:
        CorruptFileError: a shard is missing, or there is none; or the file groups of two forms.
    """
    numbered: dict[str | None, dict[int, str]] = defaultdict(dict)
    for file_id in sorted(file_ids):
        shard = parse_shard(file_id)
        if shard is None:
            raise CorruptFileError(f"{PARTITION} has the file group {file_id}: drop it")
        numbered[shard[0]][shard[1]] = file_id
    if not numbered or (None in numbered and len(numbered) > 1):
        raise CorruptFileError(f"{PARTITION} has no file groups, or some of a partitioned record index: drop it")
    for partition, shards in numbered.items():
        if max(shards) + 1 != len(shards):
            missing = min(set(range(max(shards))) - shards.keys())
            raise CorruptFileError(f"{PARTITION} has no file group {missing} of partition {partition!r}: drop it")
    return {partition: [shards[number] for number in sorted(shards)] for partition, shards in numbered.items()}


class ShardedKeys:
    """Record keys of several file groups, by shard; the keys of a shard are sorted when they are asked for."""

    def __init__(self, keys: Iterable[tuple[int, Texts]], shards: int, hash: Hash = shards_of) -> None:
        """Hash keys.

        Args:
            keys: a number, that of the file group, with its keys.
            shards: number of shards.
            hash: computes the shards of keys.
        """
        self._parts: list[tuple[int, Any, Int64s]] = []
        for number, column in keys:
            chunks: list[Any] = column.chunks
            for chunk in chunks:
                if len(chunk):
                    of_keys = hash(chunk, shards)
                    order = np.argsort(of_keys, kind="stable")
                    ends = np.searchsorted(of_keys[order], np.arange(shards + 1))
                    self._parts.append((number, take(chunk, order), ends))

    def sorted(self, shard: int) -> tuple[pa.StringArray, Int64s]:
        """Return the keys of a shard, ascending, and the number of each.

        Raises:
            UnsupportedTable: a key comes twice, or is too long for an HFile.
        """
        slices = [
            (number, keys.slice(ends[shard], ends[shard + 1] - ends[shard])) for number, keys, ends in self._parts
        ]
        keys: Any = pa.concat_arrays([pa.array([], pa.string()), *(some for _, some in slices)])
        numbers = np.repeat([number for number, _ in slices], [len(some) for _, some in slices]).astype(np.int64)
        _check_lengths(keys)
        found = sort_keys(KeyWords.of(keys), runs=True)
        if len(found.starts) < len(keys):
            twice = np.flatnonzero(np.diff(found.starts, append=len(keys)) > 1)[0]
            key = keys[int(found.order[found.starts[twice]])].as_py()
            raise UnsupportedTable(
                f"record key {key!r:.80} has several rows, in different partitions or file groups, of which a record "
                "index has one: if they are in different partitions, set "
                "hoodie.metadata.record.level.index.enable=true for one of each"
            )
        return take(keys, found.order), numbers[found.order]  # type: ignore[return-value]


def sorted_keys(keys: pa.StringArray) -> pa.BinaryArray:
    """Return distinct keys, ascending, as bytes."""
    distinct = pc.unique(keys)
    _check_lengths(distinct)
    found: Any = take(distinct, sort_keys(KeyWords.of(distinct)).order)
    ordered: pa.BinaryArray = found.cast(pa.binary())
    return ordered


def of_shards(keys: pa.StringArray, shards: int, hash: Hash = shards_of) -> Iterator[tuple[int, pa.BinaryArray]]:
    """Yield the distinct keys of each shard that has some, ascending, as bytes."""
    if not len(keys):
        return
    of_keys = hash(keys, shards)
    for shard in np.unique(of_keys).tolist():
        yield shard, sorted_keys(keys.filter(pa.array(of_keys == shard)))


def _check_lengths(keys: pa.StringArray) -> None:
    sizes = np.diff(offsets_of(keys))
    wrong = np.flatnonzero((sizes == 0) | (sizes > MAX_ROW_BYTES))
    if len(wrong):
        key = keys[int(wrong[0])].as_py()
        raise UnsupportedTable(
            f"record key {key!r:.80} of {sizes[wrong[0]]:,} bytes cannot be indexed, only one of 1 to {MAX_ROW_BYTES:,}"
        )
