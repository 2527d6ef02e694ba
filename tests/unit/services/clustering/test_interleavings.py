"""A clustering, or a write beside it, that is stopped before a storage call while another driver works.

Whatever the call: each row is there as the last acknowledged write says, once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CommitConflict, CommitUnknown, Fenced
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.lock.markers import TEMP_FOLDER
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from tests.support.crash_points import EVERY_CALL
from tests.support.interleaving import Driver, Work
from tests.support.service_tables import Model, assert_sound, grow, reopened
from tests.support.small_tables import Row, rows
from tests.unit.services.clustering.test_runner import CLUSTERED, grown

STEP = 1 if EVERY_CALL else 61
NO_RETRY = {**CLUSTERED, "hoodie.write.num.retries.on.conflict.failures": 0, "hoodie.clean.commits.retained": 1}
CHANGED: Row = ("k5", "nl", 9000, 1)
"""Of a key that a clustered file group has."""
ADDED: Row = ("added", "nl", 9000, 2)


@pytest.fixture(autouse=True)
def _disk_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    # Processes die in these tests, machines do not.
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def write(row: Row) -> Work:
    return lambda table: table.upsert(rows(row))


def cluster(table: LsmTable) -> object:
    return table.cluster()


def compact_and_clean(table: LsmTable) -> object:
    return [table.compact(), table.clean()]


def schedule(table: LsmTable) -> None:
    table.services.schedule_clustering()


FIRST: dict[str, tuple[Work, Row | None, Callable[[LsmTable], None]]] = {
    "clustering": (cluster, None, lambda table: None),
    "pending-clustering": (cluster, None, schedule),
    "change": (write(CHANGED), CHANGED, lambda table: None),
}
MEANWHILE: dict[str, tuple[Work, Row | None]] = {
    "cluster": (cluster, None),
    "change": (write(("k6", "nl", 9000, 3)), ("k6", "nl", 9000, 3)),
    "add": (write(ADDED), ADDED),
    "compact-and-clean": (compact_and_clean, None),
}


def settled(driver: Driver, row: Row | None, model: Model) -> list[Model]:
    """The models that a table may have after a driver's work, by what the driver was told."""
    with_row = {**model, row[0]: row} if row else model
    if driver.error is None:
        return [with_row]
    if isinstance(driver.error, CommitUnknown):
        return [with_row, model]
    if isinstance(driver.error, Fenced | CommitConflict):
        return [model]
    raise driver.error


@pytest.mark.timeout(3600 if EVERY_CALL else 300)
@pytest.mark.parametrize("name", FIRST)
def test_no_row_is_lost_or_doubled_whatever_comes_between(tmp_path: Path, name: str) -> None:
    work, row, prepare = FIRST[name]
    root = tmp_path / "template"
    table, model = grown(root)
    prepare(table)
    counted = Driver(Path(shutil.copytree(root, tmp_path / "counted")), work, **NO_RETRY)
    plan = name == "pending-clustering"
    assert counted.error is None
    for number in range(0, len(counted.calls), STEP):
        others = list(MEANWHILE) if EVERY_CALL else [list(MEANWHILE)[number // STEP % len(MEANWHILE)]]
        for other in others:
            path = Path(shutil.copytree(root, tmp_path / f"{number}-{other}"))
            other_work, other_row = MEANWHILE[other]
            first = Driver(path, work, number, **NO_RETRY)
            second = Driver(path, other_work, **NO_RETRY)
            first.go_on()
            print(f"stopped before call {number}, after {first.calls[number - 1]}; meanwhile: {other}")
            assert second.error is None or plan or isinstance(second.error, CommitConflict)
            models = [both for one in settled(second, other_row, model) for both in settled(first, row, one)]
            assert_one_of(path, models, first, second)
            shutil.rmtree(path)


def assert_one_of(root: Path, models: list[Model], *drivers: Driver) -> None:
    """The next writer finds a sound table of one of these models, and leaves nothing of those before it."""
    table = reopened(LsmTable(root), **NO_RETRY)
    with table.transaction():
        pass
    told = {driver.result.requested for driver in drivers if not driver.error and isinstance(driver.result, Instant)}
    assert told <= {instant.requested for instant in table.timeline.instants if instant.is_completed}
    found = {row["id"]: row["ts"] for row in table.scan(["id", "ts"]).to_arrow().to_pylist()}
    model = next((one for one in models if {key: row[2] for key, row in one.items()} == found), models[0])
    assert_sound(table, model)
    storage = LocalStorage(root)
    pending = {instant.requested for instant in table.timeline.pending}
    for folder in (DECISION_FOLDER, HEARTBEAT_FOLDER, TEMP_FOLDER):
        assert {name.partition(".")[0] for name in storage.names(folder)} <= pending
    table.cluster()
    model = dict(model)
    grow(table, model, 50)
    table.cluster()
    assert_sound(table, model)
