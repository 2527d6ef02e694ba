"""Tables whose columns Hudi changed by ids are read as Hudi does, and written again."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main

FOLDER = Path(__file__).parent / "data" / "schema_on_read"


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


TABLES = pytest.mark.parametrize("name", ["altered", "renamed", "added_again"])


def expected(name: str) -> list[str]:
    return (FOLDER / f"{name}.expected.jsonl").read_text(encoding="utf-8").splitlines()


def lines(table: Path, to: Path) -> list[str]:
    assert main(["read", str(table), "--format", "jsonl", "--meta", "--output", str(to)]) == 0
    return sorted(to.read_text(encoding="utf-8").splitlines())


@TABLES
def test_the_columns_have_the_values_that_hudi_reads(tmp_path: Path, name: str) -> None:
    table = unpacked(name, tmp_path)
    assert lines(table, tmp_path / "rows.jsonl") == expected(name)
    assert main(["verify", str(table)]) == 0


@pytest.mark.parametrize("name", ["renamed", "added_again"])
def test_the_time_before_the_change_is_read(tmp_path: Path, name: str) -> None:
    table = LsmTable(unpacked(name, tmp_path))
    before = table.timeline.completed_writes[1].completed
    rows = table.scan(["id", "n", "gone"], as_of=before).to_arrow().sort_by("id").to_pylist()
    assert rows == [
        {"id": "a", "n": 0, "gone": "old a"},
        {"id": "b", "n": 1, "gone": "old b"},
        {"id": "c", "n": 0, "gone": "old c"},
    ]


@TABLES
def test_a_compaction_writes_the_values_under_the_names_of_now(tmp_path: Path, name: str) -> None:
    path = unpacked(name, tmp_path)
    table = LsmTable(path, {"hoodie.bucket.index.num.buckets": 1})
    rows = table.scan().to_arrow().sort_by("id")
    table.upsert(rows.slice(0, 1))
    assert LsmTable(path).scan().to_arrow().sort_by("id") == rows
    assert table.compact() is not None
    (found,) = table.scan().slices
    assert found.base is not None
    assert pq.read_schema(path / found.base.path).names[5:] == rows.column_names
    assert LsmTable(path).scan().to_arrow().sort_by("id") == rows
    assert main(["verify", str(path)]) == 0


@TABLES
def test_a_copy_has_the_values_and_no_ids(tmp_path: Path, name: str) -> None:
    source = unpacked(name, tmp_path)
    assert main(["copy", str(source), str(tmp_path / "copy"), "-o", "hoodie.bucket.index.num.buckets=1"]) == 0
    copied = LsmTable(tmp_path / "copy")
    rows = LsmTable(source).scan().to_arrow()
    assert copied.scan().to_arrow().sort_by("id").to_pylist() == rows.sort_by("id").to_pylist()
    copied.upsert(rows.slice(0, 1))
    assert not list((tmp_path / "copy" / ".hoodie" / ".schema").iterdir())
