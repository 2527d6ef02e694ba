"""Collect rows by *cell*, a range of their order, in bounded memory.

Rows are held until they take too much memory; then they are spilled to a local disk, sorted by cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Int64s
from streaming_lsm.file_group.data_file import BATCH_ROWS
from streaming_lsm.storage.spill_file import SpillFile


@dataclass(frozen=True)
class _Run:
    """Rows sorted by cell.

    Attributes:
        file: the batches; each has rows of one cell.
        cells: int64 (batches,), the cell of each batch, ascending.
    """

    file: SpillFile
    cells: Int64s


class CellRows:
    """Holds the rows of all cells; leaving it frees the disk space.

    Attributes:
        counts: int64 (cells,), the rows of each cell.
    """

    def __init__(self, schema: pa.Schema, cells: int, spill_folder: str | None, held_bytes: int) -> None:
        """Begin without rows.

        Args:
            schema: columns of the rows.
            cells: number of cells.
            spill_folder: a folder on a local disk; None means the system's for temporary files.
            held_bytes: most bytes of rows in memory before they are spilled.
        """
        self.counts: Int64s = np.zeros(cells, np.int64)
        self._schema = schema
        self._spill_folder = spill_folder
        self._most = held_bytes
        self._held: list[tuple[pa.Table, Int64s]] = []
        self._bytes = 0
        self._runs: list[_Run] = []
        self._files = ExitStack()
        self._sorted: tuple[pa.Table, Int64s] | None = None

    def __enter__(self) -> CellRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def append(self, rows: pa.Table, cells: Int64s) -> None:
        """Add rows.

        Args:
            rows: with the columns of `schema`.
            cells: int64 (rows,).

        Raises:
            StorageError: the local disk has no room.
        """
        self.counts += np.bincount(cells, minlength=len(self.counts))
        self._held.append((rows, cells))
        self._bytes += rows.nbytes
        if self._bytes >= self._most:
            self._spill()

    def of(self, cell: int) -> Iterator[pa.Table]:
        """Yield the rows of a cell; to be called when all rows were added."""
        for run in self._runs:
            first, end = np.searchsorted(run.cells, [cell, cell + 1]).tolist()
            for number in range(first, end):
                yield pa.Table.from_batches([run.file.batch(number)])
        if self._sorted is None:
            self._sorted = self._by_cell()
        rows, cells = self._sorted
        first, end = np.searchsorted(cells, [cell, cell + 1]).tolist()
        if end > first:
            yield rows.slice(first, end - first)

    def _by_cell(self) -> tuple[pa.Table, Int64s]:
        """Take the rows that are held, sorted by cell; those of one cell keep their order."""
        cells = np.concatenate([np.zeros(0, np.int64), *(found for _, found in self._held)])
        rows = pa.concat_tables([self._schema.empty_table(), *(found for found, _ in self._held)])
        self._held, self._bytes = [], 0
        order = np.argsort(cells, kind="stable")
        return rows.take(pa.array(order, pa.int64())), cells[order]

    def _spill(self) -> None:
        rows, cells = self._by_cell()
        rows = rows.combine_chunks()
        begins = np.flatnonzero(np.diff(cells, prepend=-1))
        of_batches: list[int] = []

        def batches() -> Iterator[pa.RecordBatch]:
            for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(cells)], strict=True):
                for batch in rows.slice(begin, end - begin).to_batches(max_chunksize=BATCH_ROWS):
                    of_batches.append(int(cells[begin]))
                    yield batch

        file = SpillFile(self._spill_folder, self._schema, batches())
        self._files.callback(file.close)
        self._runs.append(_Run(file, np.array(of_batches, np.int64)))
