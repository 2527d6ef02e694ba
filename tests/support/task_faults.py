"""Faults at chosen points of chosen tasks: a worker or its executor is killed, a call fails, a task hangs.

A fault strikes once, however often its task is tried again: it first claims a file of its name. The switches travel in
the plan of a batch, as its storage and its key generator, so that nothing of the package knows of them.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, cast

from pyspark import TaskContext

from streaming_lsm.keys.generator import KeyGenerator
from streaming_lsm.lock.markers import TEMP_FOLDER
from streaming_lsm.spark import sink as sink_module
from streaming_lsm.spark.batch_writer import BatchResult
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.table import LsmTable
from streaming_lsm.write.plan import WritePlan

ROWS, MARKER, CREATE, MIDDLE, FINISHED = "rows", "marker", "create", "middle", "finished"
"""Points: a task has taken in rows; is about to create a marker; to create it; has written a part of it; has made it
durable. The first one lies in the tasks that read a batch, the others in those that write it."""


class Blow(Enum):
    """What a fault does."""

    WORKER = "kill the Python worker"
    EXECUTOR = "kill the executor, and so its workers"
    OTHERS = "kill the executors of all other tasks"
    FAIL = "raise an error of the disk"
    FULL = "raise the error of a full disk, each time"
    HANG = "wait until the file `release` is there"


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        name: names it in one test.
        batch: number of the batch, counted from 0.
        task: number of the task in its stage; None for whichever comes first.
        point: where.
        blow: what happens.
        nth: at which time that the task comes to the point.
    """

    name: str
    batch: int
    task: int | None
    point: str
    blow: Blow
    nth: int = 1


@dataclass
class Faults:
    """The faults of one batch in one task; counts from its unpickling on.

    Attributes:
        folder: takes the claims, and the numbers of the executors' processes.
        faults: those of this batch.
        file_bytes: bytes that a file of a worker may have while the batch is written; None for any.
    """

    folder: str
    faults: tuple[Fault, ...]
    file_bytes: int | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In a task: workers serve many tasks, so that each sets the limit that it wants."""
        self.__dict__.update(state, counts=Counter())
        limit = resource.RLIM_INFINITY if self.file_bytes is None else self.file_bytes
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def reach(self, point: str) -> None:
        """The task is at `point`."""
        context = TaskContext.get()
        if context is None:
            return
        Path(self.folder, f"jvm-{_executor()}").touch()
        self.counts[point] += 1
        for fault in self.faults:
            mine = fault.task in (None, context.partitionId())
            if mine and fault.point == point and fault.nth <= self.counts[point]:
                self._strike(fault)

    def _strike(self, fault: Fault) -> None:
        if fault.blow is Blow.FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            os.close(os.open(Path(self.folder, fault.name), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        _STRIKES[fault.blow](Path(self.folder))


def _kill_worker(folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_executor(folder: Path) -> None:
    os.kill(_executor(), signal.SIGKILL)
    time.sleep(600)  # until the daemon, which hears of it, ends its workers


def _kill_others(folder: Path) -> None:
    others = {int(file.name.removeprefix("jvm-")) for file in folder.glob("jvm-*")} - {_executor()}
    assert others, "there is no other executor"
    for process in others:
        os.kill(process, signal.SIGKILL)


def _fail(folder: Path) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def _hang(folder: Path) -> None:
    (folder / f"hung-{os.getpid()}").touch()
    deadline = time.monotonic() + 120
    while not (folder / "release").exists() and time.monotonic() < deadline:
        time.sleep(0.05)


_STRIKES: dict[Blow, Callable[[Path], None]] = {
    Blow.WORKER: _kill_worker,
    Blow.EXECUTOR: _kill_executor,
    Blow.OTHERS: _kill_others,
    Blow.FAIL: _fail,
    Blow.HANG: _hang,
}


def _executor() -> int:
    """The process that started the daemon, which forked this worker."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("PPid:")]
    return int(line.split()[1])


class FaultyKeys:
    """A key generator that comes to `ROWS` with each batch."""

    def __init__(self, keys: KeyGenerator, faults: Faults) -> None:
        self.keys, self.faults = keys, faults

    def record_keys(self, batch: Any) -> Any:
        found = self.keys.record_keys(batch)
        self.faults.reach(ROWS)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "keys":
            raise AttributeError(name)
        return getattr(self.keys, name)


class FaultyStorage(LocalStorage):
    """A storage that comes to the other points."""

    def __init__(self, root: str, faults: Faults) -> None:
        super().__init__(root)
        self.faults = faults

    def put_if_absent(self, path: str, data: bytes) -> None:
        if path.startswith(TEMP_FOLDER):
            self.faults.reach(MARKER)
        super().put_if_absent(path, data)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        self.faults.reach(CREATE)
        with super().create(path) as file:
            yield cast(BinaryIO, _FaultySink(file, self.faults))
        self.faults.reach(FINISHED)


class _FaultySink:
    """A file that comes to `MIDDLE` once it has bytes of a first row group, and not all of them."""

    def __init__(self, file: BinaryIO, faults: Faults) -> None:
        self.file, self.faults, self.reached = file, faults, False

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self.reached or len(view) < 8:
            return self.file.write(view)
        self.reached = True
        self.file.write(view[: len(view) // 2])
        self.file.flush()
        self.faults.reach(MIDDLE)
        self.file.write(view[len(view) // 2 :])
        return len(view)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


WriteBatch = Callable[..., BatchResult]


@contextmanager
def struck(
    folder: Path,
    faults: Sequence[Fault],
    *,
    file_bytes: Callable[[int], int | None] = lambda batch: None,
    afterwards: Callable[[int, BatchResult], None] = lambda batch, done: None,
) -> Iterator[None]:
    """Within the context, faults strike the tasks of all batches that this process writes.

    Args:
        folder: takes the claims.
        faults: all of them.
        file_bytes: bytes that a file of a worker may have, by number of the batch.
        afterwards: called between tasks and commit.
    """
    folder.mkdir(exist_ok=True)
    write_batch, batches = sink_module.write_batch, Counter[str]()

    def write(batch: Any, table: LsmTable, plan: WritePlan, *more: Any) -> BatchResult:
        number = batches["all"]
        batches["all"] += 1
        mine = Faults(str(folder), tuple(each for each in faults if each.batch == number), file_bytes(number))
        keys = cast(KeyGenerator, FaultyKeys(plan.keys, mine))
        storage = FaultyStorage(table.path.removeprefix("file://"), mine)
        done = write_batch(batch, table, replace(plan, storage=storage, keys=keys), *more)
        afterwards(number, done)
        return done

    sink_module.write_batch = write
    try:
        yield
    finally:
        sink_module.write_batch = write_batch


def hung(folder: Path) -> int:
    """The process of the one task that hangs."""
    (file,) = folder.glob("hung-*")
    return int(file.name.removeprefix("hung-"))


def claimed(folder: Path) -> set[str]:
    """Names of the faults that have struck."""
    return {file.name for file in folder.iterdir() if not file.name.startswith(("jvm-", "hung-", "release"))}
