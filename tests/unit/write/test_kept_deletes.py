"""Deletes that copy-on-write tables keep beside their base files, so that rows that come late stay deleted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.file_group.file_system_view import LogFile
from streaming_lsm.format.actions.commit import count_deletes
from streaming_lsm.java_properties import print_properties
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.properties_file import load_properties
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.small_tables import SCHEMA, Row, create, data_files, rows, shown
from tests.support.writers import NO_WAIT, NOON_MS, MovedClock, new_process

HOUR_MS = 3_600_000
LAYOUTS = ("lsm_tree", "default")
RETENTION = "lsm.compaction.tombstone.retention"


def row(number: int, ts: int) -> Row:
    return f"k{number}", "nl", ts, ts


def created(root: Path, clock: MovedClock | None = None, **options: object) -> LsmTable:
    kind = {"hoodie.table.type": "COPY_ON_WRITE", "hoodie.bucket.index.num.buckets": 1}
    table = create(root, **{**kind, "hoodie.clean.automatic": False, **NO_WAIT, **options})
    if clock is not None:
        table.runtime = new_process(clock=clock)
    return table


def delete(table: LsmTable, number: int, ts: int | None) -> None:
    table.delete(pa.table({"id": [f"k{number}"], "country": ["nl"], **({} if ts is None else {"ts": [ts]})}))


def deleted(root: Path, **options: object) -> LsmTable:
    """A table with a row k1, and a delete of k0 at 20 that it keeps."""
    table = created(root, **options)
    table.upsert(rows(row(0, 10), row(1, 1)))
    delete(table, 0, 20)
    return table


def kept(table: LsmTable) -> list[LogFile]:
    return [log for found in table.file_slices() for log in found.logs if found.is_kept(log)]


def kept_keys(table: LsmTable) -> list[list[str]]:
    root = Path(table.path.removeprefix("file://"))
    return [pq.read_table(root / log.path).column(RECORD_KEY).to_pylist() for log in kept(table)]


def check(table: LsmTable, *expected: Row) -> None:
    root = table.path.removeprefix("file://")
    assert shown(table) == sorted(expected)
    assert shown(table, query_type="read_optimized") == sorted(expected)
    assert sorted(tuple(found.values())[:4] for found in read_snapshot(root).to_pylist()) == sorted(expected)
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
    begun = clock.now_ms
    for hour in range(1, 45, 3):
        clock.now_ms = begun + hour * HOUR_MS
        table.upsert(rows(row(1, 1 + hour)))
        there = bool(kept(table))
        assert there or hour >= 24
        assert not there or hour <= 36
        table.upsert(rows(row(0, 15)))
        check(table, row(1, 1 + hour), *([] if there else [row(0, 15)]))
        if not there:
            return
    raise AssertionError("the delete is kept for ever")


def test_each_delete_is_kept_for_its_own_time_in_at_most_three_files(tmp_path: Path) -> None:
    clock = MovedClock()
    table = created(tmp_path, clock)
    for hour in range(60):
        clock.now_ms = NOON_MS + hour * HOUR_MS
        delete(table, hour, 20)
        files = kept_keys(table)
        assert 1 <= len(files) <= 3
        numbers = sorted(int(key[1:]) for keys in files for key in keys)
        assert numbers == list(range(numbers[0], hour + 1))
        assert hour - 36 <= numbers[0] <= max(0, hour - 23)
    check(table)


def test_a_delete_of_a_key_that_is_not_there_is_kept_also_where_there_is_no_file(tmp_path: Path) -> None:
    table = created(tmp_path)
    delete(table, 0, 20)
    assert kept_keys(table) == [["k0"]]
    table.upsert(rows(row(0, 15)))
    check(table)
    table.upsert(rows(row(0, 20)))
    check(table, row(0, 20))
    assert not kept(table)


@pytest.mark.parametrize("count", [0, 1])
def test_an_overwrite_keeps_the_deletes_of_its_batch(tmp_path: Path, count: int) -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = create(tmp_path, schema, **{"hoodie.table.type": "COPY_ON_WRITE", "hoodie.bucket.index.num.buckets": 1})
    table.upsert(rows((*row(0, 10), False), (*row(2, 10), False), schema=schema))
    live = [row(1, 1)] * count
    table.insert_overwrite(rows((*row(0, 20), True), *((*each, False) for each in live), schema=schema))
    assert kept_keys(table) == [["k0"]]
    check(table, *live)
    table.upsert(rows((*row(0, 15), False), schema=schema))
    check(table, *live)


def test_a_delete_without_ordering_value_is_not_kept_and_ends_one_that_was(tmp_path: Path) -> None:
    table = deleted(tmp_path)
    delete(table, 0, None)
    assert not kept(table)
    table.upsert(rows(row(0, 1)))
    check(table, row(0, 1), row(1, 1))


@pytest.mark.parametrize(
    "options",
    [
        {RETENTION: 0},
        {"hoodie.write.table.version": 9, "hoodie.table.storage.layout": "default"},
        {"hoodie.table.ordering.fields": None},
    ],
    ids=["retention-0", "version-9", "commit-time"],
)
def test_tables_that_keep_none_write_base_files_alone(tmp_path: Path, options: dict[str, object]) -> None:
    table = created(tmp_path, **options)
    delete(table, 5, 20)
    assert not data_files(tmp_path)
    table.upsert(rows(row(0, 10), row(1, 1)))
    delete(table, 0, 20)
    table.upsert(rows(row(0, 15)))
    assert shown(table) == [row(0, 15), row(1, 1)]
    assert not [path for path in data_files(tmp_path) if "deletes" in path]


def test_with_the_retention_0_the_next_write_drops_those_that_were_kept(tmp_path: Path) -> None:
    table = deleted(tmp_path)
    LsmTable(table.path, {**NO_WAIT, RETENTION: 0}).upsert(rows(row(0, 15), row(1, 2)))
    assert not kept(table)
    check(table, row(1, 2))
    table.upsert(rows(row(0, 15)))
    check(table, row(0, 15), row(1, 2))


def test_queries_see_the_changes_of_rows_alone(tmp_path: Path) -> None:
    table = deleted(tmp_path)
    begin = table.timeline.completed_writes[0].completed or ""
    written = table.upsert(rows(row(0, 15), row(1, 2)))
    assert table.changes(begin, None).to_arrow().column("op").to_pylist() == ["d", "u"]
    found = table.incremental(begin, None, ["id"]).to_arrow().to_pylist()
    assert found == [{"id": "k1"}]
    stats = table.timeline.read_commit(written).stats
    assert [stat.num_deletes for stat in stats] == [0, 1]
    assert count_deletes(stats) == 0
    history = table.history("k0").to_pylist()
    assert [one["_lsm_deleted"] for one in history][-1:] == [True]


def test_a_clean_deletes_them_with_their_slice(tmp_path: Path) -> None:
    versions = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    table = deleted(tmp_path, **versions)
    (old,) = kept(table)
    table.upsert(rows(row(1, 2)))
    (new,) = kept(table)
    table.clean()
    assert not (tmp_path / old.path).exists()
    assert (tmp_path / new.path).exists()
    check(table, row(1, 2))


def test_a_rollback_and_a_restore_bring_them_back(tmp_path: Path) -> None:
    table = deleted(tmp_path)
    saved = table.timeline.completed_writes[-1].requested
    table.savepoint(saved)
    table.upsert(rows(row(0, 30)))
    assert not kept(table)
    table.rollback()
    assert kept_keys(table) == [["k0"]]
    table.upsert(rows(row(0, 15)))
    check(table, row(1, 1))
    table.upsert(rows(row(0, 30)))
    table.clean()
    table.restore(saved)
    assert kept_keys(table) == [["k0"]]
    table.upsert(rows(row(0, 15)))
    check(table, row(1, 1))


def test_the_metadata_table_lists_them(tmp_path: Path) -> None:
    listed = {"hoodie.metadata.enable": True}
    table = deleted(tmp_path, **listed)
    opened = LsmTable(table.path, {**NO_WAIT, **listed})
    assert [log.path for log in kept(opened)] == [log.path for log in kept(table)]
    opened.upsert(rows(row(0, 15)))
    check(opened, row(1, 1))


def test_a_writer_that_has_the_table_open_follows_those_of_others(tmp_path: Path) -> None:
    table = created(tmp_path)
    table.upsert(rows(row(0, 10), row(1, 1)))
    delete(LsmTable(table.path, NO_WAIT), 0, 20)
    table.upsert(rows(row(0, 15)))
    check(table, row(1, 1))
    LsmTable(table.path, NO_WAIT).upsert(rows(row(0, 15), row(1, 2)))
    table.upsert(rows(row(0, 16)))
    check(table, row(1, 2))


def test_an_unsorted_base_file_is_merged_with_them_all_the_same(tmp_path: Path) -> None:
    table = deleted(tmp_path)
    table.upsert(rows(row(1, 2), row(2, 1), row(3, 1)))
    (found,) = table.file_slices()
    assert found.base is not None
    path = tmp_path / found.base.path
    with pq.ParquetFile(path) as file:
        metadata, stored = {k.decode(): v.decode() for k, v in file.metadata.metadata.items()}, file.read()
    with pq.ParquetWriter(path, stored.schema, store_schema=False) as writer:
        writer.write_table(stored.take(list(reversed(range(len(stored))))))
        writer.add_key_value_metadata(metadata)
    delete(table, 3, 20)
    assert kept_keys(table) == [["k0", "k3"]]
    table.upsert(rows(row(0, 15), row(3, 15)))
    assert shown(table) == [row(1, 2), row(2, 1)]


def test_a_downgrade_drops_them_and_a_change_of_the_layout_keeps_them(tmp_path: Path) -> None:
    table = deleted(tmp_path / "old")
    table.change_version(version=9)
    table = LsmTable(table.path, NO_WAIT)
    assert shown(table) == [row(1, 1)]
    assert not [path for path in data_files(tmp_path / "old") if "deletes" in path]
    table.upsert(rows(row(0, 15)))
    assert shown(table) == [row(0, 15), row(1, 1)]
    other = deleted(tmp_path / "other", **{"hoodie.table.storage.layout": "default"})
    other = other.change_version(10, "lsm_tree")
    other.upsert(rows(row(0, 15)))
    check(other, row(1, 1))


def test_one_that_is_lost_is_named(tmp_path: Path) -> None:
    table = deleted(tmp_path)
    (log,) = kept(table)
    (tmp_path / log.path).unlink()
    for read in (lambda: shown(table), lambda: LsmTable(table.path, NO_WAIT).upsert(rows(row(0, 15)))):
        with pytest.raises(CorruptFileError, match=str(log.name)):
            read()


def test_a_repair_of_a_lost_timeline_finds_them(tmp_path: Path) -> None:
    table = deleted(tmp_path)
    shutil.rmtree(tmp_path / ".hoodie" / "timeline")
    (tmp_path / ".hoodie" / "timeline").mkdir()
    LsmTable(table.path, NO_WAIT).repair()
    table = LsmTable(table.path, NO_WAIT)
    assert kept_keys(table) == [["k0"]]
    table.upsert(rows(row(0, 15)))
    assert shown(table) == [row(1, 1)]


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_the_command_line_verifies_them(tmp_path: Path, capsys: pytest.CaptureFixture[str], table_type: str) -> None:
    table = deleted(tmp_path, **{"hoodie.table.type": table_type})
    if table_type == "MERGE_ON_READ":
        table.compact()
    assert main(["verify", str(tmp_path)]) == 0
    assert main(["files", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""


def test_a_table_with_rows_in_logs_takes_no_copy_on_write_batch(tmp_path: Path) -> None:
    table = deleted(tmp_path, **{"hoodie.table.type": "MERGE_ON_READ"})
    path = tmp_path / ".hoodie" / "hoodie.properties"
    storage = LocalStorage(tmp_path)
    properties = {**load_properties(storage), "hoodie.table.type": "COPY_ON_WRITE"}
    path.write_bytes(print_properties(properties))
    with pytest.raises(UnsupportedTable, match="has log files, whose rows a write would lose"):
        LsmTable(table.path, NO_WAIT).upsert(rows(row(0, 15)))
