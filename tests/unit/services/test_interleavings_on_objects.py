"""Drivers on an object store that are stopped, or die, at a storage call: what one was told is what the table holds.

Deletions by comparison leave tombstones there, which must be absent for every driver. ``make faults`` stops at every
call, ``make test`` at a part of them.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CommitConflict, CommitUnknown, Fenced
from streaming_lsm.lock.lock import LOCK_FILE
from streaming_lsm.storage.objects.probe import PROBE_NAME
from tests.oracle.validator import validate
from tests.support.faulty_storage import Killed
from tests.support.interleaving import Driver, Work
from tests.support.raw_objects import download
from tests.support.service_tables import OPTIONS_OF_SERVICES, Model, grow
from tests.support.small_tables import SCHEMA, Row, rows, shown

STEP = 1 if os.environ.get("LSM_ALL_FAULTS") else 37

TOLD = (CommitConflict, CommitUnknown, Fenced, Killed)

FIRST: Row = ("first", "nl", 9000, 1)
OTHER: Row = ("other", "nl", 9000, 2)
THIRD: Row = ("third", "de", 9000, 3)
BEFORE: Row = ("before", "nl", 9000, 0)


def write(row: Row) -> Work:
    return lambda table: table.upsert(rows(row))


def compact(table: LsmTable) -> object:
    return table.compact()


def write_again(table: LsmTable) -> object:
    """Write to a table that is known from the write before: nothing is listed."""
    table.upsert(rows(BEFORE))
    return table.upsert(rows(FIRST))


@dataclass(frozen=True)
class Case:
    """What the driver that is stopped does, and the row that it adds.

    Attributes:
        before: what it does before it may be stopped, and the row that this adds.
    """

    work: Work
    adds: Row | None = None
    metadata: bool = False
    before: tuple[Work, Row] | None = None


CASES = {
    "upsert": Case(write(FIRST), FIRST),
    "upsert-with-metadata-table": Case(write(FIRST), FIRST, metadata=True),
    "second-upsert": Case(write_again, FIRST, before=(write(BEFORE), BEFORE)),
    "compaction": Case(compact),
    "compaction-with-metadata-table": Case(compact, metadata=True),
}


def table_in_memory(case: Case) -> tuple[str, Model]:
    uri = f"memory://{uuid.uuid4().hex}/orders"
    table = LsmTable.create(uri, SCHEMA, {**OPTIONS_OF_SERVICES, "hoodie.metadata.enable": case.metadata})
    model: Model = {}
    for batch in range(3):
        grow(table, model, batch)
    return uri, model


def calls_before(case: Case) -> int:
    """Number of storage calls before the driver may be stopped."""
    assert case.before is not None
    return len(Driver(table_in_memory(case)[0], case.before[0]).calls)


def follow(driver: Driver, adds: Row | None, model: Model, found: list[Row]) -> None:
    """Change the model as the driver was told that it changed the table."""
    assert driver.error is None or isinstance(driver.error, CommitConflict | CommitUnknown | Fenced | Killed), (
        driver.error
    )
    told = driver.error is None
    unknown = isinstance(driver.error, CommitUnknown | Killed)
    if adds is not None and (told or (unknown and adds in found)):
        model[adds[0]] = adds


def assert_sound(uri: str, model: Model, folder: Path) -> None:
    """The rows are the model's, and for other programs the table is as it should be."""
    assert shown(LsmTable(uri, OPTIONS_OF_SERVICES)) == sorted(model.values())
    copy = download(uri, folder)
    expected = ("folder.missing: .hoodie/", f"leftover.lock: {LOCK_FILE}")
    said = [violation for violation in validate(copy) if PROBE_NAME not in violation]
    assert [violation for violation in said if not violation.startswith(expected)] == []
    assert shown(LsmTable(copy, OPTIONS_OF_SERVICES)) == sorted(model.values())


@pytest.mark.parametrize("dies", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("name", CASES)
def test_what_drivers_were_told_is_what_the_table_holds(tmp_path: Path, name: str, dies: bool) -> None:
    case = CASES[name]
    begins, step = (0, STEP) if case.before is None else (calls_before(case), max(1, STEP // 3))
    for stop_at in count(begins + step // 2, step):
        uri, model = table_in_memory(case)
        if case.before is not None:
            model[case.before[1][0]] = case.before[1]
        options = {"hoodie.metadata.enable": case.metadata}
        first = (
            Driver(uri, case.work, dies_at=stop_at, **options) if dies else Driver(uri, case.work, stop_at, **options)
        )
        if not first.is_stopped and first.error is None:
            break
        other = Driver(uri, write(OTHER), **options)
        if not dies:
            first.go_on()
        third = Driver(uri, write(THIRD), **options)
        assert third.error is None, (stop_at, third.error)
        found = shown(LsmTable(uri, OPTIONS_OF_SERVICES))
        follow(first, case.adds, model, found)
        follow(other, OTHER, model, found)
        model["third"] = THIRD
        try:
            assert_sound(uri, model, tmp_path / str(stop_at))
        except AssertionError as error:
            raise AssertionError(
                f"stopped at call {stop_at}, {first.stands_at}: {first.error!r}, {other.error!r}"
            ) from error
    else:
        pytest.fail("the driver never comes to its end")
