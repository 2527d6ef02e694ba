"""Cut adjacent cells into files of about the same size, not larger than the target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from streaming_lsm.arrow.columns import Int64s


@dataclass
class FileCut:
    """Chooses the cells of each file by the rows that a file of the target's size has, as far as that is known.

    Attributes:
        target_bytes: size of a file.
        row_bytes: estimated bytes of a row in a file, until there is a file to measure it.
    """

    target_bytes: int
    row_bytes: float
    _rows: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)

    def measure(self, rows: int, size: int) -> None:
        """Learn from a file that was written."""
        self._rows += rows
        self._bytes += size

    def files(self, counts: Int64s, boxes: Int64s | None = None, box_count: int = 1) -> Iterator[range]:
        """Yield the cells of one file after the other; `measure` may be called in between.

        Args:
            counts: int64 (cells,), the rows of each cell.
            boxes, box_count: see `Cuts`. Boxes are halved as often as there are more rows than a file has, so that a
                file is a box, narrow in each column.
        """
        if boxes is None:
            yield from self._evenly(counts)
        else:
            yield from self._halved(counts, boxes, 0, box_count)

    def _halved(self, counts: Int64s, boxes: Int64s, first: int, end: int) -> Iterator[range]:
        """Yield the files of some boxes."""
        begin, stop = np.searchsorted(boxes, [first, end]).tolist()
        rows = int(counts[begin:stop].sum())
        if not rows:
            return
        if rows <= self._file_rows:
            yield range(begin, stop)
        elif end - first == 1:
            for chosen in self._evenly(counts[begin:stop]):
                yield range(begin + chosen.start, begin + chosen.stop)
        else:
            middle = (first + end) // 2
            yield from self._halved(counts, boxes, first, middle)
            yield from self._halved(counts, boxes, middle, end)

    def _evenly(self, counts: Int64s) -> Iterator[range]:
        """Yield the files of adjacent cells."""
        ends = np.cumsum(counts)
        first = taken = 0
        while first < len(counts):
            left = int(ends[-1]) - taken
            files = -(-left // self._file_rows) if left else 1
            # Shares of what is left, so that the last file is not a small one.
            wanted = taken + left / files
            end = len(counts) if files == 1 else max(first + 1, int(np.searchsorted(ends, wanted, side="right")))
            yield range(first, end)
            first, taken = end, int(ends[end - 1])

    @property
    def _file_rows(self) -> int:
        measured = self._bytes / self._rows if self._rows else self.row_bytes
        return max(1, int(self.target_bytes / max(measured, 1e-3)))
