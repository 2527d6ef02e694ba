"""What runs in the processes: writers that repeat a batch until it is acknowledged, services, readers."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from streaming_lsm.errors import (
    ClusteringConflict,
    CommitConflict,
    CommitUnknown,
    ConfigError,
    Fenced,
    LsmError,
    StorageError,
)
from streaming_lsm.storage.failures import named_failures
from streaming_lsm.timeline.instant import Instant
from tests.support.faulty_storage import Killed
from tests.support.simulation.model.history import Attempt, Violation
from tests.support.simulation.processes.indexes import create_index, drop_index
from tests.support.simulation.processes.reading import read, read_savepoint
from tests.support.simulation.processes.replacement import replace_groups
from tests.support.simulation.processes.savepoints import delete_save, restore, roll_back, save
from tests.support.simulation.processes.table import SimulatedTable
from tests.support.simulation.scheduler import Life, Task
from tests.support.simulation.storage import INJECTED
from tests.support.simulation.work.batches import Batch, Overwrite
from tests.support.simulation.work.workload import HOSTS, ActorWork, Service
from tests.support.simulation.world import SimulatedProcess, World
from tests.support.small_tables import rows as table_of

_ATTEMPTS = 60
_CLUSTERING_CONFLICTS = 12
"""Conflicts with clusterings after which a writer runs the pending one: the process that planned it may be gone."""
_NO_GROUPS = "has no file groups"
_ANSWERS = (CommitConflict, Fenced, CommitUnknown)


class Seat:
    """A place for a process: when one dies, or is given up, another one is started in it."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._chance = world.chance(f"seat {name}")
        self._count = 0
        self.process = self._start()

    def running(self) -> SimulatedProcess:
        """The process that runs here; a new one if it is dead."""
        if self.process.life.is_dead:
            self.replace()
        return self.process

    def replace(self) -> None:
        """Start another process; the one before may be stopped, and go on later."""
        self.process = self._start()

    def _start(self) -> SimulatedProcess:
        self._count += 1
        return SimulatedProcess(self._world, f"{self._name}.{self._count}", self._chance.choice(HOSTS))


class Actor:
    """Does its steps, one after the other, in one process after the other.

    Attributes:
        is_alone: whether the process has no other actor.
        on_step: checks the table when a step is done.
    """

    def __init__(self, world: World, work: ActorWork, seat: Seat) -> None:
        self.world, self.work, self.seat = world, work, seat
        self._chance = world.chance(f"actor {work.name}")
        self._begun = 0
        self._next_step = 0
        self._task: Task | None = None
        self.is_alone = False
        self.on_step: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Add the task of a process to the scheduler."""
        self._task = self.world.scheduler.spawn(self._name(), self._run, self.seat.running().life)

    def replace(self, process: SimulatedProcess) -> None:
        """Start another process in the place of this one, if it is of this actor alone."""
        if self.seat.process is process and self.is_alone:
            self.seat.replace()
            self.start()

    def _name(self) -> str:
        self._begun += 1
        return f"{self.work.name}.{self._begun}"

    def _run(self) -> None:
        """Do the steps that are left; go on in another process when this one is killed."""
        me = self.world.scheduler.current
        while True:
            process = self.seat.running()
            me.life = process.life
            try:
                self._work(me, process)
                return
            except Killed:
                if self.world.scheduler.error is not None or self._task is not me:
                    raise
            me.life, me.name = Life(), self._name()
            self.world.scheduler.pause(process.down_us)
            self.world.tell("is started")

    def _work(self, me: Task, process: SimulatedProcess) -> None:
        scheduler, table = self.world.scheduler, None
        while self._next_step < len(self.work.steps):
            number = self._next_step
            step = self.work.steps[number]
            scheduler.pause(1000 * step.pause_ms)
            conflicts = 0
            for _ in range(_ATTEMPTS):
                try:
                    if table is None:
                        table = self._open(process)
                    if conflicts == _CLUSTERING_CONFLICTS:
                        conflicts = 0
                        self._do(table, Service.CLUSTER)
                    self._do(table, step.does)
                    self.world.check(self.on_step)
                    break
                except (*_ANSWERS, StorageError) as error:
                    self._check_named(error)
                    self.world.tell(f"{step.does}: {type(error).__name__}: {str(error)[:300]}")
                    conflicts += isinstance(error, ClusteringConflict)
                    if self._chance.random() < 0.5:
                        table = None
                except LsmError as error:
                    self._violated("unexpected error", f"{step.does}: {type(error).__name__}: {error}")
                if self._task is not me:
                    return  # another process goes on with the work
                scheduler.pause(self._chance.randint(1_000, 300_000))
            else:
                self._violated("starved", f"{step.does} failed {_ATTEMPTS} times")
            if self._task is not me:
                return
            self._next_step = number + 1

    def _open(self, process: SimulatedProcess) -> SimulatedTable:
        return open_table(process, **dict(self.work.options), **self.work.identity)

    def _do(self, table: SimulatedTable, what: Batch | Service) -> None:
        if isinstance(what, Batch):
            self._write(table, what)
        elif what is Service.READ:
            read(self.world, table)
            read_savepoint(self.world, table, self._chance)
        elif what is Service.REPLACE:
            with named_failures():
                replace_groups(self.world, table)
        else:
            self.world.tell(what.value)
            services: dict[Service, Callable[[], object]] = {
                Service.COMPACT: table.compact,
                Service.SCHEDULE: table.services.schedule,
                Service.LOG_COMPACT: lambda: table.services.compact(table._engine, log=True),
                Service.CLUSTER: table.cluster,
                Service.PLAN_CLUSTERING: table.services.schedule_clustering,
                Service.CLEAN: table.clean,
                Service.ARCHIVE: table.archive,
                Service.ROLL_BACK: lambda: roll_back(self.world, table),
                Service.RESTORE: lambda: restore(self.world, table, self._chance),
                Service.SAVE: lambda: save(self.world, table, self._chance),
                Service.UNSAVE: lambda: delete_save(self.world, table, self._chance),
                Service.INDEX: lambda: create_index(self.world, table, self._chance),
                Service.UNINDEX: lambda: drop_index(self.world, table, self._chance),
            }
            with named_failures():
                services[what]()

    def _write(self, table: SimulatedTable, batch: Batch) -> None:
        history, me = self.world.history, self.world.scheduler.current
        attempt = Attempt(batch, me.name)
        self.world.attempts[me] = attempt
        since = history.moment
        self.world.tell(f"writes {batch}")
        try:
            completed = write(table, batch)
        except CommitUnknown:
            raise
        except LsmError as error:
            told = f"{type(error).__name__}: {error}"
            if isinstance(error, ConfigError) and batch.deleted and _NO_GROUPS in told:
                self.world.check(lambda: history.decline(attempt, told, since))
                self.world.tell(f"{batch}: {told}")
                return
            self.world.check(lambda: history.refuse(attempt, told))
            raise
        finally:
            self.world.attempts[me] = None
        how = "it was skipped" if completed is None else completed.path
        self.world.check(lambda: history.acknowledge(batch, how, since, is_skipped=completed is None))
        self.world.tell(f"{batch} is acknowledged: {how}")

    def _check_named(self, error: LsmError) -> None:
        if isinstance(error, StorageError) and not isinstance(error, _ANSWERS) and INJECTED not in str(error):
            self._violated("unexpected error", f"{type(error).__name__}: {error}")

    def _violated(self, kind: str, message: str) -> None:
        self.world.fail(Violation(kind, message))
        self.world.scheduler.pause(0)  # ends this task


def open_table(process: SimulatedProcess, **options: object) -> SimulatedTable:
    """Open the table in a process."""
    return SimulatedTable(process, {**process.world.workload.options, **options})


def write(table: SimulatedTable, batch: Batch) -> Instant | None:
    """Write a batch; returns the completed instant, None if it was committed before."""
    if batch.deletes:
        keys = pa.table({"id": [key for key, _ in batch.deletes], "country": [where for _, where in batch.deletes]})
        return table.delete(keys, batch_id=batch.number)
    if batch.overwrite is Overwrite.DELETED:
        return table.delete_partitions([batch.deleted], batch_id=batch.number)
    if batch.overwrite is not None:
        overwrite = getattr(table, batch.overwrite.value)
        return overwrite(table_of(*batch.rows), batch_id=batch.number)  # type: ignore[no-any-return]
    upsert = table.bulk_insert if batch.is_bulk else table.upsert
    return upsert(table_of(*batch.rows), batch_id=batch.number)
