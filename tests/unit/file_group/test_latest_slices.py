"""Slices that are found by columns, beside the slices of the same files one by one."""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
import pytest

from streaming_lsm.file_group.file_system_view import FileSystemView
from streaming_lsm.file_group.latest_slices import FileSlices, latest_slices
from streaming_lsm.format.actions.file_state import FileState
from streaming_lsm.metadata.listed_files import ListedFiles
from streaming_lsm.storage.base import FileEntry, Listing
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline

TIMES = [f"202611211200{second:02d}000" for second in range(12)]
COMPLETED = [
    Instant(time, "deltacommit", State.COMPLETED, f"202611211200{number + 1:02d}500")
    for number, time in enumerate(TIMES)
    if number % 4 != 3
]
"""Every fourth write is not on the timeline."""


def view(root: Path) -> FileSystemView:
    return FileSystemView(LocalStorage(root), Timeline(LocalStorage(root), tuple(COMPLETED), TIMES[0]))


def listings(seed: int) -> dict[str, Listing]:
    """Files of file groups of one base file, of several, with and without logs, and entries that are no data files."""
    chance = np.random.default_rng(seed)
    found: dict[str, Listing] = {}
    for partition in chance.permutation(["", "b", "a/ž", "a", "empty"]).tolist():
        names = ["notes.txt", ".hoodie_partition_metadata", "x_y_0001.parquet.crc", "a_0-0-0_12x.parquet"]
        for _ in range(0 if partition == "empty" else 12):
            group = f"{uuid.UUID(bytes=chance.bytes(16))}-0"
            names += [f"{group}_0-1-0_{time}.parquet" for time in _some(chance, 2)]
            for time in _some(chance, 3):
                names += [f"{group}_0-1-0_{time}_1.{kind}.parquet" for kind in ("log", "deletes", "cdc")]
        folder = f"{partition}/" if partition else ""
        entries = [FileEntry(folder + name, int(chance.integers(1, 99)), False, 0) for name in names]
        found[partition] = [*entries, FileEntry(f"{folder}folder", 0, is_dir=True, modified_ms=0)]
    return found


def _some(chance: np.random.Generator, most: int) -> list[str]:
    count = int(chance.choice([0, 1, most], p=[0.4, 0.4, 0.2]))
    return [str(time) for time in chance.permutation(TIMES)[:count]]


@pytest.mark.parametrize("seed", range(8))
def test_columns_give_the_slices_that_the_files_give_one_by_one(tmp_path: Path, seed: int) -> None:
    listed = listings(seed)
    by_columns, by_files = view(tmp_path), view(tmp_path)
    found = latest_slices(by_columns, ListedFiles.of(listed))
    expected = [one for path, entries in sorted(listed.items()) for one in by_files.slices_in(path, entries)]
    assert list(found) == expected
    assert by_columns.unknown.keys() == by_files.unknown.keys()
    assert found.state() == FileState.of(path for one in expected for path in one.paths)
    assert list(found.base_files()) == [one for one in FileSlices.of(expected).base_files() if one.base]
    odd = np.arange(len(found)) % 2 == 1
    assert list(found.at(odd)) == expected[1::2] == list(found[1::2])
    assert found.at(odd).state() == FileState.of(path for one in expected[1::2] for path in one.paths)
    assert (found[-1], found.partitions_used) == (expected[-1], len({one.partition_path for one in expected}))
