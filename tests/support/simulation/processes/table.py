"""The table as a simulated process has it; of some tasks of its actions a second attempt runs elsewhere."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pyarrow as pa

import streaming_lsm.readable_table
import streaming_lsm.services.compaction.attempt as compaction_attempt
import streaming_lsm.table
from streaming_lsm import LsmTable
from streaming_lsm.casts import fit_known
from streaming_lsm.config import CONFLICT_RETRIES, Options
from streaming_lsm.errors import LsmError, WriteConflict
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.services.compaction.runner import OperationTask
from streaming_lsm.storage import parallel
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.uris import open_storage
from streaming_lsm.timeline.action_kind import CLUSTERING
from streaming_lsm.timeline.instant import TIMELINE_FOLDER, Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import BatchIdentity
from streaming_lsm.txn.locked_table import Beside
from streaming_lsm.txn.retries import Attempt as RetriedAttempt
from streaming_lsm.txn.retries import write_with_retries
from streaming_lsm.txn.transaction import Transaction
from streaming_lsm.write.partition_writer import CollectedRows, collect, write_collected
from streaming_lsm.write.plan import UPSERT, WritePlan
from tests.support.simulation.model.history import Violation
from tests.support.simulation.schedule import LATE
from tests.support.simulation.work.workload import HOSTS
from tests.support.simulation.world import URI, SimulatedProcess

T = TypeVar("T")


def _compact_on(task: OperationTask, item: object, storage: Storage) -> object:
    target = replace(task.full.target, storage=storage)
    full, log = replace(task.full, target=target), replace(task.log, target=target)
    return OperationTask(full, log)(item)  # type: ignore[arg-type]


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
            if isinstance(task, OperationTask):
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
        self._world = process.world
        _opening.append(process.storage)
        super().__init__(URI, options)
        self._engine = self._tasks = _Tasks(process)  # type: ignore[assignment]

    def transaction(
        self,
        identity: BatchIdentity | None = None,
        beside: Beside | None = None,
        *,
        alone: bool = False,
        operation: str = UPSERT,
    ) -> Transaction:
        if alone:
            self._world.schedule.on_alone(self._world.scheduler.current.name)
        return super().transaction(identity, beside, alone=alone, operation=operation)

    def plan(self, tx: Transaction, *given: Any, **named: Any) -> WritePlan:
        attempt = self._world.attempts.get(self._world.scheduler.current)
        if attempt is not None:
            seen = {write.requested for write in tx.timeline.completed_writes}
            attempt.seen = frozenset(seen | self._archived())
            attempt.undone = len(self._world.history.undone)
            attempt.planned = frozenset(found.requested for found in tx.timeline.pending if found.action == CLUSTERING)
        return super().plan(tx, *given, **named)

    def _archived(self) -> set[str]:
        """The writes whose completed files are archived."""
        active = set(self._world.disk.paths())
        times = (
            (one.requested, f"{TIMELINE_FOLDER}/{one.requested}_{one.completed}.")
            for one in self._world.history.published
        )
        return {requested for requested, prefix in times if not any(path.startswith(prefix) for path in active)}

    def _write_here(
        self, tx: Transaction, plan: WritePlan, data: pa.Table | pa.RecordBatchReader, attempt: RetriedAttempt
    ) -> Instant:
        # As the tasks of Spark, of which there may be several attempts.
        sole = not self._world.workload.late_tasks
        return super()._write_here(tx, replace(plan, sole=sole), data, attempt)

    def _collect(
        self, plan: WritePlan, data: pa.Table | pa.RecordBatchReader, ignored: Counter[str] | None = None
    ) -> list[tuple[CollectedRows, WriteToken]]:
        token = WriteToken(0, 0, 1)

        def attempt(storage: Storage) -> None:
            other = replace(plan, storage=storage)
            rows = (fit_known(batch, plan.schema) for batch in pa.table(data).to_batches())
            write_collected(other, collect(other, rows, token), token)

        self._tasks.repeat(attempt)
        return super()._collect(plan, data, ignored)


@contextmanager
def _without_locks(holder: type) -> Iterator[None]:
    """Let several tasks compute a cached property: Python 3.11 locks it for all instances, and tasks pause in there."""
    with ExitStack() as patches:
        for found in vars(holder).values():
            if hasattr(found, "lock") and isinstance(found, cached_property):
                patches.enter_context(mock.patch.object(found, "lock", nullcontext()))
        yield


def _numbered_uuid(numbers: Iterator[int]) -> uuid.UUID:
    """The same ids in each run, such as those of the file groups that a clustering makes."""
    return uuid.uuid5(uuid.NAMESPACE_OID, str(next(numbers)))


@contextmanager
def simulated_storages(on_conflict: Callable[[WriteConflict], None]) -> Iterator[None]:
    """Let tables be opened on the storages of processes, and number the attempts at compactions one after the other.

    Args:
        on_conflict: is told of each attempt at a batch that has a conflict.
    """

    def opened(path: str | Path) -> Storage:
        return _opening.pop() if _opening else open_storage(path)

    def told(options: Options, runtime: Runtime, write: Callable[[RetriedAttempt], T], finish: Callable[[], None]) -> T:
        numbers = itertools.count()

        def attempt(retried: RetriedAttempt) -> T:
            if next(numbers) > options[CONFLICT_RETRIES]:
                raise Violation("not bounded", f"a batch is written again more than {options[CONFLICT_RETRIES]} times")
            try:
                return write(retried)
            except WriteConflict as conflict:
                on_conflict(conflict)
                raise

        return write_with_retries(options, runtime, attempt, finish)

    with (
        _without_locks(Timeline),
        mock.patch.object(parallel, "_MOST_THREADS", 1),
        mock.patch.object(uuid, "uuid4", partial(_numbered_uuid, itertools.count())),
        mock.patch.object(streaming_lsm.readable_table, "open_storage", opened),
        mock.patch.object(streaming_lsm.table, "write_with_retries", told),
        mock.patch.object(compaction_attempt, "_drawn", itertools.count().__next__),
    ):
        yield
