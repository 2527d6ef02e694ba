"""Which partitions a clean lists: those written since the last one, and all where that is not known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.actions.clean import CleanMetadata, Examined
from streaming_lsm.services.cleaning import scope
from streaming_lsm.storage.base import Listing
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.txn.planned_actions import pending_compactions
from tests.support.service_tables import OPTIONS_OF_SERVICES, cleans
from tests.support.small_tables import create, rows

PARTS = ("at", "be", "de", "fr", "nl")
WHOLE = {"hoodie.clean.incremental.enabled": False}
FEW = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
Listed = Callable[[LsmTable], list[str]]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Listed:
    """Return the partitions that a preview lists, after it was compared with a whole one."""
    real, seen = LocalStorage.list, list[str]()

    def counted(storage: LocalStorage, folder: str) -> Listing:
        seen.append(folder)
        return real(storage, folder)

    def look(table: LsmTable) -> list[str]:
        whole = LsmTable(table.path, {**OPTIONS_OF_SERVICES, **FEW, **WHOLE}).services.preview_clean()
        seen.clear()
        found = LsmTable(table.path, table.options).services.preview_clean()
        partitions = sorted(folder for folder in seen if folder in PARTS)
        assert found.files == whole.files
        return partitions

    monkeypatch.setattr(LocalStorage, "list", counted)
    return look


def made(root: Path, **options: object) -> LsmTable:
    """A table of five partitions, compacted once, and cleaned: every partition was examined."""
    table = create(root, **{**OPTIONS_OF_SERVICES, **FEW, "hoodie.archive.automatic": False, **options})
    for number in range(2):
        table.upsert(rows(*(("a", part, number, number) for part in PARTS)))
        table.compact()
    touch(table, "nl")
    touch(table, "nl")
    assert table.clean() is not None
    return table


def touch(table: LsmTable, part: str) -> None:
    """One more row in a partition."""
    number = len(table.timeline.every_write)
    table.upsert(rows(("a", part, number, number)))


def last_examined(table: LsmTable) -> Examined | None:
    """What the last clean has examined."""
    newest = cleans(table)[-1]
    return CleanMetadata.decode(table.timeline.read_content(newest), newest.path).examined


def test_only_partitions_with_new_base_files_are_listed(tmp_path: Path, listed: Listed) -> None:
    table = made(tmp_path)
    touch(table, "be")
    touch(table, "be")
    # The first compactions are examined; those of nl and be have logs only.
    assert listed(table) == []
    table.compact()
    touch(table, "at")
    touch(table, "at")
    assert listed(table) == ["be", "nl"]
    assert table.clean() is not None
    assert listed(table) == []


def test_a_first_clean_and_one_without_the_option_list_every_partition(tmp_path: Path, listed: Listed) -> None:
    table = made(tmp_path / "a")
    assert listed(LsmTable(table.path, table.options.merged(type(table.options)(WHOLE)))) == list(PARTS)
    table.storage.delete(table.timeline.completed_cleans[-1].path)
    assert listed(table) == list(PARTS)


def test_after_a_clean_of_another_program_every_partition_is_listed(tmp_path: Path, listed: Listed) -> None:
    table = made(tmp_path)
    done = table.timeline.completed_cleans[-1]
    found = CleanMetadata.decode(table.storage.read(done.path), done.path)
    table.storage.delete(done.path)
    other = CleanMetadata(found.start, 1, found.earliest, found.last_completed, found.policy, found.files)
    table.storage.put_if_absent(done.path, other.encode())
    assert listed(table) == list(PARTS)


def test_partitions_with_slices_that_a_plan_retains_are_listed_again(tmp_path: Path, listed: Listed) -> None:
    table = made(tmp_path)
    touch(table, "be")
    planned, _ = table.services.schedule()
    assert planned is not None
    table.insert_overwrite(rows(("a", "be", 9, 9)))
    table.insert_overwrite(rows(("a", "fr", 9, 9)))
    touch(table, "nl")
    touch(table, "nl")
    assert table.clean() is not None
    examined = last_examined(table)
    assert examined is not None
    assert examined.held == ("be",)
    assert listed(table) == ["be"]
    # Without the plan nothing needs the slices any more, and no write says so.
    for pending in pending_compactions(table.timeline):
        table.storage.delete(pending.path)
    assert listed(table) == ["be"]
    assert table.services.preview_clean().count > 0


def test_all_partitions_are_listed_when_a_savepoint_was_deleted(tmp_path: Path, listed: Listed) -> None:
    table = made(tmp_path)
    saved = table.savepoint().requested
    for part in PARTS[1:]:
        touch(table, part)
    table.compact()
    touch(table, "nl")
    touch(table, "nl")
    table.insert_overwrite(rows(("a", "at", 9, 9)))
    touch(table, "nl")
    table.insert_overwrite(rows(("a", "at", 9, 9)))
    touch(table, "nl")
    touch(table, "nl")
    assert table.clean() is not None
    assert listed(table) == []
    table.delete_savepoint(saved)
    assert listed(table) == list(PARTS)


def test_a_compaction_that_was_completed_late_and_archived_is_found(tmp_path: Path, listed: Listed) -> None:
    table = made(tmp_path)
    touch(table, "be")
    planned, _ = table.services.schedule()
    assert planned is not None
    table.insert_overwrite(rows(("a", "fr", 9, 9)))
    touch(table, "nl")
    touch(table, "nl")
    assert table.clean() is not None  # of fr
    examined = last_examined(table)
    assert examined is not None
    assert examined.since == planned.requested < examined.until
    table.compact()
    for _ in range(6):
        touch(table, "at")
    assert table.archive() != ()
    assert table.timeline.is_archived(planned.requested)
    assert listed(table) == ["be", "nl"]


def test_a_longer_retention_lists_every_partition_until_it_is_reached(tmp_path: Path) -> None:
    table = made(tmp_path)
    examined = last_examined(table)
    assert examined is not None
    older = table.timeline.completed_writes[-2].requested
    assert older < examined.until
    assert scope.PartitionScope.of(table.timeline, older).partitions is None
    assert scope.PartitionScope.of(table.timeline, examined.until).partitions == ()


def test_many_commits_are_not_read(tmp_path: Path, listed: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path)
    for _ in range(4):
        touch(table, "be")
    assert listed(table) == []
    monkeypatch.setattr(scope, "_MOST_COMMITS", 3)
    assert listed(table) == list(PARTS)


def test_a_missing_file_of_a_written_partition_ends_the_clean(tmp_path: Path) -> None:
    table = made(tmp_path)
    touch(table, "be")
    table.compact()
    touch(table, "be")
    touch(table, "nl")
    lost = next(found for found in table.file_slices() if found.partition_path == "be").paths[-1]
    table.storage.delete(lost)
    with pytest.raises(CorruptFileError, match=lost):
        LsmTable(table.path, table.options).clean()


@pytest.mark.parametrize("text", ["", "null", "{}", "[]", "[1,2,3,4]", '["a","b",1,[]]', "[" * 5000, "nonsense"])
def test_an_entry_of_another_form_says_nothing(text: str) -> None:
    assert Examined.decode(text) is None


def test_an_entry_is_read_as_it_was_written() -> None:
    examined = Examined("20", "10", ("10_15.savepoint",), ("a/b", "ü"))
    assert Examined.decode(examined.encode()) == examined
