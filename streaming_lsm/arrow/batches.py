"""Join small record batches into larger ones, because each batch costs a fixed time whatever its number of rows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa


def coalesced(batches: Iterable[pa.RecordBatch], *, size: int, rows: int | None = None) -> Iterator[pa.Table]:
    """Combine adjacent batches into tables without copying: one chunk per batch, in the order of the batches.

    A table ends before the batch that would exceed a limit, so that the limits bound the memory. Two adjacent tables
    together exceed a limit: on average a table is more than half full.

    Args:
        batches: of one schema; one is held in addition to those of a table.
        size: maximum bytes of a table, as `pyarrow.RecordBatch.nbytes` counts them; exceeded only by a single batch.
        rows: maximum rows of a table; exceeded only by a single batch. None for no limit.
    """
    limit = sys.maxsize if rows is None else rows
    group: list[pa.RecordBatch] = []
    count = held = 0
    for batch in batches:
        added = batch.nbytes
        if group and (count + batch.num_rows > limit or held + added > size):
            yield pa.Table.from_batches(group)
            group, count, held = [], 0, 0
        group.append(batch)
        count, held = count + batch.num_rows, held + added
    if group:
        yield pa.Table.from_batches(group)


def rebatched(batches: Iterable[pa.RecordBatch], *, size: int, rows: int | None = None) -> Iterator[pa.RecordBatch]:
    """Join adjacent batches, and split larger ones, into batches of at most `rows` rows and about `size` bytes.

    Rows are copied only where several batches are joined. Batches without rows are left out.

    Args:
        batches: of one schema.
        size: maximum bytes of a batch; a larger batch is split into pieces of about equal numbers of rows.
        rows: maximum rows of a batch; None for no limit.
    """
    for table in coalesced(batches, size=size, rows=rows):
        count = len(table)
        most = max(1, min(count if rows is None else rows, size * count // max(1, table.nbytes)))
        pieces = max(1, -(-count // most))  # of about equal numbers of rows
        yield from table.combine_chunks().to_batches(max_chunksize=max(1, -(-count // pieces)))
