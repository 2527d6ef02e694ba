"""Tables whose columns Hudi changed by ids: what names suffice for is read as Hudi does, all else is refused."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.errors import UnsupportedTable

FOLDER = Path(__file__).parent / "data" / "schema_on_read"


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def test_columns_that_were_added_widened_and_dropped_are_read_as_hudi_does(tmp_path: Path) -> None:
    table, to = unpacked("altered", tmp_path), tmp_path / "rows.jsonl"
    assert main(["read", str(table), "--format", "jsonl", "--meta", "--output", str(to)]) == 0
    expected = (FOLDER / "altered.expected.jsonl").read_text(encoding="utf-8")
    assert sorted(to.read_text(encoding="utf-8").splitlines()) == expected.splitlines()
    assert main(["verify", str(table)]) == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("renamed", r"\.hoodie/\.schema/\S+\.schemacommit: column 'm' was renamed from 'n'"),
        ("added_again", r"\.schemacommit: column 'gone' was dropped, and added again later"),
    ],
)
def test_what_names_do_not_tell_is_refused_and_the_time_before_is_read(tmp_path: Path, name: str, message: str) -> None:
    table = LsmTable(unpacked(name, tmp_path))
    with pytest.raises(UnsupportedTable, match=message):
        table.scan()
    before = table.timeline.completed_writes[1].completed
    rows = table.scan(["id", "n", "gone"], as_of=before).to_arrow().sort_by("id").to_pylist()
    assert rows == [
        {"id": "a", "n": 0, "gone": "old a"},
        {"id": "b", "n": 1, "gone": "old b"},
        {"id": "c", "n": 0, "gone": "old c"},
    ]


def test_a_copy_has_no_ids_and_is_written_again(tmp_path: Path) -> None:
    source = unpacked("altered", tmp_path)
    assert main(["copy", str(source), str(tmp_path / "copy"), "-o", "hoodie.bucket.index.num.buckets=1"]) == 0
    copied = LsmTable(tmp_path / "copy")
    rows = LsmTable(source).scan().to_arrow()
    assert copied.scan().to_arrow().sort_by("id").to_pylist() == rows.sort_by("id").to_pylist()
    copied.upsert(rows.slice(0, 1))


def test_a_table_whose_names_do_not_tell_is_not_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["copy", str(unpacked("renamed", tmp_path)), str(tmp_path / "copy")]) == 2
    assert "'m' was renamed from 'n'" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()
