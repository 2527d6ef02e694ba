"""A change of version by a driver that was stopped for so long that another one took the table."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import Fenced
from streaming_lsm.timeline.lock import LOCK_FILE
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH
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


def test_it_changes_nothing_that_the_other_one_relies_on(tmp_path: Path) -> None:
    template = tmp_path / "template"
    LsmTable.create(template, SCHEMA, OPTIONS).upsert(pa.table([["a", "b"], [1, 2]], schema=SCHEMA))
    calls = _calls(shutil.copytree(template, tmp_path / "counted"))
    # What happens behind the last look at the lock nobody can see; the very last one is of its release.
    first_look, *_, last_look, _ = (number for number, call in enumerate(calls) if call == ("read", LOCK_FILE))
    for number in range(calls.index(("put_if_absent", LOCK_FILE)) + 1, last_look + 1):
        path = shutil.copytree(template, tmp_path / str(number))
        before = _state(path)
        table = LsmTable(path)
        table.storage = Interrupted(table.storage, number, partial(_take_lock, path))
        with pytest.raises(Fenced):
            table.change_version(10)
        assert LsmTable(path).config.version == 9, calls[number]
        assert number > first_look or _state(path) == before, calls[number]


def _calls(path: Path) -> list[tuple[str, str]]:
    table = LsmTable(path)
    table.storage = counting = FaultyStorage(table.storage)
    table.change_version(10)
    return counting.calls


def _take_lock(path: Path) -> None:
    (path / LOCK_FILE).write_bytes(b"another program's")


def _state(path: Path) -> tuple[bytes, list[str]]:
    metadata = path / ".hoodie" / "metadata"
    return (path / PROPERTIES_PATH).read_bytes(), sorted(str(file) for file in metadata.rglob("*.hfile"))
