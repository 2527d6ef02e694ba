"""Represent the files of a table's partitions as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, flags, pc, text_list, texts_at
from streaming_lsm.format.metadata.file_entries import FileEntries
from streaming_lsm.format.metadata.files_partition import ALL_PARTITIONS_KEY, partition_path
from streaming_lsm.storage.base import FileEntry, Listing


@dataclass(frozen=True)
class ListedFiles:
    """Files of a table by partition.

    Attributes:
        partitions: partition paths, each once.
        partition: the partition of each file, an index into `partitions`, int64 (files,).
        names: names of the files (files,).
        sizes: sizes in bytes, int64 (files,).
        left_out: further partitions that the table has, whose files were not asked for.
    """

    partitions: tuple[str, ...]
    partition: Int64s
    names: pa.StringArray
    sizes: Int64s
    left_out: int = 0

    @staticmethod
    def of_entries(entries: FileEntries) -> ListedFiles:
        """Take the files of the partitions that are listed, of merged records."""
        is_list = flags(pc.equal(entries.keys, ALL_PARTITIONS_KEY))
        partitions = entries.names.filter(pa.array(is_list[entries.record]))
        place: Any = pc.index_in(entries.keys, value_set=partitions)
        # -1: the list itself, or the record of a partition that is not listed.
        listed = np.where(is_list, -1, np.asarray(pc.fill_null(place, -1), np.int64))
        partition = listed[entries.record]
        there = np.flatnonzero(partition >= 0)
        paths = tuple(partition_path(key) for key in partitions.to_pylist() if key is not None)
        return ListedFiles(paths, partition[there], texts_at(entries.names, there), entries.sizes[there])

    @staticmethod
    def of(listings: Mapping[str, Listing]) -> ListedFiles:
        """Take the files out of listings of the folders of partitions, which are listed as a whole.

        Raises:
            UnicodeEncodeError: a name is no text.
        """
        files = [[entry for entry in entries if not entry.is_dir] for entries in listings.values()]
        partition = np.repeat(np.arange(len(files)), [len(found) for found in files])
        names = pa.array([entry.name for found in files for entry in found], pa.string())
        sizes = np.array([entry.size for found in files for entry in found], np.int64)
        return ListedFiles(tuple(listings), partition, names, sizes)

    def entries(self) -> dict[str, Listing]:
        """Return the files as entries by partition path, with 0 as modification time."""
        found: dict[str, Listing] = {path: [] for path in self.partitions}
        lists = [(found[path], f"{path}/" if path else "") for path in self.partitions]
        for place, name, size in zip(self.partition.tolist(), text_list(self.names), self.sizes.tolist(), strict=True):
            entries, folder = lists[place]
            entries.append(FileEntry(f"{folder}{name}", size, is_dir=False, modified_ms=0))
        return found

    def in_partitions(self, chosen: Flags) -> ListedFiles:
        """Leave out partitions that are not chosen, with their files.

        Args:
            chosen: whether to keep each of `partitions`.
        """
        number = np.cumsum(chosen) - 1
        there = np.flatnonzero(chosen[self.partition])
        return ListedFiles(
            partitions=tuple(path for path, is_kept in zip(self.partitions, chosen, strict=True) if is_kept),
            partition=number[self.partition[there]],
            names=texts_at(self.names, there),
            sizes=self.sizes[there],
            left_out=self.left_out + int(np.count_nonzero(~chosen)),
        )
