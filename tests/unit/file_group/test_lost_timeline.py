"""Tables whose timeline or history is gone: no use takes them for empty or whole ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError, LsmError
from tests.support.small_tables import create, data_files, rows, shown

OPTIONS: dict[str, object] = {"lsm.read.threads": 1, "hoodie.clean.automatic": False}
ARCHIVED: dict[str, object] = {
    **OPTIONS,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.clean.commits.retained": 1,
}
USES: dict[str, Callable[[LsmTable], object]] = {
    "snapshot": shown,
    "incremental": lambda table: table.incremental("000").to_arrow(),
    "changes": lambda table: table.changes("000").to_arrow(),
    "write": lambda table: table.upsert(rows(("new", "nl", 1, 1))),
    "compaction": lambda table: table.compact(),
    "clean": lambda table: table.clean(),
    "savepoint": lambda table: table.savepoint(),
}


def folder(root: Path) -> Path:
    return root / ".hoodie/timeline"


def without_completed(root: Path) -> None:
    for path in folder(root).glob("*_*"):
        path.unlink()


def emptied(root: Path) -> None:
    shutil.rmtree(folder(root))
    folder(root).mkdir()


def without_active(root: Path) -> None:
    for path in folder(root).glob("2*"):
        path.unlink()


LOSSES: dict[str, Callable[[Path], None]] = {
    "deleted": lambda root: shutil.rmtree(folder(root)),
    "emptied": emptied,
    "completed files deleted": without_completed,
    "all but the history deleted": without_active,
}


def table_at(root: Path, **options: object) -> LsmTable:
    """A table of eight writes, of which the first ones are archived."""
    table = create(root, **{**ARCHIVED, **options})
    for number in range(8):
        table.upsert(rows((f"k{number % 5}", "nl", number, number)))
    return table


@pytest.mark.parametrize("listing", ["folders", "metadata table"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_timeline_is_an_error_that_names_the_repair(tmp_path: Path, loss: str, listing: str) -> None:
    options = {**ARCHIVED, "hoodie.metadata.enable": listing == "metadata table"}
    table_at(tmp_path, **options)
    LOSSES[loss](tmp_path)
    before = data_files(tmp_path)
    for use in USES.values():
        table = LsmTable(tmp_path, options)
        with pytest.raises(LsmError, match=r"lsm repair file:.* rebuilds|has no completed write on its timeline"):
            use(table)
    assert data_files(tmp_path) == before


def test_a_lost_history_is_missed_where_a_range_begins_before_the_timeline(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    rows_before, first = shown(table), table.timeline.completed_writes[0]
    since = max(write.completed or "" for write in table.timeline.history.writes().values())
    active = table.incremental(since).to_arrow()
    shutil.rmtree(folder(tmp_path) / "history")

    again = LsmTable(tmp_path, ARCHIVED)
    assert shown(again) == rows_before
    assert again.incremental(since).to_arrow() == active
    for use in ("incremental", "changes"):
        with pytest.raises(
            CorruptFileError, match=rf"{first.requested}.* names as the write before it, is not .*history"
        ):
            USES[use](LsmTable(tmp_path, ARCHIVED))


@pytest.mark.parametrize("left", [(), ("*.parquet",)], ids=["folder", "manifests"])
def test_a_lost_history_is_missed_after_writers_have_archived_again(tmp_path: Path, left: tuple[str, ...]) -> None:
    table = table_at(tmp_path)
    writes = [*table.timeline.history.writes().values(), *table.timeline.completed_writes]
    kept = [path for pattern in left for path in (folder(tmp_path) / "history").glob(pattern)]
    for path in (folder(tmp_path) / "history").iterdir():
        if path not in kept:
            path.unlink()
    again = LsmTable(tmp_path, ARCHIVED)
    for number in range(8, 20):
        again.upsert(rows((f"k{number}", "nl", number, number)))
    again = LsmTable(tmp_path, ARCHIVED)
    lost = [write for write in writes if not again.timeline.is_archived(write.requested)]
    assert lost
    assert len(again.timeline.history.writes()) > 6
    for since in ("000", lost[0].completed or ""):
        with pytest.raises(CorruptFileError, match=rf"{lost[-1].requested}.* names as the write before it, is not"):
            again.incremental(since).to_arrow()
    assert again.incremental(lost[-1].completed or "").to_arrow().num_rows > 12


def test_a_whole_history_is_read_from_wherever_a_range_begins(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    for number in range(8, 20):
        table.upsert(rows((f"k{number}", "nl", number, number)))
    table = LsmTable(tmp_path, ARCHIVED)
    for write in table.timeline.every_write:
        table.incremental(write.completed or "").to_arrow()
    assert table.incremental("000").to_arrow().num_rows == 17


def test_a_file_that_is_gone_with_the_history_is_missed(tmp_path: Path) -> None:
    table_at(tmp_path)
    shutil.rmtree(folder(tmp_path) / "history")
    min((tmp_path / "nl").glob("*.parquet"), key=lambda path: path.name.split("_")[2]).unlink()
    with pytest.raises(CorruptFileError, match="1 data files of archived writes"):
        shown(LsmTable(tmp_path, ARCHIVED))


def test_tables_without_a_completed_write_are_empty(tmp_path: Path) -> None:
    table = create(tmp_path, **OPTIONS)
    assert shown(LsmTable(tmp_path, OPTIONS)) == []
    with table.transaction() as transaction:
        plan = table.plan(transaction, "upsert")
        instant = transaction.begin(plan.action)
        late = tmp_path / "nl" / f"00000000-1111-2222-3333-444444444444-0_0-0-0_{instant}_1.log.parquet"
        late.parent.mkdir()
        (late.parent / ".hoodie_partition_metadata").write_bytes(b"")
        late.write_bytes(b"half a file")
        assert shown(LsmTable(tmp_path, OPTIONS)) == []
    late.write_bytes(b"a late task has made it again")
    assert shown(LsmTable(tmp_path, OPTIONS)) == []
    LsmTable(tmp_path, OPTIONS).upsert(rows(("a", "nl", 1, 1)))
    assert shown(LsmTable(tmp_path, OPTIONS)) == [("a", "nl", 1, 1)]
