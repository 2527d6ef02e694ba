"""Deletes that compactions keep, so that rows that come late stay deleted."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.config import Options
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group.file_system_view import LogFile
from streaming_lsm.format.log.native_footer import UNTIL_KEY
from streaming_lsm.schema import COMMIT_TIME, RECORD_KEY
from streaming_lsm.write.files.kept_deletes import Retention
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.crash_points import EVERY_CALL, combined, random_cases
from tests.support.log_compaction import compact_logs
from tests.support.small_tables import Row, create, rows, shown
from tests.support.writers import NO_WAIT, NOON_MS, MovedClock, new_process

HOUR_MS = 3_600_000
LAYOUTS = ("lsm_tree", "default")


def row(number: int, ts: int) -> Row:
    return f"k{number}", "nl", ts, ts


def created(root: Path, clock: MovedClock | None = None, **options: object) -> LsmTable:
    services = {"hoodie.bucket.index.num.buckets": 1, "hoodie.clean.automatic": False, **NO_WAIT}
    table = create(root, **{**services, **options})
    if clock is not None:
        table.runtime = new_process(clock=clock)
    return table


def delete(table: LsmTable, number: int, ts: int | None) -> None:
    table.delete(pa.table({"id": [f"k{number}"], "country": ["nl"], **({} if ts is None else {"ts": [ts]})}))


def kept(table: LsmTable) -> list[LogFile]:
    (found,) = table.file_slices()
    return [log for log in found.logs if found.is_kept(log)]


def kept_keys(table: LsmTable) -> list[list[str]]:
    root = Path(table.path.removeprefix("file://"))
    return [pq.read_table(root / log.path).column(RECORD_KEY).to_pylist() for log in kept(table)]


def check(table: LsmTable, *expected: Row) -> None:
    root = table.path.removeprefix("file://")
    assert shown(table) == sorted(expected)
    assert sorted(tuple(found.values()) for found in read_snapshot(root).to_pylist()) == sorted(expected)
    if table.config.is_lsm_tree:
        assert validate(root) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_late_row_stays_deleted_for_the_retention_and_comes_back_after_one_and_a_half_of_it(
    tmp_path: Path, layout: str
) -> None:
    clock = MovedClock()
    table = created(tmp_path, clock, **{"hoodie.table.storage.layout": layout})
    table.upsert(rows(row(0, 10), row(1, 1)))
    delete(table, 0, 20)
    deleted_ms = clock.now_ms
    for hour in range(1, 40, 3 if EVERY_CALL else 6):
        clock.now_ms = deleted_ms + hour * HOUR_MS
        table.upsert(rows(row(1, 1 + hour)))
        table.compact()
        table.upsert(rows(row(0, 15)))
        there = bool(kept(table))
        if hour < 24:
            assert there, hour
        if hour > 36:
            assert not there
        check(table, row(1, 1 + hour), *([] if there else [row(0, 15)]))
        if not there:
            break
    table.upsert(rows(row(0, 30)))
    assert table.compact() is not None
    check(table, row(1, 1 + hour), row(0, 30))


def test_a_delete_is_kept_for_its_own_time_while_others_follow_without_end(tmp_path: Path) -> None:
    clock = MovedClock()
    table = created(tmp_path, clock)
    ages: set[int] = set()
    for hour in range(random_cases(60, 32)):
        clock.now_ms = NOON_MS + hour * HOUR_MS
        delete(table, hour, 20)
        assert table.compact() is not None
        files = kept_keys(table)
        assert 1 <= len(files) <= 3
        numbers = sorted(int(key[1:]) for keys in files for key in keys)
        assert numbers == list(range(numbers[0], hour + 1))
        assert hour - numbers[0] <= 36
        assert numbers[0] <= max(0, hour - 23)
        ages.add(hour - numbers[0])
    assert max(ages) > 24
    check(table)


@pytest.mark.parametrize(("layout", "every_hours"), combined(0, LAYOUTS, [3, 7]))
def test_log_compactions_do_not_prolong_the_retention_of_a_delete(
    tmp_path: Path, layout: str, every_hours: int
) -> None:
    clock = MovedClock()
    table = created(tmp_path, clock, **{"hoodie.table.storage.layout": layout})
    table.bulk_insert(rows(row(0, 10), row(1, 1)))
    delete(table, 0, 20)
    deleted_ms = clock.now_ms
    for hour in range(every_hours, 44, every_hours):
        clock.now_ms = deleted_ms + hour * HOUR_MS
        table.upsert(rows(row(1, 1 + hour)))
        compact_logs(table)
    assert shown(table) == [row(1, 1 + hour)]
    table.compact()
    table.upsert(rows(row(0, 15)))
    check(table, row(0, 15), row(1, 1 + hour))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_delete_is_kept_for_its_own_time_by_any_chain_of_log_and_full_compactions(
    tmp_path: Path, layout: str
) -> None:
    clock = MovedClock()
    for seed in range(random_cases(6, 1)):
        chance, root = random.Random(seed), tmp_path / str(seed)
        clock.now_ms = NOON_MS
        table = created(root, clock, **{"hoodie.table.storage.layout": layout})
        table.bulk_insert(rows(row(500, 10)))
        ages: set[int] = set()
        for hour in range(random_cases(90, 45)):
            clock.now_ms = NOON_MS + hour * HOUR_MS
            delete(table, hour, 20 if hour % 5 else None)
            if chance.random() < 0.3:
                done = compact_logs(table)
                (found,) = table.file_slices()
                assert 1 <= sum(log.name.instant == done.requested for log in found.logs) <= 4
            if hour % 13 == 12:
                assert table.compact() is not None
                assert len(kept(table)) <= 3
                numbers = sorted(int(key[1:]) for keys in kept_keys(table) for key in keys)
                assert numbers == [number for number in range(numbers[0], hour + 1) if number % 5]
                assert hour - numbers[0] <= 36
                assert numbers[0] <= max(1, hour - 22)
                ages.add(hour - numbers[0])
        assert max(ages) > 24
        check(table, row(500, 10))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_log_compaction_keeps_deletes_that_are_older_than_the_retention(tmp_path: Path, layout: str) -> None:
    clock = MovedClock()
    table = created(tmp_path, clock, **{"hoodie.table.storage.layout": layout})
    table.bulk_insert(rows(row(0, 10), row(1, 10), row(2, 10)))
    for number, hours in enumerate((0, 5, 100)):
        clock.now_ms += hours * HOUR_MS
        delete(table, number, 20)
    done = compact_logs(table)
    check(table)
    (found,) = table.file_slices()
    made = [log for log in found.logs if log.name.instant == done.requested]
    assert [pq.read_table(tmp_path / log.path).column(RECORD_KEY).to_pylist() for log in made] == [["k0", "k1"], ["k2"]]
    table.compact()
    assert kept_keys(table) == [["k2"]]
    check(table)


def test_the_history_of_a_key_has_the_time_of_a_delete_that_was_merged(tmp_path: Path) -> None:
    table = created(tmp_path)
    table.upsert(rows(row(0, 10)))
    delete(table, 0, 20)
    deleted = table.timeline.completed_writes[-1].requested
    table.upsert(rows(row(1, 1)))
    compact_logs(table)
    (found,) = table.history("k0").to_pylist()
    assert (found[COMMIT_TIME], found["_lsm_deleted"]) == (deleted, True)


def test_row_groups_are_not_copied_over_the_deletes_of_a_log_compaction(tmp_path: Path) -> None:
    table = created(tmp_path)
    table.bulk_insert(rows(*(row(number, 10) for number in range(100, 900))))
    delete(table, 300, 20)
    delete(table, 400, 20)
    compact_logs(table)
    table.compact()
    check(table, *(row(number, 10) for number in range(100, 900) if number not in (300, 400)))


def test_the_files_of_one_delete_do_not_grow_with_the_compactions(tmp_path: Path) -> None:
    table = created(tmp_path, MovedClock())
    delete(table, 0, 20)
    sizes = set()
    for batch in range(random_cases(30, 10)):
        table.upsert(rows(row(1, batch)))
        assert table.compact() is not None
        (log,) = kept(table)
        sizes.add(log.size)
    assert max(sizes) - min(sizes) < 20
    check(table, row(1, batch))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_there_is_nothing_to_merge_with_kept_deletes_alone(tmp_path: Path, layout: str) -> None:
    table = created(tmp_path, **{"hoodie.table.storage.layout": layout})
    table.upsert(rows(row(0, 10)))
    delete(table, 0, 20)
    assert table.compact() is not None
    assert kept(table)
    hybrid: dict[str, object] = {
        "hoodie.compaction.plan.generator": "HybridCompactionPlanGenerator",
        "lsm.compaction.small.base.bytes": 0,
    }
    plain: dict[str, object] = {}
    for options in (plain, hybrid):
        opened = LsmTable(table.path, table.options.merged(Options(options)))
        scheduled, selection = opened.services.schedule()
        assert scheduled is None
        assert selection.without_logs == 1
        assert opened.compact() is None
    assert table.services.schedule(log=True)[0] is None
    assert [found.action for found in table.timeline.completed_writes].count("commit") == 1


def test_without_a_retention_a_compaction_drops_deletes(tmp_path: Path) -> None:
    table = created(tmp_path, **{"lsm.compaction.tombstone.retention": 0})
    delete(table, 0, 20)
    table.compact()
    assert not kept(table)
    table.upsert(rows(row(0, 15)))
    check(table, row(0, 15))


@pytest.mark.parametrize("ordering", ["ts", None])
def test_deletes_without_an_ordering_value_are_not_kept(tmp_path: Path, ordering: str | None) -> None:
    table = created(tmp_path, **{"hoodie.table.ordering.fields": ordering})
    table.upsert(rows(row(0, 10)))
    delete(table, 0, None)
    table.compact()
    assert not kept(table)
    table.upsert(rows(row(0, 5)))
    check(table, row(0, 5))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("logged", [False, True], ids=["logs", "log-compaction"])
def test_a_write_that_began_before_the_compaction_and_ended_after_it_is_newer_than_kept_deletes(
    tmp_path: Path, layout: str, logged: bool
) -> None:
    options = {
        "hoodie.table.storage.layout": layout,
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
        "hoodie.log.compaction.blocks.threshold": 2,
    }
    table = created(tmp_path, **options)
    table.upsert(rows(row(0, 10), row(1, 10), row(2, 10)))
    for number in range(3):
        delete(table, number, 20)
    other = LsmTable(table.path, table.options)
    planned: list[object] = []
    begin = type(table.transaction()).begin

    def compacting(tx: object, *args: object, **kwargs: object) -> object:
        began = begin(tx, *args, **kwargs)  # type: ignore[arg-type]
        if not planned:
            planned.append(began)
            assert other.compact() is not None
        return began

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(table.transaction()), "begin", compacting)
        table.upsert(rows(row(0, 20), row(1, 15)))
    (found,) = table.file_slices()
    late = [log for log in found.logs if not found.is_kept(log)]
    assert late
    assert late[0].name.instant < found.base_instant
    check(table, row(0, 20))
    if logged:
        table.upsert(rows(row(3, 1)))
        assert table.services.compact(table._engine, log=True)[0] is not None
        check(table, row(0, 20), row(3, 1))
    table.upsert(rows(row(2, 19)))
    table.compact()
    check(table, row(0, 20), *([row(3, 1)] if logged else []))


def test_a_log_compaction_of_another_program_may_merge_kept_deletes(tmp_path: Path) -> None:
    table = created(tmp_path)
    delete(table, 0, 20)
    table.compact()
    table.upsert(rows(row(0, 15), row(1, 1)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("streaming_lsm.file_group.file_system_view.FileSlice.is_kept", lambda found, log: False)
        compact_logs(table)
    assert shown(table) == [row(1, 1)]
    table.compact()
    assert kept_keys(table) == [["k0"]]
    table.upsert(rows(row(0, 16)))
    check(table, row(1, 1))


def test_queries_do_not_take_a_compaction_that_keeps_deletes_for_a_write(tmp_path: Path) -> None:
    table = created(tmp_path)
    table.upsert(rows(row(0, 10), row(1, 10)))
    delete(table, 0, 20)
    first = table.timeline.completed_writes[-1].completed or ""
    compacted = table.compact()
    assert compacted is not None
    assert shown(table, as_of=compacted.requested) == [row(1, 10)]
    table.upsert(rows(row(0, 15), row(1, 11)))
    assert list(table.changes(compacted.completed or "", None).to_arrow().column("op").to_pylist()) == ["u"]
    # The filter comes before the merge: the late row is one of the range, as with the log of the delete.
    for begin in (first, compacted.completed or ""):
        found = table.incremental(begin, None, ["id", "ts"]).to_arrow().to_pylist()
        assert sorted(one["id"] for one in found) == ["k0", "k1"]
    assert table.incremental(first, compacted.completed, ["id"]).to_arrow().num_rows == 0
    assert shown(table, query_type="read_optimized") == [row(1, 10)]
    history = table.history("k0").to_pylist()
    assert [(one["ts"], one["_lsm_deleted"]) for one in history] == [(20, True), (15, False)]
    assert history[0][COMMIT_TIME] < compacted.requested


def test_a_clean_deletes_kept_deletes_with_their_slice(tmp_path: Path) -> None:
    table = created(
        tmp_path, **{"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    )
    delete(table, 0, 20)
    table.compact()
    (old,) = kept(table)
    table.upsert(rows(row(1, 1)))
    table.compact()
    (new,) = kept(table)
    table.clean()
    assert not (tmp_path / old.path).exists()
    assert (tmp_path / new.path).exists()
    check(table, row(1, 1))


def test_the_metadata_table_lists_kept_deletes(tmp_path: Path) -> None:
    table = created(tmp_path, **{"hoodie.metadata.enable": True})
    delete(table, 0, 20)
    table.compact()
    table.upsert(rows(row(0, 15)))
    opened = LsmTable(table.path, {"hoodie.metadata.enable": True})
    assert [log.path for log in kept(opened)] == [log.path for log in kept(table)]
    check(opened)


def test_a_table_of_version_9_keeps_none_and_a_downgrade_drops_them(tmp_path: Path) -> None:
    old = created(tmp_path / "old", **{"hoodie.write.table.version": 9})
    delete(old, 0, 20)
    old.compact()
    (found,) = old.file_slices()
    assert not found.logs
    table = created(tmp_path / "new")
    table.upsert(rows(row(1, 1)))
    delete(table, 0, 20)
    table.compact()
    assert kept(table)
    table.change_version(version=9)
    (found,) = LsmTable(table.path).file_slices()
    assert not found.logs


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_change_to_the_lsm_tree_layout_keeps_deletes(tmp_path: Path, is_compacted: bool) -> None:
    table = created(tmp_path, **{"hoodie.table.storage.layout": "default"})
    table.upsert(rows(row(0, 10), row(1, 1)))
    delete(table, 0, 20)
    if is_compacted:
        table.compact()
    table = table.change_version(10, "lsm_tree")
    table.upsert(rows(row(0, 15)))
    check(table, row(1, 1))
    table.compact()
    check(table, row(1, 1))


def test_a_footer_with_another_time_is_named(tmp_path: Path) -> None:
    table = created(tmp_path)
    delete(table, 0, 20)
    table.compact()
    (log,) = kept(table)
    path = tmp_path / log.path
    stored = pq.read_table(path)
    said = {**(stored.schema.metadata or {}), **pq.ParquetFile(path).metadata.metadata, UNTIL_KEY.encode(): b"today"}
    said.pop(b"ARROW:schema", None)
    pq.write_table(stored.replace_schema_metadata(said), path)
    table.upsert(rows(row(0, 15)))
    with pytest.raises(CorruptFileError, match=f"{log.name}.*{UNTIL_KEY}=b'today' is not an instant time"):
        shown(table)


def test_a_retention_splits_deletes_by_periods_that_all_compactions_share() -> None:
    noon = "20261123120000000"
    retention = Retention.of(noon, 86400, "UTC")
    assert retention == Retention(noon, ("20261122120000000", "20261123000000000", noon))
    times = ["20261122115959999", "20261122120000000", "20261122235959999", "20261123000000000", None]
    deletes = pa.table({RECORD_KEY: list("abcde"), COMMIT_TIME: pa.array(times, pa.string())})
    found = {period: part.column(RECORD_KEY).to_pylist() for period, part in retention.by_period(deletes)}
    assert found == {0: ["b", "c"], 1: ["d"], 2: ["e"]}
    later = Retention.of("20261123180000000", 86400, "UTC")
    assert later is not None
    assert later.begins == ("20261122180000000", "20261123000000000", noon)
    assert Retention.of(noon, 0, "UTC") is None
    forever = Retention.of(noon, 10**12, "UTC")
    assert forever is not None
    assert forever.begins[0] == "19700101000000000"
