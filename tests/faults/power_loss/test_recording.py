"""The recording has every change, and the model of the disk loses what the manual pages let it lose."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm.storage.local import LocalStorage
from tests.faults.power_loss.cases import PLAIN
from tests.faults.power_loss.disk import read_tree, write_tree
from tests.faults.power_loss.losses import losses
from tests.faults.power_loss.operations import SyncFile, SyncFolder, Write
from tests.faults.power_loss.recorder import Recorder, Recording
from tests.faults.power_loss.scenarios import next_batch
from tests.support.faulty_storage import Killed


def test_a_replayed_recording_of_a_commit_is_the_folder_byte_by_byte(tmp_path: Path) -> None:
    recording = next_batch(PLAIN).record(tmp_path / "lake")
    *_, (done, disk) = recording.prefixes()
    assert disk.visible() == read_tree(tmp_path / "lake")
    write_tree(tmp_path / "replayed", disk.visible())
    assert read_tree(tmp_path / "replayed") == read_tree(tmp_path / "lake")
    by_arrow = {operation.path for operation in recording.operations if isinstance(operation, Write)}
    committed = {path for path in disk.visible() if path.endswith(".parquet")} - {
        path for path in recording.start.visible() if path.endswith(".parquet")
    }
    assert committed
    assert committed <= by_arrow
    assert done == len(recording.operations) > 60


def test_what_native_code_writes_past_the_storage_is_found(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with recorder.running(), pa.OSFile(str(tmp_path / "secret"), "wb") as file:
        file.write(b"not through Python")
        file.flush()
        with pytest.raises(AssertionError, match=r"not recorded: \['secret'\]"):
            LocalStorage(tmp_path).put_if_absent("known", b"")
        os.unlink(tmp_path / "secret")


def test_calls_that_are_not_modelled_are_refused_while_a_recording_runs(tmp_path: Path) -> None:
    with Recorder(tmp_path).running(), pytest.raises(AssertionError, match="truncate"):
        os.truncate(tmp_path, 0)


def test_a_killed_process_changes_nothing_any_more(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    storage = LocalStorage(tmp_path)
    with recorder.running(kill_at=2):
        with pytest.raises(Killed):
            storage.put_if_absent("a", b"bytes")
        with pytest.raises(Killed):
            storage.make_folder("b")
    assert [(len(name), content) for name, content in read_tree(tmp_path).items()] == [(len(".") + 32 + 8, b"bytes")]
    assert LocalStorage(tmp_path).sweep("") == 1, "its files are unlocked"


def recorded(root: Path, *calls: str) -> Recording:
    """Calls of `os` on the files `a` and `b` and the folder `f`."""
    recorder = Recorder(root)
    with recorder.running():
        for call in calls:
            match call.split():
                case ["write", name, text]:
                    descriptor = os.open(root / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                    os.write(descriptor, text.encode())
                    os.close(descriptor)
                case ["sync", name]:
                    descriptor = os.open(root / name, os.O_RDONLY)
                    os.fsync(descriptor)
                    os.close(descriptor)
                case ["rename", old, new]:
                    os.replace(root / old, root / new)
                case ["unlink", name]:
                    os.unlink(root / name)
                case ["mkdir", name]:
                    os.mkdir(root / name)
    return recorder.recording


def outcomes(recording: Recording) -> list[dict[str, bytes | None]]:
    """What may be left when all calls were made."""
    return [loss.tree for loss in losses(recording, since=len(recording.operations))]


def test_a_file_that_is_not_synced_may_be_empty_torn_zero_or_gone(tmp_path: Path) -> None:
    left = outcomes(recorded(tmp_path, "write a new-content"))
    for content in (b"", b"new-c", b"\0" * 11, b"new-content"):
        assert {"a": content} in left
    assert {} in left


def test_a_synced_file_in_a_folder_that_is_not_synced_is_whole_or_gone(tmp_path: Path) -> None:
    assert outcomes(recorded(tmp_path, "write a new", "sync a")) == [{"a": b"new"}, {}]


def test_a_synced_name_of_a_file_that_is_not_synced_may_have_no_content(tmp_path: Path) -> None:
    left = outcomes(recorded(tmp_path, "write a new", "sync ."))
    assert {"a": b""} in left
    assert {} not in left


def test_changes_of_names_that_are_not_synced_are_lost_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    left = outcomes(recorded(tmp_path, "write a 1", "sync a", "write b 2", "sync b", "unlink old"))
    assert {"b": b"2"} in left, "the first change is lost, the others are kept"
    assert len(left) == 8


def test_a_rename_is_atomic(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"old")
    left = outcomes(recorded(tmp_path, "write a new", "sync a", "sync .", "rename a b"))
    assert left == [{"b": b"new"}, {"a": b"new", "b": b"old"}]


def test_what_is_in_a_folder_is_lost_with_the_name_of_the_folder(tmp_path: Path) -> None:
    left = outcomes(recorded(tmp_path, "mkdir f", "write f/a 1", "sync f/a", "sync f"))
    assert left == [{"f": None, "f/a": b"1"}, {}]
    for path in ("f/a", "f"):
        (tmp_path / path).unlink() if path == "f/a" else (tmp_path / path).rmdir()
    assert outcomes(recorded(tmp_path, "mkdir f", "sync .", "write f/a 1", "sync f/a", "sync f")) == [
        {"f": None, "f/a": b"1"}
    ]


def test_each_prefix_of_a_recording_is_tried(tmp_path: Path) -> None:
    recording = recorded(tmp_path, "write a 1", "sync a", "sync .", "write b 2", "sync b", "sync .")
    assert {loss.done for loss in losses(recording)} >= {0, 1, 2, 5, 6}
    kinds = [type(operation) for operation in recording.operations]
    assert kinds.count(SyncFile) == kinds.count(SyncFolder) == 2
