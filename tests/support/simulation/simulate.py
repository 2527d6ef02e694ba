"""Run the schedule of a seed."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.simulation.aims import aim_of
from tests.support.simulation.running import Result, run
from tests.support.simulation.schedule import Event, RandomSchedule, Schedule
from tests.support.simulation.work.modes import Mode
from tests.support.simulation.work.workload import LEASE_MS, Setting, Workload, draw_workload, indexed_setting


def simulate(
    seed: int,
    *,
    mode: Mode | None = None,
    workload: Workload | None = None,
    events: Iterable[Event] | None = None,
    details: bool = False,
) -> Result:
    """Run the schedule of a seed.

    Args:
        mode: how writers are kept apart; by default as the seed says.
        workload: by default the seed's.
        events: what happens; by default what is drawn from the seed.
        details: whether the trace has calls that only look, too.
    """
    aim = aim_of(seed) if mode is None else None
    work = workload or draw_workload(seed, aim.setting if aim else Setting(mode=mode))
    schedule = RandomSchedule(seed, LEASE_MS, aim) if events is None else Schedule(events)
    return run(seed, work, schedule, details=details)


def simulate_indexed(seed: int, *, details: bool = False) -> Result:
    """Run the schedule of a seed with a table that has all indexes."""
    return simulate(seed, workload=draw_workload(seed, indexed_setting(seed)), details=details)
