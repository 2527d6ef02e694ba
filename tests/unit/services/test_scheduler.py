"""What runs after a write, and that it never fails the write."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.actions.compaction_plan import CompactionPlan
from streaming_lsm.services.compaction.runner import run_compaction
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.txn.planned_actions import pending_cleans, pending_compactions
from tests.support.crash_points import sample
from tests.support.faulty_storage import Fault, FaultyStorage
from tests.support.service_tables import Model, assert_sound, cleans, compactions, grow, grown, most_logs, reopened
from tests.support.small_tables import rows, shown

T = TypeVar("T")
R = TypeVar("R")
INLINE = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 3}
CLEAN = {"hoodie.clean.automatic": True, "hoodie.clean.commits.retained": 2}


def run(table: LsmTable, model: Model, batches: Iterable[int]) -> None:
    for batch in batches:
        grow(table, model, batch)


def watched(table: LsmTable, **options: object) -> tuple[LsmTable, FaultyStorage]:
    """The table as a new process opens it, and what that process asks of the storage."""
    storage = FaultyStorage(LocalStorage(table.path.removeprefix("file://")))
    return reopened(table, storage, **options), storage


def upsert(table: LsmTable, model: Model) -> None:
    """One delta commit."""
    table.upsert(rows(("k0", "nl", 99, 99)))
    model["k0"] = ("k0", "nl", 99, 99)


def listed(calls: Sequence[tuple[str, str]]) -> list[str]:
    """Folders of data that were listed."""
    return [path for name, path in calls if name == "list" and not path.startswith(".hoodie")]


def test_every_third_delta_commit_is_followed_by_a_compaction(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=2, **INLINE)
    assert compactions(table) == []
    run(table, model, range(2, 6))
    # The last four batches have a delete each, and so two delta commits.
    assert len(compactions(table)) == 3
    assert most_logs(table) <= 3
    assert_sound(table, model)


def test_delta_commits_that_another_writer_has_archived_count_for_the_next_compaction(tmp_path: Path) -> None:
    short = {"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4, "hoodie.clean.commits.retained": 2}
    table, model = grown(tmp_path, batches=1)
    compacting = reopened(
        table,
        **{
            "hoodie.compact.inline": True,
            "hoodie.compact.inline.max.delta.commits": 8,
            "hoodie.archive.automatic": False,
        },
    )
    archiving = reopened(table, **short)
    for _ in range(4):
        upsert(archiving, model)
        upsert(compacting, model)
    assert len(archiving.timeline.completed_writes) < 8
    assert len(compactions(table)) == 1
    for _ in range(3):
        upsert(archiving, model)
        upsert(compacting, model)
    (due,) = (found for found in compacting.services.due() if found.service == "compact")
    assert not due.is_due
    upsert(archiving, model)
    upsert(archiving, model)
    (due,) = (found for found in compacting.services.due() if found.service == "compact")
    assert due.is_due
    upsert(compacting, model)
    assert len([write for write in table.timeline.every_write if write.action == "commit"]) == 2
    assert_sound(table, model)


def test_by_default_nothing_is_compacted(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=6)
    assert compactions(table) == []
    assert pending_compactions(table.timeline) == ()
    assert_sound(table, model)


def test_a_schedule_waits_for_somebody_to_run_it(tmp_path: Path) -> None:
    schedule = {"hoodie.compact.schedule.inline": True, "hoodie.compact.inline.max.delta.commits": 3}
    table, model = grown(tmp_path, batches=4, **schedule)
    assert len(pending_compactions(table.timeline)) == 1
    assert compactions(table) == []
    assert table.compact() is not None
    assert_sound(table, model)


def test_a_compaction_that_waits_is_run_after_the_next_write_although_none_is_due(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    waiting, _ = table.services.schedule()
    assert waiting is not None
    later = reopened(table, **{**INLINE, "hoodie.compact.inline.max.delta.commits": 100})
    run(later, model, [3])
    assert [done.requested for done in compactions(later)] == [waiting.requested]
    assert_sound(later, model)


class BrokenEngine:
    """Runs nothing."""

    width = 1

    def __init__(self, error: Exception) -> None:
        self._error = error

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        raise self._error
        yield


@pytest.mark.parametrize(
    "error", [OSError("no space left"), RuntimeError("a bug\n\tat java.lang.Thread")], ids=["disk", "bug"]
)
def test_a_compaction_that_fails_is_logged_and_finished_after_the_next_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    table, model = grown(tmp_path)
    failing = reopened(table, **INLINE)
    failing._engine = BrokenEngine(error)  # type: ignore[assignment]
    # Only the services run on this engine: the write went before.
    failing._committed = failing.timeline
    with caplog.at_level(logging.WARNING):
        failing.run_services()
    (waiting,) = pending_compactions(failing.timeline)
    assert f"compaction {waiting.requested} of" in caplog.text
    assert str(error).partition("\n")[0] in caplog.text
    assert len(caplog.text.splitlines()) == len(caplog.records), "no stack is printed"
    healthy = reopened(table, **INLINE)
    assert_sound(healthy, model)
    run(healthy, model, [3])
    assert compactions(healthy)[0].requested == waiting.requested
    assert pending_compactions(healthy.timeline) == ()
    assert_sound(healthy, model)


def test_a_plan_that_cannot_be_carried_out_fails_no_write_and_no_clean(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, model = grown(tmp_path)
    table.compact()
    run(table, model, [3])
    good, _ = table.services.schedule()
    assert good is not None
    plan = table.storage.read(good.path)
    table.storage.replace(good.path, unreadable(plan))
    later = reopened(table, **{**INLINE, **CLEAN})
    run(later, model, [4, 5])
    assert "plan version 4" in caplog.text
    assert len(cleans(later)) == 1
    table.storage.replace(good.path, plan)
    run(later, model, [6])
    assert pending_compactions(later.timeline) == ()
    assert shown(later) == sorted(model.values())


def test_a_storage_that_fails_in_a_service_fails_no_write(tmp_path: Path) -> None:
    table, model = grown(tmp_path / "unharmed")
    due, counting = watched(table, **INLINE)
    upsert(due, model)
    begins = next(n for n, (_, path) in enumerate(counting.calls) if path.endswith("compaction.requested"))
    assert len(counting.calls) - begins > 50
    for call in sample(range(begins, len(counting.calls)), 0, 41):
        copy, copied = grown(tmp_path / str(call))
        storage = FaultyStorage(LocalStorage(tmp_path / str(call)), {call: Fault.FAIL_BEFORE})
        upsert(reopened(copy, storage, **INLINE), copied)
        after = reopened(copy)
        after.compact()
        assert_sound(after, copied)


def test_another_writer_between_write_and_service_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, _ = grown(tmp_path)
    due = reopened(table, **INLINE)
    due._committed = due.timeline
    with table.transaction():
        due.run_services()
    assert "being changed by this process" in caplog.text
    assert pending_compactions(table.timeline) == ()


def test_superseded_slices_are_cleaned_after_the_write_that_makes_them_old(tmp_path: Path) -> None:
    table, model = grown(tmp_path, batches=8, **INLINE, **CLEAN)
    assert len(cleans(table)) >= 2
    assert pending_cleans(table.timeline) == ()
    assert_sound(table, model)


def test_no_folder_is_listed_while_no_write_that_made_slices_old_fell_behind(tmp_path: Path) -> None:
    before, model = grown(tmp_path, batches=3)
    before.compact()
    table, storage = watched(before, **CLEAN)
    run(table, model, range(3, 7))
    assert len(cleans(table)) == 1
    begun = len(storage.calls)
    run(table, model, range(7, 9))
    assert listed(storage.calls[begun:]) == []
    assert not [path for _, path in storage.calls[begun:] if path.endswith(".clean")]


def test_what_a_clean_left_is_not_looked_for_again_by_the_next_process(tmp_path: Path) -> None:
    before, model = grown(tmp_path, batches=3, **CLEAN)
    before.compact()
    run(before, model, range(3, 7))
    later, storage = watched(before, **CLEAN)
    grow(later, model, 7)
    assert listed(storage.calls) == ["", "nl"], "once, to know the file groups"
    assert len([path for _, path in storage.calls if path.endswith(".clean")]) == 1


def test_while_nothing_is_due_a_service_asks_nothing_of_the_storage(tmp_path: Path) -> None:
    table, _ = grown(tmp_path)
    quiet, storage = watched(
        table,
        **{**INLINE, "hoodie.compact.inline.max.delta.commits": 50},
        **{**CLEAN, "hoodie.clean.commits.retained": 50},
    )
    quiet._committed = quiet.timeline
    quiet.run_services()
    assert not listed(storage.calls)
    # The first time a process looks once what others may have archived.
    begun = len(storage.calls)
    quiet.run_services()
    assert len(storage.calls) == begun


def test_a_trigger_that_found_nothing_waits_for_as_many_commits_again(tmp_path: Path) -> None:
    before, model = grown(tmp_path, batches=2)
    strict = {**INLINE, "hoodie.compaction.logfile.size.threshold": 10**9}
    table, storage = watched(before, **strict)
    upsert(table, model)
    assert listed(storage.calls) == ["", "nl", "", "nl"], "the file groups, and what there is to compact"
    begun = len(storage.calls)
    upsert(table, model)
    upsert(table, model)
    assert listed(storage.calls[begun:]) == []
    upsert(table, model)
    assert listed(storage.calls[begun:]) == ["", "nl"]
    assert pending_compactions(table.timeline) == ()


def test_a_plan_that_cannot_be_carried_out_stops_no_other_plan_and_no_schedule(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, model = grown(tmp_path, **{"hoodie.bucket.index.num.buckets": 4})
    foreign, other, *rest = table.services.preview_compaction().operations
    assert rest
    with table.transaction() as tx:
        newer = tx.schedule("compaction", tx.new_time(), CompactionPlan((foreign,), version=4).encode())
        ours = tx.schedule("compaction", tx.new_time(), CompactionPlan((other,)).encode())
    later = reopened(table, **INLINE, **{"hoodie.bucket.index.num.buckets": 4})
    run(later, model, [3, 4])
    assert compactions(later)[0].requested == ours.requested
    assert pending_compactions(later.timeline) == (newer,)
    compacted = {found.file_id for found in later.file_slices() if found.base}
    assert compacted == {operation.file_id for operation in (other, *rest)}
    assert f"compaction {newer.requested} of" in caplog.text
    assert "version 4" in caplog.text
    assert shown(later) == sorted(model.values())


def unreadable(plan: bytes) -> bytes:
    """A compaction plan of a version that is not carried out."""
    return replace(CompactionPlan.decode(plan, "plan"), version=4).encode()


def attempts(caplog: pytest.LogCaptureFixture, plan: Instant) -> int:
    return sum(f"compaction {plan.requested} of" in message for message in caplog.messages)


def test_a_plan_that_fails_is_tried_again_after_ever_more_writes_and_by_a_new_process_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, model = grown(tmp_path)
    plan, _ = table.services.schedule()
    assert plan is not None
    good = table.storage.read(plan.path)
    table.storage.replace(plan.path, unreadable(good))
    patient = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1000}
    stream = reopened(table, **patient)
    tried = []
    for _ in range(11):
        upsert(stream, model)
        tried.append(attempts(caplog, plan))
    assert tried == [1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 4]
    upsert(reopened(table, **patient), model)
    assert attempts(caplog, plan) == 5
    with pytest.raises(UnsupportedTable, match="plan version 4"):
        stream.compact()
    table.storage.replace(plan.path, good)
    assert stream.compact() is not None
    assert_sound(stream, model)


def test_a_compaction_that_was_completed_late_is_cleaned_after(tmp_path: Path) -> None:
    many: dict[str, object] = {"hoodie.bucket.index.num.buckets": 64}
    table, _ = grown(tmp_path, batches=0, **many)

    def change(target: LsmTable, key: str) -> None:
        target.upsert(rows((key, "nl", len(table.timeline.instants), 1)))

    def plan(key: str) -> Instant:
        change(table, key)
        waiting, _ = table.services.schedule()
        assert waiting is not None
        return waiting

    change(table, "a")
    change(table, "b")
    table.compact()
    slow, quick = plan("a"), plan("b")
    context = table.services._context
    run_compaction(context, quick.requested, table._engine)
    cleaning = reopened(table, **CLEAN, **many)
    for _ in range(4):
        change(cleaning, "c")
    assert len(cleans(table)) == 2, "what the first compaction made old, and then the quick one"
    run_compaction(context, slow.requested, table._engine)
    change(cleaning, "c")
    assert len(cleans(table)) == 2, "states before the slow one are retained"
    for _ in range(2):
        change(cleaning, "c")
    assert len(cleans(table)) == 3
    assert reopened(table, **CLEAN, **many).services.preview_clean().count == 0
