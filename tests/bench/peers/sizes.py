"""Counts of the full, the quick and the tiny form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tests.bench.peers.systems import CHANGES, KAFKA, QUERIES, READS, ROWS, TRICKLE


@dataclass(frozen=True)
class Sizes:
    """How much is written and read.

    Attributes:
        runs: processes of each pair.
        batches: measured batches of the workloads S, K and B.
        warm_up: batches to another table, before.
        rows: rows of a batch of S and K.
        changes: events of a batch of B.
        keys: of all workloads but B.
        changed_keys: of B.
        seconds: duration of E.
        second_rows: rows of E that arrive each second.
        second_warm_up: batches of that many rows to another table, before.
        base: rows of the base of R, all with different keys.
        log: rows of a log of R.
        reads: timed snapshots at each number of logs, after one that is not counted.
    """

    runs: int = 3
    batches: int = 8
    warm_up: int = 6
    rows: int = 250_000
    changes: int = 125_000
    keys: int = 700_000
    changed_keys: int = 500_000
    seconds: int = 60
    second_rows: int = 1_000
    second_warm_up: int = 12
    base: int = 700_000
    log: int = 10_000
    reads: int = 3

    def as_json(self) -> dict[str, int]:
        """For the file of results."""
        return asdict(self)

    def fits(self, workload: str, others: Mapping[str, int]) -> bool:
        """Tell whether a workload of other sizes has done the same."""
        own = self.as_json()
        return all(others.get(name) == own[name] for name in ("runs", *_OF_WORKLOAD[workload]))


_BATCHES = ("batches", "warm_up", "rows", "keys")
_OF_WORKLOAD = {
    ROWS: _BATCHES,
    KAFKA: _BATCHES,
    CHANGES: ("batches", "warm_up", "changes", "changed_keys"),
    TRICKLE: ("keys", "seconds", "second_rows", "second_warm_up"),
    READS: ("base", "log", "reads"),
    QUERIES: ("base", "log", "reads"),
}
LOGS = (0, 5, 20)
"""Numbers of logs over the base at which workload R reads."""
LAST = 10
"""Batches whose rows the incremental query of Q returns."""
PARTITIONS = 8
"""Partitions of the topics."""
BUCKETS = 8
"""Buckets of the tables that have buckets."""
CORES = 2
"""Threads of Spark, and of the libraries without a JVM."""
HEAP = "3g"
"""Java heap of Spark."""

FULL = Sizes()
QUICK = Sizes(
    runs=1, batches=4, warm_up=8, rows=100_000, changes=60_000, keys=280_000, changed_keys=200_000, seconds=20,
    second_warm_up=5, base=280_000, log=5_000,
)  # fmt: skip
TINY = Sizes(
    runs=1, batches=2, warm_up=1, rows=5_000, changes=5_000, keys=7_000, changed_keys=4_000, seconds=3,
    second_warm_up=2, base=7_000, log=500, reads=1,
)  # fmt: skip
FORMS = {"full": FULL, "quick": QUICK, "tiny": TINY}
"""By name."""
