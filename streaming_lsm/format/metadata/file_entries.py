"""Decode, merge and encode the records of the metadata table's partition ``files`` as columns, all entries at once.

See docs/format/07-index-and-metadata.md, "Files payload". An *entry* is the name of a file, or of a partition in the
record that lists them, with its size; the entry of a deleted name is a tombstone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import offsets_of
from streaming_lsm.arrow.columns import Flags, Int64s, flags, int64s, pc, strings, texts_at
from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.metadata.files_partition import decode_maps, encode_maps


@dataclass(frozen=True)
class FileEntries:
    """Entries of some records.

    Attributes:
        keys: keys of the records, without nulls (records,).
        lists: whether a record lists partitions in place of files (records,).
        record: the record of each entry, int64 (entries,).
        names: without nulls (entries,).
        sizes: sizes in bytes, int64 (entries,).
        deleted: whether an entry is a tombstone (entries,).
    """

    keys: pa.StringArray
    lists: Flags
    record: Int64s
    names: pa.StringArray
    sizes: Int64s
    deleted: Flags

    @staticmethod
    def decode(cells: Cells, schema_json: str, source: str) -> FileEntries:
        """Decode records; see `decode_maps`, of which it takes the arguments and the errors."""
        keys, lists, maps = decode_maps(cells, schema_json, source)
        ends = offsets_of(maps)
        record = np.repeat(np.arange(len(keys)), np.diff(ends))
        part = slice(int(ends[0]), int(ends[-1]))
        names, sizes, deleted = maps.keys, maps.items.field("size"), maps.items.field("isDeleted")
        return FileEntries(keys, lists, record, names[part], int64s(sizes)[part], flags(deleted)[part])

    @staticmethod
    def merged(parts: Sequence[FileEntries]) -> FileEntries:
        """Merge records by key, by the rule of docs/format/07-index-and-metadata.md, "Files payload".

        A tombstone removes the name from older records. The larger of two sizes wins, because files only grow.

        Args:
            parts: records in merge order; a key may be in several parts, and in a part several times.

        Returns:
            A record for each key, in ascending order, with the entries that exist, each once.
        """
        every = pa.chunked_array([part.keys for part in parts], pa.string())
        keys, code = _coded(every)
        lists = np.zeros(len(keys), np.bool_)
        lists[code] = np.concatenate([part.lists for part in parts] or [lists])  # that of the newest record
        begins = np.cumsum([0, *(len(part.keys) for part in parts)])
        record = code[_joined([part.record + begin for part, begin in zip(parts, begins, strict=False)], np.int64)]
        names = strings(pa.chunked_array([part.names for part in parts], pa.string()))
        sizes = _joined([part.sizes for part in parts], np.int64)
        deleted = _joined([part.deleted for part in parts], np.bool_)
        newest, largest = _existing(record, names, sizes, deleted)
        return FileEntries(keys, lists, record[newest], texts_at(names, newest), largest, deleted[newest])

    def encode(self, file_name: str | None) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """Encode records whose keys ascend and whose entries are ordered by record; see `encode_maps`."""
        ends = np.searchsorted(self.record, np.arange(len(self.keys) + 1))
        return encode_maps(self.keys, self.lists, ends, self.names, self.sizes, self.deleted, file_name)


def _existing(record: Int64s, names: pa.StringArray, sizes: Int64s, deleted: Flags) -> tuple[Int64s, Int64s]:
    """Merge entries, which are in merge order.

    A name exists unless its newest entry is a tombstone; its size is the largest one since its newest tombstone.

    Returns:
        Places of the newest entries of names that exist, by record and in order of arrival, int64; and their sizes.
    """
    if not len(names):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    unique, code = _coded(pa.chunked_array([names]), ascending=False)
    pair = record * len(unique) + code
    order = np.argsort(pair, kind="stable")
    ordered, gone = pair[order], deleted[order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    starts = np.append(0, ends[:-1] + 1)
    last_gone = np.maximum.accumulate(np.where(gone, np.arange(len(gone)), -1))
    exists = ~gone[ends]
    starts, ends = np.maximum(starts, last_gone[ends] + 1)[exists], ends[exists]
    bounds = np.stack((starts, ends + 1), axis=1).ravel()
    largest = np.maximum.reduceat(np.append(sizes[order], 0), bounds)[::2] if len(bounds) else sizes[:0]
    return order[ends], largest


def _coded(values: pa.ChunkedArray[Any], *, ascending: bool = True) -> tuple[pa.StringArray, Int64s]:
    """Number values; return the values by number, in ascending order if that is asked for, and the numbers."""
    encoded: Any = values.combine_chunks().dictionary_encode()
    unique, code = encoded.dictionary, int64s(encoded.indices)
    if not ascending:
        return unique, code
    order: Any = pc.sort_indices(unique)
    rank = np.empty(len(unique), np.int64)
    rank[np.asarray(order)] = np.arange(len(unique))
    return unique.take(order), rank[code]


def _joined(parts: Sequence[Any], kind: type) -> Any:
    return np.concatenate(parts) if parts else np.zeros(0, kind)
