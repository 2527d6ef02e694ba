"""Drivers that were stopped and go on after another one took the lock: they change nothing of its metadata table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_lsm.errors import Fenced
from streaming_lsm.lock.markers import marker_folder
from streaming_lsm.storage.base import METADATA_BYTES, Names, Storage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER
from streaming_lsm.timeline.properties_file import (
    BACKUP_PATH,
    PROPERTIES_PATH,
    fence_properties,
    load_properties,
    update_properties,
)
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from tests.support.faulty_storage import FaultyStorage
from tests.support.metadata_tables import ENABLED, PARTITIONS, assert_agrees, assert_settled, has_metadata_table
from tests.support.writers import KEPT, files_below, new_process, outcome, transaction, write_file
from tests.unit.metadata.test_table import METADATA, TIMELINE, make, write, written


class Robbed(FaultyStorage):
    """Another writer takes the lock at a call, before its effect, once the call was awaited."""

    def __init__(self, inner: Storage, call: tuple[str, str] | None = None) -> None:
        super().__init__(inner)
        self._table = inner
        self.awaited = call

    def _robbed(self, call: str, path: str) -> None:
        if self.awaited == (call, path):
            self.awaited = None
            self._table.replace(".hoodie/lock", b"{}")
            fence_properties(self._table, "taker")

    def read(self, path: str, most: int | None = METADATA_BYTES) -> bytes:
        self._robbed("read", path)
        return super().read(path, most)

    def names(self, folder: str) -> Names:
        self._robbed("names", folder)
        return super().names(folder)

    def replace(self, path: str, data: bytes) -> None:
        self._robbed("replace", path)
        super().replace(path, data)

    def replace_if_unchanged(self, path: str, data: bytes, expected: bytes) -> bool:
        self._robbed("replace_if_unchanged", path)
        return super().replace_if_unchanged(path, data, expected)

    def put_if_absent(self, path: str, data: bytes) -> None:
        super().put_if_absent(path, data)
        self._robbed("put", path)


def own_files(root: Path) -> set[str]:
    return {path for path in files_below(root) if path.startswith(METADATA)}


def test_the_record_that_the_next_holder_made_of_the_same_instant_stays(tmp_path: Path) -> None:
    storage = written(tmp_path)
    robbed = Robbed(storage)
    with transaction(robbed, new_process(), 2, options=ENABLED) as running:
        instant = running.begin()
        stats = [write_file(storage, instant, file) for file in KEPT]
        running.reconcile(outcome(stats))
        theirs = f"{TIMELINE}/{instant}_20261121120000777.deltacommit"
        storage.put_if_absent(theirs, b"")
        before = own_files(tmp_path)
        robbed.awaited = ("names", TIMELINE)
        with pytest.raises(Fenced):
            running.complete(outcome(stats, batch="2"))
    assert robbed.awaited is None
    assert own_files(tmp_path) == before


def test_a_write_that_fails_and_was_taken_over_leaves_its_record_to_the_next_holder(tmp_path: Path) -> None:
    storage = written(tmp_path)

    class Full(Robbed):
        def put_if_absent(self, path: str, data: bytes) -> None:
            if path.startswith(DECISION_FOLDER) and b".deltacommit" in data.partition(b"\n")[0]:
                self.awaited = ("names", TIMELINE_FOLDER)
                raise OSError("no room")
            super().put_if_absent(path, data)

    full = Full(storage)
    with pytest.raises(Fenced):
        write(full, 2)
    assert full.awaited is None
    instant = Timeline.load(storage).pending[-1].requested
    assert [path for path in own_files(tmp_path) if path.startswith(f"{TIMELINE}/{instant}_")] != []


def test_what_is_to_be_undone_is_left_to_the_next_holder(tmp_path: Path) -> None:
    storage = written(tmp_path)
    newest = Timeline.load(storage).completed_writes[-1]
    storage.delete(newest.path)
    storage.make_folder(marker_folder(newest.requested))  # as a dead driver leaves it
    before = own_files(tmp_path)
    with pytest.raises(Fenced):
        write(Robbed(storage, ("names", f"{METADATA}/files")), 2)
    assert own_files(tmp_path) == before


def test_one_made_without_the_lock_is_not_marked(tmp_path: Path) -> None:
    storage = make(tmp_path)
    write(storage, 0, {})
    for call in (("replace", BACKUP_PATH), ("replace_if_unchanged", PROPERTIES_PATH)):
        robbed = Robbed(storage, call)
        with pytest.raises(Fenced):
            write(robbed, 1)
        assert robbed.awaited is None
        storage.delete(".hoodie/lock")
        assert PARTITIONS not in load_properties(storage)
        write(storage, 2, {})
    write(storage, 3)
    assert_settled(tmp_path)


def test_one_whose_maker_lost_the_lock_before_is_not_marked_for_a_moment(tmp_path: Path) -> None:
    storage = make(tmp_path)

    class Stopped(Robbed):
        def read(self, path: str, most: int | None = METADATA_BYTES) -> bytes:
            # Its last look at the lock before it changes the properties comes when their old backup is gone.
            made = [found for call, found in self.calls if call == "put_if_absent" and found.endswith(".deltacommit")]
            if made and path == ".hoodie/lock" and self.calls[-1] == ("delete", BACKUP_PATH):
                self._table.replace(path, b"{}")
            return super().read(path, most)

    stopped = Stopped(storage)
    with pytest.raises(Fenced):
        write(stopped, 0)
    assert ("replace_if_unchanged", PROPERTIES_PATH) not in stopped.calls
    assert not has_metadata_table(tmp_path)


def drop(storage: Storage) -> None:
    write(storage, 2, {"hoodie.metadata.enable": False})


def drop_others(storage: Storage) -> None:
    write(storage, 2, {})


@pytest.mark.parametrize("run", [drop, drop_others])
@pytest.mark.parametrize("call", [("read", PROPERTIES_PATH), ("replace_if_unchanged", PROPERTIES_PATH)])
def test_a_drop_without_the_lock_deletes_nothing(
    tmp_path: Path, run: Callable[[Storage], None], call: tuple[str, str]
) -> None:
    storage = written(tmp_path)
    storage.put_if_absent(f"{METADATA}/column_stats/x.hfile", b"x")
    storage.put_if_absent(".hoodie/.index_defs/index.json", b"{}")
    update_properties(storage, {PARTITIONS: "column_stats,files"})
    before = files_below(tmp_path)
    with pytest.raises(Fenced):
        run(Robbed(storage, call))
    assert files_below(tmp_path) == before | {".hoodie/lock"}
    assert load_properties(storage)[PARTITIONS] == "column_stats,files"


@pytest.mark.parametrize("wanted", [True, False])
def test_leftovers_are_not_removed_without_the_lock(tmp_path: Path, wanted: bool) -> None:
    storage = make(tmp_path)
    storage.put_if_absent(f"{METADATA}/files/theirs.hfile", b"")
    with pytest.raises(Fenced):
        write(Robbed(storage, ("read", PROPERTIES_PATH)), 0, {"hoodie.metadata.enable": wanted})
    assert (tmp_path / METADATA / "files/theirs.hfile").exists()
    storage.delete(".hoodie/lock")
    write(storage, 0, {"hoodie.metadata.enable": wanted})
    assert not (tmp_path / METADATA / "files/theirs.hfile").exists()
    assert_agrees(tmp_path)
