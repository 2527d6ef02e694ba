"""Merge the rows of several slices in the order of their record keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice

import pyarrow as pa

from streaming_lsm.arrow.batches import rebatched
from streaming_lsm.file_group.data_file import BATCH_ROWS
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.merge.runs import Block
from streaming_lsm.merge.sorted_runs import SortedRun, interleave_runs
from streaming_lsm.query.result import first_rows
from streaming_lsm.query.slices.key_order import in_key_order
from streaming_lsm.storage.spill_file import SpillFile

MOST_OPEN = 32
"""Slices that are merged at a time; more are merged through spill files, one for each so many."""
_SPILLED_BYTES = 4 << 20

_Batches = Iterator[pa.RecordBatch]


def merged_slices(
    slices: Sequence[FileSlice],
    read: Callable[[FileSlice], _Batches],
    run: Callable[[Callable[[FileSlice], _Batches], Sequence[FileSlice]], Iterator[_Batches]],
    schema: pa.Schema,
    spill_folder: str | None,
    most: int | None,
    most_open: int = MOST_OPEN,
) -> _Batches:
    """Merge slices whose rows ascend by record key; a batch or two of each are in memory.

    Args:
        slices: the slices.
        read: reads one, with its record keys.
        run: maps a function over slices in parallel and yields the results in order.
        schema: columns of what `read` yields.
        spill_folder: a folder on a local disk; None means the system's for temporary files.
        most: number of rows that are needed; None for all.
        most_open: number of slices that are merged at a time.

    Yields:
        The rows by the UTF-8 bytes of their record keys; those of one key in the order of the slices.

    Raises:
        StorageError: the local disk has no room for the spill files.
    """

    def begin(file_slice: FileSlice) -> _Batches:
        batches = read(file_slice)
        return chain(list(islice(batches, 1)), batches)

    if len(slices) <= most_open:
        yield from _interleaved(run(begin, slices))
        return
    with ExitStack() as spilled:
        runs = []
        for first in range(0, len(slices), most_open):
            rows = first_rows(_interleaved(run(begin, slices[first : first + most_open])), most)
            file = SpillFile(spill_folder, schema, rebatched(rows, size=_SPILLED_BYTES))
            spilled.callback(file.close)
            runs.append(file.batches())
        yield from _interleaved(runs)


def sorted_rows(batches: Iterable[pa.RecordBatch], spill_folder: str | None) -> _Batches:
    """Sort rows by record key, through spill files where they are many; rows of one key keep their order.

    Raises:
        StorageError: the local disk has no room for the spill files.
    """
    blocks = (Block(pa.Table.from_batches([batch])) for batch in batches)
    for block in in_key_order(blocks, spill_folder):
        yield from block.rows.to_batches(max_chunksize=BATCH_ROWS)


def _interleaved(runs: Iterable[_Batches]) -> _Batches:
    """Merge runs, all of which are begun first."""
    for rows in interleave_runs([SortedRun("a slice", run, trusted=True) for run in runs]):
        yield from rows.to_batches(max_chunksize=BATCH_ROWS)
