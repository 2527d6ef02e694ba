"""A storage that leaves out an fsync, or makes it too late, is found out: each by a violation with its name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.storage.local_files import sync
from tests.faults.power_loss.cases import PLAIN, is_completed_file, places, recorded
from tests.faults.power_loss.losses import Loss, losses
from tests.faults.power_loss.operations import Operation, SyncFile, SyncFolder
from tests.faults.power_loss.scenarios import next_batch
from tests.faults.power_loss.verdict import Judge, Violation

Sought = Callable[[Operation], bool]


def of_file(site: str, path: str = "") -> Sought:
    """Fsyncs of files by a method of the storage."""
    return lambda operation: isinstance(operation, SyncFile) and operation.site == site and path in operation.path


def of_folder(site: str, path: str = "") -> Sought:
    """Fsyncs of folders by a method of the storage, of paths that end so."""
    return lambda operation: (
        isinstance(operation, SyncFolder) and operation.site == site and operation.path.endswith(path)
    )


def assert_violated(found: Iterable[Loss], judge: Judge, lake: Path, match: str) -> None:
    """Assert that one of the losses breaks a promise, with an error that has this text."""
    for loss in found:
        try:
            judge.judge(loss, lake)
        except Violation as violation:
            if match in str(violation):
                return
    pytest.fail(f"no loss is found that has {match!r}")


LEFT_OUT = {
    "of data files": (of_file("create", ".parquet"), "not a readable Parquet file"),
    "of the folders of data files": (of_folder("create"), "has committed it"),
    "of all folders": (lambda operation: isinstance(operation, SyncFolder), "has committed it"),
    "of the timeline's folder": (of_folder("put_if_absent", "/timeline"), "completed instant file is missing"),
    "of files before they are linked": (of_file("put_if_absent"), "deltacommit: expected"),
    "of the folder above a new partition": (of_folder("put_if_absent", "table"), "has committed it"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_an_fsync_that_is_left_out_loses_an_acknowledged_commit(name: str, tmp_path: Path) -> None:
    is_left_out, violation = LEFT_OUT[name]
    recording, judge = recorded(next_batch(PLAIN), tmp_path / "lake")
    forgetful = recording.without(is_left_out)
    assert len(forgetful.operations) < len(recording.operations)
    assert_violated(losses(forgetful, since=len(forgetful.operations)), judge, tmp_path / "lake", violation)


def test_a_completed_file_that_is_created_before_its_content_is_durable_is_seen_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_if_absent(storage: LocalStorage, path: str, data: bytes) -> None:
        full = storage._inside_parent(path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        descriptor = os.open(full, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(descriptor, data)
        os.fsync(descriptor)
        os.close(descriptor)
        sync(os.path.dirname(full))

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "put_if_absent", put_if_absent)
        recording, judge = recorded(next_batch(PLAIN), tmp_path / "lake")
    created = min(places(recording, is_completed_file))
    assert_violated(losses(recording, since=created), judge, tmp_path / "lake", "deltacommit: expected")
