"""Compaction of real tables: what is written, what readers see, what goes wrong."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import CommitConflict, CorruptFileError, Fenced, UnsupportedTable
from streaming_lsm.format.actions.compaction_plan import CompactionOperation, CompactionPlan
from streaming_lsm.lock.heartbeat import heartbeat_path
from streaming_lsm.schema import to_avro
from streaming_lsm.services.compaction.runner import run_compaction
from streaming_lsm.services.context import ServiceContext, read_compaction_plan
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.txn.planned_actions import pending_compactions
from streaming_lsm.write.files.base_file_writer import BaseFileWriter
from tests.oracle.reader import read_snapshot
from tests.support.service_tables import assert_sound, compactions, grow, grown, ledger, most_logs, reopened
from tests.support.small_tables import SCHEMA, create, data_files, rows, shown
from tests.support.writers import outcome

T = TypeVar("T")
R = TypeVar("R")


def context(table: LsmTable) -> ServiceContext:
    return ServiceContext(
        table.storage, table.config, table.options, table.rule, lambda beside: table.transaction(beside=beside)
    )


def scheduled(table: LsmTable) -> Instant:
    waiting, _ = table.services.schedule()
    assert waiting is not None
    return waiting


def test_a_compaction_leaves_one_base_file_per_group_and_the_same_rows(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    assert most_logs(table) == 4
    completed = table.compact()
    assert completed is not None
    assert [len(found.logs) for found in table.file_slices()] == [0, 0]
    assert {found.base.name.instant for found in table.file_slices() if found.base} == {completed.requested}
    assert most_logs(table) == 0
    assert_sound(table, model)


def test_the_timeline_shows_a_plan_an_empty_inflight_and_a_commit(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    completed = table.compact()
    assert completed is not None
    assert completed.action == "commit"
    waiting = Instant(completed.requested, "compaction", State.REQUESTED)
    plan = read_compaction_plan(table.storage, waiting)
    assert (len(plan.operations), plan.version) == (2, 2)
    assert table.storage.read(waiting.at(State.INFLIGHT).path) == b""
    commit = table.timeline.read_commit(completed)
    assert (commit.operation_type, commit.compacted) == ("COMPACT", True)
    assert commit.schema == table.timeline.read_commit(table.timeline.completed_writes[0]).schema


def test_the_stats_say_what_was_merged(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    first = table.compact()
    grow(table, model, 3)
    second = table.compact()
    assert first is not None
    assert second is not None
    before, after = (table.timeline.read_commit(done).stats for done in (first, second))
    # Ten keys were written in three batches of eight, and one was deleted.
    assert sum(stat.num_writes for stat in before) == sum(stat.num_inserts for stat in before) == 9
    assert sum(stat.log_records for stat in before) == 25
    assert sum(stat.log_files_compacted for stat in before) == sum(stat.log_blocks for stat in before) == 7
    assert {stat.prev_commit for stat in before} == {"null"}
    # The fourth batch writes k3, which was deleted before, to k10, and deletes k4.
    assert sum(stat.num_writes for stat in after) == len(model) == 10
    assert (sum(stat.num_inserts for stat in after), sum(stat.num_updates for stat in after)) == (2, 5)
    assert sum(stat.num_deletes for stat in after) == 1
    assert sum(stat.updated_records_compacted for stat in after) == 8
    assert {stat.prev_commit for stat in after} == {first.requested}
    assert {stat.prev_base_file for stat in after} == {stat.file_name for stat in before}


def test_records_keep_their_meta_columns_but_for_the_file_name(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    meta = ["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path"]
    before = table.scan(meta).to_arrow().sort_by("_hoodie_record_key")
    table.compact()
    after = table.scan([*meta, "_hoodie_file_name"]).to_arrow().sort_by("_hoodie_record_key")
    assert after.select(meta).equals(before)
    names = {found.base.name for found in table.file_slices() if found.base}
    assert set(after.column("_hoodie_file_name").to_pylist()) == {str(name) for name in names}


def test_a_group_whose_rows_are_all_deleted_gets_a_base_file_without_rows(tmp_path: Path) -> None:
    table = create(tmp_path, **{"hoodie.bucket.index.num.buckets": 1})
    table.upsert(rows(("a", "nl", 1, 1), ("b", "nl", 1, 1)))
    table.delete(pa.table({"id": ["a", "b"], "country": ["nl", "nl"]}))
    assert table.compact() is not None
    (found,) = table.file_slices()
    assert found.base is not None
    assert pq.read_metadata(tmp_path / found.base.path).num_rows == 0
    assert_sound(table, {})
    table.upsert(rows(("a", "nl", 0, 7)))
    assert_sound(table, {"a": ("a", "nl", 0, 7)})
    table.compact()
    assert_sound(table, {"a": ("a", "nl", 0, 7)})


def test_nothing_is_scheduled_when_no_group_has_logs(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    table.compact()
    before = table.timeline.instants
    assert table.compact() is None
    waiting, selection = table.services.schedule()
    assert waiting is None
    assert selection.reasons == "of 2 file groups 2 have no log files"
    assert table.timeline.instants == before


def test_groups_that_wait_are_not_scheduled_again(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    scheduled(table)
    grow(table, model, 3)
    waiting, selection = table.services.schedule()
    assert (waiting, selection.busy) == (None, 2)


def test_writes_between_plan_and_run_stay_on_top_of_the_new_base_file(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    waiting = scheduled(table)
    grow(table, model, 3)
    assert_sound(table, model)
    grow(table, model, 4)
    completed = table.compact()
    assert completed is not None
    assert completed.requested == waiting.requested
    assert sorted(len(found.logs) for found in table.file_slices()) == [3, 3]
    assert most_logs(table) == 3
    assert_sound(table, model)
    assert table.compact() is not None
    assert_sound(table, model)


def test_a_pending_compactions_files_are_invisible(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    waiting = scheduled(table)
    plan = read_compaction_plan(table.storage, waiting)
    for operation in plan.operations:
        stray = tmp_path / operation.partition_path / f"{operation.file_id}_9-9-9_{waiting.requested}.parquet"
        stray.write_bytes(b"half a file")
    assert shown(table) == sorted(model.values())


def test_readers_as_of_an_instant_before_a_compaction_see_what_was_there(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=2)
    then, before = sorted(model.values()), table.timeline.completed_writes[-1]
    grow(table, model, 2)
    table.compact()
    grow(table, model, 3)
    table.compact()
    assert shown(table, as_of=before.requested) == then
    assert shown(table, as_of=before.completed) == then
    oracle = read_snapshot(str(tmp_path), as_of=before.requested).to_pylist()
    assert sorted(tuple(row.values()) for row in oracle) == then
    assert_sound(table, model)


def test_a_compaction_carries_the_writers_memory_on(tmp_path: Path) -> None:
    table, _ = grown(tmp_path, batches=0, **{"lsm.writer.id": "w"})
    table.upsert(rows(("a", "nl", 1, 1)), batch_id=7)
    completed = table.compact()
    assert completed is not None
    assert ledger(table, completed)["w"][0] == 7  # type: ignore[index]
    assert table.upsert(rows(("a", "nl", 2, 2)), batch_id=7) is None


def test_several_plans_that_wait_are_run_oldest_first(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    table.options = table.options.merged(type(table.options)({"hoodie.compaction.target.io": 1}))
    one, two = (operation for operation in table.services.preview_compaction().operations)
    for operation in (one, two):
        with table.transaction() as tx:
            tx.schedule("compaction", tx.new_time(), CompactionPlan((operation,)).encode())
    completed = table.compact()
    assert [write.requested for write in compactions(table)] == sorted(write.requested for write in compactions(table))
    assert completed == compactions(table)[-1]
    assert len(compactions(table)) == 2
    assert_sound(table, model)


def test_a_clock_that_was_set_back_does_not_confuse_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = grown(tmp_path)
    last = table.timeline.last_time
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000_000_000_000)
    completed = table.compact()
    assert completed is not None
    assert completed.requested > last
    grow(table, model, 3)
    assert_sound(table, model)


def test_another_writer_at_work_is_named(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    with table.transaction(), pytest.raises(CommitConflict, match="being changed by this process"):
        table.compact()


# --- operations as tasks ------------------------------------------------------------------------------------------


class PicklingEngine:
    """Runs tasks as if on other machines."""

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        for item in items:
            yield pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(task))(pickle.loads(pickle.dumps(item)))))


def test_operations_travel_to_executors(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    completed, _ = table.services.compact(PicklingEngine())
    assert completed is not None
    assert_sound(table, model)


class RepeatingEngine:
    """Runs every task twice, as speculation does, and keeps the second result."""

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        for item in items:
            task(item)
            yield task(item)


def test_files_of_repeated_operations_are_removed(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    before = data_files(tmp_path)
    completed = table.services.compact(RepeatingEngine())[0]
    assert completed is not None
    assert set(data_files(tmp_path)) - set(before) == table.timeline.read_commit(completed).paths
    assert_sound(table, model)


class BrokenEngine:
    """Runs the first task and fails at the second."""

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        first, *_ = items
        yield task(first)
        raise OSError("no space left on device")


def test_a_failed_run_waits_again_without_files(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    before = data_files(tmp_path)
    with pytest.raises(OSError, match="no space"):
        table.services.compact(BrokenEngine())
    (waiting,) = pending_compactions(table.timeline)
    assert waiting.state is State.REQUESTED
    assert data_files(tmp_path) == before
    assert_sound(table, model)
    completed = table.compact()
    assert completed is not None
    assert completed.requested == waiting.requested
    assert_sound(table, model)


class LateEngine:
    """Never finishes a task, and keeps them for a second run of the compaction to meet."""

    def __init__(self) -> None:
        self.late: list[Callable[[], object]] = []

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        self.late = [lambda item=item: task(item) for item in items]  # type: ignore[misc]
        raise OSError("executors are gone")
        yield


class MeetingEngine:
    """Lets the tasks of an earlier run finish in the middle of this one."""

    def __init__(self, late: LateEngine) -> None:
        self._late = late

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        for number, item in enumerate(items):
            if number == 1:
                for finish in self._late.late:
                    finish()
            yield task(item)


def test_tasks_of_an_earlier_run_leave_nothing_in_a_later_run_of_the_same_instant(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    late = LateEngine()
    with pytest.raises(OSError, match="gone"):
        table.services.compact(late)
    completed, _ = table.services.compact(MeetingEngine(late))
    assert completed is not None
    assert len([path for path in data_files(tmp_path) if completed.requested in path]) == 2
    assert_sound(table, model)
    for finish in late.late:
        with pytest.raises(Fenced, match=completed.requested):
            finish()
    assert_sound(table, model)


def test_a_task_between_two_runs_is_shut_out(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    late, before = LateEngine(), data_files(tmp_path)
    with pytest.raises(OSError, match="gone"):
        table.services.compact(late)
    for finish in late.late:
        with pytest.raises(Fenced):
            finish()
    assert data_files(tmp_path) == before


def test_a_task_that_ends_after_its_run_was_put_back_removes_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = grown(tmp_path)
    before, finish = data_files(tmp_path), BaseFileWriter.finish

    def finish_late(writer: BaseFileWriter) -> int:
        table.storage.delete(heartbeat_path(writer.name.instant))
        return finish(writer)

    class Alone:
        def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
            with pytest.raises(Fenced):
                task(next(iter(items)))
            assert data_files(tmp_path) == before
            raise OSError("seen")
            yield

    monkeypatch.setattr(BaseFileWriter, "finish", finish_late)
    with pytest.raises(Fenced, match="taken by another writer") as raised:
        table.compact(Alone())
    assert str(raised.value.__cause__) == "seen"
    assert_sound(table, model)


# --- plans and files that are not as they should be ---------------------------------------------------------------


def test_a_log_that_is_gone_is_named_with_its_plan_and_nothing_is_begun(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    waiting = scheduled(table)
    log = table.file_slices()[0].logs[1].path
    (tmp_path / log).rename(tmp_path / "away")
    with pytest.raises(CorruptFileError, match=f"{log}.*{waiting.file_name} is to merge, is gone"):
        table.compact()
    assert pending_compactions(table.timeline) == (waiting,)
    (tmp_path / "away").rename(tmp_path / log)
    assert table.compact() is not None


def test_a_base_file_deleted_between_task_and_commit_fails_the_run(tmp_path: Path) -> None:
    table, model = grown(tmp_path)

    class Thief:
        def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
            results = [task(item) for item in items]
            os.unlink(tmp_path / results[0][0].path)  # type: ignore[index]
            return iter(results)

    with pytest.raises(CorruptFileError, match="gone since it was written"):
        table.services.compact(Thief())
    assert_sound(table, model)
    assert table.compact() is not None
    assert_sound(table, model)


def test_a_damaged_log_fails_the_run_and_leaves_no_file(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    scheduled(table)
    path = tmp_path / table.file_slices()[0].logs[0].path
    path.write_bytes(path.read_bytes()[:-20])
    before = data_files(tmp_path)
    with pytest.raises(CorruptFileError, match=path.name):
        table.compact()
    assert data_files(tmp_path) == before
    assert [waiting.state for waiting in pending_compactions(table.timeline)] == [State.REQUESTED]


Change = Callable[[CompactionOperation], CompactionOperation]
HOSTILE: dict[str, Change] = {
    "partition outside": lambda o: replace(o, partition_path="../other/nl"),
    "metadata folder": lambda o: replace(o, partition_path=".hoodie"),
    "unknown partition": lambda o: replace(o, partition_path="xx"),
    "nothing in an unknown partition": lambda o: replace(o, partition_path="xx", logs=()),
    "path in a name": lambda o: replace(o, logs=(f"../nl/{o.logs[0]}", *o.logs[1:])),
    "other group's log": lambda o: replace(o, file_id="00000007" + o.file_id[8:]),
    "no data file": lambda o: replace(o, logs=("hoodie.properties",)),
    "base as log": lambda o: replace(o, logs=(f"{o.file_id}_0-0-0_20200101000000000.parquet",)),
    "log as base": lambda o: replace(o, base_file=o.logs[0]),
    "NUL in a partition": lambda o: replace(o, partition_path="nl\0"),
    "log and base file in one": lambda o: replace(o, base_file=o.logs[0], logs=o.logs[1:]),
    "log twice": lambda o: replace(o, logs=(*o.logs, o.logs[0])),
    "oldest log left out": lambda o: replace(o, logs=o.logs[1:]),
    "newest log left out": lambda o: replace(o, logs=o.logs[:-1]),
    "later log": lambda o: replace(o, logs=(o.logs[0].replace("_20", "_30"),)),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_plan_is_refused_and_named(tmp_path: Path, change: Change) -> None:
    table, model = grown(tmp_path / "table")
    operations = table.services.preview_compaction().operations
    with table.transaction() as tx:
        plan = CompactionPlan((change(operations[0]), operations[1]))
        waiting = tx.schedule("compaction", tx.new_time(), plan.encode())
    before = data_files(tmp_path)
    with pytest.raises(CorruptFileError, match=waiting.file_name):
        table.compact()
    assert data_files(tmp_path) == before
    assert shown(table) == sorted(model.values())


@pytest.mark.parametrize(("kept", "why"), [(0, "is empty"), (20, "cut off"), (-20, "cut off")])
def test_a_torn_plan_is_named_with_what_to_do_and_the_table_goes_on_without_it(
    tmp_path: Path, kept: int, why: str
) -> None:
    table, model = grown(tmp_path)
    waiting = scheduled(table)
    plan = tmp_path / waiting.path
    plan.chmod(0o644)
    plan.write_bytes(plan.read_bytes()[:kept])
    told = (
        rf"{waiting.path} in .* has no readable plan \(.*{why}.*\): restore it, or delete it to cancel the compaction$"
    )
    for service in (table.compact, table.clean):
        with pytest.raises(CorruptFileError, match=told):
            service()
    plan.unlink()
    assert reopened(table).compact() is not None
    assert_sound(reopened(table), model)


def test_a_torn_plan_of_a_run_that_has_begun_names_both_files(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    waiting = scheduled(table)
    inflight = waiting.at(State.INFLIGHT).path
    table.storage.put_if_absent(inflight, b"")
    (tmp_path / waiting.path).chmod(0o644)
    (tmp_path / waiting.path).write_bytes(b"")
    with pytest.raises(CorruptFileError, match=rf"restore it, or delete it and {inflight} to cancel the compaction$"):
        reopened(table).clean()


def test_a_plan_with_a_log_that_was_completed_after_it_is_refused(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    with table.transaction() as tx:
        too_early = tx.new_time()
    grow(table, model, 3)
    plan = table.services.preview_compaction().plan
    with table.transaction() as tx:
        tx.schedule("compaction", too_early, plan.encode())
    with pytest.raises(CorruptFileError, match=f"not completed before {too_early}"):
        table.compact()


def test_a_plan_that_names_a_group_twice_is_refused(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    one = table.services.preview_compaction().operations[0]
    with table.transaction() as tx:
        tx.schedule("compaction", tx.new_time(), CompactionPlan((one, one)).encode())
    with pytest.raises(CorruptFileError, match="twice"):
        table.compact()


def test_a_plan_of_a_newer_version_is_left_to_its_program(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    operations = table.services.preview_compaction().operations
    with table.transaction() as tx:
        tx.schedule("compaction", tx.new_time(), CompactionPlan(operations, version=4).encode())
    with pytest.raises(UnsupportedTable, match="version 4"):
        table.compact()


def test_no_compaction_is_scheduled_beside_a_pending_clustering(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    table.storage.put_if_absent(".hoodie/timeline/20261121000000000.clustering.requested", b"")
    with pytest.raises(UnsupportedTable, match="clustering"):
        table.compact()


def test_a_compaction_that_somebody_else_finished_is_not_run_again(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    waiting = scheduled(table)
    assert table.compact() is not None
    assert run_compaction(context(table), waiting.requested, LocalEngine(1)) is None


def test_a_table_without_partitions_is_compacted(tmp_path: Path) -> None:
    table = create(tmp_path, **{"hoodie.datasource.write.partitionpath.field": None})
    model = {f"k{n}": (f"k{n}", "nl", 1, n) for n in range(6)}
    table.upsert(rows(*model.values()))
    table.compact()
    assert {Path(path).parent for path in data_files(tmp_path)} == {Path()}
    assert_sound(table, model)
    assert table.schema.equals(SCHEMA)


def schedule_plan(table: LsmTable, *operations: CompactionOperation, version: int = 2) -> Instant:
    with table.transaction() as tx:
        return tx.schedule("compaction", tx.new_time(), CompactionPlan(operations, version).encode())


@pytest.mark.parametrize("base", [None, "older"])
def test_a_plan_with_another_base_file_than_the_newest_is_refused(tmp_path: Path, base: str | None) -> None:
    table, model = grown(tmp_path)
    table.compact()
    older = {found.file_id: str(found.base.name) for found in table.file_slices() if found.base}
    grow(table, model, 3)
    table.compact()
    grow(table, model, 4)
    one, two = table.services.preview_compaction().operations
    waiting = schedule_plan(table, replace(one, base_file=base and older[one.file_id]), two)
    with pytest.raises(CorruptFileError, match=waiting.file_name):
        table.compact()
    assert_sound(table, model)


def test_change_logs_of_the_slice_need_not_be_in_the_plan(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    log = table.file_slices()[0].logs[0].path
    (tmp_path / log.replace(".log.parquet", ".cdc.parquet")).write_bytes(b"changes")
    assert table.compact() is not None
    assert shown(table) == sorted(model.values())


def test_a_compaction_writes_the_columns_of_its_plan_and_keeps_those_that_came_since(
    tmp_path: Path,
) -> None:
    table, _ = grown(tmp_path)
    scheduled(table)
    with table.transaction() as tx:
        tx.begin()
        tx.reconcile(outcome())
        tx.complete(outcome(schema=to_avro(SCHEMA.append(pa.field("added", pa.string())), "later")))
    completed = table.compact()
    assert completed is not None
    assert LsmTable(tmp_path).schema.names == [*SCHEMA.names, "added"]
    columns = {name for found in table.file_slices() for name in pq.read_schema(tmp_path / found.paths[0]).names}
    assert "added" not in columns
    assert len(columns) == 5 + len(SCHEMA)


def test_groups_of_a_pending_log_compaction_are_left_alone(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    plan = table.services.preview_compaction().plan
    requested = ".hoodie/timeline/20991121000000000.logcompaction.requested"
    table.storage.put_if_absent(requested, CompactionPlan(plan.operations[:1]).encode())
    assert table.services.preview_compaction().busy == 1
    scheduled, selection = table.services.schedule()
    assert scheduled is not None
    assert [operation.file_id for operation in selection.operations] == [plan.operations[1].file_id]
    assert shown(table) == sorted(model.values())


def rename_to_the_first_text(root: Path) -> None:
    for path in sorted((root / "nl").iterdir()):
        for native, older in ((".log.parquet", ".parquet"), (".deletes.parquet", ".delete.parquet")):
            if path.name.endswith(native):
                path.rename(path.with_name(path.name.replace(native, older)))


@pytest.mark.parametrize("use", [LsmTable.compact, LsmTable.clean, shown, lambda table: grow(table, {}, 3)])
def test_logs_under_older_names_are_never_passed_over_silently(
    tmp_path: Path, use: Callable[[LsmTable], object]
) -> None:
    table, model = grown(tmp_path, **{"hoodie.clean.commits.retained": 1})
    rename_to_the_first_text(tmp_path)
    before = data_files(tmp_path)
    plain = reopened(table, **{"hoodie.clean.commits.retained": 1})
    with pytest.raises(UnsupportedTable, match=r"set lsm\.read\.rfc103\.names=true"):
        use(plain)
    assert data_files(tmp_path) == before
    asked = reopened(table, **{"lsm.read.rfc103.names": True})
    assert asked.compact() is not None
    assert shown(asked) == sorted(model.values())


def test_a_plan_that_cannot_be_carried_out_does_not_keep_the_others_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, model = grown(tmp_path, **{"hoodie.bucket.index.num.buckets": 4})
    bad, good, worse, *_ = (
        CompactionPlan((operation,), version=version)
        for operation, version in zip(table.services.preview_compaction().operations, (4, 2, 5), strict=False)
    )
    with table.transaction() as tx:
        waiting = [tx.schedule("compaction", tx.new_time(), plan.encode()) for plan in (bad, good, worse)]
    with pytest.raises(UnsupportedTable, match="version 4"):
        table.compact()
    assert [done.requested for done in compactions(table)] == [waiting[1].requested]
    assert pending_compactions(table.timeline) == (waiting[0], waiting[2])
    assert "version 4" in caplog.text
    assert shown(table) == sorted(model.values())
