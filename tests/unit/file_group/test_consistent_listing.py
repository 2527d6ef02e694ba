"""Reads beside cleans that delete files while the folders are listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CommitConflict, ReadOvertaken
from streaming_lsm.file_group.consistent_listing import list_file_slices
from streaming_lsm.file_group.file_system_view import FileSystemView
from streaming_lsm.format.actions.clean import CleanMetadata
from streaming_lsm.format.actions.commit import CommitMetadata, log_file_stat
from streaming_lsm.format.table.file_names import LogFileName, LogKind, WriteToken, parse_file_name
from streaming_lsm.storage.base import Listing
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER
from streaming_lsm.timeline.timeline import Timeline
from tests.support.faulty_storage import FaultyStorage, Killed
from tests.support.service_tables import Model, grow, grown, reopened
from tests.support.small_tables import shown

STREAM: dict[str, object] = {
    "hoodie.clean.commits.retained": 2,
    "hoodie.clean.automatic": True,
    "hoodie.compact.inline": True,
    "hoodie.compact.inline.max.delta.commits": 2,
}


class Busy:
    """Makes something happen between a reader's look at the timeline and its look at the folders."""

    def __init__(self, patch: pytest.MonkeyPatch, happens: Callable[[int], None]) -> None:
        self.listings = 0
        original = FileSystemView.listings

        def listings(view: FileSystemView) -> dict[str, Listing]:
            patch.setattr(FileSystemView, "listings", original)  # what happens lists as well
            happens(self.listings)
            self.listings += 1
            patch.setattr(FileSystemView, "listings", listings)
            return original(view)

        patch.setattr(FileSystemView, "listings", listings)


def deadly_deletes(storage: FaultyStorage, paths: Iterable[str]) -> None:
    """The process dies when it has deleted one data file."""
    for path in paths:
        LocalStorage(storage.uri.removeprefix("file://")).delete(path)
        if parse_file_name(path.rpartition("/")[2]) is not None:
            storage.kill()
            raise Killed("delete_files", path)


def five_batches(table: LsmTable, model: Model, number: int) -> None:
    for batch in range(3 + 5 * number, 8 + 5 * number):
        grow(table, model, batch)


def test_a_clean_that_runs_while_files_are_listed_hides_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = grown(tmp_path, **STREAM)
    reader = reopened(table)
    busy = Busy(monkeypatch, lambda number: five_batches(table, model, number) if number == 0 else None)
    assert shown(reader) == sorted(model.values())
    assert busy.listings == 2


def test_a_clean_that_takes_nothing_from_a_read_does_not_disturb_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = grown(tmp_path, batches=8, **{**STREAM, "hoodie.clean.automatic": False})
    reader, expected = reopened(table), sorted(model.values())
    busy = Busy(monkeypatch, lambda number: table.clean() and None)
    assert shown(reader) == expected
    assert busy.listings == 1
    assert len([instant for instant in table.timeline.instants if instant.action == "clean"]) == 1


def test_a_reader_that_cleans_overtake_every_time_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, model = grown(tmp_path, **STREAM)
    reader = reopened(table)
    busy = Busy(monkeypatch, lambda number: five_batches(table, model, number))
    with pytest.raises(CommitConflict, match=r"clean.*read again"):
        reader.scan()
    assert busy.listings == 5


def test_a_past_state_that_is_cleaned_while_it_is_listed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = grown(tmp_path, **STREAM)
    moment, reader = table.timeline.completed_writes[-1].requested, reopened(table)
    Busy(monkeypatch, lambda number: five_batches(table, model, number) if number == 0 else None)
    with pytest.raises(ReadOvertaken, match="cleaned"):
        reader.scan(as_of=moment)


def test_a_past_state_that_a_dead_clean_took_files_from_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manual = {"hoodie.clean.automatic": False, "hoodie.clean.commits.retained": 1}
    table, model = grown(tmp_path, batches=1, **manual)
    moment, past = table.timeline.last_time, sorted(model.values())
    for batch in range(1, 4):
        table.compact()
        grow(table, model, batch)
    assert shown(table, as_of=moment) == past
    monkeypatch.setattr(FaultyStorage, "delete_files", deadly_deletes)
    with pytest.raises(Killed):
        reopened(table, FaultyStorage(LocalStorage(tmp_path)), **manual).clean()
    with pytest.raises(CommitConflict, match="clean"):
        table.scan(as_of=moment)
    assert shown(table) == sorted(model.values())


# --- what a clean may take without disturbing a read --------------------------------------------------------------

GROUP = "00000000-0000-0000-0000-000000000000-0"


def log(kind: LogKind) -> str:
    return str(LogFileName(GROUP, WriteToken(0, 0, 0), "10", 1, kind))


def listed_before_a_clean(root: Path, deleted: str) -> FileSystemView:
    """A view of the files of one write at 10, and a clean since that the view does not know."""
    storage = LocalStorage(root)
    for path in (".hoodie_partition_metadata", log(LogKind.DATA), log(LogKind.CDC)):
        storage.put_if_absent(f"nl/{path}", b"")
    stats = (log_file_stat("nl", LogFileName(GROUP, WriteToken(0, 0, 0), "10", 1, LogKind.DATA), total_bytes=1),)
    storage.put_if_absent(f"{TIMELINE_FOLDER}/10_11.deltacommit", CommitMetadata(stats, "UPSERT").encode())
    view = FileSystemView(storage, Timeline.load(storage))
    storage.delete(f"nl/{deleted}")
    storage.put_if_absent(f"{TIMELINE_FOLDER}/30.clean.inflight", b"")
    clean = CleanMetadata("30", 1, "", "", "KEEP_LATEST_COMMITS", {"nl": (deleted,)})
    storage.put_if_absent(f"{TIMELINE_FOLDER}/30_31.clean", clean.encode())
    return view


def test_a_log_of_the_slice_that_a_clean_deletes_is_missed(tmp_path: Path) -> None:
    view = listed_before_a_clean(tmp_path, log(LogKind.DATA))
    with pytest.raises(CommitConflict, match="at 30"):
        list_file_slices(lambda: view)


def test_a_change_log_is_not_missed(tmp_path: Path) -> None:
    view = listed_before_a_clean(tmp_path, log(LogKind.CDC))
    _, (found,) = list_file_slices(lambda: view)
    assert [str(file.name) for file in found.logs] == [log(LogKind.DATA)]


def test_files_of_a_replaced_group_are_not_missed(tmp_path: Path) -> None:
    replacing = CommitMetadata((), "INSERT_OVERWRITE", replaced={"nl": (GROUP,)})
    LocalStorage(tmp_path).put_if_absent(f"{TIMELINE_FOLDER}/20_21.replacecommit", replacing.encode())
    view = listed_before_a_clean(tmp_path, log(LogKind.DATA))
    assert list_file_slices(lambda: view)[1] == []


def test_a_read_looks_at_the_names_of_the_timeline_and_at_none_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = grown(tmp_path)
    original = LocalStorage.list

    def listed(storage: LocalStorage, folder: str) -> Listing:
        assert folder != TIMELINE_FOLDER
        return original(storage, folder)

    monkeypatch.setattr(LocalStorage, "list", listed)
    assert shown(table) == sorted(model.values())


def test_a_clean_that_runs_while_files_are_listed_leaves_no_slice_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = grown(tmp_path, **STREAM)
    reader = reopened(table)
    busy = Busy(monkeypatch, lambda number: five_batches(table, model, number) if number == 0 else None)
    found = reader.file_slices()
    assert busy.listings == 2
    assert found == FileSystemView(reader.storage, reader.timeline).slices()
