"""The events of the demo, and the rows that a table must have after them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("amount", pa.float64()),
        ("note", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
KEYS = 20_000
EVENTS = 200
Row = tuple[str, int, float, str]


class Events:
    """Draws micro-batches, and folds them into the rows that must be there.

    The first batch inserts `KEYS` rows. The others update, insert and delete, one event in twenty is late: its ordering
    value lies below that of its key. Keys that were deleted get no late events.
    """

    def __init__(self, seed: int) -> None:
        """Begin without rows."""
        self._chance = np.random.default_rng(seed)
        self._next = 0
        self._now = 0
        self.rows: dict[str, Row] = {}

    def batch(self) -> pa.Table:
        """Draw the next batch."""
        self._now += 10
        if not self.rows:
            return self._folded(self._new(KEYS))
        known = list(self.rows)
        count = EVENTS * 8 // 10
        picked = [known[place] for place in self._chance.choice(len(known), count, replace=False)]
        late, gone, updated = picked[:10], picked[10:20], picked[20:]
        parts = [
            self._events(updated, self._now),
            self._events(late, self._now - 5_000),
            self._events(gone, self._now, deleted=True),
            self._new(EVENTS - count),
        ]
        return self._folded(pa.concat_tables(parts))

    def _new(self, count: int) -> pa.Table:
        numbers = range(self._next, self._next + count)
        self._next += count
        return self._events([f"order-{number:09d}" for number in numbers], self._now)

    def _events(self, keys: list[str], ts: int, *, deleted: bool = False) -> pa.Table:
        count = len(keys)
        notes = [self._chance.bytes(60).hex() for _ in keys]
        amounts = np.round(self._chance.random(count) * 1000, 2)
        return pa.table([keys, [ts] * count, amounts, notes, [deleted] * count], schema=SCHEMA)

    def _folded(self, events: pa.Table) -> pa.Table:
        for row in events.to_pylist():
            known = self.rows.get(row["id"])
            if known is not None and row["ts"] < known[1]:
                continue
            if row["_hoodie_is_deleted"]:
                del self.rows[row["id"]]
            else:
                self.rows[row["id"]] = (row["id"], row["ts"], row["amount"], row["note"])
        return events
