"""Tell from a file's footer and bloom filters which row groups may hold a record key.

See docs/format/03-native-logs.md, "Bloom filters of row groups", "Key entries".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.footer_fields import read_at
from streaming_lsm.file_group.gone_files import gone_file
from streaming_lsm.file_group.key_filters import KeyFilters, WantedKeys
from streaming_lsm.format.log.key_entries import CoveredLog, KeyEntry, covered_logs, own_entry
from streaming_lsm.format.parquet_bloom import BlockedBloom, UInt64s
from streaming_lsm.storage.base import Storage


@dataclass(frozen=True)
class KeyIndex:
    """What is known of the record keys of a file without reading its rows.

    Attributes:
        metadata: the file's footer.
        ranges: the smallest and largest key of each row group; none if they are not known, or do not ascend.
        places: offset and length of the bloom filter of each row group; None for one without.
        blooms: the filters that were read, by row group; None for one that cannot be used.
    """

    metadata: pq.FileMetaData
    ranges: Sequence[tuple[str, str]]
    places: Sequence[tuple[int, int] | None]
    blooms: dict[int, BlockedBloom | None] = field(default_factory=dict)

    @staticmethod
    def of(metadata: pq.FileMetaData, place: int | None, ranges: Sequence[tuple[str, str]]) -> KeyIndex:
        """Build the index from a footer, the place of the column of the keys, and their ranges by row group."""
        groups = range(metadata.num_row_groups)
        places = [None if place is None else _place(metadata.row_group(number).column(place)) for number in groups]
        ascend = all(high <= low for (_, high), (low, _) in pairwise(ranges))
        return KeyIndex(metadata, list(ranges) if ascend else [], places)

    @cached_property
    def own(self) -> KeyEntry | None:
        """The file's own key entry; None without one."""
        return own_entry(self.metadata.metadata, self.metadata.num_rows)

    @cached_property
    def covered(self) -> tuple[Sequence[CoveredLog], KeyFilters]:
        """The logs that its accumulated entry covers, and their key entries."""
        logs = covered_logs(self.metadata.metadata)
        return logs, KeyFilters.of([log.entry for log in logs])

    @property
    def weight(self) -> int:
        """Approximate bytes in memory, with all bloom filters."""
        return 4 * self.metadata.serialized_size + sum(length for _, length in filter(None, self.places))

    def spanned(self, wanted: WantedKeys) -> dict[int, UInt64s]:
        """Return the row groups whose range has a key, with the hashes of the keys in it."""
        if not wanted.texts:
            return {}
        if not self.ranges:
            return dict.fromkeys(range(self.metadata.num_row_groups), wanted.hashes)
        first = bisect_left(self.ranges, wanted.texts[0], key=lambda span: span[1])
        last = bisect_right(self.ranges, wanted.texts[-1], key=lambda span: span[0])
        found = {}
        for number in range(first, last):
            low, high = self.ranges[number]
            inside = wanted.hashes[bisect_left(wanted.texts, low) : bisect_right(wanted.texts, high)]
            if len(inside):
                found[number] = inside
        return found

    def admitting(
        self,
        storage: Storage,
        path: str,
        wanted: WantedKeys,
        numbers: Iterable[int],
        source: pa.NativeFile | None = None,
    ) -> list[int]:
        """Return those of some row groups that may hold a key.

        Args:
            storage, path: the file.
            wanted: the keys.
            numbers: the row groups.
            source: the file if it is open; bloom filters are read from it then.

        Raises:
            CorruptFileError: the file is missing, or a bloom filter is damaged.
        """
        inside = self.spanned(wanted)
        return [
            number
            for number in numbers
            if number in inside and self._admits(storage, path, number, inside[number], source)
        ]

    def _admits(self, storage: Storage, path: str, number: int, hashes: UInt64s, source: pa.NativeFile | None) -> bool:
        if number not in self.blooms:
            self.blooms[number] = self._read(storage, path, number, source)
        bloom = self.blooms[number]
        return bloom is None or bool(bloom.may_hold(hashes).any())

    def _read(self, storage: Storage, path: str, number: int, source: pa.NativeFile | None) -> BlockedBloom | None:
        place = self.places[number]
        if place is None:
            return None
        offset, length = place
        try:
            with storage.open_input(path) if source is None else nullcontext(source) as file:
                return BlockedBloom.decode(read_at(file, length, offset))
        except FileNotFoundError:
            raise gone_file(storage, path) from None
        except ValueError as error:
            raise CorruptFileError(f"{path}: bloom filter of row group {number}: {error}; restore the file") from error


def _place(chunk: pq.ColumnChunkMetaData) -> tuple[int, int] | None:
    """Return the place of a bloom filter; None without one, or if this PyArrow (before 25) does not tell."""
    offset, length = (getattr(chunk, f"bloom_filter_{name}", None) for name in ("offset", "length"))
    return (int(offset), int(length)) if offset and length else None
