"""A stream of batches in a process of its own: ``python -m tests.bench.service_stream TABLE THREADS SECONDS``.

Each line of its input is a number of batches to write, one every SECONDS; each line of its output has their seconds, as
a JSON array.
"""

from __future__ import annotations

import json
import sys
import time

from streaming_lsm import LsmTable
from tests.bench.workload import orders

ROWS, KEYS = 10_000, 1_000_000


def main(path: str, threads: int, seconds: float) -> None:
    """Write batches until the input ends."""
    table = LsmTable(path, {"lsm.read.threads": threads, "hoodie.clean.automatic": False})
    batches = [orders(ROWS, KEYS, seed=seed) for seed in range(100, 110)]
    number = 0
    for line in sys.stdin:
        taken = []
        for _ in range(int(line)):
            begun = time.perf_counter()
            table.upsert(batches[number % len(batches)])
            taken.append(time.perf_counter() - begun)
            number += 1
            time.sleep(max(0.0, seconds - taken[-1]))
        print(json.dumps(taken), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
