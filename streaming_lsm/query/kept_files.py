"""Keep what look-ups by key read of a table that does not change: its latest slices by bucket, and their footers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.file_group.known_footers import KnownFooters
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.file_names import bucket_of
from streaming_lsm.format.table.properties import NUM_BUCKETS_KEY
from streaming_lsm.keys.bucket import bucket_ids
from streaming_lsm.timeline.timeline import Timeline


@dataclass(frozen=True)
class BucketSlices:
    """The slices of a table by bucket.

    Attributes:
        table: the table's config.
        every: all slices.
        by_bucket: those of each bucket, of all partitions; None if the table does not say how many buckets it has.
    """

    table: TableConfig
    every: Sequence[FileSlice]
    by_bucket: Mapping[int, Sequence[FileSlice]] | None

    @staticmethod
    def of(table: TableConfig, slices: Sequence[FileSlice]) -> BucketSlices:
        """Group slices by bucket."""
        # A number of buckets that only an option gives may be wrong, which must not leave out rows.
        if not table.num_buckets or NUM_BUCKETS_KEY not in table.properties:
            return BucketSlices(table, slices, None)
        found: dict[int, list[FileSlice]] = defaultdict(list)
        try:
            for file_slice in slices:
                found[bucket_of(file_slice.file_id)].append(file_slice)
        except UnsupportedTable:  # a file group of another index
            return BucketSlices(table, slices, None)
        return BucketSlices(table, slices, found)

    def slices_of(self, keys: pa.StringArray) -> Sequence[FileSlice]:
        """Return the slices that may hold some record keys."""
        if self.by_bucket is None or not len(keys):
            return self.every if len(keys) else ()
        table = self.table
        buckets = np.unique(bucket_ids(keys, table.record_key_fields, table.hash_fields, table.num_buckets))
        return [found for bucket in buckets.tolist() for found in self.by_bucket.get(bucket, ())]


@dataclass
class KeptFiles:
    """Keeps the latest slices of an open table while its timeline does not change, and the footers of their files.

    Attributes:
        footers: those of the files that look-ups opened.
        latest: the timeline without restrictions that the slices were listed from, and the slices; None before.
    """

    footers: KnownFooters = field(default_factory=KnownFooters)
    latest: tuple[Timeline, BucketSlices] | None = None

    def of(self, timeline: Timeline) -> tuple[Timeline, BucketSlices] | None:
        """Return what was kept if the timeline has the same actions in the same states."""
        latest = self.latest
        if latest is None or timeline.origin is not None:
            return None
        return latest if latest[0].instants == timeline.instants else None
