"""Writers of one table beside each other, without a pause: what the lock and the others cost each of them.

They write the same buckets in the mode NON_BLOCKING_CONCURRENCY_CONTROL. The references are the same writers without
others: one that is alone, and one for each core, each with a table of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from streaming_lsm import LsmTable
from tests.bench.result import Result
from tests.bench.tables import BUCKETS
from tests.bench.workload import KEY, ORDERING, orders
from tests.bench.writer_in_turn import ROWS, SAID

ROOT = Path(__file__).parents[2]
CORES = os.cpu_count() or 2
WRITERS, BATCHES, ROUNDS = 4, 40, 5
LOCK_MS = 20
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.table.ordering.fields": ORDERING,
    "hoodie.bucket.index.num.buckets": BUCKETS,
}


@dataclass
class _Taken:
    """Seconds of each round, and what the writers said of each batch."""

    seconds: list[float] = field(default_factory=list)
    said: dict[str, list[float]] = field(default_factory=lambda: {each: [] for each in SAID})


def run() -> list[Result]:
    """The commit beside others against alone, the time of the lock, and the rate against writers without others."""
    beside, alone, apart = _Taken(), _Taken(), _Taken()
    every = WRITERS * BATCHES
    for number in range(-1, ROUNDS):
        turns = [(beside, 1, [BATCHES] * WRITERS), (alone, 1, [BATCHES]), (apart, CORES, [every // CORES] * CORES)]
        for taken, tables, writers in turns[:: -1 if number % 2 else 1]:
            _round(taken if number >= 0 else _Taken(), tables, writers)
    lock = beside.said["lock_ms"]
    return [
        _of_batches(f"commit, {WRITERS} writers beside each other, p50", beside, alone, 2.0, "one writer alone"),
        Result(
            f"lock held for a commit, {WRITERS} writers, p50",
            (median(lock) / 1000,), (LOCK_MS / 1000,), 1, "commits", 1.0, False, f"{LOCK_MS} ms",
        ),
        Result(
            f"{WRITERS} writers of the same buckets", tuple(beside.seconds), tuple(apart.seconds),
            every * ROWS, "rows", 0.85, True, f"a writer for each of {CORES} cores, each with a table of its own",
        ),
    ]  # fmt: skip


def _of_batches(name: str, ours: _Taken, reference: _Taken, target: float, note: str) -> Result:
    ours_s, reference_s = (tuple(ms / 1000 for ms in taken.said["commit_ms"]) for taken in (ours, reference))
    return Result(name, ours_s, reference_s, 1, "commits", target, False, note)


def _round(taken: _Taken, tables: int, writers: Sequence[int]) -> None:
    """Let writers of so many batches each write at the same time, to new tables in turn."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        paths = [f"{folder}/{number}" for number in range(tables)]
        for path in paths:
            LsmTable.create(path, orders(1, 1, seed=0).schema, OPTIONS)
        processes = [
            stack.enter_context(_writer(paths[number % tables], number, batches))
            for number, batches in enumerate(writers)
        ]
        for process in processes:
            _line(process)
        begun = time.perf_counter()
        for process in processes:
            print(file=process.stdin, flush=True)
        said = [json.loads(_line(process)) for process in processes]
        taken.seconds.append(time.perf_counter() - begun)
    for one in said:
        for each, values in one.items():
            taken.said[each] += values


def _writer(path: str, number: int, batches: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.bench.writer_in_turn", path, f"writer-{number}", str(batches)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def _line(process: subprocess.Popen[str]) -> str:
    if process.stdout is None:
        raise AssertionError("the process has no such pipe")
    line = process.stdout.readline()
    if not line:
        raise AssertionError(f"writer has ended with status {process.wait()}")
    return line
