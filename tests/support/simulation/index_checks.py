"""Indexes of the metadata table agree with the data, whenever readers may use them; no process makes a call."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError, LsmError
from streaming_lsm.format.metadata.secondary_index import PREFIX
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.metadata.state import check_replacements, check_up_to_date
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.instant import TIMELINE_FOLDER
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline
from tests.support.metadata_tables import INDEXES, PARTITIONS, assert_locations
from tests.support.secondary_entries import assert_secondary_entries
from tests.support.simulation.model.history import Violation
from tests.support.simulation.processes.table import SimulatedTable
from tests.support.simulation.world import World

_TIMELINES = (f"{TIMELINE_FOLDER}/", f"{METADATA_TABLE}/{TIMELINE_FOLDER}/")
_OFTEN = 4
"""Checks of indexes of which one is of all, as reading the footers of all files takes long."""


def registered_indexes(table: Storage) -> list[str]:
    """The partitions of the metadata table that readers may use."""
    return [name for name in load_properties(table).get(PARTITIONS, "").split(",") if name]


def check_indexes_now(world: World, *, is_at_rest: bool = False) -> None:
    """Check the indexes of a table, wherever the processes are: those of keys, and now and then the others.

    Args:
        is_at_rest: whether all are checked.

    Raises:
        Violation: one has not what the rows and files of the snapshot have.
    """
    if not world.workload.is_indexed:
        return
    actions = frozenset(path for path in world.disk.paths() if path.startswith(_TIMELINES))
    if actions == world.checked_actions and not is_at_rest:
        return
    world.checked_actions = actions
    keys_only = not is_at_rest and world.count("checks of indexes") % _OFTEN > 0
    with tempfile.TemporaryDirectory(prefix="lsm-simulated-") as folder:
        world.disk.save(Path(folder))
        storage = LocalStorage(Path(folder))
        names = registered_indexes(storage)
        # While a table is being restored queries read another state than the newest one.
        is_whole = Timeline.load(storage).as_restored().origin is None
        if not is_whole or not names or not _is_known(storage, names):
            return
        try:
            world.checked.update(_agreeing(Path(folder), names, keys_only=keys_only))
        except (AssertionError, ValueError, LsmError) as error:
            raise Violation("index disagrees", f"{type(error).__name__}: {error}"[:400]) from error


def _is_known(storage: LocalStorage, names: list[str]) -> bool:
    """Whether the metadata table knows all actions; of what another program did readers notice that it does not."""
    own, data = Timeline.load(Subfolder(storage, METADATA_TABLE)), Timeline.load(storage)
    try:
        check_up_to_date(own, data)
        for name in names:
            check_replacements(own, data, name)
    except CorruptFileError:
        return False
    return True


def _agreeing(folder: Path, names: list[str], *, keys_only: bool) -> Iterator[str]:
    """Compare indexes with the data, and yield their names."""
    storage = LocalStorage(folder)
    for name in names:
        if name == "record_index":
            assert_locations(storage)
        elif name.startswith(PREFIX):
            assert_secondary_entries(storage, name, name.removeprefix(PREFIX))
        elif name in INDEXES and not keys_only:
            INDEXES[name](LsmTable(folder, {"lsm.read.threads": 1}))
        else:
            continue
        yield name


def check_indexes_at_rest(world: World, table: SimulatedTable) -> None:
    """Check that the library's own check of the indexes, which compares each record with the files, agrees.

    Raises:
        Violation: it has found a difference.
    """
    check_indexes_now(world, is_at_rest=True)
    if not world.workload.is_indexed or not load_properties(table.storage).get(PARTITIONS):
        return
    found = table.check_indexes()
    world.checked.update(list(found.records))
    # Another program has replaced file groups last, but for compactions: readers notice it, and the next write drops
    # the indexes.
    changing = [one for one in world.history.published if one.changes or one.clustered or one.is_replacement]
    is_last = any(one.is_replacement for one in changing[-1:])
    is_behind = is_last and any("has fallen behind" in one.message for one in found.findings)
    if not (found.is_sound or is_behind):
        raise Violation(
            "index disagrees", "; ".join(f"{one.index}: {one.kind}: {one.message}" for one in found.findings)
        )
