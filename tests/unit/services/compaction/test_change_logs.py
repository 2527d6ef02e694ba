"""Change logs of compactions: each has the changes from one base file to the next, and no query returns them twice."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.engine import LocalEngine
from streaming_lsm.format.table.file_names import BaseFileName, parse_file_name
from streaming_lsm.inspection.table_check import check_table
from streaming_lsm.query.cdc.change_log import read_change_log
from streaming_lsm.storage.local import LocalStorage
from tests.support.change_tables import (
    LAYOUTS,
    MODES,
    SCHEMA,
    change_logs,
    changes_of,
    created,
    image,
    opened,
    played,
    random_batch,
)
from tests.support.crash_points import combined, sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed

MERGED = {"hoodie.datasource.write.table.type": "MERGE_ON_READ", "hoodie.compact.inline.max.delta.commits": 3}
INLINE = {**MERGED, "hoodie.compact.inline": True}


@pytest.mark.parametrize(("mode", "table_format"), combined(0, MODES, [*LAYOUTS, (8, "default")]))
def test_changes_are_the_same_with_and_without_change_logs(
    tmp_path: Path, mode: str, table_format: tuple[int, str]
) -> None:
    version, layout = table_format
    captured = created(tmp_path / "with", mode, version, layout, **INLINE, **{"hoodie.metadata.enable": True})
    inferred = created(tmp_path / "without", None, version, layout, **INLINE)
    for table in (captured, inferred):
        played(table)
    assert changes_of(captured) == changes_of(inferred)
    logs = list(change_logs(captured))
    assert len(logs) >= 12
    assert not list(change_logs(inferred))
    assert all(path.endswith(".cdc.parquet" if version == 10 else ".cdc") for path, _ in logs)
    assert all((tmp_path / "with" / path).stat().st_size == size for path, size in logs)
    assert check_table(captured, LocalEngine(1), lambda *_: None, quick=False).findings == ()


def _recorded(table: LsmTable, paths: list[str]) -> list[tuple[str, str, str]]:
    rows = [
        row
        for path in paths
        for batch in read_change_log(LocalStorage(_root(table)), path)
        for row in batch.to_pylist()
    ]
    return sorted((row["op"], image(row["before"]), image(row["after"])) for row in rows)


def _root(table: LsmTable) -> Path:
    return Path(table.path.removeprefix("file://"))


def _expected(before: pa.Table, after: pa.Table) -> list[tuple[str, str, str]]:
    """The changes between two states whose rows carry the commit that wrote them."""
    old, new = ({row["_hoodie_record_key"]: row for row in rows.to_pylist()} for rows in (before, after))
    found = [("d", image(old[key]), image(None)) for key in old if key not in new]
    for key, row in new.items():
        if key not in old:
            found.append(("i", image(None), image(row)))
        elif old[key]["_hoodie_commit_time"] != row["_hoodie_commit_time"]:
            found.append(("u", image(old[key]), image(row)))
    return sorted(found)


@pytest.mark.parametrize(("version", "layout"), LAYOUTS)
def test_a_log_holds_the_changes_from_one_base_file_to_the_next(tmp_path: Path, version: int, layout: str) -> None:
    table = created(tmp_path, "DATA_BEFORE_AFTER", version, layout, **MERGED)
    rng = np.random.default_rng(4)
    before = table.scan(meta=True).to_arrow()
    for step in range(3):
        for _ in range(3):
            rows = random_batch(rng, step)
            table.upsert(rows)
            table.delete(rows.select(["id", "day"]).slice(0, 3))
        table.compact()
        commit = table.timeline.read_commit(table.timeline.completed_writes[-1])
        assert commit.operation_type == "COMPACT"
        assert all(
            len(stat.cdc_files) == isinstance(parse_file_name(stat.file_name), BaseFileName) for stat in commit.stats
        )
        after = table.scan(meta=True).to_arrow()
        paths = [path for stat in commit.stats for path, _ in stat.cdc_files]
        assert _recorded(table, paths) == _expected(before, after)
        before = after


def test_a_log_of_rows_in_untouched_row_groups_holds_the_changes_only(tmp_path: Path) -> None:
    options = {
        "hoodie.bucket.index.num.buckets": 1,
        "hoodie.table.ordering.fields": "",
        "lsm.parquet.row.group.rows": 100,
    }
    table = created(tmp_path, "DATA_BEFORE_AFTER", **MERGED, **options)

    def rows(numbers: range) -> pa.Table:
        found = [{"id": f"k{number:05}", "day": "d0", "ts": 1, "price": None, "place": None} for number in numbers]
        return pa.Table.from_pylist(found, schema=SCHEMA)

    table.upsert(rows(range(2000)))
    table.compact()
    table.upsert(rows(range(700, 710)))
    table.compact()
    commit = table.timeline.read_commit(table.timeline.completed_writes[-1])
    ((path, _),) = commit.stats[0].cdc_files
    (batch,) = read_change_log(LocalStorage(tmp_path), path)
    assert batch.column("op").to_pylist() == ["u"] * 10
    assert len(table.scan().to_arrow()) == 2000


def test_a_query_over_a_compaction_returns_each_change_once(tmp_path: Path) -> None:
    table = created(tmp_path, "DATA_BEFORE_AFTER", **MERGED)
    rng = np.random.default_rng(6)
    for step in range(3):
        table.upsert(random_batch(rng, step))
    before, begin = changes_of(table), table.timeline.completed_writes[-1].completed or ""
    table.compact()
    assert changes_of(table) == before
    assert table.changes(begin).to_arrow().num_rows == 0


@pytest.mark.parametrize("version", [10, 9])
def test_no_change_log_of_a_killed_compaction_is_left(tmp_path: Path, version: int) -> None:
    table = created(tmp_path / "template", "DATA_BEFORE_AFTER", version, "default", **MERGED)
    rng = np.random.default_rng(3)
    for step in range(3):
        table.upsert(random_batch(rng, step))
    shutil.copytree(tmp_path / "template", tmp_path / "counted")
    counting = FaultyStorage(LocalStorage(tmp_path / "counted"))
    opened(LsmTable(tmp_path / "counted"), counting).compact()
    expected = changes_of(LsmTable(tmp_path / "counted"))
    for call in sample(range(1, len(counting.calls) + 1, 13), version, 2):
        root = tmp_path / str(call)
        killed = LsmTable(shutil.copytree(tmp_path / "template", root))
        with suppress(Killed):
            opened(killed, FaultyStorage(LocalStorage(root), {call: Fault.KILL_AFTER})).compact()
        after = LsmTable(root)
        after.compact()
        assert set(_stored(root)) == {path for path, _ in change_logs(after)}
        assert [change[1:] for change in changes_of(after)] == [change[1:] for change in expected]


def _stored(root: Path) -> Iterator[str]:
    files = (path.relative_to(root) for path in root.rglob("*.cdc*") if path.suffix != ".crc")
    return (str(path) for path in files if ".hoodie" not in path.parts)


@pytest.mark.parametrize("version", [10, 9])
def test_the_stat_of_a_log_names_the_slice_that_it_is_written_to(tmp_path: Path, version: int) -> None:
    table = created(tmp_path, "OP_KEY_ONLY", version, "default", **MERGED)
    rows = random_batch(np.random.default_rng(1), 1)
    first, second = (table.upsert(rows), table.upsert(rows))
    third = (table.compact(), table.upsert(rows))[1]
    assert first is not None
    assert second is not None
    assert third is not None
    base = table.timeline.completed_writes[-2]
    stats = [
        {stat.file_id: stat for stat in table.timeline.read_commit(write).stats}
        for write in (first, second, base, third)
    ]
    for group, stat in stats[0].items():
        assert (stat.base_file, stat.log_files, stat.prev_commit) == ("", (stat.file_name,), first.requested)
        older, compacted, newer = (found[group] for found in stats[1:])
        assert (older.base_file, older.prev_commit) == ("", first.requested)
        assert older.log_files == (stat.file_name, older.file_name)
        assert (newer.base_file, newer.prev_commit) == (compacted.file_name, base.requested)
        assert newer.log_files == (newer.file_name,)


def test_a_native_log_says_its_instant_and_schema(tmp_path: Path) -> None:
    table = created(tmp_path, "OP_KEY_ONLY", **MERGED)
    table.upsert(random_batch(np.random.default_rng(1), 1))
    table.compact()
    path, _ = next(change_logs(table))
    entry = (pq.read_metadata(tmp_path / path).metadata or {})[b"hudi.log.format.metadata"].decode()
    assert f'"INSTANT_TIME":"{table.timeline.completed_writes[-1].requested}"' in entry
    assert '"SCHEMA":"{' in entry


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_table_goes_down_and_up_with_its_change_logs(tmp_path: Path, table_type: str) -> None:
    options = {**INLINE, "hoodie.datasource.write.table.type": table_type}
    table = created(tmp_path, "DATA_BEFORE_AFTER", **options)
    played(table)
    before = table.scan().to_arrow().sort_by("id")
    table = table.change_version(9)
    assert not [path for path in _stored(tmp_path) if path.endswith(".cdc.parquet")]
    assert table.scan().to_arrow().sort_by("id") == before
    rows = random_batch(np.random.default_rng(9), 50)
    begin = table.timeline.completed_writes[-1].completed or ""
    table.upsert(rows)
    changed = table.changes(begin).to_arrow()
    table = table.change_version(layout="lsm_tree")
    again = table.changes(begin).to_arrow()
    assert sorted(map(str, again.select(["op"]).to_pylist())) == sorted(map(str, changed.select(["op"]).to_pylist()))
    table.upsert(rows)
    assert len(table.scan().to_arrow())
