"""Take a random sample of rows of unknown number."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_SEED = 20_230_105


class RowSample:
    """Holds a sample of all rows that it was given.

    Attributes:
        rows: number of rows that it was given.
    """

    def __init__(self, schema: pa.Schema, size: int) -> None:
        """Begin without rows.

        Args:
            schema: columns of the rows.
            size: number of rows to hold, twice as many at most.
        """
        self.rows = 0
        self._schema = schema
        self._size = size
        # The same rows give the same sample, so that a repeated task cuts alike.
        self._random = np.random.default_rng(_SEED)
        self._share = 1.0
        self._parts: list[pa.Table] = []
        self._held = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Take some of the rows."""
        self.rows += rows.num_rows
        chosen = pa.Table.from_batches([rows], schema=self._schema)
        self._parts.append(chosen if self._share == 1.0 else self._some(chosen, self._share))
        self._held += self._parts[-1].num_rows
        while self._held > 2 * self._size:
            halved = self._some(self.table(), 0.5)
            self._parts, self._held, self._share = [halved], halved.num_rows, self._share / 2

    def table(self) -> pa.Table:
        """Return the sample."""
        return pa.concat_tables([self._schema.empty_table(), *self._parts])

    def _some(self, rows: pa.Table, share: float) -> pa.Table:
        places = np.flatnonzero(self._random.random(rows.num_rows) < share)
        return rows.take(pa.array(places, pa.int64()))
