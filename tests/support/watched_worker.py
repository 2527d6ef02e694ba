"""Spark's Python worker, watched: each task leaves a line that says how much memory it took.

Spark starts it by the setting ``spark.python.daemon.module``. Variables: ``LSM_WATCH_FOLDER`` is where the lines go, a
file per process; once there is a file ``limit`` in it, every task runs under a hard limit of so many bytes of private
memory (`RLIMIT_DATA`), which the kernel enforces.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from pyspark import TaskContext, daemon

FOLDER = "LSM_WATCH_FOLDER"


@dataclass(frozen=True)
class TaskMemory:
    """What one task took; all of it in bytes and of its worker's whole process.

    Attributes:
        pid: the process.
        stage: the number of Spark's stage.
        task: the number of the task in it.
        before: resident before the task.
        peak: the most that was resident during the task, as the kernel counts it.
        private: private memory at the end of it, resident or not: what `RLIMIT_DATA` is about.
        limit: of private memory; -1 without one.
    """

    pid: int
    stage: int
    task: int
    before: int
    peak: int
    private: int
    limit: int


def run_task(work: Callable[[BinaryIO, BinaryIO], None], infile: BinaryIO, outfile: BinaryIO) -> None:
    """Run one task by `work`, which is Spark's own way to do it, and waits for the task first."""
    watch = _Watch(Path(os.environ[FOLDER]), TaskContext._setTaskContext)
    TaskContext._setTaskContext = watch.set_task  # type: ignore
    try:
        work(infile, outfile)
    finally:
        TaskContext._setTaskContext = watch.remember  # type: ignore


def tasks(folder: Path) -> list[TaskMemory]:
    """What all tasks so far have left."""
    return [TaskMemory(**json.loads(line)) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]


def _limit(file: Path) -> None:
    with suppress(FileNotFoundError):
        resource.setrlimit(resource.RLIMIT_DATA, (int(file.read_text()), resource.RLIM_INFINITY))


@dataclass
class _Watch:
    """Sees a task begin and end, as the worker remembers it and forgets it, before Spark hears of the end."""

    folder: Path
    remember: Callable[[TaskContext | None], None]
    task: TaskContext | None = None
    before: int = 0

    def set_task(self, task: TaskContext | None) -> None:
        """Spark's worker begins a task, or has ended one."""
        if task is not None:
            self._begin()
        elif self.task is not None:
            _note(self.folder, self.task, self.before)
        self.task = task
        self.remember(task)

    def _begin(self) -> None:
        _limit(self.folder / "limit")
        # Else the peak would be that of all tasks of the process so far.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self.before = _status()["VmRSS"]


def _note(folder: Path, task: TaskContext, before: int) -> None:
    found = _status()
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    place = (os.getpid(), task.stageId(), task.partitionId())
    line = TaskMemory(*place, before, found["VmHWM"], found["VmData"], limit)
    with (folder / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(asdict(line)) + "\n")


def _status() -> dict[str, int]:
    """The lines of the process's status that are sizes, in bytes."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1] == "kB"}


def _worker(*arguments: Any) -> Any:
    """A worker that was forked just now, or waits for its next task.

    Nothing that starts threads may be imported before.
    """
    from pyspark import worker

    if not isinstance(worker.main, partial):
        worker.main = partial(run_task, worker.main)
    return _ORIGINAL(*arguments)


if __name__ == "__main__":
    _ORIGINAL, daemon.worker = daemon.worker, _worker
    daemon.manager()
