"""Scan file slices and return the merged rows as Arrow data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.file_group.data_file import open_base
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.query.columns import filter_columns
from streaming_lsm.query.default_partition import DefaultPartition, with_nulls
from streaming_lsm.query.prune.explanation import Explanation
from streaming_lsm.query.prune.file_groups import SkippedSlices
from streaming_lsm.query.prune.row_groups import RowGroupCounts
from streaming_lsm.query.result import Result, first_rows
from streaming_lsm.query.scan_order import merged_slices, sorted_rows
from streaming_lsm.query.slices.slice_reader import SliceReader
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.failures import named_failures

T = TypeVar("T")

_AHEAD_BYTES = 32 << 20
_AHEAD_RATIO = 32
"""Bytes of a slice's batches that are read ahead in memory: at least `_AHEAD_BYTES`, or so many times its files."""


class MapSlices(Protocol):
    """Maps a function over slices in parallel and yields the results in order."""

    def __call__(self, task: Callable[[FileSlice], T], items: Iterable[FileSlice], /) -> Iterator[T]:
        """Run the function for every slice."""
        ...


@dataclass(frozen=True)
class Scan(Result):
    """A planned scan of file slices; nothing is read until its batches are.

    Attributes:
        slices: the file slices to read, in the order of the result.
        reader: reads one slice, with all columns that `columns` and `filter` need.
        columns: the columns of the result.
        filter: keeps the rows for which it is true, after the merge.
        run: maps a function over slices in parallel and yields the results in order.
        skipped: counts the slices that the filter leaves out; `slices` are the others.
        default_partition: the columns that are null in the default partition, before `filter` decides.
        by_key: whether the rows of all slices are in the order of their record keys.
        most: see `Result`.
    """

    slices: Sequence[FileSlice]
    reader: SliceReader
    columns: tuple[str, ...]
    filter: pc.Expression | None
    run: MapSlices
    skipped: SkippedSlices = field(default_factory=SkippedSlices)
    default_partition: DefaultPartition = field(default_factory=DefaultPartition)
    by_key: bool = False

    def __repr__(self) -> str:
        filtered = "" if self.filter is None else f", filter={self.filter}"
        limited = "" if self.most is None else f", most={self.most:,}"
        return (
            f"Scan of {len(self.slices):,} file slices of {self.reader.storage.uri}, columns "
            f"{', '.join(self.columns)}{filtered}{', in key order' if self.by_key else ''}{limited}"
        )

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result."""
        return pa.schema([self.reader.schema.field(name) for name in self.columns])

    def check(self) -> None:
        """Check that the slices' logs are supported, before any row is returned; see `SliceReader.check`.

        Call it once before `read_slice`; `to_batches` calls it itself.
        """
        self.reader.check(self.slices)

    def explain(self) -> Explanation:
        """Tell what the scan reads and what it skips, and why; footers are read, but no rows.

        Raises:
            LsmError: a file cannot be opened, see `SliceReader.blocks`.
        """
        with named_failures():
            counts = sum((self.reader.prune(found) for found in self.slices), RowGroupCounts())
        return Explanation(len(self.slices), self.skipped, counts)

    def read_slice(self, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        """Read one slice, filtered and projected; the rows ascend by record key in a table of sorted files."""
        nulls = self.default_partition.nulls(file_slice.partition_path)
        for batch in self.reader.read(file_slice):
            batch = with_nulls(batch, nulls) if nulls else batch
            if self.filter is not None:
                batch = batch.filter(self.filter)
            if batch.num_rows:
                yield batch.select(list(self.columns))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches slice by slice, ordered by partition and file group; few slices are held at once.

        `in_key_order` orders them by record key instead, and holds a batch or two of each slice.

        Slices are read ahead in parallel. A slice whose rows take far more memory than its files, because they repeat
        large values, is held in part only.
        """
        with named_failures():
            self.check()
            if self.by_key:
                yield from first_rows(self._merged_by_key(), self.most)
                return
            if self.most is not None:
                yield from first_rows(chain.from_iterable(map(self.read_slice, self.slices)), self.most)
                return
            for batches in self.run(self._begin, self.slices):
                yield from batches

    def in_key_order(self) -> Scan:
        """Return a scan whose rows ascend by the UTF-8 bytes of ``_hoodie_record_key``, over all file groups.

        Rows of one key, in several partitions, are ordered by partition. With `limit` it returns the first rows by key.
        Many slices, and tables whose files are not sorted, are sorted through spill files on a local disk.
        """
        return replace(self, by_key=True)

    def _merged_by_key(self) -> Iterator[pa.RecordBatch]:
        held = tuple(dict.fromkeys([*self.reader.columns, RECORD_KEY]))
        reader = replace(self.reader, columns=held)
        columns = tuple(dict.fromkeys([*self.columns, RECORD_KEY]))
        keyed = replace(self, columns=columns, reader=reader, by_key=False, most=None)
        if reader.sorted_files:
            batches = merged_slices(
                self.slices, keyed.read_slice, self.run, keyed.schema, reader.spill_folder, self.most
            )
        else:
            read = chain.from_iterable(self.run(keyed._begin, self.slices))
            batches = sorted_rows(read, reader.spill_folder)
        for batch in batches:
            yield batch.select(list(self.columns))

    def count(self) -> int:
        """Count the rows; without a filter the footers tell those of the slices that have no logs."""
        needed = filter_columns(self.filter, self.reader.schema)
        counted = replace(self, columns=(), reader=replace(self.reader, columns=needed), by_key=False)
        if self.most is not None:
            return sum(batch.num_rows for batch in counted.to_batches())
        with named_failures():
            self.check()
            return sum(self.run(counted._count, self.slices))

    def _count(self, file_slice: FileSlice) -> int:
        is_whole = self.filter is None and self.reader.commits is None
        if is_whole and file_slice.base is not None and file_slice.is_base_only:
            with ExitStack() as files:
                return open_base(self.reader.storage, file_slice.base, files).rows
        return sum(batch.num_rows for batch in self.read_slice(file_slice))

    def _begin(self, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        """Read the first batches of a slice, as a rule all; the others are read when the result is consumed."""
        most = max(_AHEAD_BYTES, _AHEAD_RATIO * file_slice.size)
        batches, ahead, held = self.read_slice(file_slice), [], 0
        for batch in batches:
            ahead.append(batch)
            held += batch.nbytes
            if held > most:
                break
        return chain(ahead, batches)
