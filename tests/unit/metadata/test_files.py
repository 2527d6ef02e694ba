"""Reads that ask the metadata table which files there are: the same rows as by the folders, whatever happens to it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.file_group import file_system_view
from streaming_lsm.metadata.dropping import drop_metadata_table
from tests.support.faulty_storage import FaultyStorage, Interrupted

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("region", pa.string())])
ASKED = {"hoodie.metadata.enable": True, "lsm.read.threads": 1}
MORE = [pa.table([[f"k{number}"], [20 + number], ["north"]], schema=SCHEMA) for number in (3, 13)]
KINDS = [(10, "lsm_tree"), (9, "default"), (8, "default")]


Played = Callable[..., LsmTable]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Makes tables; each kind is written once, and copied."""

    @cache
    def template(version: int, layout: str) -> LsmTable:
        return _written(tmp_path_factory.mktemp("template") / "table", version, layout)

    def copied(path: Path, version: int = 10, layout: str = "lsm_tree") -> LsmTable:
        found = template(version, layout)
        return LsmTable(shutil.copytree(found.path.removeprefix("file://"), path), found.options)

    return copied


def _written(path: Path, version: int, layout: str) -> LsmTable:
    """A table with a metadata table, partitions, updates, compactions and cleans."""
    options = {
        "hoodie.table.name": "t",
        "hoodie.write.table.version": version,
        "hoodie.table.storage.layout": layout,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "region",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.bucket.index.num.buckets": 2,
        "hoodie.clean.commits.retained": 2,
        "hoodie.metadata.compact.max.delta.commits": 3,
        **ASKED,
    }
    table = LsmTable.create(path, SCHEMA, options)
    for step in range(7):
        keys = [f"k{number}" for number in range(step, step + 8)]
        table.upsert(pa.table([keys, [step] * 8, ["north", "süd/1"] * 4], schema=SCHEMA))
        if step % 2:
            assert table.compact()
    return table


def _rows(table: LsmTable, as_of: str | None = None) -> list[str]:
    return sorted(map(str, table.scan(as_of=as_of, meta=True).to_arrow().to_pylist()))


@pytest.mark.parametrize(("version", "layout"), KINDS)
def test_every_state_that_is_kept_has_the_rows_that_the_folders_give(
    played: Played, path_of: Path, version: int, layout: str
) -> None:
    table = played(path_of, version, layout)
    by_folders, asking = LsmTable(table.path), LsmTable(table.path, ASKED)
    assert table.timeline.completed_cleans
    kept = [write.completed for write in by_folders.timeline.completed_writes[-2:]]
    for moment in (None, *kept):
        assert _rows(asking, moment) == _rows(by_folders, moment)
    assert asking.file_slices() == by_folders.file_slices()


@pytest.mark.parametrize(("version", "layout"), KINDS)
def test_a_filter_on_partitions_has_the_files_of_these_alone_listed(
    played: Played, path_of: Path, version: int, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    listed = file_system_view.metadata_files

    def files(*arguments: Any) -> Any:
        asked.append(listed(*arguments))
        return asked[-1]

    monkeypatch.setattr(file_system_view, "metadata_files", files)
    played(path_of, version, layout)
    by_folders, asking = LsmTable(path_of), LsmTable(path_of, ASKED)
    for filter, count in (("region = 'north'", 1), ("region = 'south'", 0), ("region = 'north' OR ts > 3", 2)):
        asked.clear()
        found, expected = asking.scan(filter=filter), by_folders.scan(filter=filter)
        assert list(found.slices) == list(expected.slices)
        assert found.to_arrow() == expected.to_arrow()
        assert found.skipped.partitions == expected.skipped.partitions == 2 - count
        assert [(len(one.partitions), one.left_out) for one in asked] == [(count, 2 - count)]


@pytest.mark.parametrize("damage", ["cut", "gone", "not made"])
def test_folders_are_listed_where_the_metadata_table_cannot_be_read(
    played: Played, path_of: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = _rows(played(path_of))
    metadata = path_of / ".hoodie" / "metadata"
    if damage == "cut":
        for file in (metadata / "files").glob("*"):
            file.write_bytes(file.read_bytes()[:-9])
    elif damage == "gone":
        shutil.rmtree(metadata)
    else:
        drop_metadata_table(LsmTable(path_of).storage, "a test")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert _rows(LsmTable(path_of, ASKED)) == before
    assert ("folders are listed" in caplog.text) == (damage != "not made")


@pytest.mark.parametrize(("version", "layout"), KINDS)
def test_one_that_was_not_told_of_a_write_is_not_asked(
    played: Played, path_of: Path, version: int, layout: str, caplog: pytest.LogCaptureFixture
) -> None:
    _fallen_behind(played, path_of, version, layout)
    before = _rows(LsmTable(path_of))
    assert any("'new'" in row for row in before)
    assert _rows(LsmTable(path_of, ASKED)) == before
    assert "has fallen behind" in caplog.text


def test_a_writer_that_upgrades_a_table_knows_the_file_groups_that_it_was_not_told_of(
    played: Played, path_of: Path
) -> None:
    _fallen_behind(played, path_of, 9, "default")
    groups = [(found.partition_path, found.file_id) for found in LsmTable(path_of).file_slices()]
    asked = {**ASKED, "hoodie.write.table.version": 10, "hoodie.write.auto.upgrade": True}
    LsmTable(path_of, asked).upsert(pa.table([["k100", "k101"], [50, 50], ["new", "new"]], schema=SCHEMA))
    found = LsmTable(path_of, ASKED)
    assert found.config.version == 10
    assert [(slice.partition_path, slice.file_id) for slice in found.file_slices()] == groups
    assert found.upsert(pa.table([["k100"], [60], ["new"]], schema=SCHEMA))


def _fallen_behind(played: Played, path: Path, version: int, layout: str) -> None:
    """A table with a write into a new partition that its metadata table knows nothing of."""
    table, metadata = played(path, version, layout), path / ".hoodie" / "metadata"
    shutil.copytree(metadata, path.parent / "before")
    table.upsert(pa.table([["k100", "k101", "k102"], [30] * 3, ["new"] * 3], schema=SCHEMA))
    shutil.rmtree(metadata)
    shutil.copytree(path.parent / "before", metadata)


def test_one_that_is_dropped_during_any_call_of_a_read_hides_no_row(played: Played, tmp_path: Path) -> None:
    template = tmp_path / "template"
    before = _rows(played(template))
    counted = LsmTable(template, ASKED)
    counted.storage = counting = FaultyStorage(counted.storage)
    assert _rows(counted) == before
    for number in range(len(counting.calls)):
        path = tmp_path / str(number)
        shutil.copytree(template, path)
        table = LsmTable(path, ASKED)
        drop = partial(drop_metadata_table, table.storage, "a test")
        table.storage = Interrupted(table.storage, number, drop)
        assert _rows(table) == before, counting.calls[number]


def test_writes_during_any_call_of_a_read_leave_it_a_state_that_was_there(played: Played, tmp_path: Path) -> None:
    template = tmp_path / "template"
    played(template)
    counted = LsmTable(template, ASKED)
    counted.storage = counting = FaultyStorage(counted.storage)
    expected = [_values(counted)]
    after = LsmTable(shutil.copytree(template, tmp_path / "after"), ASKED)
    for batch in MORE:
        after.upsert(batch)
        expected.append(_values(LsmTable(after.path)))
    for number in range(len(counting.calls)):
        path = shutil.copytree(template, tmp_path / str(number))
        table = LsmTable(path, ASKED)
        table.storage = Interrupted(table.storage, number, partial(_write_more, path))
        assert _values(table) in expected, counting.calls[number]


def _write_more(path: Path) -> None:
    for batch in MORE:
        LsmTable(path, ASKED).upsert(batch)


def _values(table: LsmTable) -> list[str]:
    return sorted(map(str, table.scan().to_arrow().to_pylist()))


@pytest.fixture
def path_of(tmp_path: Path) -> Path:
    return tmp_path / "table"
