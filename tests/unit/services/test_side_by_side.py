"""Writes, compactions and cleans of several writers at once: each begins and completes while the others run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CommitConflict, Fenced, StorageError
from streaming_lsm.lock.lease import LeaseWatch
from streaming_lsm.lock.lock import LOCK_FILE
from streaming_lsm.lock.owner import this_process
from streaming_lsm.lock.runtime import ProcessLocks, Runtime
from streaming_lsm.services.cleaning.runner import Cleaner, CleanSelection
from streaming_lsm.services.context import ServiceContext
from streaming_lsm.services.survey import Survey
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.transaction import Transaction
from tests.support.service_tables import assert_sound, grow, grown, put_savepoint, reopened
from tests.support.small_tables import rows

T = TypeVar("T")
R = TypeVar("R")
CLEAN: dict[str, object] = {"hoodie.clean.commits.retained": 2}


class Meanwhile:
    """An engine that does something between the tasks of a service, when the lock is not held."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = [work]

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        for item in items:
            yield task(item)
            if self._work:
                self._work.pop()()


def another(table: LsmTable, **options: object) -> LsmTable:
    """The table as another program of this machine has it."""
    waits: dict[str, object] = {"hoodie.write.lock.wait_time_ms": 60_000, "lsm.write.single.writer.wait.ms": 0}
    return reopened(table, **{**waits, **options})


def in_process(table: LsmTable, number: int, **options: object) -> LsmTable:
    """The table as a process of this machine has it; all processes live."""
    process = replace(this_process(), pid=number)
    found = LsmTable(Path(table.path.removeprefix("file://")), {**table.options, **options})
    found.runtime = Runtime(
        process=lambda: process, process_lives=lambda other: True, process_locks=ProcessLocks(), leases=LeaseWatch()
    )
    return found


@pytest.mark.parametrize("metadata", [False, True])
def test_a_stream_writes_while_a_compaction_runs(tmp_path: Path, metadata: bool) -> None:
    table, model = grown(tmp_path, **{"hoodie.metadata.enable": metadata})

    def write() -> None:
        assert not table.storage.exists(LOCK_FILE)
        for batch in (3, 4):
            grow(another(table, **{"hoodie.metadata.enable": metadata}), model, batch)

    completed = table.compact(Meanwhile(write))
    assert completed is not None
    newest = max(Timeline.load(table.storage).completed_writes, key=lambda write: write.completed or "")
    assert newest == completed
    assert_sound(another(table), model)
    # What came in between is merged by the next compaction.
    assert another(table).compact() is not None
    assert_sound(another(table), model)


def test_a_compaction_that_failed_is_run_again_while_a_stream_writes(tmp_path: Path) -> None:
    table, model = grown(tmp_path)

    def fail() -> None:
        raise OSError("injected")

    with pytest.raises(StorageError, match="injected"):
        table.compact(Meanwhile(fail))
    # The record of the first run, which is undone, stays: it is none of the second run.
    assert table.compact(Meanwhile(lambda: grow(another(table), model, 3))) is not None
    assert_sound(another(table), model)


def test_a_compaction_and_a_clean_run_while_a_batch_is_written(tmp_path: Path) -> None:
    table, model = grown(tmp_path, **{"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS"})
    changed = rows(("k1", "nl", 9, 900), ("new", "nl", 9, 901))

    def batches() -> Iterator[pa.RecordBatch]:
        yield from changed.slice(0, 1).to_batches()
        beside = another(
            table,
            **{"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1},
        )
        assert beside.compact() is not None
        assert beside.clean() is not None
        yield from changed.slice(1).to_batches()

    reader = pa.RecordBatchReader.from_batches(changed.schema, batches())
    assert table.upsert(reader) is not None
    model.update({"k1": ("k1", "nl", 9, 900), "new": ("new", "nl", 9, 901)})
    assert_sound(another(table), model)


def test_a_second_writer_waits_for_the_first_or_is_refused_by_name(tmp_path: Path) -> None:
    table, model = grown(tmp_path, **{"lsm.writer.id": "first"})
    begun, done = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def first() -> None:
        with table.transaction() as tx:
            table.plan(tx, "upsert")
            tx.begin()
            begun.set()
            done.wait(60)

    def second() -> None:
        try:
            grow(another(table, **{"lsm.write.single.writer.wait.ms": 60_000}), model, 7)
        except BaseException as error:
            failed.append(error)

    holder = threading.Thread(target=first)
    holder.start()
    assert begun.wait(60)
    with pytest.raises(CommitConflict, match=r"is being written by writer 'first'.*lsm.write.single.writer.wait.ms"):
        another(table).upsert(rows(("k1", "nl", 9, 900)))
    waiting = threading.Thread(target=second)
    waiting.start()
    done.set()
    holder.join()
    waiting.join()
    assert failed == []
    assert_sound(another(table), model)


def test_a_writer_that_others_wait_for_lets_them_go_first(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    busy, other = in_process(table, 1), in_process(table, 2, **{"lsm.write.single.writer.wait.ms": 60_000})
    waited: list[float] = []
    let_go: list[Callable[[], object]] = []
    busy.runtime = replace(busy.runtime, sleep=waited.append)
    other.runtime = replace(other.runtime, sleep=lambda seconds: let_go.pop()() if let_go else None)

    def second() -> Iterator[pa.RecordBatch]:
        begun.set()
        assert asked.wait(60)
        yield from rows(("k1", "nl", 9, 900)).to_batches()

    begun, asked, ended = threading.Event(), threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (begun.wait(60), write_other()))

    def write_other() -> None:
        let_go.append(lambda: (asked.set(), ended.wait(60)))
        other.upsert(rows(("other", "nl", 1, 1)))

    thread.start()
    busy.upsert(pa.RecordBatchReader.from_batches(rows().schema, second()))
    ended.set()
    thread.join()
    assert waited == []
    busy.upsert(rows(("k2", "nl", 9, 901)))
    assert len(waited) == 1
    assert 0 < waited[0] <= 0.4
    busy.upsert(rows(("k3", "nl", 9, 902)))
    assert len(waited) == 1
    model.update({"k1": ("k1", "nl", 9, 900), "k2": ("k2", "nl", 9, 901), "k3": ("k3", "nl", 9, 902)})
    model["other"] = ("other", "nl", 1, 1)
    assert_sound(another(table), model)
    assert not [name for name in table.storage.names(".hoodie/.heartbeat") if name.endswith("waiting")]


def test_two_compactions_at_once_run_each_plan_once(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    other: list[object] = []

    assert table.compact(Meanwhile(lambda: other.append(another(table).compact()))) is not None
    assert other == [None]
    assert len([write for write in table.timeline.completed_writes if write.action == "commit"]) == 1
    assert_sound(another(table), model)


def test_a_plan_knows_what_was_written_while_the_table_was_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = grown(tmp_path)
    listed = Survey.of

    def meanwhile(context: ServiceContext) -> Survey:
        found = listed(context)
        another(table).upsert(rows(("k1", "nl", 9, 900), ("new", "fr", 9, 901)))
        return found

    monkeypatch.setattr(Survey, "of", meanwhile)
    _, selection = table.services.schedule()
    monkeypatch.undo()
    model["k1"], model["new"] = ("k1", "nl", 9, 900), ("new", "fr", 9, 901)
    assert {operation.partition_path for operation in selection.operations} >= {"nl", "fr"}
    assert table.compact() is not None
    assert not any(found.logs for found in table.file_slices())
    assert_sound(another(table), model)


def test_a_clean_that_another_process_runs_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, model = grown(tmp_path, **CLEAN)
    table.compact()
    grow(table, model, 4)
    other: list[object] = []
    delete_files = Transaction.delete_files

    def meanwhile(transaction: Transaction, paths: Iterable[str], _: object) -> None:
        monkeypatch.undo()
        other.append(another(table, **CLEAN).clean())
        delete_files(transaction, paths)

    monkeypatch.setattr(Transaction, "delete_files", meanwhile)
    assert table.clean() is not None
    assert other == [None]
    assert_sound(another(table), model)


def test_a_savepoint_made_while_a_clean_was_planned_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = grown(tmp_path, **CLEAN)
    table.compact()
    grow(table, model, 4)
    looked = Cleaner._look
    saved: list[str] = []

    def meanwhile(cleaner: Cleaner, timeline: Timeline) -> CleanSelection | None:
        found = looked(cleaner, timeline)
        assert found is not None
        saved.extend(f"nl/{name}" for name in found.files["nl"])
        put_savepoint(table, timeline.completed_writes[0].requested, list(found.files["nl"]))
        return found

    monkeypatch.setattr(Cleaner, "_look", meanwhile)
    table.clean()
    assert saved
    assert all(table.storage.exists(path) for path in saved)
    assert_sound(another(table), model)


def test_a_batch_that_another_process_of_the_same_writer_commits_first_is_fenced(tmp_path: Path) -> None:
    table, model = grown(tmp_path, **{"lsm.writer.id": "query"})
    same = another(table, **{"lsm.writer.id": "query"})

    def batches() -> Iterator[pa.RecordBatch]:
        # The first process counts as dead: its heartbeat is gone.
        (pending,) = Timeline.load(table.storage).pending
        table.storage.delete(f".hoodie/.heartbeat/{pending.requested}")
        assert same.upsert(rows(("k1", "nl", 9, 900)), batch_id=0) is not None
        yield from rows(("k1", "nl", 9, 900)).to_batches()

    with pytest.raises(Fenced):
        table.upsert(pa.RecordBatchReader.from_batches(rows().schema, batches()), batch_id=0)
    model["k1"] = ("k1", "nl", 9, 900)
    assert_sound(another(table), model)
    assert same.upsert(rows(("k1", "nl", 9, 900)), batch_id=0) is None


def test_the_lock_is_not_held_while_rows_are_written(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    held: list[bool] = []

    def batches() -> Iterator[pa.RecordBatch]:
        held.append(table.storage.exists(LOCK_FILE))
        yield from rows(("k1", "nl", 9, 900)).to_batches()

    table.upsert(pa.RecordBatchReader.from_batches(rows().schema, batches()))
    assert held == [False]
