"""Savepoints that a user makes and deletes, restores to them, and rollbacks of the last write."""

from __future__ import annotations

import random
import re

from streaming_lsm.errors import ConfigError
from streaming_lsm.timeline.instant import Instant
from tests.support.simulation.model.history import Violation
from tests.support.simulation.processes.table import SimulatedTable
from tests.support.simulation.world import World

_REFUSED = re.compile(
    "has no completed write|is a savepoint already|were cleaned|is archived|has no savepoint"
    "|was planned after it|was completed after it|keeps its files|was cleaned|may delete what it superseded"
    "|nothing was completed or planned since|keeps a later state"
)
"""What a user may be told who looked at the table some time ago."""


def save(world: World, table: SimulatedTable, chance: random.Random) -> None:
    """Make a savepoint of the last write, or of one before."""
    writes = [write.requested for write in table.timeline.completed_writes]
    try:
        made = table.savepoint(chance.choice([None, *writes]))
    except ConfigError as error:
        _check_refused(world, error)
        return
    world.tell(f"made the savepoint {made.path}")
    history = world.history
    if not history.unsaving[made.requested] and made.path in world.disk.paths():
        history.saved.append(made.requested)


def delete_save(world: World, table: SimulatedTable, chance: random.Random) -> None:
    """Delete one of the savepoints, if there is any."""
    known = [found.instant.requested for found in table.savepoints]
    if not known:
        return
    requested, history = chance.choice(known), world.history
    history.saved = [found for found in history.saved if found != requested]
    history.unsaving[requested] += 1
    try:
        table.delete_savepoint(requested)
    except ConfigError as error:
        _check_refused(world, error)
    finally:
        history.unsaving[requested] -= 1


def roll_back(world: World, table: SimulatedTable) -> None:
    """Roll back the last completed write."""
    try:
        done = table.rollback()
    except ConfigError as error:
        _check_refused(world, error)
        return
    _check_undone(world, done)


def restore(world: World, table: SimulatedTable, chance: random.Random) -> None:
    """Restore the table to one of the savepoints, if there is any."""
    known = [found.instant.requested for found in table.savepoints]
    if not known:
        return
    try:
        done = table.restore(chance.choice(known))
    except ConfigError as error:
        _check_refused(world, error)
        return
    _check_undone(world, done)


def _check_undone(world: World, done: Instant) -> None:
    world.tell(f"is done: {done.path}")
    savepoint_or_write = world.history.plans.get(done.requested, ())[-1:]
    left = [one.requested for one in world.history.published if (one.requested,) == savepoint_or_write]
    if left:
        world.fail(Violation("not undone", f"{done.path}, but {left} is there"))


def _check_refused(world: World, error: ConfigError) -> None:
    world.tell(f"{type(error).__name__}: {error}")
    if not _REFUSED.search(str(error)):
        world.fail(Violation("refused without reason", str(error)))
