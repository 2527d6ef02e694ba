"""Run a schedule: the work of its processes, and what happens to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from streaming_lsm.config import resolve
from streaming_lsm.table_options import new_table_config
from streaming_lsm.timeline.properties_file import create_table_files
from tests.support.faulty_storage import Killed
from tests.support.simulation.checks import check, settle
from tests.support.simulation.index_checks import check_indexes_now
from tests.support.simulation.model.history import Violation
from tests.support.simulation.processes.actors import Actor, Seat
from tests.support.simulation.processes.table import simulated_storages
from tests.support.simulation.schedule import Event, Kind, Schedule
from tests.support.simulation.scheduler import Life, Stuck
from tests.support.simulation.work.workload import Workload
from tests.support.simulation.world import Line, SimulatedProcess, World
from tests.support.small_tables import SCHEMA


@dataclass(frozen=True)
class Result:
    """What came of a run.

    Attributes:
        violation: the promise that was broken, None if all held.
        events: those that happened.
        lines: the trace.
        checksum: of the whole trace.
        struck: how often which kind of event happened at which kind of call.
        calls: how often which kind of call was made.
        commits: number of batches committed.
        conflicts: how often which conflict was raised between writes.
        checked: how often which index was compared with the data.
        clusterings: number of clusterings that were completed.
    """

    seed: int
    workload: Workload
    violation: Violation | None
    events: tuple[Event, ...]
    lines: tuple[Line, ...]
    checksum: int
    struck: Counter[tuple[str, str, Kind]]
    calls: Counter[tuple[str, str]]
    commits: int
    conflicts: Counter[str]
    checked: Counter[str]
    clusterings: int

    def without_trace(self) -> Result:
        """The same without its lines, which are long."""
        return replace(self, lines=())


def run(seed: int, work: Workload, schedule: Schedule, *, details: bool = False, until_settled: bool = True) -> Result:
    """Run a schedule.

    Args:
        seed: of what is drawn on the way, such as the times that calls take.
        work: what the processes do.
        schedule: what happens to their calls.
        details: whether the trace has calls that only look, too.
        until_settled: whether the table is recovered and checked at the end.
    """
    world = World(seed, work, schedule, details=details)
    with simulated_storages(world.on_conflict):
        violation = _run(world, (settle, check) if until_settled else ())
    return Result(
        seed,
        work,
        violation,
        tuple(schedule.happened),
        tuple(world.trace.lines),
        world.trace.checksum,
        world.struck,
        world.calls,
        len(world.history.committed),
        world.conflicts,
        world.checked,
        sum(bool(one.clustered) for one in world.history.published),
    )


def _run(world: World, at_last: Iterable[Callable[[World], None]]) -> Violation | None:
    config = new_table_config(resolve(world.workload.options, None), SCHEMA)
    create_table_files(world.disk, config.to_properties(), lambda: world.now_ms)
    try:
        _act(world)
        world.scheduler.run()
        world.schedule.is_over = True
        for task in at_last:
            world.scheduler.spawn(task.__name__, _guarded(world, task), Life())
            world.scheduler.run()
    except Violation as violation:
        return violation
    except Stuck as stuck:
        return Violation("stuck", str(stuck))
    except Exception as error:
        return Violation("unexpected error", f"{type(error).__name__}: {error}")
    return None


def _act(world: World) -> None:
    seats: dict[str, Seat] = {}
    actors = []
    for work in world.workload.actors:
        seat = seats.setdefault(work.seat, Seat(world, work.seat)) if work.seat not in seats else seats[work.seat]
        actors.append(Actor(world, work, seat))
    for actor in actors:
        actor.is_alone = [other.seat for other in actors].count(actor.seat) == 1
        actor.start()

    def replace(process: SimulatedProcess) -> None:
        for actor in actors:
            actor.replace(process)

    world.on_replace = replace
    for actor in actors:
        actor.on_step = lambda: check_indexes_now(world)


def _guarded(world: World, task: Callable[[World], None]) -> Callable[[], None]:
    """A task whose errors are violations."""

    def run() -> None:
        try:
            task(world)
        except (Violation, Killed):
            raise
        except Exception as error:
            raise Violation(f"{task.__name__} failed", f"{type(error).__name__}: {error}") from error

    return run
