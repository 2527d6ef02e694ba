"""What the batches so far say about the next one: how many tasks it is worth, and how its rows are best handed over."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from streaming_lsm.write.shuffle.exchange import CELL_BYTES

ROWS_A_TASK = 50_000
BYTES_A_TASK = 16 << 20
_REMEMBERED = 4

_MAX_ROWS, _FEWEST_ROWS = 4096, 256
_BUDGET_SHARE = 32
UNBOUNDED = (1 << 31) - 1
"""Spark's word for no bound. With any other it adds up the size of all columns after each row, which takes longer than
writing the row does."""


@dataclass(frozen=True)
class BatchSize:
    """How large a batch was.

    Attributes:
        rows: of the batch.
        bytes: that they took as Arrow columns.
    """

    rows: int
    bytes: int


@dataclass(frozen=True)
class Transfer:
    """How much Spark hands to a Python worker at a time: at most so many rows, and about so many bytes."""

    rows: int
    bytes: int


class BatchSizeHistory:
    """Remembers the last few batches.

    The next batch may be of any size all the same: too few tasks or too wide rows make it slow, never wrong.
    """

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._seen: deque[BatchSize] = deque(maxlen=_REMEMBERED)

    def note(self, size: BatchSize) -> None:
        """Remember a batch."""
        self._seen.append(size)

    @contextmanager
    def trusted(self) -> Iterator[None]:
        """Within the context a batch is written as the last ones suggest; when that fails, they are forgotten.

        It may have failed for being unlike them: rows that are far wider can end a worker that is handed thousands at
        a time. Written again by this process, it is taken for one of which nothing is known.
        """
        try:
            yield
        except BaseException:
            self._seen.clear()
            raise

    def tasks(self, most: int) -> int:
        """How many tasks are to write the next batch: what the largest of the last batches was worth, or `most`."""
        if not self._seen:
            return most
        worth = max(max(-(-size.rows // ROWS_A_TASK), -(-size.bytes // BYTES_A_TASK)) for size in self._seen)
        return max(1, min(most, worth))

    def transfer(self, budget: int) -> Transfer:
        """What Spark is to hand to a Python worker at a time.

        A worker has two or three transfers in memory beside its budget, so that they are to be a small share of it. As
        a row may be a cell (`CELL_BYTES`), that is so many cells. More rows at a time are hardly faster. Bytes have no
        bound where the rows so far keep far below it.

        Args:
            budget: of a task, `lsm.write.buffer.bytes`.
        """
        share = budget // _BUDGET_SHARE
        transfer = Transfer(max(_FEWEST_ROWS, min(_MAX_ROWS, share // CELL_BYTES)), share)
        rows, size = sum(seen.rows for seen in self._seen), sum(seen.bytes for seen in self._seen)
        narrow = rows and size * transfer.rows <= rows * share
        return replace(transfer, bytes=UNBOUNDED) if narrow else transfer
