"""Batches of a stream beside a compaction job that runs all the time, against the same beside one that is idle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from tests.bench.result import Result
from tests.bench.service_stream import KEYS
from tests.bench.tables import make_table

ROOT = Path(__file__).parents[2]
THREADS = os.cpu_count() or 2
ROUNDS, BATCHES, WARM_UP = 5, 20, 10
INTERVAL_S = 0.5
LOOK_S = 0.05


def run() -> list[Result]:
    """Percentiles of batches beside a job with half the threads; then beside one of the stream's own priority.

    Blocks of batches take turns: the job works in one, and has nothing to do in the next. Each block has two processes.
    """
    with tempfile.TemporaryDirectory() as folder:
        make_table(folder, KEYS, logs=1, log_rows=10_000)
        with _stream(folder) as stream:
            _batches(stream, WARM_UP)
            return [*_compared(folder, stream, "", []), *_compared(folder, stream, ", --nice 0", ["--nice", "0"])]


def _compared(folder: str, stream: subprocess.Popen[str], name: str, more: Sequence[str]) -> list[Result]:
    taken: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(2 * ROUNDS):
        works = bool(turn % 2)
        with _job(folder, more, works=works):
            taken[works] += _batches(stream, BATCHES)
    results = []
    for share, target in ((0.95, 1.3), (0.5, 1.3)):
        ours, reference = (float(np.quantile(taken[works], share)) for works in (True, False))
        results.append(
            Result(
                name=f"batch beside a compaction{name}, p{share * 100:.0f}",
                ours=(ours,),
                reference=(reference,),
                work=1,
                unit="batches",
                target=target,
                speed=False,
                note="the same beside an idle compaction job",
            )
        )
    return results


@contextmanager
def _stream(folder: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.bench.service_stream", folder, str(THREADS), str(INTERVAL_S)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as stream:
        try:
            yield stream
        finally:
            _pipe(stream.stdin).close()


def _batches(stream: subprocess.Popen[str], count: int) -> list[float]:
    """Seconds of so many batches."""
    _pipe(stream.stdin).write(f"{count}\n")
    _pipe(stream.stdin).flush()
    seconds: list[float] = json.loads(_pipe(stream.stdout).readline())
    return seconds


@contextmanager
def _job(folder: str, more: Sequence[str], *, works: bool) -> Iterator[None]:
    """A compaction job; one that works finds a compaction due whenever one ends."""
    due = ["hoodie.compact.inline.max.delta.commits=1"] if works else ["--no-schedule"]
    command = [
        sys.executable, str(ROOT / "jobs" / "compact.py"), f"lsm.table.path={folder}",
        "--threads", str(max(1, THREADS // 2)), *due, *more, "--grace", "600", "--watch", str(LOOK_S),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as job:
        try:
            output = _pipe(job.stdout)
            awaited = "scheduled" if works else "watching"
            if not any(awaited in line for line in iter(output.readline, "")):
                raise AssertionError("the job has ended")
            yield
        finally:
            job.terminate()
            said = output.read()
        compactions = said.count(" compacted, ")
    if works and not compactions:
        raise AssertionError("no compaction ran beside the stream")


def _pipe(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise AssertionError("the process has no such pipe")
    return pipe
