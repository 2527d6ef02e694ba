"""The table as a simulated process has it; of some tasks of its actions a second attempt runs elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from unittest import mock

import pyarrow as pa

import streaming_lsm.readable_table
from streaming_lsm import LsmTable
from streaming_lsm.errors import LsmError
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.schema import fit_known
from streaming_lsm.services.compaction.task import CompactionTask
from streaming_lsm.storage.base import Storage
from streaming_lsm.write.partition_writer import CollectedRows, collect, write_collected
from streaming_lsm.write.plan import WritePlan
from tests.support.simulation.schedule import LATE
from tests.support.simulation.workload import HOSTS
from tests.support.simulation.world import URI, SimulatedProcess


def _compact_on(task: CompactionTask, item: object, storage: Storage) -> object:
    return replace(task, storage=storage)(item)  # type: ignore[arg-type]


class _Tasks:
    """Runs the tasks of an action one after the other, where they are asked for; of some a second attempt elsewhere.

    As executors do that are slow, or speculate: the second attempt may end long after the action.
    """

    width = 1

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._world = process.world

    def map(self, task: Callable[..., object], items: Iterable[object]) -> Iterator[object]:
        for item in items:
            if isinstance(task, CompactionTask):
                self.repeat(partial(_compact_on, task, item))
            yield task(item)

    def repeat(self, run: Callable[[Storage], object]) -> None:
        """Run another attempt at a task, now and then, in a process of its own."""
        world = self._world
        track = world.scheduler.current.name
        number = world.count(f"{track} tasks")
        chance = world.chance(f"task {number} of {track}")
        if chance.random() >= world.workload.late_tasks:
            return
        executor = SimulatedProcess(world, f"{track}{LATE}{number}", chance.choice(HOSTS))

        def attempt() -> None:
            with suppress(LsmError, OSError):
                run(executor.storage)

        world.scheduler.spawn(f"{track}{LATE}{number}", attempt, executor.life, chance.randint(0, 50_000))


_opening: list[Storage] = []


class SimulatedTable(LsmTable):
    """The table as a simulated process has it."""

    def __init__(self, process: SimulatedProcess, options: dict[str, object]) -> None:
        self.runtime = process.runtime
        _opening.append(process.storage)
        super().__init__(URI, options)
        self._engine = self._tasks = _Tasks(process)  # type: ignore[assignment]

    def _collect(
        self, plan: WritePlan, data: pa.Table | pa.RecordBatchReader
    ) -> list[tuple[CollectedRows, WriteToken]]:
        token = WriteToken(0, 0, 1)

        def attempt(storage: Storage) -> None:
            other = replace(plan, storage=storage)
            rows = (fit_known(batch, plan.schema) for batch in pa.table(data).to_batches())
            write_collected(other, collect(other, rows, token), token)

        self._tasks.repeat(attempt)
        return super()._collect(plan, data)


@contextmanager
def simulated_storages() -> Iterator[None]:
    """Let tables be opened on the storages of processes."""

    def opened(path: object) -> Storage:
        return _opening.pop()

    with mock.patch.object(streaming_lsm.readable_table, "open_storage", opened):
        yield
