"""How long a batch waits for compactions: plans that fit, and which of them are begun."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.format.actions.compaction_plan import CompactionOperation, CompactionPlan
from streaming_lsm.services.compaction.pace import CompactionPace
from streaming_lsm.services.compaction.runner import run_compaction
from streaming_lsm.services.compaction.time_limit import MOST_PENDING, Room, TimeLimit
from streaming_lsm.services.context import read_compaction_plan
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.txn.planned_actions import pending_compactions
from tests.support.service_tables import Model, assert_sound, compactions, grow, grown, reopened
from tests.support.small_tables import rows

T = TypeVar("T")
R = TypeVar("R")
MIB = 1 << 20
LIMIT = "lsm.compact.inline.max.ms"


def operation(mib: float, number: int = 0) -> CompactionOperation:
    return CompactionOperation("nl", f"group-{number}", "1", ("log",), metrics={"TOTAL_LOG_FILES_SIZE": mib * MIB})


def paced(mib_per_second: float) -> CompactionPace:
    """A pace after one compaction of one file group."""
    pace = CompactionPace()
    pace.record([operation(9)], 1, 10 / mib_per_second)
    return pace


def limit_of(seconds: float, pace: CompactionPace, width: int = 1) -> tuple[TimeLimit, list[float]]:
    """A limit, and a clock that the test sets."""
    clock = [100.0]
    return TimeLimit(seconds, pace, LocalEngine(width), lambda: clock[0]), clock


# --- pace ---------------------------------------------------------------------------------------------------------


def test_a_compaction_takes_as_long_as_its_bytes_at_the_pace_of_the_slowest_of_the_last_four() -> None:
    pace = paced(10)
    assert pace.seconds([operation(19), operation(19)], 1) == pytest.approx(4.0)
    pace.record([operation(9)], 1, 5.0)
    assert pace.seconds([operation(19)], 1) == pytest.approx(10.0)
    for _ in range(4):
        pace.record([operation(9)], 1, 0.5)
    assert pace.seconds([operation(19)], 1) == pytest.approx(1.0)


def test_operations_at_a_time_share_the_bytes_and_the_largest_takes_its_own_time() -> None:
    pace = paced(10)
    assert pace.seconds([operation(9)] * 4, 4) == pytest.approx(1.0)
    assert pace.seconds([operation(9)] * 4, 2) == pytest.approx(2.0)
    assert pace.seconds([operation(39), operation(9)], 2) == pytest.approx(4.0)
    # Measured with two threads, the pace is that of one.
    both = CompactionPace()
    both.record([operation(9), operation(9)], 2, 1.0)
    assert both.seconds([operation(9)], 1) == pytest.approx(1.0)


def test_the_base_file_counts_too() -> None:
    found = CompactionOperation("nl", "g", "1", ("log",), "base", {"TOTAL_LOG_FILES_SIZE": 1, "TOTAL_IO_READ_MB": 19})
    assert paced(10).seconds([found], 1) == pytest.approx(2.0)


def test_a_plan_without_sizes_takes_for_ever_and_is_no_measure() -> None:
    unknown, pace = CompactionOperation("nl", "g", "1", ("log",)), paced(10)
    assert pace.seconds([unknown, operation(1)], 1) == float("inf")
    pace.record([unknown], 1, 1000.0)
    assert pace.seconds([operation(9)], 1) == pytest.approx(1.0)


def test_plans_keep_the_order_and_hold_what_fits_at_least_one_operation() -> None:
    operations = [operation(mib, number) for number, mib in enumerate((99, 9, 9, 9, 9, 1))]
    plans = paced(10).cut(operations, 1, 2.0)
    assert [[found.file_id[-1] for found in plan] for plan in plans] == [["0"], ["1", "2"], ["3", "4"], ["5"]]
    assert paced(10).cut([], 1, 2.0) == []
    assert [len(plan) for plan in paced(10).cut([operation(9)] * 8, 4, 1.0)] == [4, 4]


# --- limit --------------------------------------------------------------------------------------------------------


def test_the_next_compaction_is_begun_only_if_the_time_left_suffices() -> None:
    limit, clock = limit_of(3.0, paced(10))
    assert limit.room_for([operation(9)]) is Room.NOW
    clock[0] += 1.5
    assert limit.room_for([operation(9)]) is Room.NOW
    clock[0] += 1.0
    assert limit.room_for([operation(9)]) is Room.LATER


def test_the_first_compaction_is_begun_although_the_table_took_long_to_list() -> None:
    limit, clock = limit_of(3.0, paced(10))
    clock[0] += 2.9
    assert limit.room_for([operation(9)] * 3) is Room.NOW


def test_several_file_groups_that_never_fit_are_left_to_others_and_a_single_one_is_not() -> None:
    limit, _ = limit_of(3.0, paced(10))
    assert limit.room_for([operation(29), operation(9)]) is Room.NEVER
    assert limit.room_for([operation(999)]) is Room.NOW
    assert limit.room_for([operation(999)]) is Room.LATER, "it is the first one of the next batch"


def test_what_a_compaction_took_is_the_pace_of_the_next() -> None:
    pace = paced(10)
    limit, clock = limit_of(3.0, pace)
    clock[0] += 50.0
    limit.room_for([operation(9)])
    clock[0] += 0.5

    def merge(_: int) -> None:
        clock[0] += 2.0

    list(limit.engine.map(merge, [0]))
    clock[0] += 0.25
    limit.record([operation(9)])
    assert pace.seconds([operation(9)], 1) == pytest.approx(2.75)
    assert pace.seconds([operation(19)], 1) == pytest.approx(4.75), "only merging takes twice as long"
    assert [len(plan) for plan in pace.cut([operation(9)] * 5, 1, 4.8)] == [2, 2, 1]


def test_a_plan_that_was_cut_to_the_limit_is_run_though_the_machine_got_slower() -> None:
    pace = paced(10)
    limit, _ = limit_of(3.0, pace)
    (plan, *_) = limit.cut([operation(4)] * 9)
    assert len(plan) == 3
    for _ in range(4):
        pace.record([operation(9)], 1, 100.0)
    assert limit.room_for(plan) is Room.NEVER, "of another program"
    assert limit.room_for(plan, is_cut=True) is Room.NOW


def test_a_plan_is_left_to_others_only_if_the_fastest_of_the_last_compactions_says_so() -> None:
    pace = paced(10)
    pace.record([operation(9)], 1, 100.0)
    limit, _ = limit_of(3.0, pace)
    assert limit.room_for([operation(9)] * 3) is Room.NOW
    # A process that has measured nothing leaves only what no machine merges in time.
    new, _ = limit_of(3.0, CompactionPace())
    assert new.room_for([operation(200)] * 2) is Room.NEVER
    assert new.room_for([operation(9)] * 3) is Room.NOW


# --- after a write ------------------------------------------------------------------------------------------------

MANY = {"hoodie.bucket.index.num.buckets": 6}
DUE: dict[str, object] = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 3, **MANY}


class Clocked:
    """An engine of one thread, by whose clock each task takes a second."""

    width = 1

    def __init__(self) -> None:
        self.now = 0.0
        self.tasks = 0

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        for item in items:
            self.now += 1.0
            self.tasks += 1
            yield task(item)


def ready(tmp_path: Path, limit_s: float, **options: object) -> tuple[LsmTable, Model, Clocked]:
    """A table of six file groups with a compaction due, and an engine whose clock limits its services."""
    table, model = grown(tmp_path, **MANY)
    due = reopened(table, **{**DUE, LIMIT: int(limit_s * 1000), **options})
    engine = Clocked()
    context = due.services._context
    object.__setattr__(context.runtime, "elapsed", lambda: engine.now)
    # One file group, of less than a MiB as all of them here, takes a second.
    due.services._limits._pace.record([operation(0)], 1, 1.0)
    due._committed = due.timeline
    return due, model, engine


def again(table: LsmTable, engine: Clocked) -> None:
    """What runs after the next batch."""
    table._committed = table.timeline
    table.run_services(engine)


def sizes(table: LsmTable, instants: Iterable[Instant]) -> list[int]:
    return [len(read_compaction_plan(table.storage, found).operations) for found in instants]


def test_all_is_planned_in_plans_that_fit_and_each_batch_runs_as_many_as_fit(tmp_path: Path) -> None:
    table, model, engine = ready(tmp_path, 4.2)
    groups = len(table.file_slices())
    assert groups == 6
    table.run_services(engine)
    assert engine.tasks == 4
    assert len(compactions(table)) == 2
    assert sizes(table, pending_compactions(table.timeline)) == [2]
    assert_sound(table, model)
    again(table, engine)
    assert engine.tasks == 6
    assert pending_compactions(table.timeline) == ()
    assert [len(found.logs) for found in table.file_slices()] == [0] * 6
    assert_sound(table, model)


def test_a_limit_that_nothing_fits_makes_progress_by_one_file_group_a_batch(tmp_path: Path) -> None:
    table, model, engine = ready(tmp_path, 0.001)
    for batch in range(1, 7):
        again(table, engine)
        assert engine.tasks == batch
    assert pending_compactions(table.timeline) == ()
    assert_sound(table, model)


def test_without_a_limit_there_is_one_plan(tmp_path: Path) -> None:
    table, model, engine = ready(tmp_path, 0)
    table.run_services(engine)
    (completed,) = compactions(table)
    assert len(table.timeline.read_commit(completed).stats) == 6
    assert_sound(table, model)


def test_a_plan_of_another_program_that_never_fits_is_left_to_a_job_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, model = grown(tmp_path, **MANY)
    whole, _ = before.services.schedule()
    assert whole is not None
    table, _, engine = ready_again(before, 3.0)
    with caplog.at_level(logging.WARNING):
        for batch in (3, 4, 5):
            grow(reopened(table, **MANY), model, batch)
            again(table, engine)
    assert engine.tasks == 0, "all file groups are in the plan"
    assert [whole.requested] == [pending.requested for pending in pending_compactions(table.timeline)]
    said = [message for message in caplog.messages if whole.requested in message]
    assert len(said) == 1
    assert f"has 6 file groups, for about 6 s, and {LIMIT}=3000: it is left to `lsm compact`" in said[0]
    assert run_compaction(table.services._context, whole.requested, engine) is not None
    assert_sound(table, model)


def ready_again(table: LsmTable, limit_s: float) -> tuple[LsmTable, None, Clocked]:
    due = reopened(table, **{**DUE, LIMIT: int(limit_s * 1000)})
    engine = Clocked()
    object.__setattr__(due.services._context.runtime, "elapsed", lambda: engine.now)
    due.services._limits._pace.record([operation(0)], 1, 1.0)
    return due, None, engine


def test_a_backlog_is_bounded(tmp_path: Path) -> None:
    table, _ = grown(tmp_path, batches=0, **{**MANY, "hoodie.bucket.index.num.buckets": 64})
    for batch in range(3):
        table.upsert(rows(*((f"k{n}", "nl", batch, n) for n in range(300))))
    assert len(table.file_slices()) > MOST_PENDING + 5
    options = {**DUE, LIMIT: 1, "hoodie.bucket.index.num.buckets": 64}
    due = reopened(table, **options)
    engine = Clocked()
    object.__setattr__(due.services._context.runtime, "elapsed", lambda: engine.now)
    again(due, engine)
    assert len(pending_compactions(due.timeline)) == MOST_PENDING - 1, "one was run"


def test_the_plans_of_a_batch_are_those_of_the_strategy_in_its_order(tmp_path: Path) -> None:
    table, _, engine = ready(tmp_path, 0.001)
    wanted = table.services.preview_compaction().operations
    table.run_services(engine)
    planned: list[CompactionOperation] = []
    for pending in pending_compactions(table.timeline):
        plan = CompactionPlan.decode(table.storage.read(pending.path), pending.path)
        planned.extend(plan.operations)
    assert [found.file_id for found in planned] == [found.file_id for found in wanted[1:]]
