"""Clusterings of tables without buckets: what queries, writers and other services see of them."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import ClusteringConflict, LsmError, SchemaError, UnsupportedTable, WriteConflict
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.txn.conflict import clustered_in_pending
from streaming_lsm.txn.locked_table import Beside, LockedTable
from streaming_lsm.txn.retries import Attempt
from tests.oracle.reader import read_snapshot
from tests.support.crash_points import EVERY_CALL
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.metadata_tables import assert_indexes, assert_locations, assert_settled
from tests.support.service_tables import OPTIONS_OF_SERVICES, Model, assert_sound, grow, reopened
from tests.support.small_tables import create, rows, shown

T, R = TypeVar("T"), TypeVar("R")
CLUSTERED: dict[str, object] = {
    **OPTIONS_OF_SERVICES,
    "hoodie.bucket.index.num.buckets": None,
    "hoodie.index.type": "SIMPLE",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.clustering.plan.strategy.sort.columns": "qty",
}
KINDS = [
    (10, "lsm_tree", "MERGE_ON_READ"),
    (10, "lsm_tree", "COPY_ON_WRITE"),
    (10, "default", "MERGE_ON_READ"),
    (9, "default", "COPY_ON_WRITE"),
    (9, "default", "MERGE_ON_READ"),
]


@pytest.fixture(autouse=True)
def _disk_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    # Processes die in these tests, machines do not.
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def of_kind(version: int, layout: str, kind: str) -> dict[str, object]:
    return {
        **CLUSTERED,
        "hoodie.write.table.version": version,
        "hoodie.table.storage.layout": layout,
        "hoodie.datasource.write.table.type": kind,
    }


def grown(root: Path, **options: object) -> tuple[LsmTable, Model]:
    """A table of several file groups with updates and a delete, and its rows by key."""
    table, model = create(root, **{**CLUSTERED, **options}), Model()
    for batch in range(3):
        grow(table, model, batch)
    return table, model


def clusterings(table: LsmTable) -> list[Instant]:
    return [write for write in table.timeline.every_write if write.action == "replacecommit"]


def stored(table: LsmTable, column: str) -> list[list[object]]:
    """The values of a column by base file, in the order of the rows there."""
    paths = [found.base.path for found in table.file_slices() if found.base is not None]
    read = (pq.read_table(Path(table.path.removeprefix("file://")) / path, columns=[column]) for path in paths)
    return [one.column(0).to_pylist() for one in read]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_clustering_changes_no_row_and_no_meta_column_but_the_file_name(
    tmp_path: Path, kind: tuple[int, str, str]
) -> None:
    table, model = grown(tmp_path, **of_kind(*kind))
    before = table.scan(meta=True).to_arrow().drop_columns("_hoodie_file_name").sort_by("id")
    groups = {found.file_id for found in table.file_slices()}
    assert len(groups) > 1
    completed = table.cluster()
    assert completed is not None
    assert table.scan(meta=True).to_arrow().drop_columns("_hoodie_file_name").sort_by("id").equals(before)
    assert groups.isdisjoint(found.file_id for found in table.file_slices())
    commit = table.timeline.read_commit(completed)
    assert (commit.operation_type, set(commit.replaced or {})) == ("CLUSTER", {"nl"})
    assert (
        commit.extra["lsm.writers"]
        == table.timeline.read_commit(table.timeline.completed_writes[-2]).extra["lsm.writers"]
    )
    if kind[1] == "lsm_tree":  # the only layout that the validator knows
        assert_sound(table, model)
    grow(table, model, 3)
    assert shown(table) == sorted(model.values())
    assert table.cluster() is not None
    assert shown(reopened(table, **CLUSTERED)) == sorted(model.values())


@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
def test_file_groups_have_ranges_of_the_sort_column(tmp_path: Path, layout: str) -> None:
    table = create(
        tmp_path,
        **{
            **of_kind(10, layout, "COPY_ON_WRITE"),
            "hoodie.clustering.plan.strategy.target.file.max.bytes": 6000,
        },
    )
    values = [(n * 7919) % 4001 for n in range(4000)]
    for part in range(2):
        table.insert(rows(*((f"k{n:05}", "nl", 0, values[n]) for n in range(part * 2000, part * 2000 + 2000))))
    table.cluster()
    files = sorted(stored(table, "qty"), key=min)
    assert len(files) > 3
    assert [value for file in files for value in sorted(file)] == sorted(values)
    if layout == "lsm_tree":
        assert all(keys == sorted(keys) for keys in stored(table, "_hoodie_record_key"))
    else:
        assert all(file == sorted(file) for file in files)
    sizes = [found.base.size for found in table.file_slices() if found.base]
    assert max(sizes) < 2 * 6000


def test_rows_of_one_key_stay_several_rows(tmp_path: Path) -> None:
    """Inserts look no key up; in a file of the lsm_tree layout readers would merge them."""
    table = create(tmp_path, **CLUSTERED)
    for qty in range(3):
        table.insert(rows(("a", "nl", 1, qty), ("b", "nl", 1, qty)))
    before = shown(table)
    assert len(before) == 6
    table.cluster()
    assert shown(table) == before
    assert sorted(tuple(row.values()) for row in read_snapshot(str(tmp_path)).to_pylist()) == before


def test_a_row_that_comes_late_stays_deleted_after_a_clustering(tmp_path: Path) -> None:
    table = create(tmp_path, **CLUSTERED)
    table.upsert(rows(("a", "nl", 1, 1), ("b", "nl", 1, 2)))
    table.delete(pa.table({"id": ["a"], "country": ["nl"], "ts": [9]}))
    table.cluster()
    table.upsert(rows(("a", "nl", 5, 5)))
    assert shown(table) == [("b", "nl", 1, 2)]
    table.upsert(rows(("a", "nl", 10, 10)))
    assert_sound(table, {"a": ("a", "nl", 10, 10), "b": ("b", "nl", 1, 2)})


@pytest.mark.parametrize("cdc", [False, True])
def test_queries_of_changes_show_no_row_of_a_clustering_and_each_write_once(tmp_path: Path, cdc: bool) -> None:
    table = create(tmp_path, **{**CLUSTERED, "hoodie.table.cdc.enabled": cdc})
    first = table.upsert(rows(("a", "nl", 1, 1), ("b", "nl", 1, 2)))
    second = table.upsert(rows(("a", "nl", 2, 3), ("c", "nl", 1, 4)))
    clustered = table.cluster()
    third = table.upsert(rows(("b", "nl", 2, 5)))
    assert first is not None
    assert second is not None
    assert clustered is not None
    assert third is not None

    def changed(begin: str | None, end: str | None = None) -> list[object]:
        return sorted(table.incremental(begin or "000", end).to_arrow().column("id").to_pylist())

    assert changed(second.completed, clustered.completed) == []
    assert changed(first.completed, clustered.completed) == ["a", "c"]
    assert changed(first.completed) == ["a", "b", "c"]
    assert changed(second.completed) == ["b"]
    if cdc:
        images = table.changes(first.completed or "").to_arrow().to_pylist()
        told = sorted(
            (image["op"], (image["before"] or {}).get("qty"), (image["after"] or {}).get("qty")) for image in images
        )
        assert told == [("i", None, 4), ("u", 1, 3), ("u", 2, 5)]
    assert table.scan(as_of=second.requested).to_arrow().num_rows == 3


def test_a_write_of_clustered_file_groups_is_refused_while_the_plan_waits_and_other_writes_are_not(
    tmp_path: Path,
) -> None:
    table, model = grown(tmp_path, **{"hoodie.write.num.retries.on.conflict.failures": 0})
    planned, _ = table.services.schedule_clustering()
    assert planned is not None
    with pytest.raises(ClusteringConflict, match="about to replace file group"):
        table.upsert(rows(("k5", "nl", 99, 99)))
    table.upsert(rows(("new", "nl", 1, 1), ("far", "de", 1, 1)))
    model |= {"new": ("new", "nl", 1, 1), "far": ("far", "de", 1, 1)}
    with pytest.raises(ClusteringConflict):
        table.insert_overwrite(rows(("k5", "nl", 99, 99)))
    assert table.cluster() is not None
    assert_sound(table, model)


def test_a_write_that_began_before_a_clustering_fails_if_it_changes_what_that_replaced(tmp_path: Path) -> None:
    table, model = grown(
        tmp_path,
        **{
            "hoodie.write.num.retries.on.conflict.failures": 0,
            "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        },
    )
    other = reopened(table, **{**CLUSTERED, "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"})
    for key, beside, raised in (
        ("k5", (), ClusteringConflict),
        ("fresh", (), None),
        # The other write has found the key to be new, too; the clustering has moved its row to another file group.
        ("same", (("same", "nl", 1, 1),), WriteConflict),
    ):
        grow(other, model, 7)
        with table.transaction() as tx, pytest.raises(raised) if raised else nullcontext():
            plan = table.plan(tx, "upsert")
            plan = plan.at(tx.begin(plan.action))
            if beside:
                other.upsert(rows(*beside))
            assert other.cluster() is not None
            table._write_here(tx, plan, rows((key, "nl", 99, 99)), Attempt())
        model |= {row[0]: row for row in beside}
    model["fresh"] = ("fresh", "nl", 99, 99)
    assert_sound(reopened(table, **CLUSTERED), model)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_new_keys_do_not_go_to_file_groups_that_a_clustering_is_about_to_replace(
    tmp_path: Path, kind: tuple[int, str, str]
) -> None:
    """They are small, and would take them: no row could be inserted until the clustering is run."""
    options = {**of_kind(*kind), "hoodie.write.num.retries.on.conflict.failures": 0}
    table, model = grown(tmp_path, **options)
    table = reopened(table, **{**options, "hoodie.parquet.small.file.limit": 100 << 20})
    planned, _ = table.services.schedule_clustering()
    assert planned is not None
    for row in (("new", "nl", 1, 1), ("newer", "nl", 1, 1)):
        table.upsert(rows(row))
        model[row[0]] = row
    groups = {found.file_id for found in table.file_slices() if found.partition_path == "nl"}
    assert len(groups - {group for _, group in clustered_in_pending(table.timeline)}) == 1
    assert table.cluster() is not None
    assert_sound(table, model)


def test_a_bucket_table_and_columns_without_an_order_are_refused(tmp_path: Path) -> None:
    buckets = create(tmp_path / "buckets", **OPTIONS_OF_SERVICES)
    buckets.upsert(rows(("a", "nl", 1, 1)))
    with pytest.raises(UnsupportedTable, match=r"bucket index.*cannot be clustered"):
        buckets.cluster()
    table, _ = grown(tmp_path / "table", **{"hoodie.clustering.plan.strategy.sort.columns": "qtty"})
    for cluster in (table.services.preview_clustering, table.cluster):
        with pytest.raises(SchemaError, match="'qtty'"):
            cluster()
    assert table.timeline.pending == ()


def test_replaced_file_groups_are_cleaned_and_the_clustering_is_archived(tmp_path: Path) -> None:
    table, model = grown(tmp_path, **{"hoodie.clean.commits.retained": 1})
    table.cluster()
    old = {found for found in (tmp_path / "nl").iterdir() if found.suffix == ".parquet"}
    for batch in range(3, 6):
        grow(table, model, batch)
        table.cluster()
    table.clean()
    assert old.isdisjoint((tmp_path / "nl").iterdir())
    few = reopened(
        table,
        **{**CLUSTERED, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1},
    )
    assert any(action.action == "replacecommit" for action in few.archive())
    assert_sound(few, model)


@pytest.mark.parametrize("index", ["SIMPLE", "RECORD_INDEX"])
def test_all_partitions_of_the_metadata_table_follow(tmp_path: Path, index: str) -> None:
    options = {
        "hoodie.metadata.enable": True,
        "hoodie.metadata.index.column.stats.enable": True,
        "hoodie.index.type": index,
    }
    table, model = grown(tmp_path, **options)
    table.cluster()
    for batch in (3, 4):
        assert_settled(tmp_path)
        assert_indexes(table)
        if index == "RECORD_INDEX":
            assert assert_locations(tmp_path) == len(model)
        grow(table, model, batch)
        assert shown(table) == sorted(model.values())
        table.cluster()


def test_a_rollback_and_a_restore_undo_a_clustering(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    saved = table.savepoint()
    table.cluster()
    table.rollback()
    assert_sound(table, model)
    table.cluster()
    table.upsert(rows(("z", "nl", 1, 1)))
    planned, _ = table.services.schedule_clustering()
    assert planned is not None
    table.restore(saved.requested)
    assert table.timeline.pending == ()
    assert_sound(table, model)


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
def test_a_clustering_takes_effect_once_whatever_call_it_dies_at(tmp_path: Path, fault: Fault) -> None:
    template, model = grown(tmp_path / "template")
    step = 1 if EVERY_CALL else 97

    def copy(number: int) -> LsmTable:
        folder = tmp_path / f"copy{number}"
        shutil.copytree(tmp_path / "template", folder)
        return LsmTable(folder, template.options)

    counted = copy(-1)
    counted.storage = counting = FaultyStorage(counted.storage)
    counted.cluster()
    assert len(counting.calls) > 60
    for call in range(list(Fault).index(fault) % step, len(counting.calls), step):
        table = copy(call)
        faulty = LsmTable(table.path, table.options)
        faulty.storage = FaultyStorage(table.storage, {call: fault})
        with suppress(Killed, OSError, LsmError):
            faulty.cluster()
        assert shown(table) == sorted(model.values()), counting.calls[call]
        table.cluster()
        assert len(clusterings(table)) == 1, counting.calls[call]
        assert_sound(table, model)


@pytest.mark.parametrize("keeps_plan", [True, False])
def test_a_repair_replaces_what_the_plan_of_a_clustering_names_or_tells_its_doubt(
    tmp_path: Path, keeps_plan: bool
) -> None:
    table, model = grown(tmp_path)
    table.cluster()
    for path in (tmp_path / ".hoodie" / "timeline").glob("2*"):
        if path.name.endswith(".clustering.requested") and keeps_plan:
            continue
        path.unlink()
    lost = reopened(table, **CLUSTERED)
    plan, _ = lost.repair()
    if keeps_plan:
        assert any("as its plan says" in doubt for doubt in plan.doubts)
        assert shown(lost) == sorted(model.values())
        assert [lost.timeline.read_commit(found).operation_type for found in clusterings(lost)] == ["CLUSTER"]
    else:
        assert any("may be a clustering" in doubt for doubt in plan.doubts)


class _Held:
    """An engine that begins, and works when it is let."""

    width = 1

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()

    def map(self, task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        self.begun.set()
        assert self.let_go.wait(60)
        return map(task, items)


def test_a_write_waits_for_a_running_clustering_of_its_file_groups(tmp_path: Path) -> None:
    table, model = grown(tmp_path)
    patient = {"lsm.write.single.writer.wait.ms": 60_000, "hoodie.write.lock.wait_time_ms": 60_000}
    waits = {**CLUSTERED, **patient}
    other, engine = reopened(table, **waits), _Held()
    thread = threading.Thread(target=lambda: other.cluster(engine))
    thread.start()
    assert engine.begun.wait(60)
    writer = reopened(table, **waits)

    def sleep(seconds: float) -> None:
        if any(found.action == "deltacommit" for found in writer.timeline.pending):  # it has begun, and waits
            engine.let_go.set()
        time.sleep(seconds)

    writer.runtime = replace(Runtime(), sleep=sleep)
    row = ("k5", "nl", 99, 99)
    writer.upsert(rows(row))
    thread.join(60)
    assert [found.action for found in writer.timeline.completed_writes[-2:]] == ["replacecommit", "deltacommit"]
    assert_sound(writer, {**model, "k5": row})


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_file_that_was_requested_before_a_clustering_is_not_written_on_top_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: tuple[int, str, str]
) -> None:
    """A write that is made alone has its time before it waits: its base file would be the older one, and the records of
    its log in the record index, which would keep a key that it deletes."""
    table, model = grown(tmp_path, **of_kind(*kind))
    other, acquire, clustered = reopened(table, **CLUSTERED), LockedTable.acquire, []

    def acquire_later(locked: LockedTable, beside: Beside, own: Instant | None = None) -> None:
        if own is not None:
            clustered.append(other.cluster())
        acquire(locked, beside, own)

    monkeypatch.setattr(LockedTable, "acquire", acquire_later)

    def write_alone() -> None:
        with table.transaction(alone=True) as tx:
            plan = table.plan(tx, "upsert")
            plan = plan.at(tx.begin(plan.action))
            assert clustered[0] is not None
            assert plan.instant < clustered[0].requested
            table._write_here(tx, plan, rows(("k5", "nl", 99, 99)), Attempt())

    with pytest.raises(WriteConflict, match="has changed partition"):
        write_alone()
    assert shown(other) == sorted(model.values())
