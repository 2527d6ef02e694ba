"""Rows are written by the tasks that read them where few files come of it and nothing but arrival decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streaming_lsm.errors import ConfigError
from streaming_lsm.spark.exchange_choice import exchanges, needs_one_writer, reason_to_exchange
from streaming_lsm.write.intake.control_columns import OFFSET, ROW, TOPIC_PARTITION
from streaming_lsm.write.intake.tombstones import LastEvent
from streaming_lsm.write.partition_writer import WriteResult
from streaming_lsm.write.plan import BULK_INSERT, WritePlan
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
    assert exchanges("auto", plan_of(tmp_path), tasks, readers=readers, file_groups=file_groups) == exchanged


def test_the_option_decides_where_the_table_allows_it(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert exchanges("shuffle", plan, 2, readers=8, file_groups=1)
    assert not exchanges("none", plan, 100, readers=0, file_groups=5000)


def test_thousands_of_live_file_groups_do_not_travel_to_every_task(tmp_path: Path) -> None:
    plan = replace(plan_of(tmp_path), file_ids={("p", bucket): "id" for bucket in range(1025)})
    assert exchanges("auto", plan, 2, readers=2, file_groups=1)


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
    assert exchanges("auto", plan, 2, readers=2, file_groups=1)
    with pytest.raises(ConfigError, match=f"lsm.write.exchange=none, but .*{reason}.*: remove the option"):
        exchanges("none", plan, 2, readers=2, file_groups=1)


def test_partial_updates_are_merged_by_one_task(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    partial = replace(plan, rule=replace(plan.rule, partial="IGNORE_DEFAULTS"))
    assert "partial updates" in str(reason_to_exchange(partial))


def test_offsets_of_a_topic_partition_are_an_order_within_a_task(tmp_path: Path) -> None:
    assert reason_to_exchange(plan_of(tmp_path, arrival=(TOPIC_PARTITION, OFFSET))) is None


def written(*sources: str, before: str | None = None, unordered: bool = False) -> WriteResult:
    events = {source: LastEvent(7, None) for source in sources}
    if before is not None:
        events[before] = LastEvent(-1, "k")
    return WriteResult((), (events,), unordered_deletes=unordered)


def test_topic_partitions_that_lie_in_one_task_each_need_no_other_writer() -> None:
    assert not needs_one_writer([written("t/0", "t/1", unordered=True), written("t/2", unordered=True), written()])
    # What the batch before said of a source travels to every task.
    assert not needs_one_writer([written("t/0", before="t/2"), written("t/2")])


def test_pieces_of_a_topic_partition_in_two_tasks_need_one_writer() -> None:
    assert needs_one_writer([written("t/0", "t/1"), written("t/1")])


def test_unordered_deletes_of_rows_without_a_topic_need_one_writer() -> None:
    assert needs_one_writer([written(), written(unordered=True)])
    assert not needs_one_writer([written(), written()])
