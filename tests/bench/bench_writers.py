"""Writers of one table beside each other: what the lock and the others cost each of them.

They write the same buckets in the mode NON_BLOCKING_CONCURRENCY_CONTROL: first a batch every half second, as streams
do, which do not begin at the same moment; then batch after batch, which takes all that the cores have. The references
are the same writers without others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
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
WRITERS, BATCHES, ROUNDS = 4, 20, 5
INTERVAL_S = 0.5
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
    paced = _in_turns({"beside": (1, [BATCHES] * WRITERS), "alone": (1, [BATCHES])}, INTERVAL_S)
    every = WRITERS * BATCHES
    busy = _in_turns(
        {
            "beside": (1, [BATCHES] * WRITERS),
            "apart": (WRITERS, [BATCHES] * WRITERS),
            "a core": (CORES, [every // CORES] * CORES),
        }
    )
    lock = median(paced["beside"].said["lock_ms"]) / 1000
    note = f"{LOCK_MS} ms"
    seconds = (tuple(busy[name].seconds) for name in ("beside", "a core"))
    each = f"a writer for each of {CORES} cores, each with a table of its own"
    return [
        _commits(f"commit of {WRITERS} writers, p50", paced["beside"], paced["alone"], "one writer alone"),
        Result(f"lock held by {WRITERS} writers, p50", (lock,), (LOCK_MS / 1000,), 1, "commits", 1.0, False, note),
        _commits(
            f"commit of {WRITERS} writers without a pause",
            busy["beside"],
            busy["apart"],
            "each with a table of its own",
        ),
        Result(f"{WRITERS} writers without a pause", *seconds, every * ROWS, "rows", 0.85, True, each),
    ]


def _in_turns(kinds: Mapping[str, tuple[int, list[int]]], seconds: float = 0.0) -> dict[str, _Taken]:
    """Run each kind, so many tables and the batches of each writer, in turns; who begins alternates."""
    taken = {name: _Taken() for name in kinds}
    for number in range(-1, ROUNDS):
        for name in sorted(kinds, reverse=bool(number % 2)):
            _round(taken[name] if number >= 0 else _Taken(), *kinds[name], seconds)
    return taken


def _commits(name: str, ours: _Taken, reference: _Taken, note: str) -> Result:
    ours_s, reference_s = (tuple(ms / 1000 for ms in taken.said["commit_ms"]) for taken in (ours, reference))
    return Result(name, ours_s, reference_s, 1, "commits", 2.0, False, note)


def _round(taken: _Taken, tables: int, writers: Sequence[int], seconds: float) -> None:
    """Let writers of so many batches each write at the same time, to new tables in turn."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        paths = [f"{folder}/{number}" for number in range(tables)]
        for path in paths:
            LsmTable.create(path, orders(1, 1, seed=0).schema, OPTIONS)
        processes = [
            stack.enter_context(_writer(paths[number % tables], number, batches, seconds))
            for number, batches in enumerate(writers)
        ]
        for process in processes:
            _line(process)
        begun = time.perf_counter()
        for number, process in enumerate(processes):
            print(seconds * number / len(processes), file=process.stdin, flush=True)
        said = [json.loads(_line(process)) for process in processes]
        taken.seconds.append(time.perf_counter() - begun)
    for one in said:
        for each, values in one.items():
            taken.said[each] += values


def _writer(path: str, number: int, batches: int, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.bench.writer_in_turn", path, f"writer-{number}"]
    command += [str(batches), str(seconds)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def _line(process: subprocess.Popen[str]) -> str:
    if process.stdout is None:
        raise AssertionError("the process has no such pipe")
    line = process.stdout.readline()
    if not line:
        raise AssertionError(f"writer has ended with status {process.wait()}")
    return line
