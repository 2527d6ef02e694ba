"""Rows are written by the tasks that read them where few files come of it and nothing but arrival decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streaming_lsm.errors import ConfigError
from streaming_lsm.format.actions.commit import log_file_stat
from streaming_lsm.format.table.file_names import LogFileName, LogKind, WriteToken
from streaming_lsm.spark.exchange_choice import (
    check_exchange,
    exchanges,
    most_groups,
    needs_one_writer,
    reason_to_exchange,
)
from streaming_lsm.write.intake.control_columns import OFFSET, ROW, TOPIC_PARTITION
from streaming_lsm.write.intake.tombstones import LastEvent
from streaming_lsm.write.partition_writer import WriteResult
from streaming_lsm.write.plan import BULK_INSERT, DELETE, WritePlan
from tests.support.small_tables import create


def plan_of(path: Path, operation: str = "upsert", arrival: tuple[str, ...] = (ROW,), **options: object) -> WritePlan:
    table = create(path, **options)
    with table.transaction(None) as tx:
        return table.plan(tx, operation, arrival_fields=arrival)


@pytest.mark.parametrize(
    ("tasks", "readers", "file_groups", "exchanged"),
    [
        (2, 8, 8, False),
        (2, 2, 32, False),
        pytest.param(2, 8, 33, True, id="more-than-64-files"),
        pytest.param(4, 3, 2, True, id="fewer-readers-than-cores"),
        pytest.param(2, 0, 0, True, id="nothing-known"),
        pytest.param(10, 10, 6, False, id="ten-tasks"),
        pytest.param(11, 11, 1, True, id="tasks-whose-numbers-are-no-longer-in-order-as-text"),
    ],
)
def test_few_files_are_written_without_an_exchange(
    tmp_path: Path, tasks: int, readers: int, file_groups: int, exchanged: bool
) -> None:
    assert exchanges("auto", plan_of(tmp_path), tasks, lambda: (readers, file_groups)) == exchanged


@pytest.mark.parametrize(("readers", "worth", "exchanged"), [(8, 8, True), (8, 2, False), (2, 8, False)])
def test_a_batch_is_not_read_by_fewer_tasks_than_it_is_worth_as_there_are_few_buckets(
    tmp_path: Path, readers: int, worth: int, exchanged: bool
) -> None:
    assert exchanges("auto", plan_of(tmp_path), 2, lambda: (readers, 2), worth) == exchanged


def test_the_option_decides_where_the_table_allows_it(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert exchanges("shuffle", plan, 2, lambda: (8, 1))
    assert not exchanges("none", plan, 100, lambda: (0, 5000))


def test_thousands_of_live_file_groups_do_not_travel_to_every_task(tmp_path: Path) -> None:
    plan = replace(plan_of(tmp_path), file_ids={("p", bucket): "id" for bucket in range(1025)})
    assert exchanges("auto", plan, 2, lambda: (2, 1))


CASES = {
    "copy-on-write": ({"hoodie.table.type": "COPY_ON_WRITE"}, {}, "a base file has one writer"),
    "bulk-insert": ({}, {"operation": BULK_INSERT}, "a base file has one writer"),
    "inline-logs": ({"hoodie.write.table.version": 9}, {}, "inline logs"),
    "commit-time": ({"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}, {}, "no ordering fields"),
    "own-order": ({}, {"arrival": ("sequence",)}, "lsm.write.arrival.fields orders the rows of all tasks"),
}


@pytest.mark.parametrize(("options", "how", "reason"), CASES.values(), ids=CASES)
def test_what_only_one_task_can_decide_is_exchanged(
    tmp_path: Path, options: dict[str, object], how: dict[str, object], reason: str
) -> None:
    plan = plan_of(tmp_path, **how, **options)  # type: ignore[arg-type]
    assert exchanges("auto", plan, 2, lambda: (2, 1))
    check_exchange("auto", plan)
    with pytest.raises(ConfigError, match=f"lsm.write.exchange=none, but .*{reason}.*: remove the option"):
        check_exchange("none", plan)


def test_partial_updates_are_merged_by_one_task(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    partial = replace(plan, rule=replace(plan.rule, partial="IGNORE_DEFAULTS"))
    assert "partial updates" in str(reason_to_exchange(partial))


def test_offsets_of_a_topic_partition_are_an_order_within_a_task(tmp_path: Path) -> None:
    assert reason_to_exchange(plan_of(tmp_path, arrival=(TOPIC_PARTITION, OFFSET))) is None


def part(
    plan: WritePlan,
    *groups: str,
    sources: tuple[str, ...] = (),
    version: int = 1,
    before: str | None = None,
    deletes: int = 0,
    **how: bool,
) -> WriteResult:
    """What a task reports that wrote a log for each of some file groups."""
    events = {source: LastEvent(7, None) for source in sources}
    if before is not None:
        events[before] = LastEvent(-1, "k")
    token = WriteToken(0, 0, 0)
    stats = [
        log_file_stat(
            "DE",
            LogFileName(group, token, "20260101000000000", version, LogKind.DATA),
            total_bytes=1,
            num_deletes=deletes,
        )
        for group in groups
    ]
    return WriteResult(tuple(stats), (events,), **how)  # type: ignore[arg-type]


def test_rows_that_ordering_values_decide_need_no_other_writer(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert not needs_one_writer("auto", plan, [part(plan, "a", "b"), part(plan, "b"), part(plan)])


def test_topic_partitions_that_lie_in_one_task_each_need_no_other_writer(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, arrival=(TOPIC_PARTITION, OFFSET))
    # What the batch before said of a source travels to every task.
    parts = [part(plan, "a", sources=("t/0", "t/1"), before="t/2"), part(plan, "a", sources=("t/2",)), part(plan)]
    assert not needs_one_writer("auto", plan, parts)


def test_pieces_of_a_topic_partition_in_two_tasks_need_one_writer(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, arrival=(TOPIC_PARTITION, OFFSET))
    assert needs_one_writer("auto", plan, [part(plan, "a", sources=("t/0", "t/1")), part(plan, "b", sources=("t/1",))])


def test_offsets_without_a_topic_need_one_writer(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, arrival=(TOPIC_PARTITION, OFFSET))
    assert needs_one_writer("auto", plan, [part(plan, "a"), part(plan, "a")])
    assert not needs_one_writer("auto", plan, [part(plan, "a"), part(plan, "b")])


def test_unordered_deletes_need_one_writer_of_a_file_group_that_tasks_share(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert needs_one_writer("auto", plan, [part(plan, "a"), part(plan, "a", unordered_deletes=True)])
    assert not needs_one_writer("auto", plan, [part(plan, "a"), part(plan, "b", unordered_deletes=True)])
    deletes = replace(plan, operation=DELETE)
    assert not needs_one_writer("auto", deletes, [part(plan, "a", unordered_deletes=True), part(plan, "a")])


def test_deletes_of_a_shared_file_group_need_one_writer_where_arrival_decides_ties(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    parts = [part(plan, "a", deletes=1), part(plan, "a")]
    assert needs_one_writer("auto", plan, parts)
    assert not needs_one_writer("none", plan, parts), "the option accepts that a delete beats rows of other tasks"
    assert not needs_one_writer("auto", plan, [part(plan, "a", deletes=1), part(plan, "b")])
    assert not needs_one_writer("auto", replace(plan, operation=DELETE), parts)
    messages = replace(plan, arrival_fields=(TOPIC_PARTITION, OFFSET))
    by_source = [part(messages, "a", sources=("t/0",), deletes=1), part(messages, "a", sources=("t/1",))]
    assert not needs_one_writer("auto", messages, by_source), "topic partitions have no order between them"


def test_a_second_version_needs_one_writer_of_a_file_group_that_tasks_share(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert needs_one_writer("auto", plan, [part(plan, "a"), part(plan, "a", version=2)])
    assert not needs_one_writer("auto", plan, [part(plan, "a"), part(plan, "b", version=2)])


def test_the_number_of_file_groups_of_a_task_is_bounded_unless_the_option_asks_for_all() -> None:
    assert (most_groups("auto", 4), most_groups("auto", 1), most_groups("none", 4)) == (16, None, None)
