"""What schedules aim at: each kind of call of a commit meets each family of events, by the seeds alone.

Some calls are made in few tables, and once for each commit or less: drawn events seldom strike them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from tests.support.simulation.running import run
from tests.support.simulation.schedule import FAMILIES, Aim, Call, Schedule
from tests.support.simulation.work.batches import Batch
from tests.support.simulation.work.modes import Mode, early_detection
from tests.support.simulation.work.workload import HOSTS, ActorWork, Setting, Step, Workload

_SETTINGS = (
    Setting("native logs", on_objects=False),
    Setting("copy on write", on_objects=False),
    Setting("inline logs", on_objects=False),
    Setting("native logs", Mode.OPTIMISTIC, early_detection(), on_objects=False),
    Setting("native logs", on_objects=True),
)


@lru_cache(1)
def commit_calls() -> dict[Call, Setting]:
    """The calls of batches that are written without any trouble, and a setting in which each is made."""
    return {call: setting for setting in reversed(_SETTINGS) for call in _calls_in(setting)}


def _calls_in(setting: Setting) -> Iterable[Call]:
    rows = (("k0", "nl", 1, 1), ("k1", "de", 1, 2))
    steps = tuple(Step(0, Batch("w0", number, rows)) for number in range(2))
    mode, options = setting.mode or Mode.SINGLE_WRITER, setting.all_options()
    work = Workload(
        mode,
        options,
        (ActorWork("w0", "w0", steps),),
        dict.fromkeys(HOSTS, 0),
        server_times=True,
        late_tasks=0,
        on_objects=bool(setting.on_objects),
    )
    return run(0, work, Schedule(), until_settled=False).calls


@lru_cache(1)
def _aims() -> tuple[Aim, ...]:
    calls = sorted(commit_calls().items(), key=lambda item: item[0])
    return tuple(Aim(setting, call, family) for call, setting in calls for family in FAMILIES)


def aim_of(seed: int) -> Aim | None:
    """What the schedule of a seed aims at: every second one has an aim, one after the other."""
    if seed % 2 == 0:
        return None
    return _aims()[seed // 2 % len(_aims())]
