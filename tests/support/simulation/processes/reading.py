"""Readers: a snapshot is that of a moment, and savepoints are kept."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pyarrow.compute as pc

from streaming_lsm.errors import CorruptFileError, LsmError, StorageError
from tests.support.simulation.model.history import Rows, Violation
from tests.support.simulation.processes.table import SimulatedTable
from tests.support.simulation.storage import INJECTED
from tests.support.simulation.world import World
from tests.support.small_tables import Row


def read(world: World, table: SimulatedTable) -> None:
    """Read a snapshot, which is that of a moment between now and then; files may be cleaned meanwhile."""
    history = world.history
    since, deleted, revived = history.moment, history.deleted, history.revived
    try:
        found = rows_of(table)
    except (StorageError, CorruptFileError) as error:
        if history.deleted == deleted:
            raise
        world.tell(f"was overtaken by a clean: {error}")
        return
    if history.revived != revived:
        return
    states = history.states(since)
    if found not in states:
        world.fail(Violation("snapshot of no moment", f"{sorted(found.values())}"))
    for wanted, keeps in _filters(world, found):
        _read_some(world, table, deleted, wanted, keeps)
    world.tell(f"reads {len(found)} rows")


def _filters(world: World, found: Rows) -> Iterator[tuple[pc.Expression, Callable[[Row], bool]]]:
    """Filters by which indexes of the metadata table may skip files and partitions, and the rows that each keeps."""
    last = max(found.values(), key=lambda row: row[2], default=("", "", 0, 0))
    yield pc.field("ts") >= last[2], lambda row: row[2] >= last[2]
    if not world.workload.is_indexed:
        return
    yield pc.field("id") == last[0], lambda row: row[0] == last[0]
    number = 3 if world.workload.secondary_column == "qty" else 2
    yield pc.field(("ts", "qty")[number - 2]) == last[number], lambda row: row[number] == last[number]


def _read_some(
    world: World, table: SimulatedTable, deleted: int, wanted: pc.Expression, keeps: Callable[[Row], bool]
) -> None:
    """Read the rows of a snapshot that a filter keeps."""
    history = world.history
    since, revived = history.moment, history.revived
    try:
        found = rows_of(table, filter=wanted)
    except (StorageError, CorruptFileError):
        if history.deleted == deleted:
            raise
        return
    states = [{key: row for key, row in state.items() if keeps(row)} for state in history.states(since)]
    if history.revived == revived and found not in states:
        world.fail(Violation("filtered snapshot of no moment", f"{wanted}: {sorted(found.values())}"))


def read_savepoint(world: World, table: SimulatedTable, chance: random.Random) -> None:
    """Read as of one of the savepoints, if there is any."""
    if world.history.saved:
        check_savepoint(world, table, chance.choice(world.history.saved))


def check_savepoint(world: World, table: SimulatedTable, requested: str) -> None:
    """Check the rows as of a savepoint; it may be deleted meanwhile."""
    history = world.history
    since = history.moment
    try:
        found = rows_of(table, as_of=requested)
    except (LsmError, OSError) as error:
        if requested not in history.saved:
            world.tell(f"as of the savepoint {requested}, which was deleted: {error}")
        elif INJECTED in str(error):
            raise
        else:
            world.fail(Violation("savepoint not kept", f"{requested}: {type(error).__name__}: {error}"))
        return
    if requested in history.saved and found not in history.saved_states(requested, since):
        world.fail(Violation("savepoint changed", f"as of {requested}: {sorted(found.values())}"))
    world.tell(f"reads {len(found)} rows as of the savepoint {requested}")


def rows_of(table: SimulatedTable, **how: object) -> Rows:
    """The rows that a table shows, by key."""
    found = table.scan(["id", "country", "ts", "qty"], **how).to_arrow().to_pylist()  # type: ignore[arg-type]
    rows = {row["id"]: tuple(row.values()) for row in found}
    if len(rows) < len(found):
        raise Violation("key twice", str(found))
    return rows
