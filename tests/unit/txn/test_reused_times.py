"""Drivers whose clocks stand still behind the timeline draw one requested time twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import CommitConflict, Fenced
from streaming_lsm.lock.lock import TableLock
from streaming_lsm.lock.markers import TEMP_FOLDER, marker_path
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.services.compaction.runner import run_compaction, schedule_compaction
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from streaming_lsm.txn.planned_actions import revert_to_requested
from tests.support.faulty_storage import FaultyStorage, Killed
from tests.support.service_tables import OPTIONS_OF_SERVICES, Model, grow
from tests.support.small_tables import SCHEMA, Row, rows, shown
from tests.support.writers import KEPT, NOON_MS, make_table, new_process, transaction, write_batch

HOUR_MS = 3_600_000


class Interrupted(FaultyStorage):
    """Others act before and after the requested file of a plan is created; then this driver may die.

    Attributes:
        before: done before the file is created.
        after: done after it.
    """

    def __init__(self, inner: Storage, before: Callable[[], object], after: Callable[[], object]) -> None:
        super().__init__(inner)
        self.before, self.after = before, after

    def put_if_absent(self, path: str, data: bytes) -> None:
        if not path.endswith(".compaction.requested"):
            super().put_if_absent(path, data)
            return
        self.before()
        super().put_if_absent(path, data)
        self.after()


def behind(number: int) -> Runtime:
    """A driver with a clock of its own, that stands still before the last time of the timeline."""
    return new_process(clock=lambda: NOON_MS - number * HOUR_MS)


def new_table(root: Path) -> LocalStorage:
    storage = make_table(root)
    write_batch(storage, new_process(), 0)
    return storage


class DiesCommitted(FaultyStorage):
    """This driver dies when its batch is committed, before it deletes the markers."""

    def delete_folder(self, path: str) -> None:
        if path.startswith(TEMP_FOLDER):
            self.kill()
        super().delete_folder(path)


def commit_and_die(storage: Storage) -> None:
    with suppress(Killed):
        write_batch(DiesCommitted(storage), behind(2), 1)


def schedule(storage: Storage) -> None:
    with transaction(storage, behind(1)) as tx:
        tx.schedule("compaction", tx.new_time(), b"plan")


def start(storage: Storage) -> None:
    """A third driver finds the plan and starts it."""
    with transaction(storage, behind(3)) as tx:
        (planned,) = tx.timeline.pending
        with pytest.raises(CommitConflict, match=r"has the requested time of .*deltacommit"):
            tx.start(planned)


def assert_committed(storage: Storage) -> None:
    """Both batches are committed and have all their files; no plan and no record is left."""
    with transaction(storage, behind(4)):
        pass
    timeline = Timeline.load(storage)
    assert timeline.pending == ()
    commits = [timeline.read_commit(write) for write in timeline.completed_writes]
    assert [commit.extra["batch"] for commit in commits] == ["0", "1"]
    assert [path for commit in commits for path in commit.paths if not storage.exists(path)] == []
    assert set(storage.names(DECISION_FOLDER)) == set()


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "lives"])
def test_the_plan_of_a_fenced_writer_is_cancelled_if_its_time_is_that_of_a_commit(tmp_path: Path, dies: bool) -> None:
    storage = new_table(tmp_path)
    fenced: Interrupted

    def after() -> None:
        if dies:
            fenced.kill()
        else:
            start(storage)

    fenced = Interrupted(storage, lambda: commit_and_die(storage), after)
    with pytest.raises(Killed if dies else Fenced):
        schedule(fenced)
    if dies:
        start(storage)
    assert_committed(storage)


def test_a_compaction_put_back_deletes_no_file_of_a_commit_with_its_time(tmp_path: Path) -> None:
    storage = new_table(tmp_path)
    commit_and_die(storage)
    timeline = Timeline.load(storage)
    committed = timeline.completed_writes[-1]
    files = timeline.read_commit(committed).paths
    planned = Instant(committed.requested, "compaction", State.REQUESTED)
    late = KEPT[0].name(planned.requested)
    stray = f"nl/{replace(late, token=replace(late.token, attempt=9))}"
    for path in (planned.path, planned.at(State.INFLIGHT).path, marker_path(planned.requested, *stray.split("/"))):
        storage.put_if_absent(path, b"")
    storage.put_if_absent(stray, b"data")
    lock = TableLock(storage, "query", 1000, behind(3))
    lock.acquire()
    revert_to_requested(storage, lock, planned)
    lock.release()
    assert [path for path in files if not storage.exists(path)] == []
    assert not storage.exists(stray)
    assert not storage.exists(planned.at(State.INFLIGHT).path)


class Overtaken(FaultyStorage):
    """A driver that lost the lock goes on, and creates the file with the same time first."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        if path.endswith((".deltacommit.requested", ".compaction.requested", ".rollback.requested")):
            self._inner.put_if_absent(path, data)
        super().put_if_absent(path, data)


def write(storage: Storage) -> None:
    write_batch(storage, behind(1), 1)


def roll_back(storage: FaultyStorage) -> None:
    """A write rolls back that of a dead driver first."""
    dead = FaultyStorage(storage._inner)
    with suppress(Killed), transaction(dead, behind(2)) as tx:
        tx.begin()
        dead.kill()
    write(storage)


@pytest.mark.parametrize("begin", [write, schedule, roll_back])
def test_a_time_that_a_fenced_writer_has_drawn_too_is_a_conflict(
    tmp_path: Path, begin: Callable[[FaultyStorage], object]
) -> None:
    storage = new_table(tmp_path)
    with pytest.raises(CommitConflict, match=r"requested in .* had drawn the same time"):
        begin(Overtaken(storage))
    write_batch(storage, behind(4), 1)
    assert len(Timeline.load(storage).completed_writes) == 2


class AfterUpsert(FaultyStorage):
    """Another driver writes before the requested file of a plan is created; this one dies then.

    Attributes:
        upsert: does the write.
    """

    def __init__(self, inner: Storage, upsert: Callable[[], object]) -> None:
        super().__init__(inner)
        self.upsert = upsert

    def put_if_absent(self, path: str, data: bytes) -> None:
        if path.endswith((".clean.requested", ".compaction.requested")):
            self.upsert()
            super().put_if_absent(path, data)
            self.kill()
        super().put_if_absent(path, data)


@pytest.mark.parametrize("action", ["clean", "compaction"])
@pytest.mark.parametrize("saved", ["that write", "a later one"])
def test_a_restore_leaves_the_files_of_a_write_whose_time_a_pending_plan_has(
    tmp_path: Path, action: str, saved: str
) -> None:
    retained = {"hoodie.clean.commits.retained": 1}
    table, model = grown(str(tmp_path))
    table.compact()
    grow(table, model, 3)
    row: Row = ("drawn-twice", "nl", 9000, 1)
    scheduler = opened(str(tmp_path), 1, **retained)
    scheduler.storage = AfterUpsert(scheduler.storage, lambda: opened(str(tmp_path), 2).upsert(rows(row)))
    with pytest.raises(Killed):
        scheduler.clean() if action == "clean" else scheduler.compact()
    model[row[0]] = row
    (pending,) = table.timeline.pending
    assert (pending.requested, pending.action) == (table.timeline.completed_writes[-1].requested, action)
    if saved == "a later one":
        row = ("later", "nl", 9001, 1)
        table.upsert(rows(row))
        model[row[0]] = row
    savepoint = table.savepoint().requested
    table.upsert(rows(("undone", "nl", 9002, 1)))
    table.restore(savepoint)
    assert shown(opened(str(tmp_path), 3)) == sorted(model.values())
    table.upsert(rows(("undone", "nl", 9003, 1)))
    model["undone"] = ("undone", "nl", 9003, 1)
    cleaner = LsmTable(str(tmp_path), {**OPTIONS_OF_SERVICES, **retained})
    with pytest.raises(CommitConflict, match=r"has the requested time of .*: the plan was cancelled"):
        cleaner.clean() if action == "clean" else table.compact()
    table.compact()
    cleaner.clean()
    assert table.timeline.pending == ()
    assert shown(opened(str(tmp_path), 3)) == sorted(model.values())


class AfterCompaction(FaultyStorage):
    """Another driver compacts before the requested file of a write is created; this one may die at its next release.

    Attributes:
        uri_of_table: the table.
        dies: whether it dies.
    """

    def __init__(self, inner: Storage, uri_of_table: str, *, dies: bool) -> None:
        super().__init__(inner)
        self.uri_of_table, self.dies = uri_of_table, dies

    def put_if_absent(self, path: str, data: bytes) -> None:
        if path.endswith(".deltacommit.requested"):
            assert opened(self.uri_of_table, 2).compact() is not None
        super().put_if_absent(path, data)

    def vacate(self, path: str, expected: bytes) -> bytes | None:
        if self.dies:
            self.kill()
        return super().vacate(path, expected)


def opened(uri: str, number: int, **options: object) -> LsmTable:
    """The table as a driver with a clock of its own opens it."""
    table = LsmTable(uri, {**OPTIONS_OF_SERVICES, **options})
    table.runtime = behind(number)
    return table


def grown(uri: str) -> tuple[LsmTable, Model]:
    """A new table of three batches, and its rows."""
    model: Model = {}
    table = LsmTable.create(uri, SCHEMA, OPTIONS_OF_SERVICES)
    for batch in range(3):
        grow(table, model, batch)
    return table, model


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "lives"])
@pytest.mark.parametrize("kind", ["disk", "objects"])
def test_the_write_of_a_fenced_writer_is_void_if_its_time_is_that_of_a_compaction(
    tmp_path: Path, memory_uri: str, kind: str, dies: bool
) -> None:
    uri = memory_uri if kind == "objects" else str(tmp_path / "table")
    table, model = grown(uri)
    fenced = opened(uri, 1)
    fenced.storage = AfterCompaction(table.storage, uri, dies=dies)
    with pytest.raises(Killed if dies else Fenced):
        fenced.upsert(rows(("lost", "nl", 9000, 1)))
    (void,) = table.timeline.pending
    assert shown(opened(uri, 3)) == sorted(model.values())
    last: Row = ("last", "nl", 9000, 2)
    assert opened(uri, 3).upsert(rows(last)) is not None
    assert shown(opened(uri, 3)) == sorted([*model.values(), last])
    assert table.timeline.pending == ()
    assert void.requested in [write.requested for write in table.timeline.completed_writes]


class AfterSchedule(FaultyStorage):
    """Another driver schedules a compaction before the requested file of a write is created.

    Attributes:
        uri_of_table: the table.
    """

    def __init__(self, inner: Storage, uri_of_table: str) -> None:
        super().__init__(inner)
        self.uri_of_table = uri_of_table

    def put_if_absent(self, path: str, data: bytes) -> None:
        if path.endswith(".deltacommit.requested"):
            assert schedule_compaction(opened(self.uri_of_table, 2).services._context)[0] is not None
        super().put_if_absent(path, data)


@pytest.mark.parametrize("kind", ["disk", "objects"])
def test_a_plan_with_the_time_of_a_write_that_was_rolled_back_is_cancelled(
    tmp_path: Path, memory_uri: str, kind: str
) -> None:
    uri = memory_uri if kind == "objects" else str(tmp_path / "table")
    table, model = grown(uri)
    fenced = opened(uri, 1)
    fenced.storage = AfterSchedule(table.storage, uri)
    with pytest.raises(Fenced):
        fenced.upsert(rows(("lost", "nl", 9000, 1)))
    times = [pending.requested for pending in table.timeline.pending]
    assert len(times) == 2
    assert len(set(times)) == 1
    last: Row = ("last", "nl", 9000, 2)
    assert opened(uri, 3).upsert(rows(last)) is not None
    (rollback,) = (found for found in table.timeline.instants if found.action == "rollback")
    assert rollback.is_completed
    (planned,) = table.timeline.pending
    assert (planned.action, planned.requested) == ("compaction", times[0])
    with pytest.raises(CommitConflict, match=r"has the requested time of the rolled back deltacommit"):
        run_compaction(opened(uri, 4).services._context, planned.requested, LocalEngine(1))
    assert table.timeline.pending == ()
    compacted = opened(uri, 5).compact()
    assert compacted is not None
    assert times[0] not in [write.requested for write in table.timeline.completed_writes]
    assert shown(opened(uri, 3)) == sorted([*model.values(), last])
