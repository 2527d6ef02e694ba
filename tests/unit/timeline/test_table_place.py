"""Where a table may be created, and what of the folders below its root is its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, CorruptFileError
from streaming_lsm.format.actions.clean import CleanPlan
from streaming_lsm.metadata.listing import folder_listing
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.table_place import check_place
from tests.support.small_tables import create, data_files, rows, shown

ROW, OTHER = ("a", "nl", 1, 1), ("b", "be", 1, 2)


def test_a_table_above_another_table_is_refused_by_the_name_of_that_table(tmp_path: Path) -> None:
    create(tmp_path / "lake/deep/orders")

    with pytest.raises(ConfigError, match=r"there is a table at file://.*/lake/deep/orders, below"):
        create(tmp_path / "lake")
    assert not (tmp_path / "lake/.hoodie").exists()


def test_a_table_inside_another_table_is_refused_by_the_name_of_that_table(tmp_path: Path) -> None:
    create(tmp_path / "orders")

    with pytest.raises(ConfigError, match=r"lies in the table at file://.*/orders: "):
        create(tmp_path / "orders/nl/mine")
    assert not (tmp_path / "orders/nl").exists()


@pytest.mark.parametrize("left", ["data file", "partition metadata", "both, and an empty .hoodie"])
def test_old_data_files_are_taken_over_only_when_that_is_asked_for(tmp_path: Path, left: str) -> None:
    create(tmp_path).upsert(rows(ROW))
    shutil.rmtree(tmp_path / ".hoodie")
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name.startswith(".hoodie") == (left == "data file"):
            path.unlink()
    if left.startswith("both"):
        (tmp_path / ".hoodie").mkdir()

    with pytest.raises(ConfigError, match=r"has data files of one .*lsm.create.over.files=true"):
        create(tmp_path)
    assert create(tmp_path, **{"lsm.create.over.files": True}).timeline.completed_writes == ()


def test_other_files_are_no_reason_to_refuse_a_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("README", "sub/orders.csv", "sub/part-0000.parquet"):
        (tmp_path / name).write_text("x")

    assert shown(create(tmp_path)) == []


def test_old_data_files_behind_thousands_of_folders_are_found(tmp_path: Path) -> None:
    create(tmp_path).upsert(rows(("a", "zz", 1, 1)))
    shutil.rmtree(tmp_path / ".hoodie")
    for number in range(1001):
        (tmp_path / f"f{number:04}").mkdir()

    with pytest.raises(ConfigError, match=r"has data files of one \(zz/"):
        create(tmp_path)
    assert not (tmp_path / ".hoodie").exists()


@pytest.mark.parametrize("folder", [".hoodie/timeline", ".hoodie"])
def test_a_timeline_without_its_properties_is_refused_by_the_name_of_an_instant(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "20261122062648258.deltacommit.requested").touch()

    for over_files in (False, True):
        with pytest.raises(ConfigError, match=rf"timeline of a table \({folder}/2026.*\) without .*hoodie.properties"):
            create(tmp_path, **{"lsm.create.over.files": over_files})
    assert not (tmp_path / ".hoodie/hoodie.properties").exists()


def test_a_creation_that_died_before_its_properties_is_repeated(tmp_path: Path) -> None:
    create(tmp_path)
    (tmp_path / ".hoodie/hoodie.properties").unlink()

    assert shown(create(tmp_path)) == []


def test_the_search_for_tables_below_old_data_files_ends_early_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(30):
        (tmp_path / f"f{number}").mkdir()
    monkeypatch.setattr("streaming_lsm.timeline.table_place._MAX_FOLDERS", 10)

    check_place(LocalStorage(tmp_path), over_files=True)
    assert "only 10 folders with 30 names were searched" in caplog.text


def moved_below(tmp_path: Path) -> tuple[Path, Path, set[str]]:
    """A table, and another one that somebody moved into one of its folders: both roots, and the inner one's files."""
    outer, inner = create(tmp_path / "outer"), create(tmp_path / "inner")
    outer.upsert(rows(ROW))
    for ts in range(3):
        inner.upsert(rows(("z", "nl", ts, 9)))
    (tmp_path / "inner").rename(tmp_path / "outer/in")
    return tmp_path / "outer", tmp_path / "outer/in", data_files(tmp_path / "outer/in")


def test_a_table_below_is_not_read_compacted_or_cleaned(tmp_path: Path) -> None:
    root, inner, files = moved_below(tmp_path)
    table = opened(root)
    for _ in range(3):
        table.upsert(rows(ROW))
        table.compact()
    table.clean()

    assert shown(table) == [ROW]
    assert shown(opened(inner)) == [("z", "nl", 2, 9)]
    assert data_files(inner) == files
    assert set(folder_listing(table.storage, table.timeline)) == {"nl"}


def test_no_row_is_written_into_the_folder_of_another_table(tmp_path: Path) -> None:
    root, inner, files = moved_below(tmp_path)

    with pytest.raises(ConfigError, match=r"partition 'in' .* leads into 'in', a table of its own"):
        opened(root).upsert(rows(("q", "in", 1, 1)))
    assert data_files(inner) == files


def test_no_plan_deletes_files_of_a_table_below(tmp_path: Path) -> None:
    root, inner, files = moved_below(tmp_path)
    table = opened(root)
    names = tuple(sorted(path.rpartition("/")[2] for path in files))
    plan = CleanPlan(None, table.timeline.last_time, "KEEP_LATEST_COMMITS", {"in/nl": names})
    table.storage.put_if_absent(Instant(f"2{'0' * 16}", "clean", State.REQUESTED).path, plan.encode())

    with pytest.raises(CorruptFileError, match="'in/nl', which is not a partition of the table"):
        table.clean()
    assert data_files(inner) == files


def opened(root: Path) -> LsmTable:
    return LsmTable(root, {"lsm.read.threads": 1, "hoodie.clean.automatic": False, "hoodie.clean.commits.retained": 1})
