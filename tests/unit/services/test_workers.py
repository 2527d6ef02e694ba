"""What a worker does at one look at a table: others' plans, its own, and those that another process runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import ConfigError, TableNotFound
from streaming_lsm.format.actions.compaction_plan import CompactionPlan
from streaming_lsm.services.cleaning.runner import Cleaner
from streaming_lsm.services.cleaning.worker import Cleaned
from streaming_lsm.services.compaction import worker as compaction_worker
from streaming_lsm.services.compaction.runner import run_compaction
from streaming_lsm.services.compaction.worker import Compacted, CompactionWorker, Event, Scheduled
from streaming_lsm.services.context import Engine, EngineStopped, ServiceContext
from streaming_lsm.services.plan_worker import Failed, PutBack
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.archive import HISTORY_FOLDER, VERSION_PATH
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.properties_file import update_properties
from streaming_lsm.txn.planned_actions import pending_cleans, pending_compactions
from streaming_lsm.txn.transaction import Transaction
from tests.support.faulty_storage import FaultyStorage
from tests.support.hudi_tables import unpacked
from tests.support.service_tables import Model, assert_sound, cleans, compactions, grow, grown, reopened
from tests.support.small_tables import rows

T = TypeVar("T")
R = TypeVar("R")
THREAD = LocalEngine(1)
MANY: dict[str, object] = {"hoodie.bucket.index.num.buckets": 6}
ANY: dict[str, object] = {"hoodie.bucket.index.num.buckets": None}
"""As many buckets as the table has."""
NOT_DUE: dict[str, object] = {"hoodie.compact.inline.max.delta.commits": 1000}
RETAIN: dict[str, object] = {"hoodie.clean.commits.retained": 2}


def worker_of(table: LsmTable, engine: object = THREAD, **options: object) -> CompactionWorker:
    """A worker of another process of this machine."""
    found = reopened(table, None, **{"hoodie.write.lock.wait_time_ms": 60_000, **ANY, **options})
    return found.services.compaction_worker(engine)  # type: ignore[arg-type]


def planned(tmp_path: Path) -> tuple[LsmTable, Model, list[Instant]]:
    """A table with a plan for each of its six file groups."""
    table, model = grown(tmp_path, **MANY)
    operations = table.services.preview_compaction().operations
    with table.transaction() as tx:
        plans = [tx.schedule("compaction", tx.new_time(), CompactionPlan((each,)).encode()) for each in operations]
    return table, model, plans


def requested(events: Iterable[Event]) -> list[str]:
    return [event.completed.requested for event in events if isinstance(event, Compacted)]


class Between:
    """An engine that does something before its first task, when the lock is not held."""

    width = 1

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = [work]

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        for item in items:
            if self._work:
                self._work.pop()()
            yield task(item)


# --- compactions --------------------------------------------------------------------------------------------------


def test_what_anyone_has_scheduled_is_run_the_oldest_first(tmp_path: Path) -> None:
    table, model, plans = planned(tmp_path)
    events = list(worker_of(table, **NOT_DUE).look())
    assert requested(events) == [plan.requested for plan in plans]
    assert pending_compactions(table.timeline) == ()
    assert_sound(table, model)


def test_a_compaction_that_another_process_rolls_back_at_once_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = grown(tmp_path)
    planned, _ = table.services.schedule()

    def run(context: ServiceContext, instant: str, engine: Engine) -> Instant | None:
        completed = run_compaction(context, instant, engine)
        reopened(table).rollback(instant)
        return completed

    monkeypatch.setattr(compaction_worker, "run_compaction", run)
    assert planned is not None
    assert list(worker_of(table, **NOT_DUE).look()) == []
    assert_sound(reopened(table), model)


def test_two_workers_share_the_plans_each_of_which_is_run_once(tmp_path: Path) -> None:
    table, model, plans = planned(tmp_path)
    beside: list[Event] = []
    second = worker_of(table, **NOT_DUE)
    first = worker_of(table, Between(lambda: beside.extend(second.look())), **NOT_DUE)
    found = requested(first.look())
    assert found == [plans[0].requested], "the second has run the others meanwhile"
    assert requested(beside) == [plan.requested for plan in plans[1:]]
    assert not any(isinstance(event, Failed) for event in beside)
    assert len(compactions(table)) == len(plans)
    assert_sound(table, model)


def test_a_plan_that_another_process_runs_is_left_to_it_without_a_listing_of_the_table(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    table.services.schedule()
    other = reopened(table, FaultyStorage(LocalStorage(tmp_path)), **NOT_DUE)
    worker = other.services.compaction_worker(THREAD)
    seen: list[object] = []

    def look() -> None:
        seen.append(list(worker.look()))
        seen.append(worker.idle)

    assert table.compact(Between(look)) is not None
    assert seen == [[], "nothing to compact: other processes run what is pending (1)"]
    calls = other.storage.calls  # type: ignore[attr-defined]
    assert [path for name, path in calls if name == "list" and not path.startswith(".hoodie")] == []
    assert_sound(table, model)


def test_a_compaction_is_scheduled_and_run_when_it_is_due(tmp_path: Path) -> None:
    table, model = grown(tmp_path, **MANY)
    later = worker_of(table, **{"hoodie.compact.inline.max.delta.commits": 5})
    assert list(later.look()) == []
    assert "none is due by NUM_COMMITS, hoodie.compact.inline.max.delta.commits=5" in later.idle
    grow(table, model, 3)
    scheduled, completed = later.look()
    assert isinstance(scheduled, Scheduled)
    assert isinstance(completed, Compacted)
    assert [plan.requested for plan in scheduled.plans] == [completed.completed.requested]
    assert len(completed.stats) == 6
    assert_sound(table, model)
    assert list(later.look()) == []


def test_a_worker_that_does_not_schedule_runs_only_what_others_have_scheduled(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    worker = reopened(table, None, **{"hoodie.compact.inline.max.delta.commits": 1}).services.compaction_worker(
        THREAD, schedules=False
    )
    assert list(worker.look()) == []
    assert worker.idle == "nothing to compact: no compaction is pending"
    table.services.schedule()
    assert len(list(worker.look())) == 1


def test_two_workers_that_find_a_compaction_due_at_once_schedule_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = grown(tmp_path)
    due: dict[str, object] = {"hoodie.compact.inline.max.delta.commits": 2}
    second = worker_of(table, **due)
    enter = Transaction.__enter__

    def meanwhile(transaction: Transaction) -> Transaction:
        monkeypatch.undo()
        assert len(list(second.look())) == 2
        return enter(transaction)

    monkeypatch.setattr(Transaction, "__enter__", meanwhile)
    assert list(worker_of(table, **due).look()) == []
    assert len(compactions(table)) == 1
    assert_sound(table, model)


def test_a_due_compaction_with_nothing_to_merge_is_said_once(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    strict: dict[str, object] = {
        "hoodie.compact.inline.max.delta.commits": 2,
        "hoodie.compaction.logfile.size.threshold": 1 << 40,
    }
    worker = worker_of(table, **strict)
    (scheduled,) = worker.look()
    assert isinstance(scheduled, Scheduled)
    assert scheduled.plans == ()
    assert list(worker.look()) == []


def test_an_idle_look_lists_the_timeline_once_and_does_nothing_else(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    storage = FaultyStorage(LocalStorage(tmp_path))
    other = reopened(table, storage, **NOT_DUE, **RETAIN)
    # Beside a timeline of few delta commits the history may have more of them.
    of_history = [("read", VERSION_PATH), ("list", HISTORY_FOLDER)]
    compactions, cleans = other.services.compaction_worker(THREAD), other.services.cleaning_worker(THREAD)
    # A cleaner reads the history again when more is archived.
    for worker, further in ((compactions, of_history), (cleans, of_history), (cleans, [])):
        before = len(storage.calls)
        assert list(worker.look()) == []
        assert storage.calls[before:] == [("list", ".hoodie/timeline"), *further]


FEW: dict[str, object] = {"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4, **RETAIN}


def compact_and_archive(table: LsmTable, model: Model, batch: int) -> None:
    """A compaction, and as many batches as archive it."""
    table.compact()
    for number in range(batch, batch + 4):
        grow(table, model, number)
    assert all(write.action == "deltacommit" for write in table.timeline.completed_writes)


def is_clean_due(table: LsmTable) -> bool:
    return next(found for found in table.services.due() if found.service == "clean").is_due


def test_what_archived_compactions_superseded_is_cleaned_once(tmp_path: Path) -> None:
    table, model = grown(tmp_path, **FEW)
    cleaner = reopened(table, **FEW).services.cleaning_worker(THREAD)
    for batch in range(3, 15, 4):
        compact_and_archive(table, model, batch)
        assert is_clean_due(reopened(table, **FEW))
        assert [found.files > 0 for found in cleaner.look()] == [True]
        assert list(cleaner.look()) == []
        assert not is_clean_due(reopened(table, **FEW))
    assert_sound(table, model)


def test_a_job_that_begins_when_compactions_are_archived_cleans_what_they_superseded(tmp_path: Path) -> None:
    table, model = grown(tmp_path, **FEW)
    for batch in (3, 7):
        compact_and_archive(table, model, batch)
    assert len(list(reopened(table, **FEW).services.cleaning_worker(THREAD).look())) == 1
    assert_sound(table, model)


def test_a_plan_that_fails_stops_no_other_plan_and_is_tried_after_ever_more_looks(tmp_path: Path) -> None:
    table, model, plans = planned(tmp_path)
    good = table.storage.read(plans[0].path)
    table.storage.replace(plans[0].path, b"no plan")
    worker = worker_of(table, **NOT_DUE)
    first, *others = worker.look()
    assert isinstance(first, Failed)
    assert first.planned is not None
    assert first.planned.requested == plans[0].requested
    assert "compaction.requested" in str(first.error)
    assert requested(others) == [plan.requested for plan in plans[1:]]
    assert [len(list(worker.look())) for _ in range(5)] == [0, 1, 0, 0, 1]
    table.storage.replace(plans[0].path, good)
    assert requested(worker_of(table, **NOT_DUE).look()) == [plans[0].requested]
    assert_sound(table, model)


class Stopping:
    """An engine that is told to stop after its first task."""

    width = 1

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        for item in items:
            yield task(item)
            raise EngineStopped("stopped")


def test_what_an_engine_that_stops_was_running_is_put_back(tmp_path: Path) -> None:
    table, model = grown(tmp_path, **MANY)
    planned, _ = table.services.schedule()
    assert planned is not None
    looking = worker_of(table, Stopping(), **NOT_DUE).look()
    assert next(looking) == PutBack(planned)
    with pytest.raises(EngineStopped):
        next(looking)
    (left,) = pending_compactions(table.timeline)
    assert left.state is State.REQUESTED
    assert_sound(table, model)
    assert requested(worker_of(table, **NOT_DUE).look()) == [planned.requested]
    assert_sound(table, model)


def test_no_further_plan_is_begun_when_the_job_is_to_stop(tmp_path: Path) -> None:
    table, model, plans = planned(tmp_path)
    done: list[Event] = []
    worker = worker_of(table, **{"hoodie.compact.inline.max.delta.commits": 1})
    for event in worker.look(lambda: len(done) >= 2):
        done.append(event)
    assert requested(done) == [plan.requested for plan in plans[:2]]
    assert len(pending_compactions(table.timeline)) == len(plans) - 2
    assert_sound(table, model)


def test_a_table_whose_settings_were_changed_is_to_be_opened_again(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    table.services.schedule()
    worker = worker_of(table, **NOT_DUE)
    update_properties(table.storage, {"hoodie.table.ordering.fields": "qty"})
    with pytest.raises(ConfigError, match="was changed since the table was opened; open it again"):
        list(worker.look())
    assert len(pending_compactions(table.timeline)) == 1
    update_properties(table.storage, {"hoodie.table.ordering.fields": "ts"})
    assert len(list(worker_of(table, **NOT_DUE).look())) == 1
    assert_sound(table, model)


@pytest.mark.parametrize("left", ["compaction.inflight", "clean.inflight"])
def test_a_table_that_was_removed_during_a_run_is_named(tmp_path: Path, left: str) -> None:
    table, _ = grown(tmp_path / "table")
    workers = [worker_of(table), reopened(table).services.cleaning_worker(THREAD)]
    (tmp_path / "table").rename(tmp_path / "moved")
    table.storage.put_if_absent(f".hoodie/timeline/20991231000000000.{left}", b"")
    for worker in workers:
        with pytest.raises(TableNotFound, match="is no table"):
            list(worker.look())


def test_a_table_that_was_removed_is_named(tmp_path: Path) -> None:
    table, _ = grown(tmp_path / "table")
    workers = [worker_of(table, **NOT_DUE), reopened(table).services.cleaning_worker(THREAD)]
    (tmp_path / "table").rename(tmp_path / "moved")
    for worker in workers:
        with pytest.raises(TableNotFound, match="is no table"):
            list(worker.look())


def test_a_compaction_that_hudi_has_scheduled_is_run(tmp_path: Path) -> None:
    path = unpacked("v9_mor_compaction_pending", tmp_path)
    table = LsmTable(path, {"hoodie.bucket.index.num.buckets": 2})
    before = table.scan().to_arrow().sort_by("id")
    (foreign,) = pending_compactions(table.timeline)
    (event,) = table.services.compaction_worker(THREAD, schedules=False).look()
    assert isinstance(event, Compacted)
    assert event.completed.requested == foreign.requested
    after = LsmTable(path)
    assert pending_compactions(after.timeline) == ()
    names = [name for name in before.column_names if not name.startswith("_hoodie_file")]
    assert after.scan().to_arrow().sort_by("id").select(names) == before.select(names)
    assert sum(found.base is not None for found in after.file_slices()) == len(event.stats)
    assert all(len(found.logs) == 2 for found in after.file_slices()), "those that were written after the plan"


# --- cleans -------------------------------------------------------------------------------------------------------


def to_clean(tmp_path: Path) -> tuple[LsmTable, Model]:
    table, model = grown(tmp_path, **MANY)
    table.compact()
    grow(table, model, 3)
    return table, model


@pytest.mark.parametrize("threads", [1, 3])
def test_files_that_no_retained_commit_needs_are_deleted_by_the_engine(tmp_path: Path, threads: int) -> None:
    table, model = to_clean(tmp_path)
    worker = reopened(table, None, **{**RETAIN, **ANY}).services.cleaning_worker(LocalEngine(threads))
    wanted = reopened(table, None, **{**RETAIN, **ANY}).services.preview_clean()
    paths = [f"{partition}/{name}" for partition, names in wanted.files.items() for name in names]
    (event,) = worker.look()
    assert event == Cleaned(cleans(table)[0], len(paths))
    assert not any(table.storage.exists(path) for path in paths)
    assert_sound(table, model)
    assert list(worker.look()) == []
    assert worker.idle == "nothing to clean: every file slice is needed (KEEP_LATEST_COMMITS, " + (
        "hoodie.clean.commits.retained=2)"
    )


def test_a_clean_that_another_process_runs_is_left_to_it_and_resumed_if_it_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = to_clean(tmp_path)
    first = reopened(table, None, **{**RETAIN, **ANY}).services.cleaning_worker(THREAD)
    second = reopened(table, None, **{**RETAIN, **ANY}).services.cleaning_worker(THREAD)
    seen: list[object] = []

    def meanwhile(*_: object) -> None:
        monkeypatch.undo()
        seen.append(list(second.look()))
        seen.append(second.idle)
        raise OSError("no access")

    monkeypatch.setattr(Transaction, "delete_files", meanwhile)
    with pytest.raises(OSError, match="no access"):
        list(first.look())
    assert seen == [[], "nothing to clean: another process cleans"]
    (pending,) = pending_cleans(table.timeline)
    (event,) = second.look()
    assert event.completed.requested == pending.requested
    assert_sound(table, model)


def test_two_workers_that_clean_at_once_make_one_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, model = to_clean(tmp_path)
    first = reopened(table, None, **{**RETAIN, **ANY}).services.cleaning_worker(THREAD)
    second = reopened(table, None, **{**RETAIN, **ANY}).services.cleaning_worker(THREAD)
    looked = Cleaner._look

    def meanwhile(cleaner: Cleaner, timeline: object) -> object:
        monkeypatch.undo()
        assert len(list(second.look())) == 1
        return looked(cleaner, timeline)  # type: ignore[arg-type]

    monkeypatch.setattr(Cleaner, "_look", meanwhile)
    assert list(first.look()) == []
    assert len(cleans(table)) == 1
    assert_sound(table, model)


def test_a_table_without_writes_has_nothing_to_do(tmp_path: Path) -> None:
    table, _ = grown(tmp_path, batches=0)
    assert list(worker_of(table).look()) == []
    assert list(table.services.cleaning_worker(THREAD).look()) == []
    table.upsert(rows(("k", "nl", 1, 1)))
