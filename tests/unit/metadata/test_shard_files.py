"""What look-ups of an open table keep of its record index: they find what those of a table opened anew find."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.format.hfile.cells import Cells
from streaming_lsm.format.metadata.record_index import LOCATIONS, encode_locations
from streaming_lsm.format.metadata.schema import metadata_schema
from streaming_lsm.metadata import record_locations as record_locations_module
from streaming_lsm.metadata.record_locations import record_locations
from streaming_lsm.metadata.shard_files import LoggedKeys, ShardFiles
from streaming_lsm.metadata.shard_search import FoundKeys, _in_logs, decoded, joined
from streaming_lsm.storage.base import METADATA_BYTES
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.cache import TimelineCache
from tests.support.metadata_tables import LOCATED
from tests.unit.metadata.test_record_index import KINDS, OPTIONS, act, has_index, schema_of, written

KEYS = pa.array([f"k{number:02d}" for number in range(30)], pa.string())
PLAIN = {key: value for key, value in OPTIONS.items() if "partitionpath" not in key}
ACTIONS = ("upsert", "delete", "upsert", "overwrite", "upsert", "compact", "delete", "upsert")


class Reads(LocalStorage):
    """Counts the files of the record index that are read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.files: list[str] = []

    def read(self, path: str, most: int | None = METADATA_BYTES) -> bytes:
        self._note(path)
        return super().read(path, most)

    def open_input(self, path: str) -> pa.NativeFile:
        self._note(path)
        return super().open_input(path)

    def _note(self, path: str) -> None:
        name = path.rpartition("/")[2]
        if "record_index" in path and ".log." in name:
            self.files.append(name)


def look_up(storage: LocalStorage, files: ShardFiles, timelines: TimelineCache) -> FoundKeys:
    found = record_locations(storage, timelines.load(storage), KEYS, 0.5, timelines, files)
    assert found is not None
    return found


def told(found: FoundKeys) -> list[tuple[int, dict[str, object]]]:
    return list(zip(found.keys.tolist(), found.locations.to_pylist(), strict=True))


@pytest.mark.parametrize(("kind", "large"), [("version 10", 1 << 20), ("version 10", 0), ("version 9", 1 << 20)])
def test_a_kept_index_finds_what_a_new_one_does_after_each_action_and_reads_a_log_once(
    kind: str, large: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_locations_module, "_LARGE_LOG", large)
    draw = random.Random(3)
    options = {**PLAIN, **KINDS[kind], **LOCATED}
    table = LsmTable.create(tmp_path, schema_of(kind), options)
    storage, files, timelines = Reads(tmp_path), ShardFiles(), TimelineCache()
    act(table, "upsert", draw, 0)
    act(table, "upsert", draw, 1)
    compared = 0
    for step, action in enumerate(ACTIONS * 2, 2):
        act(table, action, draw, step)
        found = told(look_up(storage, files, timelines))
        assert found == told(look_up(LocalStorage(tmp_path), ShardFiles(), TimelineCache()))
        compared += len(found)
    assert compared > 100
    assert len(storage.files) > 10
    assert len(storage.files) == len(set(storage.files))


@pytest.mark.parametrize("kind", ["version 10", "version 9"])
def test_a_writer_reads_no_log_of_its_own_back(kind: str, tmp_path: Path) -> None:
    options = {**PLAIN, **KINDS[kind], **LOCATED, "hoodie.index.type": "RECORD_INDEX"}
    del options["hoodie.bucket.index.num.buckets"]
    options["hoodie.metadata.compact.max.delta.commits"] = 99
    table = LsmTable.create(tmp_path, schema_of(kind), options)
    table.storage = storage = Reads(tmp_path)
    for step in range(6):
        ids = [f"k{(step + number) % 9}" for number in range(6)]
        table.upsert(pa.table([ids, ["x"] * 6, [step] * 6, [False] * 6, [step] * 6], schema_of(kind)))
        found = LsmTable(tmp_path).scan(["id", "n"], meta=False).to_arrow().to_pydict()
        assert sorted(found["id"]) == sorted({f"k{number % 9}" for number in range(6 + step)})
    of_writes = [name for name in storage.files if f"_{'0' * 14}" not in name]
    assert len(of_writes) <= 3  # of the first write: nothing had been looked up before


def test_an_index_that_was_dropped_and_created_again_is_read_anew(tmp_path: Path) -> None:
    draw = random.Random(4)
    LsmTable.create(tmp_path, schema_of(""), {**PLAIN, **LOCATED}).upsert(written(draw, 1, 3))
    LsmTable(tmp_path, {**LOCATED}).upsert(written(draw, 2, 3))
    files, timelines = ShardFiles(), TimelineCache()
    before = look_up(LocalStorage(tmp_path), files, timelines)
    LsmTable(tmp_path, {"hoodie.metadata.record.index.enable": False}).upsert(written(draw, 3, 25))
    assert not has_index(tmp_path)
    LsmTable(tmp_path, {**LOCATED}).upsert(written(draw, 4, 3))
    assert has_index(tmp_path)
    after = look_up(LocalStorage(tmp_path), files, timelines)
    assert len(after.keys) > len(before.keys)
    assert told(after) == told(look_up(LocalStorage(tmp_path), ShardFiles(), TimelineCache()))


def test_no_more_is_kept_than_the_limit(tmp_path: Path) -> None:
    draw = random.Random(5)
    table = LsmTable.create(tmp_path, schema_of(""), {**PLAIN, **LOCATED})
    for step in range(3):
        act(table, "upsert", draw, step)
    storage, files, timelines = Reads(tmp_path), ShardFiles(most_bytes=0), TimelineCache()
    first = told(look_up(storage, files, timelines))
    assert told(look_up(storage, files, timelines)) == first
    assert sorted(storage.files) == sorted(2 * list(set(storage.files)))


def test_the_newest_of_several_logs_tells_and_a_delete_hides_older_ones() -> None:
    def log(keys: list[bytes], file_id: str | None) -> LoggedKeys:
        texts: Any = pa.array(keys, pa.binary())
        if file_id is None:
            return LoggedKeys("log", texts, None)
        columns = [[""] * len(keys), [file_id] * len(keys), [0] * len(keys)]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, LOCATIONS, strict=True)]
        values: Any = encode_locations(pa.RecordBatch.from_arrays(arrays, schema=LOCATIONS), None)
        return LoggedKeys("log", texts, Cells.of(texts, values), metadata_schema())

    logs = [log([b"c", b"a"], "new"), log([b"b"], None), log([b"a", b"b", b"d"], "old"), log([], "none")]
    seen, cells = _in_logs(logs, pa.array([b"a", b"b", b"c", b"d", b"e"], pa.binary()))
    assert seen.tolist() == [True, True, True, True, False]
    found = joined(list(decoded(cells)))
    assert found.keys.tolist() == [0, 2, 3]
    assert found.locations.column("file_id").to_pylist() == ["new", "new", "old"]
