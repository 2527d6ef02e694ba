"""A change of version by a driver that was stopped for so long that another one took the table."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import Fenced
from streaming_lsm.lock.lock import LOCK_FILE
from streaming_lsm.metadata.file_slices import METADATA_TABLE
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH, fence_properties, load_properties
from tests.support.faulty_storage import FaultyStorage, Interrupted

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.write.table.version": 9,
    "hoodie.table.storage.layout": "default",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.metadata.enable": True,
}


def test_it_changes_nothing_once_the_other_one_has_the_table(tmp_path: Path) -> None:
    template = tmp_path / "template"
    LsmTable.create(template, SCHEMA, OPTIONS).upsert(pa.table([["a", "b"], [1, 2]], schema=SCHEMA))
    calls = _calls(shutil.copytree(template, tmp_path / "counted"))
    changed = calls.index(
        ("replace_if_unchanged", PROPERTIES_PATH), calls.index(("delete_empty_folder", METADATA_TABLE))
    )
    for number in range(calls.index(("put_if_absent", LOCK_FILE)) + 1, len(calls)):
        path = shutil.copytree(template, tmp_path / str(number))
        table, after = LsmTable(path), []
        table.storage = Interrupted(table.storage, number, lambda path=path, after=after: after.append(_take(path)))
        with pytest.raises(Fenced) if number <= changed else nullcontext():
            table.change_version(10)
        assert LsmTable(path).config.version == (9 if number <= changed else 10), calls[number]
        assert number < changed - 4 or _properties(path) == after[0], calls[number]


def _calls(path: Path) -> list[tuple[str, str]]:
    table = LsmTable(path)
    table.storage = counting = FaultyStorage(table.storage)
    table.change_version(10)
    return counting.calls


def _take(path: Path) -> dict[str, str]:
    """Another driver takes the lock, as from a dead owner; the properties that it finds."""
    (path / LOCK_FILE).write_bytes(b"another program's")
    fence_properties(LocalStorage(path), "taker")
    return _properties(path)


def _properties(path: Path) -> dict[str, str]:
    return load_properties(LocalStorage(path))
