"""Service jobs and writers as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from streaming_lsm import LsmTable
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.service_writer import batch, model
from tests.support.small_tables import create, rows, shown

ROOT = Path(__file__).parents[2]
BATCHES = 30
OPTIONS: dict[str, object] = {"hoodie.bucket.index.num.buckets": 8, "hoodie.clean.automatic": False}
DUE = "hoodie.compact.inline.max.delta.commits=3"
RETAIN = "hoodie.clean.commits.retained=4"


class Process:
    """A program whose output goes to a file."""

    def __init__(self, log: Path, *command: object) -> None:
        self.log = log
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        with log.open("ab") as output:
            self.running = subprocess.Popen(
                [str(part) for part in command], stdout=output, stderr=output, env=environment, start_new_session=True
            )

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait_for(self, reached: Callable[[], bool], seconds: float = 120) -> None:
        """Wait until something is so, while the program runs."""
        deadline = time.monotonic() + seconds
        while not reached():
            assert self.running.poll() is None or reached(), self.said[-4000:]
            assert time.monotonic() < deadline, self.said[-4000:]
            time.sleep(0.02)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit status."""
        self.running.send_signal(number)
        return self.running.wait(120)


def python(*arguments: object) -> list[object]:
    return [sys.executable, *arguments]


@contextmanager
def started(log: Path, *command: object) -> Iterator[Process]:
    """A program that is killed at the latest on leaving."""
    process = Process(log, *command)
    try:
        yield process
    finally:
        if process.running.poll() is None:
            os.killpg(process.running.pid, signal.SIGKILL)
            process.running.wait()


def job(name: str, folder: Path, *options: object) -> list[object]:
    return python(ROOT / "jobs" / f"{name}.py", f"lsm.table.path={folder / 'table'}", *options)


def slow_job(folder: Path, seconds: float) -> list[object]:
    path = f"lsm.table.path={folder / 'table'}"
    return python("-m", "tests.support.slow_compaction", seconds, path, "--threads", "1")


def done(command: list[object], **environment: str) -> subprocess.CompletedProcess[str]:
    """A program that has ended with status 0."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    ended = subprocess.run(
        [str(part) for part in command], check=False, capture_output=True, text=True, env=variables, timeout=240
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended


def writer(folder: Path, *options: object, batches: int = BATCHES, seconds: float = 0.05) -> list[object]:
    return python("-m", "tests.support.service_writer", folder / "table", batches, seconds, *options)


def assert_rows(folder: Path, batches: int = BATCHES) -> None:
    """The table has the rows of all batches, each committed once, for both readers."""
    path = folder / "table"
    expected = model(batches)
    assert shown(LsmTable(path)) == expected
    assert sorted(tuple(row.values()) for row in read_snapshot(str(path)).to_pylist()) == expected
    assert validate(str(path)) == []
    writes = [write for write in LsmTable(path).timeline.every_write if write.action == "deltacommit"]
    assert len(writes) == batches


def held(tmp_path: Path, groups: int = 8) -> LsmTable:
    """A table with a plan of one file group each, of rows enough for a compaction to take its time."""
    table = create(tmp_path / "table", **{**OPTIONS, "hoodie.bucket.index.num.buckets": groups})
    for number in range(3):
        table.upsert(rows(*batch(number)))
    return table
