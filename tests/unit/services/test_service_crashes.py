"""A compaction or clean that dies, or loses an answer, at its storage calls; the next process sets it right.

One call in 61 here, others for each kind of fault; with LSM_ALL_FAULTS=1 every call.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.errors import LsmError
from streaming_lsm.storage.local import LocalStorage
from tests.support.crash_points import EVERY_CALL
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.service_tables import Model, assert_sound, cleans, compactions, grow, grown, reopened
from tests.support.small_tables import data_files, rows, shown

Service = Callable[[LsmTable], object]
KILLS = (Fault.KILL_BEFORE, Fault.KILL_AFTER)
FAULTS = tuple(Fault)
STEP = 1 if EVERY_CALL else 61


def schedule(table: LsmTable) -> object:
    return table.services.schedule()


class Copies:
    """Copies of one prepared table, so that each trial begins with the same files."""

    def __init__(self, template: LsmTable, root: Path) -> None:
        self._template = Path(template.path.removeprefix("file://"))
        self._table = template
        self._root = root
        self._made = 0

    def next(self) -> LsmTable:
        """A fresh copy."""
        self._made += 1
        folder = self._root / f"copy{self._made}"
        shutil.copytree(self._template, folder)
        copy = reopened(self._table, LocalStorage(folder))
        return LsmTable(folder, copy.options)

    def calls(self, run: Service) -> list[tuple[str, str]]:
        """The storage calls of a run that meets no fault."""
        table = self.next()
        table.storage = counting = FaultyStorage(table.storage)
        run(table)
        return counting.calls


def chosen(calls: Sequence[object], fault: Fault, every: int = 1) -> range:
    """The calls at which a fault is tried, or every so many of them."""
    return range(FAULTS.index(fault) % STEP, len(calls), STEP * every)


def meet(table: LsmTable, run: Service, call: int, fault: Fault) -> None:
    """A process that runs a service and meets its fate at a call."""
    faulty = LsmTable(table.path, table.options)
    faulty.storage = FaultyStorage(table.storage, {call: fault})
    with suppress(Killed, OSError, LsmError):
        run(faulty)


@pytest.fixture(params=FAULTS, ids=lambda fault: fault.name)
def fault(request: pytest.FixtureRequest) -> Fault:
    found: Fault = request.param
    return found


def prepared(tmp_path: Path) -> tuple[Copies, Model]:
    table, model = grown(tmp_path / "template", batches=2)
    return Copies(table, tmp_path), model


def test_a_compaction_takes_effect_once_whatever_call_it_dies_at(tmp_path: Path, fault: Fault) -> None:
    copies, model = prepared(tmp_path)
    calls = copies.calls(LsmTable.compact)
    assert len(calls) > 60
    for call in chosen(calls, fault):
        table = copies.next()
        meet(table, LsmTable.compact, call, fault)
        assert shown(table) == sorted(model.values())
        table.compact()
        assert len(compactions(table)) == 1, calls[call]
        assert_sound(table, model)


def compact_logs(table: LsmTable) -> object:
    with_few = LsmTable(table.path, table.options.merged(type(table.options)({BLOCKS: 2})))
    with_few.storage = table.storage
    return with_few.services.compact(LocalEngine(1), log=True)


BLOCKS = "hoodie.log.compaction.blocks.threshold"


def log_compactions(table: LsmTable) -> int:
    commits = (table.timeline.read_commit(write) for write in table.timeline.every_write)
    return sum(commit.operation_type == "LOG_COMPACT" for commit in commits)


@pytest.mark.parametrize("version", [9, 10])
def test_a_log_compaction_takes_effect_once_whatever_call_it_dies_at(
    tmp_path: Path, fault: Fault, version: int
) -> None:
    layout = {} if version == 10 else {"hoodie.table.storage.layout": "default"}
    table, model = grown(tmp_path / "template", batches=3, **{"hoodie.write.table.version": version}, **layout)
    copies = Copies(table, tmp_path)
    calls = copies.calls(compact_logs)
    assert len(calls) > 60
    for call in chosen(calls, fault, every=1 if version == 10 else 3):
        copy = copies.next()
        meet(copy, compact_logs, call, fault)
        assert shown(copy) == sorted(model.values())
        compact_logs(copy)
        assert log_compactions(copy) == 1, calls[call]
        assert shown(copy) == sorted(model.values())
        if version == 10:  # the only one that the oracle knows
            assert_sound(copy, model)


def test_a_compaction_that_keeps_deletes_takes_effect_once_whatever_call_it_dies_at(
    tmp_path: Path, fault: Fault
) -> None:
    template, model = grown(tmp_path / "template", batches=2)
    template.delete(pa.table({"id": ["k1", "k9"], "country": ["nl", "nl"], "ts": [5, 5]}))
    del model["k1"]
    copies = Copies(template, tmp_path)
    calls = copies.calls(LsmTable.compact)
    assert any(".deletes.parquet" in path for _, path in calls)
    for call in chosen(calls, fault):
        table = copies.next()
        meet(table, LsmTable.compact, call, fault)
        table.upsert(rows(("k1", "nl", 4, 0), ("k9", "nl", 4, 0)))
        assert shown(table) == sorted(model.values())
        table.compact()
        assert_sound(table, model)
        assert any(found.is_kept(log) for found in table.file_slices() for log in found.logs)


def test_a_copy_on_write_batch_keeps_deletes_whatever_call_it_dies_at(tmp_path: Path, fault: Fault) -> None:
    template, model = grown(tmp_path / "template", batches=2, **{"hoodie.table.type": "COPY_ON_WRITE"})
    template.delete(pa.table({"id": ["k1", "k9"], "country": ["nl", "nl"], "ts": [5, 5]}))
    del model["k1"]

    def write(table: LsmTable) -> object:
        return table.upsert(rows(("k1", "nl", 4, 0), ("k9", "nl", 4, 0)))

    copies = Copies(template, tmp_path)
    calls = copies.calls(write)
    assert any(".deletes.parquet" in path for _, path in calls)
    for call in chosen(calls, fault):
        table = copies.next()
        meet(table, write, call, fault)
        assert shown(table) == sorted(model.values())
        write(table)
        assert_sound(table, model)
        assert any(found.is_kept(log) for found in table.file_slices() for log in found.logs)


@pytest.mark.parametrize("fault", KILLS)
def test_writers_go_on_over_a_compaction_that_died(tmp_path: Path, fault: Fault) -> None:
    copies, before = prepared(tmp_path)
    calls = copies.calls(LsmTable.compact)
    for call in chosen(calls, fault, every=3):
        table, model = copies.next(), dict(before)
        meet(table, LsmTable.compact, call, fault)
        grow(table, model, 2)
        assert_sound(table, model)
        table.compact()
        assert_sound(table, model)


@pytest.mark.parametrize("fault", KILLS)
def test_a_compaction_that_dies_five_times_takes_effect_once(tmp_path: Path, fault: Fault) -> None:
    copies, model = prepared(tmp_path)
    made = copies.calls(LsmTable.compact)
    calls = len(made)
    for call in chosen(made, fault, every=4):
        table = copies.next()
        meet(table, schedule, 10**6, fault)
        for depth in (call, (call + 7) % calls, call // 2, (call + 13) % calls, call):
            meet(table, LsmTable.compact, depth, fault)
        table.compact()
        assert len(compactions(table)) == 1
        assert_sound(table, model)


def prepared_for_clean(tmp_path: Path) -> tuple[Copies, Model]:
    table, model = grown(tmp_path / "template", batches=2, **{"hoodie.clean.commits.retained": 1})
    for batch in (2, 3):
        table.compact()
        grow(table, model, batch)
    return Copies(reopened(table, **{"hoodie.clean.commits.retained": 1}), tmp_path), model


def clean_one(table: LsmTable) -> object:
    with_retention = LsmTable(table.path, table.options.merged(type(table.options)(RETAIN_ONE)))
    with_retention.storage = table.storage
    return with_retention.clean()


RETAIN_ONE = {"hoodie.clean.commits.retained": 1}


def test_a_clean_is_finished_whatever_call_it_dies_at(tmp_path: Path, fault: Fault) -> None:
    copies, model = prepared_for_clean(tmp_path)
    unharmed = copies.next()
    clean_one(unharmed)
    left = data_files(Path(unharmed.path.removeprefix("file://")))
    calls = copies.calls(clean_one)
    assert len(calls) > 25
    for call in chosen(calls, fault):
        table = copies.next()
        meet(table, clean_one, call, fault)
        assert shown(table) == sorted(model.values())
        clean_one(table)
        assert len(cleans(table)) == 1, calls[call]
        assert data_files(Path(table.path.removeprefix("file://"))) == left
        assert_sound(table, model)


@pytest.mark.parametrize("fault", KILLS)
def test_writers_and_compactions_go_on_over_a_clean_that_died(tmp_path: Path, fault: Fault) -> None:
    copies, before = prepared_for_clean(tmp_path)
    calls = copies.calls(clean_one)
    for call in chosen(calls, fault, every=3):
        table, model = copies.next(), dict(before)
        meet(table, clean_one, call, fault)
        grow(table, model, 4)
        table.compact()
        assert shown(table) == sorted(model.values())
        clean_one(table)
        assert_sound(table, model)
