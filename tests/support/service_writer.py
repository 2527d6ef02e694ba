"""A stream without Spark: ``python -m tests.support.service_writer TABLE BATCHES SECONDS [KEY=VALUE …]``.

Writes numbered batches, every SECONDS one, each at most once; prints the number of each batch when it is committed, and
the seconds that it took. Started again it goes on at the first batch that is not committed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from streaming_lsm import LsmTable
from tests.support.small_tables import Row, rows

KEYS = 400
ROWS = 150
WRITER = "service-writer"


def batch(number: int) -> list[Row]:
    """The rows of a batch: keys of three partitions, of which each batch updates many."""
    keys = [(number * 37 + n * 7) % KEYS for n in range(ROWS)]
    return [(f"k{key}", ("de", "fr", "nl")[key % 3], number, number * 1000 + key) for key in dict.fromkeys(keys)]


def model(batches: int) -> list[Row]:
    """The rows that the table holds after so many batches."""
    found: dict[str, Row] = {}
    for number in range(batches):
        found.update({row[0]: row for row in batch(number)})
    return sorted(found.values())


def run(path: str, batches: int, seconds: float, options: dict[str, object]) -> None:
    """Write what is not committed yet."""
    table = LsmTable(Path(path), {"lsm.writer.id": WRITER, "hoodie.clean.automatic": False, **options})
    for number in range(batches):
        begun = time.monotonic()
        if table.upsert(rows(*batch(number)), batch_id=number) is not None:
            took = time.monotonic() - begun
            print(f"{number} {took:.6f}", flush=True)
            time.sleep(max(0.0, seconds - took))


if __name__ == "__main__":
    given = [argument.partition("=") for argument in sys.argv[4:]]
    run(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), {key: value for key, _, value in given})
