"""A driver is stopped while it recovers the table, and resumes when another one has taken over and commits a write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import Fenced
from streaming_lsm.lock.markers import TEMP_FOLDER
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from tests.support.faulty_storage import Killed
from tests.support.interleaving import Driver
from tests.support.service_tables import Model, assert_sound, grown, reopened
from tests.support.small_tables import Row, rows

OTHER: Row = ("other", "nl", 9000, 2)
LISTING = ("list", TEMP_FOLDER)

Copies = Callable[[], Path]


def only_enter(table: LsmTable) -> object:
    with table.transaction():
        return None


def upsert_other(table: LsmTable) -> object:
    return table.upsert(rows(OTHER))


def decision_of(driver: Driver) -> int:
    """Number of the call that creates the last decision record."""
    calls = enumerate(driver.calls)
    return max(n for n, (name, path) in calls if name == "put_if_absent" and path.startswith(f"{DECISION_FOLDER}/"))


def copies(root: Path) -> Copies:
    numbers = count()
    return lambda: Path(shutil.copytree(root, root.parent / f"copy-{next(numbers)}"))


@pytest.fixture(params=[False, True], ids=["nothing-left", "dead-write-left"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Copies, Model]:
    """A table, in which a driver died when its files were written and not decided; and its rows."""
    root = tmp_path / "table"
    _, model = grown(root)
    copy = copies(root)
    if request.param:
        decided = decision_of(Driver(copy(), upsert_other))
        assert isinstance(Driver(root, upsert_other, dies_at=decided).error, Killed)
    return copy, model


def has_markers(root: Path) -> bool:
    return bool(list(LocalStorage(root).folders(TEMP_FOLDER)))


def test_a_stale_recovery_deletes_nothing_of_a_write_that_is_decided_meanwhile(table: tuple[Copies, Model]) -> None:
    copy, model = table
    lists = Driver(copy(), only_enter).calls.index(LISTING)
    root = copy()
    stale = Driver(root, only_enter, lists)
    decided = decision_of(Driver(root, upsert_other))
    stale.go_on()
    seen = []
    for later in range(1, 8):
        root = copy()
        stale = Driver(root, only_enter, lists)
        assert stale.is_stopped
        writer = Driver(root, upsert_other, decided + later)
        sees_markers = has_markers(root)
        stale.go_on()
        writer.go_on()
        assert isinstance(stale.error, Fenced if sees_markers else Fenced | None), (later, stale.error)
        assert isinstance(writer.error, Fenced | None), writer.error
        has_row = writer.error is None
        assert_sound(reopened(LsmTable(root)), {**model, OTHER[0]: OTHER} if has_row else model)
        seen.append(sees_markers)
    assert seen[0]
