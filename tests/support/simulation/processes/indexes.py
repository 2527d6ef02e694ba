"""Indexes that a user creates and drops while writers and services go on."""

from __future__ import annotations

import random
import re

from streaming_lsm.errors import ConfigError, LsmError, UnsupportedTable
from tests.support.simulation.index_checks import registered_indexes
from tests.support.simulation.model.history import Violation
from tests.support.simulation.processes.table import SimulatedTable
from tests.support.simulation.world import World

_EXPRESSION = "expr_index_id"
_FORM = {"hoodie.metadata.index.expression.column": "id", "hoodie.expression.index.function": "lower"}
_ALWAYS = ("column_stats", "record_index")
_REFUSED = re.compile("already: drop it first|has no metadata table|has no index|the table has no partition yet")
"""What a user may be told who looked at the table some time ago."""


def create_index(world: World, table: SimulatedTable, chance: random.Random) -> None:
    """Create an expression index, or one of those that a user dropped before."""
    registered = registered_indexes(table.storage)
    missing = [name for name in (_EXPRESSION, *_ALWAYS) if name not in registered]
    if not missing or "files" not in registered:
        return
    name = missing[0] if missing[0] == _EXPRESSION else chance.choice(missing)
    world.tell(f"creates {name}")
    try:
        table.create_index(name, _FORM if name == _EXPRESSION else None)
    except (ConfigError, UnsupportedTable) as error:
        _check_refused(error)


def drop_index(world: World, table: SimulatedTable, chance: random.Random) -> None:
    """Drop an index, if there is any."""
    registered = registered_indexes(table.storage)
    if not registered:
        return
    name = chance.choice(registered)
    world.tell(f"drops {name}")
    try:
        table.drop_index(name)
    except ConfigError as error:
        _check_refused(error)


def _check_refused(error: LsmError) -> None:
    if not _REFUSED.search(str(error)):
        raise Violation("unexpected error", f"{type(error).__name__}: {error}") from error
