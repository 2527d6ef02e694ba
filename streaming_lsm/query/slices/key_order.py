"""Sort the merged rows of a slice by record key when its files are not sorted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import pyarrow as pa

from streaming_lsm.arrow.columns import strings
from streaming_lsm.file_group.data_file import BATCH_ROWS
from streaming_lsm.keys.words import KeyWords, sort_keys
from streaming_lsm.merge.runs import Block
from streaming_lsm.merge.sorted_runs import SortedRun, interleave_runs
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.spill_file import SpillFile

HELD_BYTES = 256 << 20
"""Bytes of rows that are sorted in memory at once; larger slices are sorted through spill files on a local disk."""
_PARTS, _LEAST_ROWS = 64, 512


def in_key_order(blocks: Iterable[Block], spill_folder: str | None, held_bytes: int = HELD_BYTES) -> Iterator[Block]:
    """Sort the rows of a slice's blocks by record key; rows of one key keep their order.

    The deletes that a compaction keeps are sorted in memory, where the logs were merged; they are in the last block.

    Args:
        blocks: the blocks of one slice.
        spill_folder: a folder on a local disk; None means the system's for temporary files.
        held_bytes: maximum bytes of rows in memory before they are spilled.

    Raises:
        StorageError: the local disk has no room for the spill files.
    """
    runs: list[SpillFile] = []
    held: list[pa.Table] = []
    kept: list[pa.Table] = []
    inserts = updates = deletes = size = 0
    with ExitStack() as spilled:
        for block in blocks:  # at least one, without rows if all are deleted
            inserts, updates, deletes = inserts + block.inserts, updates + block.updates, deletes + block.deletes
            held.append(block.rows)
            empty = block.rows.slice(0, 0)
            kept += [] if block.kept is None else [block.kept]
            size += block.rows.nbytes
            if size >= held_bytes:
                runs.append(SpillFile(spill_folder, block.rows.schema, _batches(_sorted(held))))
                spilled.callback(runs[-1].close)
                held.clear()
                size = 0
        tables: Iterator[pa.Table] = iter([_sorted(held)] if held else [])
        if runs:
            last = [SortedRun("rows in memory", iter(_batches(table)), trusted=True) for table in tables]
            tables = interleave_runs(
                [*(SortedRun("a spilled run", run.batches(), trusted=True) for run in runs), *last]
            )
        for table in tables:
            yield Block(table, inserts, updates, deletes)
            inserts = updates = deletes = 0
        if kept:
            yield Block(empty, kept=_sorted(kept))


def _sorted(held: list[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(held)
    order = sort_keys(KeyWords.of(strings(rows.column(RECORD_KEY)))).order
    return rows.take(pa.array(order, pa.int64()))


def _batches(rows: pa.Table) -> list[pa.RecordBatch]:
    """Cut a run into parts, of which a merge holds one of each run: of 64 runs it holds as many bytes as of one."""
    most = max(_LEAST_ROWS, min(BATCH_ROWS, -(-rows.num_rows // _PARTS)))
    return rows.combine_chunks().to_batches(max_chunksize=most)
