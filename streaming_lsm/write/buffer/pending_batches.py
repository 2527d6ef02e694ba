"""Hold unsorted events in memory, and measure the memory that they and their sorting take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s
from streaming_lsm.write.buffer.budget import Budget
from streaming_lsm.write.buffer.row_sizes import cuts, row_sizes
from streaming_lsm.write.buffer.sorting import ORDER_BYTES, SORT_BYTES


class PendingBatches:
    """Holds batches of events in the order of their arrival.

    Small batches are copied together, because a view keeps its whole source message in memory. Large batches that are
    not views are kept as they are.
    """

    def __init__(self, schema: pa.Schema, budget: Budget) -> None:
        """Start without events."""
        self._schema, self._budget = schema, budget
        self._chunks: list[pa.RecordBatch] = []
        self._arrived: list[pa.RecordBatch] = []
        self._roots: dict[int, int] = {}
        self._columns: Int64s = np.zeros(len(schema), np.int64)
        self._beyond = 0
        self.rows = 0

    @property
    def bytes(self) -> int:
        """Bytes of the pending events, and of the source buffers that uncopied views keep."""
        return int(self._columns.sum()) + self._beyond

    @property
    def sorting(self) -> int:
        """Peak bytes while the events are joined and sorted, themselves included."""
        return _sorting(self._columns, self.rows) + self._beyond

    def takes(self, batch: pa.RecordBatch) -> bool:
        """Test whether a batch can be held with the others, sorted with them and written within the budget."""
        columns, rows, budget = self._columns + _column_bytes(batch), self.rows + batch.num_rows, self._budget
        own = int(columns.sum())
        needed = max(own + 2 * budget.chunk, _sorting(columns, rows), own + ORDER_BYTES * rows + budget.encoding)
        return own <= budget.pending and needed <= budget.total

    def filling(self, batch: pa.RecordBatch) -> Iterator[None]:
        """Add a batch; yield where there is no room for the rest, for the caller to remove the events before."""
        for part in self.parts(batch):
            if self.rows and not self.takes(part):
                yield
            self.add(part)

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Split a batch that is too large to be held whole. Add each piece before asking for the next."""
        if self.takes(batch):
            yield batch
            return
        for first, last in cuts(np.cumsum(row_sizes(batch)), 0, batch.num_rows, self._budget.chunk):
            yield batch.slice(first, last - first)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        columns = _column_bytes(batch)
        size = int(columns.sum())
        self._columns = self._columns + columns
        self.rows += batch.num_rows
        roots = _roots(batch)
        if 4 * size >= self._budget.chunk and _is_whole(batch, roots, size):
            self._join_arrived()
            self._chunks.append(batch)
            return
        self._arrived.append(batch)
        self._beyond += sum(kept for address, kept in roots.items() if address not in self._roots) - size
        self._roots.update(roots)
        if sum(self._roots.values()) >= self._budget.chunk:
            self._join_arrived()

    def _join_arrived(self) -> None:
        if self._arrived:
            columns = zip(*(batch.columns for batch in self._arrived), strict=True)
            # Also where there is one only: it is a view, or small.
            joined = [pa.concat_arrays(column) for column in columns]
            self._chunks.append(pa.RecordBatch.from_arrays(joined, schema=self._schema))
            self._arrived.clear()
            self._roots.clear()
            self._beyond = 0

    def take(self) -> pa.Table:
        """Remove all events and return them as a table with one chunk a column."""
        self._join_arrived()
        columns = [[batch.column(place) for batch in self._chunks] for place in range(len(self._schema))]
        self._chunks.clear()
        self._columns, self.rows = np.zeros(len(self._schema), np.int64), 0
        return pa.Table.from_arrays(list(_joined(columns, self._schema)), schema=self._schema)


def _joined(columns: list[list[pa.Array[Any]]], schema: pa.Schema) -> Iterator[pa.Array[Any]]:
    """Join each column to one array. The pieces of a column are released before the next is joined."""
    for place, field in enumerate(schema):
        pieces, columns[place] = columns[place], []
        if len(pieces) == 1:
            yield pieces[0]
            continue
        joined = pa.concat_arrays(pieces) if pieces else pa.nulls(0, field.type)
        del pieces
        pa.default_memory_pool().release_unused()
        yield joined


def _sorting(columns: Int64s, rows: int) -> int:
    """Compute the bytes of events and of the larger of joining one column and sorting all keys, from column sizes."""
    return int(columns.sum()) + max(int(columns.max()), SORT_BYTES * rows + int(columns[0]))


def _column_bytes(batch: pa.RecordBatch) -> Int64s:
    return np.array([column.nbytes for column in batch.columns], np.int64)


def _buffers(batch: pa.RecordBatch) -> list[pa.Buffer]:
    return [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None]


def _roots(batch: pa.RecordBatch) -> dict[int, int]:
    """Find address and size of all memory that a batch keeps: its buffers, or the buffers that they are views of."""
    roots = {}
    for buffer in _buffers(batch):
        while buffer.parent is not None:
            buffer = buffer.parent
        roots[buffer.address] = buffer.size
    return roots


def _is_whole(batch: pa.RecordBatch, roots: dict[int, int], size: int) -> bool:
    """Test whether freeing each column of a batch frees about its own bytes."""
    views = any(buffer.parent is not None for buffer in _buffers(batch))
    return not views and sum(roots.values()) <= size * 5 // 4
