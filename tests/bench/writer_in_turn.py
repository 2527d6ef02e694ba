"""A writer in a process of its own: ``python -m tests.bench.writer_in_turn TABLE NAME BATCHES SECONDS``.

It says ``ready``, waits for a line with a number of seconds, and so long again. Then it writes its batches, one every
SECONDS if it is fast enough, and says what `BatchNumbers` has of each, as a JSON object of arrays.
"""

from __future__ import annotations

import json
import sys
import time

from streaming_lsm import LsmTable
from streaming_lsm.config import CONCURRENCY_MODE, NON_BLOCKING, WRITER_ID
from tests.bench.workload import orders

ROWS, KEYS = 10_000, 1_000_000
OPTIONS: dict[str, object] = {
    CONCURRENCY_MODE.key: NON_BLOCKING,
    "lsm.read.threads": 1,
    "hoodie.clean.automatic": False,
}
SAID = ("commit_ms", "lock_ms", "wait_ms")


def main(path: str, name: str, batches: int, seconds: float) -> None:
    """Write the batches, all to the same keys."""
    table = LsmTable(path, {**OPTIONS, WRITER_ID.key: name})
    rows = [orders(ROWS, KEYS, seed=seed) for seed in range(10)]
    said: dict[str, list[int | None]] = {each: [] for each in SAID}
    print("ready", flush=True)
    time.sleep(float(sys.stdin.readline()))
    for batch in range(batches):
        due = time.perf_counter() + seconds
        table.upsert(rows[batch % len(rows)], batch_id=batch)
        for each in SAID:
            said[each].append(getattr(table.last_numbers, each))
        time.sleep(max(0.0, due - time.perf_counter()))
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
