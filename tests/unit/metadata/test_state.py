"""A metadata table that has fallen behind, lost a file, or holds what is to be undone is dropped; others are kept."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.format.actions.clean import CleanMetadata
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.format.metadata.group_files import FIRST_INSTANT
from streaming_lsm.lock.markers import marker_folder
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.properties_file import update_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.locked_table import Beside
from tests.support.metadata_tables import (
    LOCATED,
    PARTITIONS,
    assert_agrees,
    assert_settled,
    delta_commits,
    has_metadata_table,
    metadata_timeline,
)
from tests.support.replaced_groups import put_replacement
from tests.support.small_tables import create, rows, shown
from tests.support.writers import new_process, transaction
from tests.unit.metadata.test_table import METADATA, make, write

FILES = f"{METADATA}/files"


def compacting(delta_commits: int) -> dict[str, object]:
    return {"hoodie.metadata.enable": True, "hoodie.metadata.compact.max.delta.commits": delta_commits}


def grown(root: Path, batches: int, options: Mapping[str, object]) -> LocalStorage:
    storage = make(root)
    for batch in range(batches):
        write(storage, batch, options)
    return storage


def files(root: Path, *, logs: bool) -> list[Path]:
    """Bases or logs, the oldest first."""
    found = [path for path in (root / FILES).glob("*.hfile") if (".log." in path.name) is logs]
    return sorted(found, key=lambda path: path.name.split("_")[2])


def lose_newest_base(root: Path) -> None:
    files(root, logs=False)[-1].unlink()


def lose_log(root: Path) -> None:
    files(root, logs=True)[-1].unlink()


def fall_behind(root: Path) -> None:
    # A program that knows of no metadata table leaves the properties as they are.
    storage = LocalStorage(root)
    update_properties(storage, {PARTITIONS: None})
    write(storage, 100, {})
    update_properties(storage, {PARTITIONS: "files"})


def lose_record(root: Path) -> None:
    LocalStorage(root).delete(f"{METADATA}/{delta_commits(metadata_timeline(root))[-1].path}")


@pytest.mark.parametrize("batches", [2, 5])
@pytest.mark.parametrize("damage", [lose_newest_base, lose_log, fall_behind, lose_record])
def test_one_that_is_not_whole_or_fell_behind_is_dropped(
    tmp_path: Path, damage: Callable[[Path], None], batches: int, caplog: pytest.LogCaptureFixture
) -> None:
    storage = grown(tmp_path, batches, compacting(3))
    damage(tmp_path)
    with caplog.at_level(logging.WARNING):
        write(storage, 200, {})
    assert ("is gone" in caplog.text) or ("fallen behind" in caplog.text)
    assert not has_metadata_table(tmp_path)
    write(storage, 201)
    assert_settled(tmp_path)


def test_the_base_that_made_it_is_missed_as_well(tmp_path: Path) -> None:
    storage = grown(tmp_path, 2, {})
    write(storage, 2)
    (tmp_path / FILES / f"files-0000-0_0-0-0_{FIRST_INSTANT}.hfile").unlink()
    write(storage, 3)
    assert_settled(tmp_path)
    assert len(delta_commits(metadata_timeline(tmp_path))) == 2


def clean(storage: LocalStorage, deleted: Mapping[str, tuple[str, ...]], options: Mapping[str, object]) -> Instant:
    with transaction(storage, new_process(), options=options) as running:
        waiting = running.schedule("clean", running.new_time(), b"")
        running.start(waiting)
        return running.complete_clean(CleanMetadata(waiting.requested, 0, "", "", "", deleted).encode())


@pytest.mark.parametrize(("deleted", "kept"), [({}, True), ({"nl": ("x.parquet",)}, False)])
def test_a_clean_that_nobody_told_it_of_matters_when_it_deleted_something(
    tmp_path: Path, deleted: Mapping[str, tuple[str, ...]], kept: bool
) -> None:
    storage = grown(tmp_path, 2, compacting(10))
    told = clean(storage, deleted, {})
    for path in (tmp_path / METADATA).rglob(f"*{told.requested}*"):
        path.unlink()
    write(storage, 2, {})
    assert has_metadata_table(tmp_path) is kept


def test_a_commit_that_changed_nothing_need_not_be_told(tmp_path: Path) -> None:
    storage = grown(tmp_path, 2, compacting(10))
    time = "20261121120000800"
    data = CommitMetadata((), "UPSERT", {"schema": "{}"}).encode()
    storage.put_if_absent(f".hoodie/timeline/{time}_20261121120000801.deltacommit", data)
    with transaction(storage, new_process()):
        pass
    assert has_metadata_table(tmp_path)


def test_what_was_completed_before_it_was_made_need_not_be_told(tmp_path: Path) -> None:
    storage = grown(tmp_path, 3, {})
    write(storage, 3)
    first = delta_commits(metadata_timeline(tmp_path))[0]
    for batch in (4, 5):
        write(storage, batch, {})
    assert delta_commits(metadata_timeline(tmp_path))[0] == first
    assert_settled(tmp_path)


def test_delta_commits_that_were_archived_are_not_missed(tmp_path: Path) -> None:
    storage = grown(tmp_path, 9, {**compacting(3), "hoodie.archive.automatic": False})
    own = metadata_timeline(tmp_path)
    newest = max(write.requested for write in own.completed_writes if write.action == "commit")
    old = [write for write in own.completed_writes if (write.completed or "") < newest]
    assert len(old) > 5
    for found in old:
        for path in (found.path, *found.pending_paths()):
            storage.delete(f"{METADATA}/{path}")
    write(storage, 9, {})
    assert delta_commits(metadata_timeline(tmp_path))[0].requested > newest
    assert_agrees(tmp_path)


def test_what_a_base_has_taken_in_cannot_be_undone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = grown(tmp_path, 3, compacting(2))
    write(storage, 2, compacting(1))  # a batch that was written before: nothing happens but the compaction
    newest = Timeline.load(storage).completed_writes[-1]
    assert files(tmp_path, logs=False)[-1].name.split("_")[2] > newest.requested
    # So begins a rollback by another program.
    storage.delete(newest.path)
    storage.make_folder(marker_folder(newest.requested))  # as a driver leaves it that dies before completion
    shutil.copytree(tmp_path, tmp_path.parent / "unwanted")
    with caplog.at_level(logging.WARNING), transaction(storage, new_process(), options=compacting(2)):
        pass
    assert "was compacted" in caplog.text
    assert_settled(tmp_path)
    with transaction(LocalStorage(tmp_path.parent / "unwanted"), new_process()):
        pass
    assert not has_metadata_table(tmp_path.parent / "unwanted")


def file_as_folder(root: Path) -> None:
    shutil.rmtree(root / METADATA)
    (root / METADATA).write_bytes(b"")


def folder_as_file(root: Path) -> None:
    (root / METADATA / ".hoodie/hoodie.properties").unlink()
    (root / METADATA / ".hoodie/hoodie.properties").mkdir()


def file_as_partition(root: Path) -> None:
    shutil.rmtree(root / FILES)
    (root / FILES).write_bytes(b"")


def no_time(root: Path) -> None:
    (root / METADATA / ".hoodie/timeline/3_4.clean").write_bytes(b"")


def last_of_all_times(root: Path) -> None:
    (root / METADATA / ".hoodie/timeline/3_99991231235959999.clean").write_bytes(b"")


def no_timeline(root: Path) -> None:
    shutil.rmtree(root / METADATA / ".hoodie/timeline")


@pytest.mark.parametrize(
    "damage", [file_as_folder, folder_as_file, file_as_partition, no_time, last_of_all_times, no_timeline]
)
def test_damage_stands_in_the_way_of_no_write(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    storage = grown(tmp_path, 2, compacting(10))
    damage(tmp_path)
    write(storage, 2, {})
    assert not has_metadata_table(tmp_path)
    assert not (tmp_path / METADATA).exists()
    write(storage, 3)
    assert_settled(tmp_path)


def test_keys_of_groups_that_another_program_replaced_are_dropped_before_the_metadata_table_is_compacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = create(tmp_path, **LOCATED)
    table.upsert(rows(("a", "nl", 1, 1), ("b", "be", 1, 1)))
    groups = tuple(found.file_id for found in table.file_slices() if found.partition_path == "nl")
    last = int(table.timeline.last_time)
    replacing = put_replacement(table.storage, f"{last + 1}", f"{last + 2}", {"nl": groups})
    # Not a write: that would find it out by itself.
    often = LsmTable(tmp_path, {"hoodie.metadata.compact.max.delta.commits": 1})
    with often.transaction(beside=Beside.ALL):
        pass
    assert f"has fallen behind: it has no delta commit of {replacing.path}" in caplog.text
    assert LsmTable(tmp_path).config.metadata_partitions == ("files",)
    assert shown(LsmTable(tmp_path, {"hoodie.metadata.enable": True})) == [("b", "be", 1, 1)]
