"""Markers name what a write may have created, and only that."""

from __future__ import annotations

import pickle
import tempfile
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_lsm.errors import CorruptFileError, Fenced
from streaming_lsm.keys.partition_path import path_fault
from streaming_lsm.lock.heartbeat import Claim, heartbeat_path
from streaming_lsm.lock.lock import LOCK_FILE, TableLock
from streaming_lsm.lock.markers import (
    Deletion,
    create_marker,
    delete_files,
    delete_markers,
    in_portions,
    list_marked_files,
    marker_folder,
    marker_path,
)
from streaming_lsm.lock.owner import Owner, Process
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.storage.uris import open_storage
from tests.support.faulty_storage import FaultyStorage, Killed
from tests.support.writers import DataFile, files_below, make_table, new_process, transaction, write_file

INSTANT, OTHER = "20261121120000000", "20261121110000000"
OWNER = Owner(Process("h", "m", 1, 1), "query", "token", 0, 0)
NAME = str(DataFile("nl", 0).name(INSTANT))


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    storage = make_table(tmp_path)
    storage.make_folder(marker_folder(INSTANT))
    Claim(storage, INSTANT, OWNER)
    return storage


@pytest.mark.parametrize("partition", ["", "nl", "nl/2026"])
def test_a_marker_lies_where_hudi_looks_for_it(storage: LocalStorage, partition: str) -> None:
    create_marker(storage, INSTANT, partition, NAME)
    folder = f".hoodie/.temp/{INSTANT}/{partition}".rstrip("/")
    assert storage.read(f"{folder}/{NAME}.marker.CREATE") == b""
    assert list_marked_files(storage, INSTANT) == (f"{partition}/{NAME}".lstrip("/"),)


def test_a_file_is_marked_once(storage: LocalStorage) -> None:
    create_marker(storage, INSTANT, "nl", NAME)
    with pytest.raises(FileExistsError):
        create_marker(storage, INSTANT, "nl", NAME)


def test_no_marker_is_made_once_the_folder_is_gone(storage: LocalStorage, tmp_path: Path) -> None:
    delete_markers(storage, INSTANT)
    with pytest.raises(Fenced, match=INSTANT):
        create_marker(storage, INSTANT, "nl", NAME)
    assert not (tmp_path / marker_folder(INSTANT)).exists()


def test_no_marker_is_made_once_the_instant_takes_no_more_files(storage: LocalStorage, tmp_path: Path) -> None:
    storage.delete(heartbeat_path(INSTANT))
    with pytest.raises(Fenced, match=INSTANT):
        create_marker(storage, INSTANT, "nl", NAME)
    assert list_marked_files(storage, INSTANT) == ()


def test_a_task_that_is_overtaken_while_it_makes_its_marker_is_fenced(storage: LocalStorage) -> None:
    class Overtaken(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> None:
            storage.delete(heartbeat_path(INSTANT))
            super().put_if_absent(path, data)

    with pytest.raises(Fenced):
        create_marker(Overtaken(storage.uri.removeprefix("file://")), INSTANT, "nl", NAME)


def test_markers_that_hudis_timeline_server_collected_are_read(storage: LocalStorage) -> None:
    other = str(DataFile("nl", 1).name(INSTANT))
    folder = marker_folder(INSTANT)
    storage.put_if_absent(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    storage.put_if_absent(f"{folder}/MARKERS0", f"nl/{NAME}.marker.CREATE\n{other}.marker.MERGE\n".encode())
    storage.put_if_absent(f"{folder}/MARKERS1", b"\n")
    assert list_marked_files(storage, INSTANT) == tuple(sorted([f"nl/{NAME}", other]))


def test_a_marker_never_names_a_file_of_another_instant(storage: LocalStorage) -> None:
    victim = str(DataFile("nl", 0).name(OTHER))
    for name in (victim, "hoodie.properties", "_SUCCESS"):
        storage.put_if_absent(marker_path(INSTANT, "nl", name), b"")
    storage.put_if_absent(f"{marker_folder(INSTANT)}/nl/unrelated", b"")
    assert list_marked_files(storage, INSTANT) == ()


@pytest.mark.parametrize("path", [f"../{NAME}", f"/etc/{NAME}", f"nl//{NAME}"])
def test_a_marker_that_leaves_the_table_is_refused_by_name(storage: LocalStorage, path: str) -> None:
    storage.put_if_absent(f"{marker_folder(INSTANT)}/MARKERS0", f"{path}.marker.CREATE".encode())
    with pytest.raises(CorruptFileError, match="MARKERS0"):
        list_marked_files(storage, INSTANT)


# White space at either end, what ends a line elsewhere, and what looks like an escape, a marker or a hidden file.
WHITE = [" ", " DE", "DE ", "\u2028", "\x85", "\x0b", "a\x1cb"]
ODD = [*WHITE, ".de", "..x", "%20", "%2F", "=", "a.marker.b", "MARKERS0"]
odd_partitions = (
    st.lists(st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(ODD), min_size=1, max_size=3)
    .map("/".join)
    .filter(lambda path: path_fault(path) is None)
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(partitions=st.lists(odd_partitions, min_size=1, max_size=3, unique=True))
def test_a_dead_writers_files_are_removed_from_partitions_of_any_legal_name(partitions: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        storage = make_table(root)
        faulty = FaultyStorage(storage)
        with suppress(Killed), transaction(faulty, new_process()) as dying:
            instant = dying.begin()
            paths = [write_file(faulty, instant, DataFile(partition, 0)).path for partition in partitions]
            faulty.kill()
        assert list_marked_files(storage, instant) == tuple(sorted(paths))
        with transaction(storage, new_process()) as entered:
            assert entered.timeline.pending == ()
        assert not [path for path in files_below(root) if path.endswith((".parquet", ".CREATE"))]


@pytest.mark.parametrize("partition", [*WHITE, "a\rb"])
def test_a_line_of_collected_markers_is_taken_as_it_is(storage: LocalStorage, partition: str) -> None:
    other = str(DataFile("nl", 1).name(INSTANT))
    lines = f"{partition}/{NAME}.marker.CREATE\n\nnl/{other}.marker.CREATE"
    storage.put_if_absent(f"{marker_folder(INSTANT)}/MARKERS0", lines.encode())
    assert list_marked_files(storage, INSTANT) == tuple(sorted([f"{partition}/{NAME}", f"nl/{other}"]))


def held_lock(storage: LocalStorage) -> TableLock:
    lock = TableLock(storage, "query", 1000, new_process())
    lock.acquire()
    return lock


def test_deleting_files_also_removes_what_was_left_half_made_beside_them(storage: LocalStorage, tmp_path: Path) -> None:
    storage.put_if_absent(f"nl/{NAME}", b"")
    (tmp_path / "nl" / f".{'0' * 32}.lsm-tmp").write_bytes(b"torn")
    delete_files(storage, held_lock(storage), [f"nl/{NAME}", f"de/{NAME}"])
    assert not any(path.startswith("nl/") for path in files_below(tmp_path))


def test_files_are_deleted_only_while_the_lock_is_held(storage: LocalStorage, tmp_path: Path) -> None:
    class Stopped(LocalStorage):
        """Another writer takes the lock after the first deletions."""

        def delete_files(self, paths: Iterable[str]) -> None:
            storage.replace(LOCK_FILE, b"another")
            super().delete_files(paths)

    paths = [f"{partition}/{NAME}" for partition in ("de", "nl")]
    for path in paths:
        storage.put_if_absent(path, b"")
    with pytest.raises(Fenced):
        delete_files(Stopped(tmp_path), held_lock(storage), paths)
    assert [path for path in paths if storage.exists(path)] == paths[1:]


class Claimed:
    """Counts how often it is looked at."""

    looks = 0

    def verify(self) -> None:
        self.looks += 1


def test_an_object_store_is_asked_once_for_a_hundred_files_logs_before_base_files() -> None:
    storage = FaultyStorage(open_storage(f"memory://{uuid.uuid4().hex}/orders"))
    logs = [f"nl/{DataFile('nl', bucket).name(INSTANT)}" for bucket in range(210)]
    bases = [f"nl/{DataFile('nl', bucket).name(INSTANT).file_id}_0-0-0_{INSTANT}.parquet" for bucket in range(7)]
    for path in (*logs, *bases):
        storage.put_if_absent(path, b"PAR1")
    held = Claimed()
    (portion,) = in_portions([*bases, *logs], 10_000)
    assert Deletion(storage, held)(portion) == 217
    asked = [path for name, path in storage.calls if name == "delete_files"]
    assert len(asked) == held.looks == 4
    assert [path in bases for path in asked] == [False, False, False, True]
    assert storage.names("nl") == []


def test_portions_keep_the_files_of_a_file_group_together_logs_before_base_files() -> None:
    def log(bucket: int, attempt: int) -> str:
        return f"nl/{DataFile('nl', bucket, attempt).name(INSTANT)}"

    def base(bucket: int) -> str:
        return f"nl/{DataFile('nl', bucket).name(INSTANT).file_id}_0-0-0_{INSTANT}.parquet"

    paths = [path for bucket in range(3) for path in (base(bucket), log(bucket, 0), log(bucket, 1))]
    groups = [{base(bucket), log(bucket, 0), log(bucket, 1)} for bucket in range(3)]
    found = list(in_portions(paths, 4))
    assert [set(portion) for portion in found] == [groups[0] | groups[1], groups[2]]
    assert found[1][-1] == base(2)
    assert list(in_portions([], 4)) == []


def test_a_deletion_travels_to_executors_and_stops_when_its_instant_is_taken(storage: LocalStorage) -> None:
    claim = Claim(storage, OTHER, OWNER)
    deletion = pickle.loads(pickle.dumps(Deletion(storage, claim)))
    paths = [f"{partition}/{NAME}" for partition in ("de", "nl")]
    for path in paths:
        storage.put_if_absent(path, b"")
    assert deletion(paths[:1]) == 1
    storage.delete(heartbeat_path(OTHER))
    with pytest.raises(Fenced):
        deletion(paths[1:])
    assert [storage.exists(path) for path in paths] == [False, True]
