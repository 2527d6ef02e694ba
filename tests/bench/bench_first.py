"""The first batch and the first read of a process, Spark's Java process and Python workers cold."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq

from streaming_lsm import LsmTable
from tests.bench.bench_sink import KEYS, OPTIONS, ROWS
from tests.bench.result import Result
from tests.bench.workload import orders

RUNS = 3


def run() -> list[Result]:
    """Seconds from the ready session until the first batch is written, or the first read has ended; in turns."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "source").mkdir()
        events = orders(ROWS, KEYS, seed=1)
        for half in range(2):
            pq.write_table(events.slice(half * ROWS // 2, ROWS // 2), folder / "source" / f"part-{half}.parquet")
        table = LsmTable.create(folder / "table", events.schema, OPTIONS)
        table.upsert(events, batch_id=0)
        (folder / "plain").mkdir()
        pq.write_table(table.scan().to_arrow(), folder / "plain" / "part-0.parquet", compression="zstd")
        steps = _Steps(folder)
        batch = steps.in_turns(("sink", "source"), ("append", "source"))
        by_format = steps.in_turns(("format", "table"), ("files", "plain"))
        by_function = steps.in_turns(("table", "table"), ("files", "plain"))
    append, files = "a query of the same files with Spark's zstd Parquet append", "spark.read.parquet of the same rows"
    return [
        Result("first batch of a process, 250 k rows", *batch, 1, "batches", 1.4, False, append),
        Result("first read of a session, by format", *by_format, 1, "reads", 1.5, False, files),
        Result("first read of a session, by streaming_lsm.read", *by_function, 1, "reads", 1.5, False, files),
    ]


class _Steps:
    """Starts a process for each step."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, count()

    def in_turns(self, ours: tuple[str, str], reference: tuple[str, str]) -> tuple[tuple[float, ...], ...]:
        """Seconds of both, after one run of each that is not counted."""
        taken: dict[tuple[str, str], list[float]] = {ours: [], reference: []}
        for number in range(RUNS + 1):
            for step in (ours, reference) if number % 2 else (reference, ours):
                taken[step].append(self._seconds(*step))
        return tuple(taken[ours][1:]), tuple(taken[reference][1:])

    def _seconds(self, step: str, source: str) -> float:
        place = self._folder / f"run-{next(self._numbers)}"
        command = [sys.executable, "-m", "tests.bench.first_steps", step, str(self._folder / source), str(place)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return float(done.stdout.splitlines()[-1])
