"""Find a short schedule that breaks the same promise, and tell it to people."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Sequence
from functools import partial

from tests.support.leaving_out import leave_out
from tests.support.simulation.running import Result
from tests.support.simulation.schedule import Event
from tests.support.simulation.simulate import simulate
from tests.support.simulation.work.workload import ActorWork, Step, Workload

Run = Callable[..., Result]
_AROUND = 4
"""Lines of a track before and after an event that are shown."""
_TELLING = re.compile(
    r"(?!\w+ [^ ]*(/|\.parquet))|put_if_absent \.hoodie/(timeline|\.decisions|lock)|\w+ \.hoodie/lock True"
)
"""What is shown of all tracks: what actors say, instants, decisions and the lock."""


def shrink(result: Result, *, seconds: float = 120, run: Run = simulate) -> Result:
    """Leave events and work out while the same kind of promise is broken.

    Args:
        result: of a run that broke one.
        seconds: of real time after which it is short enough.
        run: runs a schedule, as `simulate`.

    Returns:
        The result of the shortest schedule that was found.
    """
    until = time.monotonic() + seconds
    best = result

    def breaks(events: Sequence[Event], workload: Workload) -> bool:
        nonlocal best
        if time.monotonic() > until:
            return False
        found = run(result.seed, workload=workload, events=events)
        is_same = _kind(found) == _kind(result)
        if is_same:
            best = found
        return is_same

    def breaks_with(actor: ActorWork, steps: Sequence[Step]) -> bool:
        return breaks(best.events, _with_steps(best, actor, steps))

    if not breaks(result.events, result.workload):
        return result
    size = 0
    while size != _size(best) and time.monotonic() < until:
        size = _size(best)
        leave_out(best.workload.actors, lambda actors: breaks(best.events, _of(best.workload, actors)))
        leave_out(best.events, lambda events: breaks(events, best.workload))
        for actor in best.workload.actors:
            leave_out(actor.steps, partial(breaks_with, actor))
    return run(result.seed, workload=best.workload, events=best.events, details=True)


def story(result: Result) -> str:
    """Tell a broken promise: the seed, the work, the events, and the steps around them."""
    work = [f"  {actor.name} in process {actor.seat}: " + ", ".join(str(step.does) for step in actor.steps)
            for actor in result.workload.actors]  # fmt: skip
    return "\n".join(
        [
            f"seed {result.seed}: {result.violation}",
            f"repeat it with LSM_SEED={result.seed}; the shortest schedule that was found:",
            *work,
            *(f"  {event}" for event in result.events),
            "what happened (the steps of each track around its events):",
            *_around(result),
        ]
    )


def _around(result: Result) -> list[str]:
    """The lines of each track around its events, and of all tracks what changes the timeline or the lock."""
    wanted: set[int] = set()
    numbers: dict[str, list[int]] = {}
    for number, line in enumerate(result.lines):
        numbers.setdefault(line.track, []).append(number)
        if not line.is_detail and _TELLING.match(line.text):
            wanted.add(number)
    for own in numbers.values():
        for place, number in enumerate(own):
            if result.lines[number].text.startswith(("***", "… goes on")):
                wanted.update(own[max(0, place - _AROUND) : place + _AROUND + 1])
    return [str(line) for number, line in enumerate(result.lines) if number in wanted]


def _kind(result: Result) -> str:
    return result.violation.kind if result.violation else ""


def _size(result: Result) -> int:
    return len(result.events) + sum(len(actor.steps) for actor in result.workload.actors)


def _of(workload: Workload, actors: Sequence[ActorWork]) -> Workload:
    return dataclasses.replace(workload, actors=tuple(actors))


def _with_steps(result: Result, changed: ActorWork, steps: Sequence[Step]) -> Workload:
    actors = [
        dataclasses.replace(actor, steps=tuple(steps)) if actor.name == changed.name else actor
        for actor in result.workload.actors
    ]
    return _of(result.workload, actors)
