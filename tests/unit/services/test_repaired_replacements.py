"""A repair attributes replaced file groups to the action that replaced them, whatever else is left of the timeline."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, LsmError
from streaming_lsm.keys.bucket import bucket_ids
from streaming_lsm.lock.heartbeat import HEARTBEAT_FOLDER
from streaming_lsm.services.repair.plan import RepairPlan
from streaming_lsm.storage.local import LocalStorage
from tests.support.crash_points import sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.service_tables import assert_sound, reopened
from tests.support.small_tables import create, rows, shown

COW: dict[str, object] = {"hoodie.table.type": "COPY_ON_WRITE"}
VERSION_9: dict[str, object] = {"hoodie.write.table.version": 9}
TABLES: dict[str, dict[str, object]] = {"merge-on-read": {}, "copy-on-write": COW, "version-9": VERSION_9}
VARIANTS = pytest.mark.parametrize("options", TABLES.values(), ids=TABLES)
DAY_MS = 24 * 60 * 60 * 1000


def many(value: int, count: int = 12, partition: str = "nl") -> list[tuple[str, str, int, int]]:
    return [(f"{partition}{n}", partition, value, value) for n in range(count)]


def deleted(table: LsmTable) -> None:
    """A partition is deleted, then rows of one bucket are written to it, later those of the others."""
    table.upsert(rows(*many(1), *many(1, 3, "be")))
    table.delete_partitions(["nl"])
    table.upsert(rows(*many(2, 1)))
    table.upsert(rows(*many(3, 4)))


def overwritten_table(table: LsmTable) -> None:
    """The table is overwritten by rows of one partition, then rows are written to the other."""
    table.upsert(rows(*many(1), *many(1, 6, "be")))
    table.insert_overwrite_table(rows(*many(2, 2)))
    table.upsert(rows(*many(3, 1, "be")))


def overwritten_by_few(table: LsmTable) -> None:
    """A partition is overwritten by one row, then rows of other buckets are written to it."""
    table.upsert(rows(*many(1)))
    table.insert_overwrite(rows(*many(2, 1)))
    table.upsert(rows(*many(3)[3:]))


def expired(table: LsmTable) -> None:
    """A partition expires, then rows are written to it."""
    table.upsert(rows(*many(1), *many(1, 3, "be")))
    late = LsmTable(table.path, {"hoodie.partition.ttl.strategy.days.retain": "30"})
    now = late.runtime.clock() + 40 * DAY_MS
    late.runtime = replace(late.runtime, clock=lambda: now)
    late.upsert(rows(*many(2, 1, "be")))
    assert late.expire_partitions() is not None
    late.upsert(rows(*many(3, 2)))


def two_partitions_deleted(table: LsmTable) -> None:
    """One partition is deleted and written again, while the other is deleted between its writes."""
    table.upsert(rows(*many(1), *many(1, 6, "be")))
    table.delete_partitions(["nl"])
    table.upsert(rows(*many(2, 1)))
    table.delete_partitions(["be"])
    table.upsert(rows(*many(3, 1, "be")))


COURSES = [deleted, overwritten_table, overwritten_by_few, expired, two_partitions_deleted]


def lose_completed(root: Path) -> None:
    for path in (root / ".hoodie/timeline").glob("*_*"):
        path.unlink()


def lose_replacements(root: Path) -> None:
    """Lose all completed files, and those of the replacecommits in every state."""
    lose_completed(root)
    for path in (root / ".hoodie/timeline").glob("*.replacecommit.*"):
        path.unlink()


def replaced_by(plan: RepairPlan) -> dict[str, Collection[str]]:
    """The partitions whose file groups an instant is taken to have replaced, by its completed name's action."""
    return {
        found.completed.requested: found.metadata.replaced
        for found in plan.instants
        if found.metadata.replaced and found.completed.action == "replacecommit"
    }


@pytest.mark.parametrize(
    ("options", "course", "loss"),
    sample(list(product(TABLES.values(), COURSES, [lose_completed, lose_replacements])), 0, 5),
)
def test_deleted_rows_do_not_come_back_and_all_buckets_can_be_written(
    tmp_path: Path, course: Callable[[LsmTable], None], loss: Callable[[Path], None], options: dict[str, object]
) -> None:
    options = {"hoodie.bucket.index.num.buckets": 4, "hoodie.clean.automatic": False, **options}
    table = create(tmp_path, **options)
    course(table)
    before = shown(LsmTable(tmp_path))
    loss(tmp_path)
    LsmTable(tmp_path).repair()
    assert shown(LsmTable(tmp_path)) == before
    added = [*many(100), *many(100, 6, "be")]
    LsmTable(tmp_path).upsert(rows(*added))
    now = {row[0]: row for row in [*before, *added]}
    assert not LsmTable(tmp_path).timeline.pending
    assert_sound(LsmTable(tmp_path), now) if not options.keys() & VERSION_9.keys() else None
    assert shown(LsmTable(tmp_path)) == sorted(now.values())


@VARIANTS
def test_the_replacecommit_that_is_left_has_replaced_them(tmp_path: Path, options: dict[str, object]) -> None:
    table = create(tmp_path, **options)
    table.upsert(rows(*many(1)))
    done = table.delete_partitions(["nl"])
    table.upsert(rows(*many(2, 1)))
    assert done is not None
    lose_completed(tmp_path)
    plan = reopened(table).plan_repair()
    assert [*replaced_by(plan)] == [done.requested]
    (rebuilt,) = (found for found in plan.instants if found.completed.requested == done.requested)
    assert rebuilt.metadata.operation_type == "DELETE_PARTITION"
    (doubt,) = plan.doubts
    assert doubt.startswith(f"{done.requested} is taken to have replaced the file groups")


def test_a_write_of_logs_is_not_taken_for_an_overwrite(tmp_path: Path) -> None:
    table = create(tmp_path, **{"hoodie.bucket.index.num.buckets": 2, "hoodie.clean.automatic": False})
    keys = [f"k{number}" for number in range(20)]
    buckets = bucket_ids(pa.array(keys), ["id"], ["id"], 2).tolist()
    first, second = ([key for key, bucket in zip(keys, buckets, strict=True) if bucket == wanted] for wanted in (0, 1))
    table.upsert(rows((first[0], "nl", 1, 1)))
    table.insert_overwrite(rows((second[0], "nl", 1, 2)))
    table.upsert(rows((first[1], "nl", 1, 3)))
    before = shown(table)
    shutil.rmtree(tmp_path / ".hoodie/timeline")
    (tmp_path / ".hoodie/timeline").mkdir()
    LsmTable(tmp_path).repair()
    assert shown(LsmTable(tmp_path)) == before


def test_a_deletion_of_another_partition_before_is_not_taken_for_it(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(rows(*many(1), *many(1, 6, "be")))
    table.delete_partitions(["be"])
    table.upsert(rows(*many(2, 1)))
    done = table.delete_partitions(["nl"])
    table.upsert(rows(*many(3, 12)))
    assert done is not None
    before = shown(table)
    lose_completed(tmp_path)
    plan, _ = reopened(table).repair()
    assert [*replaced_by(plan)] == [done.requested]
    assert set(before) <= set(shown(reopened(table)))  # what no write tells of comes back: partition be


def test_a_deletion_that_was_not_completed_has_replaced_nothing(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(rows(*many(1)))
    done = table.delete_partitions(["nl"])
    table.upsert(rows(*many(2, 1)))
    assert done is not None
    lose_completed(tmp_path)
    (tmp_path / HEARTBEAT_FOLDER).mkdir(exist_ok=True)
    (tmp_path / HEARTBEAT_FOLDER / done.requested).touch()
    plan = reopened(table).plan_repair()
    assert done.requested not in replaced_by(plan)
    assert [found.requested for found in plan.abandoned] == [done.requested]


@pytest.mark.parametrize("loss", [lose_completed, lose_replacements])
def test_an_interrupted_repair_is_finished_with_the_same_replacements(
    tmp_path: Path, loss: Callable[[Path], None]
) -> None:
    table = create(tmp_path / "whole")
    two_partitions_deleted(table)
    deleted(table)
    before = shown(table)
    loss(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "counted")
    count = FaultyStorage(LocalStorage(tmp_path / "counted"))
    reopened(LsmTable(tmp_path / "counted"), count).repair()
    for call in sample(range(len(count.calls)), 5, 67):
        root = tmp_path / f"at-{call}"
        shutil.copytree(tmp_path / "whole", root)
        with suppress(Killed, LsmError, OSError):
            reopened(LsmTable(root), FaultyStorage(LocalStorage(root), {call: Fault.KILL_AFTER})).repair()
        with suppress(ConfigError):  # it was through
            reopened(LsmTable(root)).repair()
        assert names(root) == names(tmp_path / "counted")
        assert shown(LsmTable(root)) == before


def names(root: Path) -> set[str]:
    return {path.name for path in (root / ".hoodie/timeline").iterdir()}
