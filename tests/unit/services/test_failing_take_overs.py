"""A writer is stopped just before it decides, and the writers that take the lock over from it fail in turn.

The stopped writer counts as dead only for those that took the lock from it: if they fail, the next one must know.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CommitConflict, CommitUnknown, Fenced, StorageError
from streaming_lsm.lock.lock import LOCK_FILE
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import WriterLedger
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from tests.support.faulty_storage import FaultyStorage
from tests.support.interleaving import Driver, one_clock
from tests.support.service_tables import OPTIONS_OF_SERVICES, grown
from tests.support.small_tables import Row, rows, shown
from tests.support.writers import new_process

T = TypeVar("T")
NEW: Row = ("new", "nl", 99, 999)
QUERY = {"lsm.writer.id": "query"}
FAILURES = 16
"""Calls after the take-over that fail, one in each run; the later ones are in the taker's own write."""


class _FailsAfterTakeOver(FaultyStorage):
    def __init__(self, inner: Storage, failing: int) -> None:
        super().__init__(inner)
        self._left: int | None = None
        self._failing = failing

    def _call(self, name: str, path: str, effect: Callable[[], T]) -> T:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise OSError(5, "injected", path)
        result = super()._call(name, path, effect)
        if (name, path) == ("replace_if_unchanged", LOCK_FILE) and self._left is None:
            self._left = self._failing
        return result


def driven(root: Path, *, others_live: bool, storage: Storage | None = None) -> LsmTable:
    """The table as one more process has it."""
    table = LsmTable(root, {**OPTIONS_OF_SERVICES, "lsm.writer.id": "other"})
    table.runtime = new_process(clock=one_clock, alive=lambda process: others_live)
    table.storage = storage or table.storage
    return table


def write_new(table: LsmTable) -> object:
    return table.upsert(rows(NEW), batch_id=7)


def deciding_call(root: Path) -> int:
    driver = Driver(root, write_new, **QUERY)
    calls = enumerate(driver.calls)
    return next(n for n, (name, path) in calls if name == "put_if_absent" and path.startswith(DECISION_FOLDER))


@pytest.mark.parametrize("failing", range(1, FAILURES))
def test_what_a_stopped_writer_publishes_is_there_and_known_to_the_ledger(tmp_path: Path, failing: int) -> None:
    root = tmp_path / "table"
    grown(root)
    shutil.copytree(root, tmp_path / "copy")
    stopped = Driver(root, write_new, stop_at=deciding_call(tmp_path / "copy"), **QUERY)
    taker = driven(root, others_live=False, storage=_FailsAfterTakeOver(LocalStorage(root), failing))
    with suppress(StorageError, CommitConflict, CommitUnknown):
        taker.upsert(rows(("z", "nl", 1, 1)))
    with suppress(CommitConflict):
        driven(root, others_live=True).compact()
    stopped.go_on()
    assert stopped.error is None or isinstance(stopped.error, Fenced)
    assert (NEW in shown(LsmTable(root, OPTIONS_OF_SERVICES))) == (stopped.error is None)
    driven(root, others_live=False).upsert(rows(("y", "nl", 1, 1)))
    known = WriterLedger.of(Timeline.load(LocalStorage(root))).writers
    assert ("query" in known) == (stopped.error is None)
