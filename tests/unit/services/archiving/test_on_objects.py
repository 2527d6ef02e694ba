"""Archiving in an object store, where files are deleted in no order: no action is lost, whenever a process stops."""

from __future__ import annotations

import uuid

from streaming_lsm import LsmTable
from streaming_lsm.errors import CommitConflict
from streaming_lsm.timeline.archive import History
from streaming_lsm.timeline.instant import Action
from tests.support.interleaving import Driver
from tests.support.service_tables import OPTIONS_OF_SERVICES
from tests.support.small_tables import SCHEMA, rows, shown
from tests.unit.services.archiving.test_runner import BY_HAND

OPTIONS = {**OPTIONS_OF_SERVICES, **BY_HAND}
STEP = 7


def archive(table: LsmTable) -> object:
    return table.archive()


def write_and_archive(table: LsmTable) -> None:
    for number in range(8):
        table.upsert(rows((f"k{number}", "nl", 100 + number, number)))
        table.archive()


def every(table: LsmTable) -> list[Action]:
    """The completed actions of the timeline and of the history."""
    history = History(table.storage)
    found = [action.of_action for action in table.timeline.instants if action.is_completed]
    return sorted([*found, *((a.requested, a.action) for a in history.instants(history.manifest.files))])


def test_archiving_that_is_stopped_in_an_object_store_loses_no_action() -> None:
    def made() -> str:
        uri = f"memory://archived-{uuid.uuid4().hex}/orders"
        table = LsmTable.create(uri, SCHEMA, OPTIONS)
        for number in range(9):
            table.upsert(rows((f"k{number}", "nl", number, number)))
        return uri

    calls = Driver(made(), archive, **BY_HAND).calls
    for call in range(0, len(calls), STEP):
        uri = made()
        stopped = Driver(uri, archive, call, **BY_HAND)
        other = Driver(uri, write_and_archive, **BY_HAND)
        assert other.error is None or isinstance(other.error, CommitConflict)
        known = every(LsmTable(uri))
        expected = shown(LsmTable(uri))
        stopped.go_on()
        table = LsmTable(uri, OPTIONS)
        assert set(every(table)) >= set(known), calls[call]
        assert shown(table) == expected, calls[call]
        for number in range(6):
            table.upsert(rows(("last", "nl", 200 + number, number)))
        table.archive()
        found = every(table)
        assert len(found) == len(set(found)) == len(set(known)) + 6, calls[call]
        assert not table.timeline.pending
