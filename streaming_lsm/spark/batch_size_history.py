"""Size the tasks and transfers of the next batch by the sizes of recent batches.

*Task*: a Spark task that writes files. *Transfer*: the rows that Spark hands to a Python worker at a time, one Arrow
record batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from streaming_lsm.write.shuffle.exchange import CELL_BYTES

ROWS_A_TASK = 50_000
BYTES_A_TASK = 16 << 20
_REMEMBERED = 4

_MAX_ROWS, _FEWEST_ROWS = 10_000, 256
_LEAST_ROWS = 16
_BUDGET_SHARE = 32
UNBOUNDED_BYTES = (1 << 31) - 1
"""Value of ``spark.sql.execution.arrow.maxBytesPerBatch`` without a bound. With a bound Spark adds up the sizes of all
columns after each row, which takes longer than writing the row."""


@dataclass(frozen=True)
class BatchSize:
    """Holds the size of a batch.

    Attributes:
        rows: number of rows.
        bytes: their size as Arrow columns.
        readers: number of tasks that read them.
        file_groups: number of file groups that they belong to.
        partitions: number of partitions of these.
    """

    rows: int
    bytes: int
    readers: int = 0
    file_groups: int = 0
    partitions: int = 0


@dataclass(frozen=True)
class Transfer:
    """Limits one transfer to a Python worker.

    Attributes:
        rows: most rows.
        bytes: about the most bytes; None if Spark limits rows only.
    """

    rows: int
    bytes: int | None


class BatchSizeHistory:
    """Keeps the sizes of the last four batches.

    A next batch of another size is written correctly too; it is slower with too few tasks or too large transfers.

    Attributes:
        needs_exchange: whether rows of one key were found in several tasks that read a batch.
    """

    def __init__(self) -> None:
        """Start without batches."""
        self._seen: deque[BatchSize] = deque(maxlen=_REMEMBERED)
        self.needs_exchange = False

    def note(self, size: BatchSize) -> None:
        """Add the size of a batch that was written."""
        self._seen.append(size)

    @contextmanager
    def trusted(self) -> Iterator[None]:
        """Clear the history when the batch that is written within the context fails.

        Far wider rows than before can exhaust the memory of a worker that gets thousands of them at a time. A retry
        in this process starts with the limits for unknown batches.
        """
        try:
            yield
        except BaseException:
            self._seen.clear()
            raise

    def tasks(self, most: int) -> int:
        """Return the number of tasks for the next batch, sized for the largest recent one; `most` without a history."""
        if not self._seen:
            return most
        worth = max(max(-(-size.rows // ROWS_A_TASK), -(-size.bytes // BYTES_A_TASK)) for size in self._seen)
        return max(1, min(most, worth))

    @property
    def readers(self) -> int:
        """Number of tasks that read the last batch; 0 without a history."""
        return self._seen[-1].readers if self._seen else 0

    @property
    def file_groups(self) -> int:
        """Number of file groups of the recent batch with the most of them; 0 without a history."""
        return max((size.file_groups for size in self._seen), default=0)

    @property
    def rows_a_partition(self) -> int:
        """Rows that a partition had on average in the recent batch with the most of them; 0 without a history."""
        return max((-(-size.rows // max(1, size.partitions)) for size in self._seen), default=0)

    def transfer(self, budget: int, limits_bytes: bool = True, has_cells: bool = False) -> Transfer:
        """Return the limits of a transfer, 1/32 of the memory budget of a task.

        A worker holds two or three transfers in addition to its budget. Bytes are unbounded when transfers of recent
        batches stayed within the share.

        Where Spark limits rows only, they are sized by the widest recent batch. A transfer then takes more than the
        share if its rows are wider than the mean of that batch; without recent batches it has 256 rows.

        Args:
            budget: bytes of a task, ``lsm.write.buffer.bytes``.
            limits_bytes: whether Spark limits bytes (`versions.limits_bytes`).
            has_cells: whether cells of the shuffle are handed over with the same limits: these have `CELL_BYTES` bytes.
        """
        share = budget // _BUDGET_SHARE
        cells = max(_FEWEST_ROWS, min(_MAX_ROWS, share // CELL_BYTES))
        choices = (cells,) if has_cells else (_MAX_ROWS, cells)
        if not limits_bytes:
            return Transfer(self._rows_within(share, max(choices)), None)
        rows, size = sum(seen.rows for seen in self._seen), sum(seen.bytes for seen in self._seen)
        narrow = [most for most in choices if rows and size * most <= rows * share]
        return Transfer(narrow[0], UNBOUNDED_BYTES) if narrow else Transfer(min(choices), share)

    def _rows_within(self, share: int, most: int) -> int:
        """Return the number of rows of the widest recent batch that take `share` bytes, from 16 to `most`."""
        widths = [seen.bytes / seen.rows for seen in self._seen if seen.rows]
        return max(_LEAST_ROWS, min(most, int(share / max(1.0, *widths)))) if widths else _FEWEST_ROWS
