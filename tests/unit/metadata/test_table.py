"""The metadata table beside the transactions of its table: kept, made, dropped."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from streaming_lsm.errors import CommitConflict, Fenced
from streaming_lsm.format.actions.commit import CommitMetadata, WriteStat
from streaming_lsm.format.metadata.group_files import FIRST_INSTANT
from streaming_lsm.format.table.partition_metadata import PARTITION_METADATA_NAME, print_partition_metadata
from streaming_lsm.lock.markers import marker_folder
from streaming_lsm.lock.runtime import Runtime
from streaming_lsm.metadata.commit import FileChanges
from streaming_lsm.metadata.listing import folder_listing, metadata_listing
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.properties_file import load_properties, update_properties
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision_record import DECISION_FOLDER
from tests.support.faulty_storage import FaultyStorage
from tests.support.metadata_tables import (
    ENABLED,
    PARTITIONS,
    assert_agrees,
    assert_settled,
    delta_commits,
    has_metadata_table,
    metadata_timeline,
)
from tests.support.writers import KEPT, DataFile, make_table, new_process, outcome, transaction, write_file

METADATA = ".hoodie/metadata"
TIMELINE = f"{METADATA}/.hoodie/timeline"


def make(root: Path) -> LocalStorage:
    """A table without a metadata table, with its partitions' folders."""
    storage = make_table(root)
    for partition in sorted({file.partition for file in KEPT}):
        storage.put_if_absent(f"{partition}/{PARTITION_METADATA_NAME}", print_partition_metadata("0", partition))
    return storage


def write(
    storage: Storage,
    batch: int,
    options: Mapping[str, object] = ENABLED,
    runtime: Runtime | None = None,
    files: tuple[DataFile, ...] = KEPT,
) -> Instant | None:
    """A batch of two files; None when it is committed already."""
    with transaction(storage, runtime or new_process(), batch, options=options) as running:
        if running.already_committed:
            return None
        instant = running.begin()
        stats = [write_file(storage, instant, file) for file in files]
        running.reconcile(outcome(stats))
        return running.complete(outcome(stats, batch=str(batch)))


def written(root: Path, batches: int = 2) -> LocalStorage:
    """A table with a metadata table and so many batches."""
    storage = make(root)
    for batch in range(batches):
        write(storage, batch)
    assert_settled(root)
    return storage


def completed(name: str) -> str:
    return f"{TIMELINE}/{name}"


def test_every_write_is_a_delta_commit_of_the_same_instant_completed_before_it(tmp_path: Path) -> None:
    storage = written(tmp_path, 3)
    own = delta_commits(metadata_timeline(tmp_path))
    data = Timeline.load(storage).completed_writes
    assert [write.requested for write in own] == [FIRST_INSTANT, *(write.requested for write in data)]
    assert all((a.completed or "") < (b.completed or "") for a, b in zip(own[1:], data, strict=True))
    times = [time for write in (*own, *data) for time in (write.requested, write.completed)]
    assert len(set(times)) == len(times) - len(data)


def test_the_listing_is_that_of_the_folders(tmp_path: Path) -> None:
    storage = written(tmp_path)
    timeline = Timeline.load(storage)
    listing = metadata_listing(storage, timeline)
    assert listing == folder_listing(storage, timeline)
    assert {partition: len(files) for partition, files in listing.items()} == {"de": 2, "nl": 2}
    assert {size for files in listing.values() for size in files.values()} == {4}


def test_a_table_without_one_gets_one_only_when_it_is_asked_for(tmp_path: Path) -> None:
    storage = make(tmp_path)
    write(storage, 0, {})
    write(storage, 1, {"hoodie.metadata.enable": False})
    assert not (tmp_path / METADATA).exists()
    write(storage, 2)
    assert_settled(tmp_path)
    assert len(delta_commits(metadata_timeline(tmp_path))) == 2


def test_without_a_metadata_table_nothing_but_the_properties_is_looked_at(tmp_path: Path) -> None:
    storage = FaultyStorage(make(tmp_path))
    write(storage, 0, {})
    assert [path for _, path in storage.calls if path.startswith(METADATA)] == []
    assert [path for _, path in storage.calls].count(".hoodie/hoodie.properties") == 2  # when the lock was acquired


def test_it_is_kept_when_nobody_says_anything_and_dropped_when_somebody_says_no(tmp_path: Path) -> None:
    storage = written(tmp_path)
    write(storage, 2, {})
    assert_settled(tmp_path)
    write(storage, 3, {"hoodie.metadata.enable": False})
    assert not has_metadata_table(tmp_path)
    assert not (tmp_path / METADATA).exists()


def test_a_delta_commit_counts_once_its_action_is_completed(tmp_path: Path) -> None:
    storage = written(tmp_path)
    newest = Timeline.load(storage).completed_writes[-1]
    storage.delete(newest.path)
    storage.make_folder(marker_folder(newest.requested))  # as a driver leaves it that dies before completion
    timeline = Timeline.load(storage)
    assert all(len(files) == 1 for files in metadata_listing(storage, timeline).values())
    assert_agrees(tmp_path)


def test_a_write_that_is_rolled_back_takes_its_delta_commit_along(tmp_path: Path) -> None:
    storage = written(tmp_path)
    newest = Timeline.load(storage).completed_writes[-1]
    storage.delete(newest.path)
    storage.make_folder(marker_folder(newest.requested))  # as a driver leaves it that dies before completion
    with transaction(storage, new_process()):
        pass
    assert newest.requested not in [write.requested for write in metadata_timeline(tmp_path).instants]
    assert_settled(tmp_path)


def test_a_write_that_fails_takes_its_delta_commit_along(tmp_path: Path) -> None:
    storage = written(tmp_path)

    class Full(FaultyStorage):
        def put_if_absent(self, path: str, data: bytes) -> None:
            if path.startswith(DECISION_FOLDER) and b".deltacommit" in data.partition(b"\n")[0]:
                assert len(delta_commits(metadata_timeline(tmp_path))) == 4
                raise OSError("no room")
            super().put_if_absent(path, data)

    with pytest.raises(OSError, match="no room"):
        write(Full(storage), 2)
    assert_settled(tmp_path)
    assert len(delta_commits(metadata_timeline(tmp_path))) == 3


def test_nothing_is_touched_beside_a_living_writer(tmp_path: Path) -> None:
    storage = written(tmp_path)
    update_properties(storage, {PARTITIONS: "column_stats,files"})
    alive = new_process(alive=lambda process: True)
    with transaction(storage, new_process(), 2) as running:
        running.begin()
        before = sorted(path for path in (tmp_path / METADATA).rglob("*"))
        storage.delete(".hoodie/lock")
        update_properties(storage, {PARTITIONS: "column_stats,files"})
        with pytest.raises(CommitConflict):
            write(storage, 3, runtime=alive)
        assert sorted(path for path in (tmp_path / METADATA).rglob("*")) == before
        assert load_properties(storage)[PARTITIONS] == "column_stats,files"


def test_other_partitions_are_dropped_with_their_definitions_and_leftovers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = written(tmp_path)
    for name in ("column_stats", "record_index", "left_over"):
        storage.put_if_absent(f"{METADATA}/{name}/x.hfile", b"x")
    storage.put_if_absent(".hoodie/.index_defs/index.json", b"{}")
    changes = {PARTITIONS: "column_stats,files", f"{PARTITIONS}.inflight": "record_index"}
    update_properties(storage, {**changes, "hoodie.table.index.defs.path": ".hoodie/.index_defs/index.json"})
    with caplog.at_level(logging.WARNING):
        write(storage, 2)
    assert "dropped column_stats, record_index" in caplog.text
    properties = load_properties(storage)
    assert (properties[PARTITIONS], properties[f"{PARTITIONS}.inflight"]) == ("files", "")
    assert "hoodie.table.index.defs.path" not in properties
    assert sorted(path.name for path in (tmp_path / METADATA).iterdir()) == [".hoodie", "files"]
    assert not (tmp_path / ".hoodie/.index_defs").exists()
    assert_settled(tmp_path)


def damage_listing(root: Path) -> None:
    update_properties(LocalStorage(root), {PARTITIONS: "column_stats"})


def damage_making(root: Path) -> None:
    update_properties(LocalStorage(root), {PARTITIONS: "", f"{PARTITIONS}.inflight": "files"})


def damage_properties(root: Path) -> None:
    (root / METADATA / ".hoodie/hoodie.properties").unlink()


def damage_version(root: Path) -> None:
    path = root / METADATA / ".hoodie/hoodie.properties"
    path.write_text(path.read_text().replace("hoodie.table.version=10", "hoodie.table.version=9"))


@pytest.mark.parametrize("damage", [damage_listing, damage_making, damage_properties, damage_version])
def test_one_that_cannot_be_kept_is_dropped_as_a_whole(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    storage = written(tmp_path)
    damage(tmp_path)
    write(storage, 2, {})
    assert not has_metadata_table(tmp_path)
    assert not (tmp_path / METADATA).exists()
    write(storage, 3)
    assert_settled(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "20261121120000900.restore.inflight",
        "20261121120000900.logcompaction.requested",
        "20261121120000900.rollback.requested",
        "20261121120000900.indexing.requested",
        "20261121120000900_20261121120000901.deltacommit",
        "20261121120000900_20261121120000901.replacecommit",
        "20261121120000900_20261121120000901.novelty",
    ],
)
def test_one_with_an_action_that_is_not_understood_is_dropped_and_made_anew(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = written(tmp_path)
    storage.put_if_absent(completed(name), b"")
    with caplog.at_level(logging.WARNING):
        write(storage, 2)
    assert name in caplog.text
    assert_settled(tmp_path)
    assert [found.action for found in metadata_timeline(tmp_path).instants] == ["deltacommit"] * 2


@pytest.mark.parametrize(
    ("action", "time"),
    [
        *((action, "20261121120000900") for action in ("deltacommit", "compaction", "clean")),
        ("deltacommit", "0" * 16 + "1"),
    ],
)
def test_what_somebody_began_and_did_not_end_is_undone(
    tmp_path: Path, action: str, time: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = written(tmp_path)
    for state in (State.REQUESTED, State.INFLIGHT):
        storage.put_if_absent(f"{METADATA}/{Instant(time, action, state).path}", b"")
    storage.put_if_absent(f"{METADATA}/files/files-0000-0_0-7-9_{time}.hfile", b"half")
    storage.put_if_absent(f"{METADATA}/.hoodie/.temp/{time}/files/x", b"")
    write(storage, 2, {})
    assert time not in [found.requested for found in metadata_timeline(tmp_path).instants]
    assert list((tmp_path / METADATA / ".hoodie/.temp").iterdir()) == []
    assert "dropped" not in caplog.text
    assert_agrees(tmp_path)


def test_times_go_on_after_those_of_the_metadata_table(tmp_path: Path) -> None:
    storage = written(tmp_path)
    storage.put_if_absent(completed("20261122000000000_20261122000000001.clean"), b"")
    instant = write(storage, 2)
    assert instant is not None
    assert instant.requested > "20261122000000001"


class Robbed(FaultyStorage):
    """Another writer takes the lock as soon as a file with an ending was put into a folder."""

    def __init__(self, inner: Storage, folder: str, ending: str) -> None:
        super().__init__(inner)
        self._table = inner
        self._folder, self._ending = folder, ending

    def put_if_absent(self, path: str, data: bytes) -> None:
        super().put_if_absent(path, data)
        if path.startswith(self._folder) and path.endswith(self._ending):
            self._table.replace(".hoodie/lock", b"{}")


@pytest.mark.parametrize("place", [(f"{METADATA}/files", ".hfile"), (TIMELINE, ".deltacommit")])
def test_a_driver_that_loses_its_lock_leaves_no_delta_commit_of_it(tmp_path: Path, place: tuple[str, str]) -> None:
    storage = written(tmp_path)
    before = delta_commits(metadata_timeline(tmp_path))
    with pytest.raises(Fenced):
        write(Robbed(storage, *place), 2)
    assert delta_commits(metadata_timeline(tmp_path)) == before
    storage.delete(".hoodie/lock")
    write(storage, 2)
    assert_settled(tmp_path)


def test_every_so_many_delta_commits_are_compacted_and_older_slices_cleaned(tmp_path: Path) -> None:
    storage = make(tmp_path)
    options = {**ENABLED, "hoodie.metadata.compact.max.delta.commits": 3, "hoodie.archive.automatic": False}
    for batch in range(12):
        write(storage, batch, options)
        assert_settled(tmp_path)
    own = metadata_timeline(tmp_path)
    compactions = [write.requested for write in own.completed_writes if write.action == "commit"]
    assert len(compactions) == 4
    names = sorted(path.name for path in (tmp_path / METADATA / "files").glob("*.hfile"))
    bases = [name for name in names if ".log." not in name]
    assert [name.rpartition("_")[2] for name in bases] == [f"{instant}.hfile" for instant in compactions[-2:]]
    assert len([found for found in own.instants if found.action == "clean"]) == 3
    logs = {path.name.split("_")[2] for path in (tmp_path / METADATA / "files").glob("*.log.hfile")}
    assert logs == {write.requested for write in delta_commits(own) if (write.completed or "") > compactions[-2]}


def test_what_a_driver_that_was_replaced_adds_late_is_replaced(tmp_path: Path) -> None:
    storage = written(tmp_path)
    with transaction(storage, new_process(), 2, options=ENABLED) as running:
        instant = running.begin()
        stats = [write_file(storage, instant, file) for file in KEPT]
        running.reconcile(outcome(stats))
        before = delta_commits(metadata_timeline(tmp_path))[-1]
        late = storage.read(f"{METADATA}/{before.path}")
        storage.put_if_absent(completed(f"{instant}_20261121120000777.deltacommit"), late)
        running.complete(outcome(stats, batch="2"))
    assert len([write for write in delta_commits(metadata_timeline(tmp_path)) if write.requested == instant]) == 1
    assert_settled(tmp_path)


def test_change_logs_are_told_with_the_files_that_they_were_written_with() -> None:
    stat = WriteStat("nl", "g", "nl/g.parquet", "null", total_bytes=7, cdc_files=(("nl/.g.log.1_0-0-0.cdc", 5),))
    commit = Instant("20261121120000000", "commit", State.INFLIGHT)
    changes = FileChanges.of(commit, CommitMetadata((stat,), "UPSERT").encode())
    assert changes.added == {"nl": {"g.parquet": 7, ".g.log.1_0-0-0.cdc": 5}}


def test_a_damaged_log_drops_it_when_it_is_to_be_compacted(tmp_path: Path) -> None:
    storage = written(tmp_path, 3)
    log = next(path for path in (tmp_path / METADATA / "files").glob("*.log.*") if FIRST_INSTANT not in path.name)
    log.write_bytes(log.read_bytes()[:-50])
    write(storage, 3, {"hoodie.metadata.compact.max.delta.commits": 1})
    assert not has_metadata_table(tmp_path)
    assert not (tmp_path / METADATA).exists()
    write(storage, 4)
    assert_settled(tmp_path)


def test_a_partition_with_the_name_of_the_list_of_partitions_drops_it_and_none_is_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = written(tmp_path)
    with caplog.at_level(logging.WARNING):
        write(storage, 2, files=(DataFile("__all_partitions__", 2),))
    assert "dropped" in caplog.text
    assert not has_metadata_table(tmp_path)
    marker = print_partition_metadata("0", "__all_partitions__")
    storage.put_if_absent(f"__all_partitions__/{PARTITION_METADATA_NAME}", marker)
    with caplog.at_level(logging.WARNING):
        write(storage, 3)
    assert "no metadata table was created" in caplog.text
    assert not has_metadata_table(tmp_path)
    assert not (tmp_path / METADATA).exists()
    assert len(Timeline.load(storage).completed_writes) == 4


def test_none_is_made_of_names_that_are_no_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = make(tmp_path)
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    with open(folder + b"/.hoodie_partition_metadata", "wb") as marker:
        marker.write(print_partition_metadata("0", "x"))
    with caplog.at_level(logging.WARNING):
        write(storage, 0)
    assert "not UTF-8" in caplog.text
    assert not has_metadata_table(tmp_path)
    assert not (tmp_path / METADATA).exists()
