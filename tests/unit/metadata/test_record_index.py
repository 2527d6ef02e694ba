"""The partition ``record_index`` of tables of ours: it has the keys of the snapshot after each action."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.config import Options
from streaming_lsm.errors import CorruptFileError, LsmError, UnsupportedTable
from streaming_lsm.format.metadata.record_index import decode_locations
from streaming_lsm.index.file_readers import FILE_READERS
from streaming_lsm.metadata import services, shard_search
from streaming_lsm.metadata.file_slices import METADATA_TABLE, MetadataFileSlice
from streaming_lsm.metadata.index_build import IndexBuild
from streaming_lsm.metadata.partitions import record_index
from streaming_lsm.metadata.partitions.base import TableContext
from streaming_lsm.metadata.partitions.record_index import RecordIndexKind
from streaming_lsm.metadata.record_locations import RecordIndex
from streaming_lsm.metadata.shard_files import ShardFiles
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.cache import TimelineCache
from streaming_lsm.timeline.properties_file import load_properties
from streaming_lsm.timeline.timeline import Timeline
from tests.support.crash_points import EVERY_CALL, random_cases, sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.metadata_tables import (
    ENABLED,
    LOCATED,
    LOCATED_BY_PARTITION,
    PARTITIONS,
    assert_locations,
    assert_settled,
    has_metadata_table,
)

SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string()), ("n", pa.int64()), ("gone", pa.bool_()), ("ts", pa.int64())]
)
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "located",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.metadata.compact.max.delta.commits": 4,
    "hoodie.metadata.record.index.min.filegroup.count": 3,
    "hoodie.metadata.record.index.max.filegroup.count": 3,
    "hoodie.metadata.partitioned.record.index.max.filegroup.count": 2,
    "hoodie.clean.commits.retained": 1,
    "lsm.read.threads": 1,
}
KINDS: dict[str, dict[str, object]] = {
    "version 10": {},
    "default layout": {"hoodie.table.storage.layout": "default"},
    "copy on write": {"hoodie.table.type": "COPY_ON_WRITE"},
    "version 9": {"hoodie.write.table.version": 9},
    "copy on write of version 9": {"hoodie.table.type": "COPY_ON_WRITE", "hoodie.write.table.version": 9},
    "commit time": {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"},
    "partial updates": {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
}


def batch(draw: random.Random, step: int, count: int = 12, *, parts: str = "ab") -> pa.Table:
    """Rows whose ordering values may be older than those that are there; a few are deletes by their column."""
    rows = [
        {
            "id": f"k{draw.randrange(30):02d}",
            "part": draw.choice(parts),
            "n": step,
            "gone": draw.random() < 0.15,
            "ts": max(0, step + draw.randrange(-3, 2)),
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def schema_of(kind: str) -> pa.Schema:
    return pa.schema([field if field.name != "gone" else field.with_name("_hoodie_is_deleted") for field in SCHEMA])


def written(draw: random.Random, step: int, count: int = 12) -> pa.Table:
    return batch(draw, step, count).rename_columns(["id", "part", "n", "_hoodie_is_deleted", "ts"])


ACTIONS = ("upsert", "upsert", "delete", "compact", "upsert", "overwrite", "delete", "clean", "upsert")


def act(table: LsmTable, action: str, draw: random.Random, step: int) -> None:
    if action == "upsert":
        table.upsert(written(draw, step))
    elif action == "delete":
        table.delete(written(draw, step, 6))
    elif action == "overwrite":
        table.insert_overwrite(written(draw, step, 4))
    elif action == "clean":
        table.clean()
    elif not table.config.is_copy_on_write:
        table.compact()


def has_index(root: Path) -> bool:
    return "record_index" in load_properties(LocalStorage(root)).get(PARTITIONS, "")


@pytest.mark.parametrize("kind", KINDS if EVERY_CALL else ["version 10", "version 9", "copy on write", "commit time"])
def test_it_has_the_keys_of_each_partition_after_each_action(kind: str, tmp_path: Path) -> None:
    draw, compared = random.Random(kind), 0
    table = LsmTable.create(tmp_path, schema_of(kind), {**OPTIONS, **LOCATED_BY_PARTITION, **KINDS[kind]})
    for step, action in enumerate((*ACTIONS, *draw.choices(ACTIONS, k=random_cases(30, 1))), 1):
        act(table, action, draw, step)
        assert has_index(tmp_path) == (step > 1)
        compared += assert_locations(tmp_path) if step > 1 else 0
        assert_settled(tmp_path)
    assert compared > 60


def test_a_global_index_follows_rollbacks_restores_and_overwrites_of_a_table_without_partitions(tmp_path: Path) -> None:
    draw = random.Random(1)
    plain = {key: value for key, value in OPTIONS.items() if "partitionpath" not in key}
    table = LsmTable.create(tmp_path, schema_of(""), {**plain, **LOCATED})
    assert has_index(tmp_path) is False
    steps: list[Callable[[], object]] = [
        lambda: table.upsert(written(draw, 3)),
        lambda: table.savepoint(),
        lambda: table.upsert(written(draw, 4)),
        lambda: table.rollback(),
        lambda: table.delete(written(draw, 6, 8)),
        lambda: table.rollback(),
        lambda: table.upsert(written(draw, 7)),
        lambda: table.compact(),
        lambda: table.insert_overwrite_table(written(draw, 8, 5)),
        lambda: table.rollback(),
        lambda: table.upsert(written(draw, 9)),
        lambda: table.restore(table.savepoints[0].instant.requested),
        lambda: table.upsert(written(draw, 10)),
        lambda: table.insert_overwrite_table(written(draw, 11, 5)),
        lambda: table.upsert(written(draw, 12)),
    ]
    table.upsert(written(draw, 1))
    compared = 0
    for step in steps:
        step()
        if has_index(tmp_path):
            compared += assert_locations(tmp_path)
        if has_metadata_table(tmp_path):  # a restore drops it
            assert_settled(tmp_path)
    assert compared > 60


@pytest.mark.parametrize("made", ["built after it", "added by options after it", "compacted after it"])
def test_it_has_no_key_of_a_write_that_is_rolled_back_after_a_base_file_was_made_of_it(
    made: str, tmp_path: Path
) -> None:
    compacts = made == "compacted after it"
    options = {**OPTIONS, **(LOCATED if compacts else ENABLED)}
    delta_commits = {"hoodie.metadata.compact.max.delta.commits": 3 if compacts else 99}
    table = LsmTable.create(tmp_path, schema_of(""), {**options, **delta_commits})
    for step in (1, 2):
        table.upsert(pa.table([["a", "b"], ["x", "y"], [step] * 2, [False] * 2, [step] * 2], schema_of("")))
    table.upsert(pa.table([["b", "new"], ["y", "y"], [3, 3], [True, False], [3, 3]], schema_of("")))
    if made == "built after it":
        table.create_index("record_index")
    else:
        LsmTable(tmp_path, {**table.options, **LOCATED}).clean()
    assert ("y", "new") in {(row["part"], row["id"]) for row in table.scan().to_arrow().to_pylist()}
    table.rollback()
    table.upsert(pa.table([["c"], ["y"], [4], [False], [4]], schema_of("")))
    found = table.scan(filter="id IN ('a', 'b', 'c', 'new')").to_arrow()
    assert sorted(found.column("id").to_pylist()) == [*"abc"]
    if has_index(tmp_path):
        assert assert_locations(tmp_path) == 3
    assert_settled(tmp_path)


def test_it_lacks_no_key_if_it_was_made_without_keys_before_an_overwrite_is_rolled_back(tmp_path: Path) -> None:
    options = {**OPTIONS, **ENABLED, "hoodie.metadata.compact.max.delta.commits": 99}
    table = LsmTable.create(tmp_path, schema_of(""), options)
    table.upsert(pa.table([["a", "b"], ["x", "y"], [1] * 2, [False] * 2, [1] * 2], schema_of("")))
    table.delete_partitions(["x", "y"])
    LsmTable(tmp_path, {**table.options, **LOCATED}).clean()
    assert has_index(tmp_path)
    table.rollback()
    found = LsmTable(tmp_path, LOCATED).scan(filter="id IN ('a', 'b')").to_arrow()
    assert sorted(found.column("id").to_pylist()) == [*"ab"]
    assert_settled(tmp_path)
    table.upsert(pa.table([["a"], ["x"], [2], [False], [2]], schema_of("")))
    if has_index(tmp_path):
        assert assert_locations(tmp_path) == 2


def test_a_shard_of_a_former_index_is_not_missed_in_one_that_was_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = LsmTable.create(
        tmp_path,
        schema_of(""),
        {**OPTIONS, **LOCATED_BY_PARTITION, "hoodie.metadata.compact.max.delta.commits": 99},
    )
    of_both = pa.table([["a", "b"], ["x", "y"], [1, 1], [False] * 2, [1, 1]], schema_of(""))
    table.upsert(of_both)
    table.upsert(pa.table([["c"], ["y"], [1], [False], [1]], schema_of("")))
    table.delete_partitions(["y"])
    table.drop_index("record_index")
    table.create_index("record_index", LOCATED_BY_PARTITION)
    caplog.clear()
    table.upsert(of_both)
    table.upsert(of_both)
    assert [found.message for found in caplog.records if found.levelname == "WARNING"] == []
    assert has_index(tmp_path)
    assert assert_locations(tmp_path) == 2


def test_files_of_a_former_index_are_not_missed_when_what_made_the_next_one_is_archived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A late compaction keeps older actions on the metadata table's timeline than that which made the index again."""
    left = {name: value for name, value in OPTIONS.items() if "bucket" not in name and "filegroup" not in name}
    small = {"hoodie.metadata.compact.max.delta.commits": 3, "hoodie.clean.automatic": False}
    on = {**left, **small, "hoodie.parquet.small.file.limit": 0, "hoodie.index.type": "RECORD_INDEX"}

    def upsert(table: LsmTable, keys: list[str], step: int) -> None:
        count = len(keys)
        columns = [keys, ["x"] * count, [step] * count, [False] * count, [step] * count]
        table.upsert(pa.table(columns, schema_of("")))

    table = LsmTable.create(tmp_path, schema_of(""), on)
    known = [f"k{number}" for number in range(40)]
    for step in (1, 2):
        upsert(table, known, step)
    assert table.services.schedule()
    upsert(table, [f"new{number}" for number in range(40)], 3)
    upsert(LsmTable(tmp_path, {**on, "hoodie.metadata.global.record.level.index.enable": False}), ["k1"], 4)
    table, step = LsmTable(tmp_path, on), 7
    for _ in range(2):
        upsert(table, ["k1"], 5)
    compactions = len(compactions_of(tmp_path))
    while len(compactions_of(tmp_path)) == compactions:
        upsert(table, ["k1"], step)
        step += 1
    table.compact()
    caplog.clear()
    for later in range(step, step + 8):
        upsert(table, ["k1"], later)
    assert [found.message for found in caplog.records if found.levelname == "WARNING"] == []
    assert assert_locations(tmp_path) == 80


def compactions_of(root: Path) -> list[Path]:
    return list((root / ".hoodie/metadata/.hoodie/timeline").glob("*.commit"))


def test_all_shards_get_a_log_while_what_made_them_may_be_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one(key: str, part: str, step: int) -> pa.Table:
        return pa.table([[key], [part], [step], [False], [step]], schema_of(""))

    def logs() -> int:
        return len(list((tmp_path / ".hoodie/metadata/record_index").glob("record-index-z-*.log.hfile")))

    options = {
        **OPTIONS,
        **LOCATED_BY_PARTITION,
        "hoodie.metadata.partitioned.record.index.min.filegroup.count": 3,
        "hoodie.metadata.partitioned.record.index.max.filegroup.count": 3,
        "hoodie.metadata.compact.max.delta.commits": 99,
    }
    table = LsmTable.create(tmp_path, schema_of(""), options)
    for step in (1, 2):
        table.upsert(one("a", "x", step))
    counts = []
    for step, key in enumerate("abc", 3):
        if key == "b":  # as if the write of "a" was not completed yet
            monkeypatch.setattr(record_index, "counted_instants", lambda _: lambda _: False)
        table.upsert(one(key, "z", step))
        monkeypatch.undo()
        counts.append(logs())
    assert counts == [3, 6, 7]
    assert assert_locations(tmp_path) == 4


LOOKED_UP: dict[str, dict[str, object]] = {
    "RECORD_INDEX": {},
    "rows that move": {"hoodie.index.type": "RECORD_INDEX", "hoodie.record.index.update.partition.path": True},
    "RECORD_LEVEL_INDEX": {"hoodie.index.type": "RECORD_LEVEL_INDEX"},
    "copy on write": {"hoodie.table.type": "COPY_ON_WRITE"},
    "commit time": {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"},
}


def looked_up(root: Path, kind: str, **more: object) -> LsmTable:
    """A table whose keys are looked up in its record index, and whose new rows go to several file groups."""
    options = {name: value for name, value in OPTIONS.items() if "bucket" not in name}
    small = {"hoodie.parquet.small.file.limit": 3000, "hoodie.parquet.max.file.size": 3000}
    return LsmTable.create(
        root, schema_of(""), {**options, **small, "hoodie.index.type": "RECORD_INDEX", **LOOKED_UP[kind], **more}
    )


@pytest.mark.parametrize("kind", LOOKED_UP)
def test_it_follows_keys_that_are_looked_up_in_it(kind: str, tmp_path: Path) -> None:
    draw, compared = random.Random(kind), 0
    table = looked_up(tmp_path, kind)
    actions = (
        "upsert upsert delete upsert compact upsert cluster upsert rollback upsert delete rollback upsert overwrite"
    )
    for step, action in enumerate([*actions.split(), "upsert", "clean", "upsert"], 1):
        if action == "cluster":
            table.cluster()
        elif action == "rollback":
            table.rollback()
        else:
            act(table, action, draw, step)
        compared += assert_locations(tmp_path) if has_index(tmp_path) else 0
    assert has_index(tmp_path)
    assert compared > 60


@pytest.mark.parametrize("kind", ["RECORD_INDEX", "rows that move", "RECORD_LEVEL_INDEX"])
def test_updates_of_keys_that_were_looked_up_in_it_are_not_logged(kind: str, tmp_path: Path) -> None:
    table = looked_up(tmp_path, kind, **{"hoodie.metadata.compact.max.delta.commits": 99})

    def rows(ids: str, part: str, ts: int) -> pa.Table:
        found = [{"id": key, "part": part, "n": ts, "_hoodie_is_deleted": False, "ts": ts} for key in ids]
        return pa.Table.from_pylist(found, schema_of(""))

    def logged() -> set[str]:
        return set(Subfolder(LocalStorage(tmp_path), METADATA_TABLE).names("record_index"))

    table.upsert(rows("abcdef", "p", 1))
    table.upsert(rows("abc", "p", 2))
    before = logged()
    table.upsert(rows("abcdef", "p", 3))
    assert logged() == before
    table.delete(rows("a", "p", 4))
    deleted = logged()
    assert len(deleted - before) == 1
    table.upsert(rows("ab", "p", 5))  # one is new again
    assert len(logged() - deleted) == 1
    assert assert_locations(tmp_path) == 6


def test_a_delete_that_is_older_than_its_row_leaves_the_key_and_one_that_is_not_takes_it_until_a_newer_row_comes(
    tmp_path: Path,
) -> None:
    table = LsmTable.create(tmp_path, schema_of(""), {**OPTIONS, **LOCATED_BY_PARTITION})

    def row(ts: int, *, gone: bool = False) -> pa.Table:
        found = {"id": ["k"], "part": ["a"], "n": [1], "_hoodie_is_deleted": [gone], "ts": [ts]}
        return pa.Table.from_pydict(found, schema_of(""))

    table.upsert(row(5))
    expected = []
    for rows, live in ((row(6), 1), (row(4, gone=True), 1), (row(7, gone=True), 0), (row(3), 0), (row(7), 1)):
        table.upsert(rows)
        expected.append(live)
        assert assert_locations(tmp_path) == live
    table.delete(row(8))
    assert assert_locations(tmp_path) == 0
    table.compact()
    table.upsert(row(9))
    assert assert_locations(tmp_path) == 1


def test_a_global_index_is_not_kept_of_keys_that_are_in_two_partitions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(2)
    table = LsmTable.create(tmp_path, schema_of(""), {**OPTIONS, **LOCATED})
    both = pa.concat_tables([batch(draw, 1, 1, parts="a")] * 2).set_column(1, "part", pa.array(["a", "b"]))
    table.upsert(batch(draw, 1, 4, parts="a").rename_columns(schema_of("").names).filter(pa.array([True] * 4)))
    table.upsert(batch(draw, 2, 9, parts="a").rename_columns(schema_of("").names))
    assert has_index(tmp_path)
    assert assert_locations(tmp_path) > 3
    key = table.scan().to_arrow()["id"][0].as_py()
    elsewhere = {"id": [key], "part": ["b"], "n": [1], "_hoodie_is_deleted": [False], "ts": [9]}
    table.delete(pa.Table.from_pydict(elsewhere, schema_of("")))
    assert has_index(tmp_path)
    assert assert_locations(tmp_path) > 3
    table.upsert(pa.Table.from_pydict(elsewhere, schema_of("")))
    assert not has_index(tmp_path)
    assert "has several rows, in different partitions" in caplog.text
    table.upsert(both.rename_columns(schema_of("").names))
    assert not has_index(tmp_path)
    other = LsmTable(tmp_path, {**OPTIONS, **LOCATED_BY_PARTITION})
    other.upsert(batch(draw, 3, 9).rename_columns(schema_of("").names))
    assert has_index(tmp_path)
    assert assert_locations(tmp_path) > 3


def test_an_index_that_cannot_be_built_costs_an_open_table_one_attempt_and_not_its_metadata_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw, names = random.Random(3), schema_of("").names
    files = {**OPTIONS, "hoodie.metadata.enable": True}
    rows = pa.concat_tables([batch(draw, 1, 20, parts=part).rename_columns(names) for part in "ab"])
    LsmTable.create(tmp_path, schema_of(""), files).upsert(rows)
    for refused in (1, 2):
        table = LsmTable(tmp_path, {**OPTIONS, **LOCATED})
        for step in (2, 3, 4):
            table.upsert(batch(draw, step, 4).rename_columns(names))
            metadata = Timeline.load(Subfolder(LocalStorage(tmp_path), METADATA_TABLE))
            assert not metadata.pending
            assert not (tmp_path / METADATA_TABLE / "record_index").exists()
        assert caplog.text.count("no record_index was created") == refused
    assert "has several rows" in caplog.text
    assert "dropped" not in caplog.text
    assert_settled(tmp_path)
    table.insert_overwrite_table(batch(draw, 5, 4, parts="a").rename_columns(names))
    LsmTable(tmp_path, {**OPTIONS, **LOCATED}).upsert(batch(draw, 6, 4, parts="a").rename_columns(names))
    assert assert_locations(tmp_path)


@pytest.mark.parametrize("enabled", [None, False])
def test_an_index_without_a_metadata_table_is_told_once(
    enabled: bool | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked: dict[str, object] = {"hoodie.metadata.global.record.level.index.enable": True}
    given = {} if enabled is None else {"hoodie.metadata.enable": enabled}
    table = LsmTable.create(tmp_path, PLAIN, {**BY_FILES, **asked, **given})
    for step in (1, 2):
        table.upsert(rows_of(("k", "a", step)))
    assert caplog.text.count("no record_index was created") == 1
    assert "set hoodie.metadata.enable=true" in caplog.text
    assert not has_index(tmp_path)


def test_a_global_index_is_kept_beside_a_write_that_changes_no_file(tmp_path: Path) -> None:
    without_buckets = {key: value for key, value in OPTIONS.items() if "bucket" not in key}
    looked_up = {"hoodie.index.type": "SIMPLE", "hoodie.parquet.small.file.limit": 0}
    table = LsmTable.create(tmp_path, schema_of(""), {**without_buckets, **LOCATED, **looked_up})
    draw = random.Random(2)
    for step in (1, 2):
        table.upsert(batch(draw, step, 9, parts="a").rename_columns(schema_of("").names))
    before, unknown = assert_locations(tmp_path), {"id": ["?"], "part": ["a"], "n": [1], "ts": [9]}
    assert table.delete(pa.Table.from_pydict(unknown)) is not None
    assert has_index(tmp_path)
    assert assert_locations(tmp_path) == before


PLAIN = pa.schema([("id", pa.string()), ("part", pa.string()), ("n", pa.int64()), ("ts", pa.int64())])
BY_FILES = {
    **{key: value for key, value in OPTIONS.items() if "bucket" not in key},
    "hoodie.index.type": "SIMPLE",
    "hoodie.parquet.small.file.limit": 0,
}


def rows_of(*rows: tuple[str, str, int]) -> pa.Table:
    """Rows of key, partition and ordering value."""
    return pa.Table.from_pylist([{"id": key, "part": part, "n": ts, "ts": ts} for key, part, ts in rows], PLAIN)


def found_of(table: LsmTable, key: str) -> tuple[list[int], list[int]]:
    """Ordering values of the rows of a key, by a scan and by a filter that asks the index."""
    every = [row["ts"] for row in table.scan().to_arrow().to_pylist() if row["id"] == key]
    wanted = table.scan(filter=pc.field("id") == key).to_arrow().to_pylist()
    return sorted(every), sorted(row["ts"] for row in wanted)


@pytest.mark.parametrize("path", ["2024-01-01", "2024/01/01", "day=1", "ü x_y", "a%b", "20240101"])
def test_a_partition_path_may_have_any_characters_that_file_names_can_have(path: str, tmp_path: Path) -> None:
    options = {**BY_FILES, **LOCATED_BY_PARTITION, "hoodie.index.type": "RECORD_LEVEL_INDEX"}
    table = LsmTable.create(tmp_path, PLAIN, options)
    table.upsert(rows_of(("k", path, 1)))
    for step in range(2, 16):
        table.upsert(rows_of((f"x{step}", path, step)))
    assert found_of(table, "k") == ([1], [1])
    table.upsert(rows_of(("k", path, 20)))
    assert found_of(table, "k") == ([20], [20])
    assert assert_locations(tmp_path) == 15
    assert len(list((tmp_path / METADATA_TABLE / "record_index").iterdir())) < 20


@pytest.mark.parametrize(("path", "why"), [("a.b", "has characters"), ("-" * 85, "is too long")])
def test_an_index_whose_files_can_have_no_names_is_not_made_and_dropped(
    path: str, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {**BY_FILES, **LOCATED_BY_PARTITION, "hoodie.index.type": "RECORD_LEVEL_INDEX"}
    table = LsmTable.create(tmp_path, PLAIN, options)
    for part in ("a", "b", path):
        table.upsert(rows_of(("k", part, 1)))
        assert has_index(tmp_path) is (part == "b")
    assert f"partition path {path[:70]!r:.60}" in caplog.text
    assert why in caplog.text
    LsmTable(tmp_path, options).upsert(rows_of(("k", path, 2)))
    assert not has_index(tmp_path)
    assert sorted(row["ts"] for row in table.scan().to_arrow().to_pylist()) == [1, 1, 2]


@pytest.mark.parametrize("by_partition", [False, True])
@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_it_is_dropped_when_a_key_gets_a_second_row(operation: str, by_partition: bool, tmp_path: Path) -> None:
    options = {**BY_FILES, **(LOCATED_BY_PARTITION if by_partition else LOCATED)}
    table = LsmTable.create(tmp_path, PLAIN, options)
    table.upsert(rows_of(("x", "a", 0)))
    table.upsert(rows_of(("k", "a", 1)))
    getattr(table, operation)(rows_of(("m", "a", 2)))
    assert has_index(tmp_path)
    getattr(table, operation)(rows_of(("k", "a", 3)))
    assert not has_index(tmp_path)
    assert found_of(table, "k") == ([1, 3], [1, 3])
    table.delete(rows_of(("k", "a", 4)))
    every, found = found_of(table, "k")
    assert every == found


def test_a_key_that_is_in_another_partition_is_found_however_a_write_deletes_it_elsewhere(tmp_path: Path) -> None:
    options = {**BY_FILES, **LOCATED}
    table = LsmTable.create(tmp_path, pa.schema([*PLAIN, ("_hoodie_is_deleted", pa.bool_())]), options)

    def upsert(*rows: tuple[str, str, int, bool]) -> None:
        deleted = pa.array([row[3] for row in rows])
        table.upsert(rows_of(*(row[:3] for row in rows)).append_column("_hoodie_is_deleted", deleted))

    upsert(("k", "c", 1, False), ("m", "c", 1, False))
    upsert(("k", "c", 2, True))
    upsert(("k", "b", 3, False), ("x", "b", 3, False))
    assert has_index(tmp_path)
    upsert(("k", "c", 4, True))
    assert assert_locations(tmp_path) == 3
    upsert(("k", "a", 5, False), ("k", "c", 5, True))
    assert not has_index(tmp_path)
    assert found_of(table, "k") == ([3, 5], [3, 5])


def test_a_key_is_found_whose_delete_elsewhere_comes_while_the_index_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**BY_FILES, "hoodie.metadata.enable": True}
    table = LsmTable.create(tmp_path, PLAIN, options)
    table.upsert(rows_of(("k", "a", 1), ("m", "a", 1)))
    table.delete(rows_of(("k", "a", 2)))
    table.upsert(rows_of(("k", "b", 3), ("x", "b", 3)))
    catch_up = IndexBuild.catch_up

    def deleting(build: IndexBuild) -> None:
        monkeypatch.setattr(IndexBuild, "catch_up", catch_up)
        LsmTable(tmp_path, options).delete(rows_of(("k", "a", 4)))
        catch_up(build)

    monkeypatch.setattr(IndexBuild, "catch_up", deleting)
    table.create_index("record_index")
    assert has_index(tmp_path)
    assert assert_locations(tmp_path) == 3
    assert found_of(LsmTable(tmp_path, options), "k") == ([3], [3])


@pytest.mark.parametrize("kind", ["known keys", "another partition"])
def test_actions_are_archived_beside_file_groups_without_writes_whose_files_are_missed_all_the_same(
    kind: str, tmp_path: Path
) -> None:
    is_known = kind == "known keys"
    index = {**LOCATED, "hoodie.index.type": "RECORD_INDEX"} if is_known else LOCATED_BY_PARTITION
    table = LsmTable.create(tmp_path, PLAIN, {**BY_FILES, **index})
    table.upsert(rows_of(("k", "a", 0), ("l", "a", 0), ("m", "a", 0)))
    metadata = Subfolder(LocalStorage(tmp_path), METADATA_TABLE)
    for step in range(1, 41):
        table.upsert(rows_of(("k", "a" if is_known else "b", step)))
    timeline = Timeline.load(metadata)
    assert len(timeline.instants) < 20
    assert min(action.requested for action in timeline.instants) > "1"
    assert assert_locations(tmp_path) == (3 if is_known else 4)
    folder = tmp_path / METADATA_TABLE / "record_index"
    slices = MetadataFileSlice.newest_of_all(timeline, metadata.names("record_index"), "record_index")
    names = [str(name) for one in slices for name in one.names]
    assert len(names) > 2
    for name in names:
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        with pytest.raises(CorruptFileError, match="is gone"):
            RecordIndex.open(table.storage, LsmTable(tmp_path).timeline, 0.5, TimelineCache())
        (folder / name).write_bytes(content)
    assert assert_locations(tmp_path) == (3 if is_known else 4)


def test_a_log_of_a_cold_partition_is_merged_so_that_actions_of_the_table_can_be_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "_LARGE_BASE", 0)
    monkeypatch.setattr(services, "_MOST_COMMITS", 12)
    archive = {"hoodie.keep.min.commits": 4, "hoodie.keep.max.commits": 6, "hoodie.clean.commits.retained": 1}
    table = LsmTable.create(tmp_path, PLAIN, {**BY_FILES, **LOCATED_BY_PARTITION, **archive})
    table.upsert(rows_of(*((f"k{number}", "cold", 0) for number in range(2000))))
    table.upsert(rows_of(("x", "warm", 0)))
    table.upsert(rows_of(("one more", "cold", 1)))
    for step in range(2, 60):
        table.upsert(rows_of((f"x{step}", "warm", step)))
    assert len(LsmTable(tmp_path).timeline.instants) < 40
    assert assert_locations(tmp_path) == 2001 + 59


@pytest.mark.parametrize("fault", [Fault.KILL_BEFORE, Fault.KILL_AFTER], ids=lambda fault: fault.name)
@pytest.mark.parametrize("what", ["made", "kept", "dropped", "grown"])
def test_a_writer_that_dies_at_any_call_leaves_no_wrong_location(
    what: str, fault: Fault, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(what)
    template = tmp_path / "template"
    located = {**OPTIONS, **LOCATED_BY_PARTITION}
    without = {**OPTIONS, "hoodie.metadata.enable": True, "hoodie.metadata.record.level.index.enable": False}
    before, after = without if what == "made" else located, without if what == "dropped" else located
    LsmTable.create(template, schema_of(""), before)
    for step in range(1, 5):
        LsmTable(template, before).upsert(written(draw, step))
    parts = ["a", "b", "c"] if what == "grown" else ["a", "b"]
    more = written(draw, 5)
    more = more.set_column(1, "part", pa.array([parts[place % len(parts)] for place in range(len(more))]))

    def upsert(root: Path, fates: dict[int, Fault]) -> FaultyStorage:
        table = LsmTable(root, after)
        faulty = FaultyStorage(LocalStorage(root), fates)
        table.storage = faulty
        with suppress(Killed, OSError, LsmError):
            table.upsert(more)
        return faulty

    unharmed = shutil.copytree(template, tmp_path / "unharmed")
    calls = upsert(unharmed, {}).calls
    expected = sorted(map(repr, LsmTable(unharmed).scan().to_arrow().to_pylist()))
    chosen = [number for number, (_, path) in enumerate(calls) if ".hoodie" in path]
    # Before the first delta commit of the index is completed.
    first = [number for number, (name, path) in enumerate(calls) if name == "put_if_absent" and "_0000000000" in path]
    for call in [*sample(chosen, 3 * len(what) + 5 * (fault is Fault.KILL_AFTER), 181), *first[-1:]]:
        root = shutil.copytree(template, tmp_path / "copy")
        upsert(root, {call: fault})
        if has_index(root):
            assert_locations(root)
        upsert(root, {})
        assert sorted(map(repr, LsmTable(root).scan().to_arrow().to_pylist())) == expected
        assert has_index(root) is (what != "dropped")
        if what != "dropped":
            assert_locations(root)
        assert_settled(root)
        assert "dropped the metadata table" not in caplog.text
        shutil.rmtree(root)


def test_logs_of_another_program_may_lack_keys_of_buckets_only(tmp_path: Path) -> None:
    """A table keeps the type of its index, so that a service that is not told it does not drop the record index."""

    class Files(Subfolder):
        def names(self, folder: str) -> list[str]:
            return [*super().names(folder), ".record-index-0000-0_20261128010203004.log.1_1-2-3"]

    chosen = {name: value for name, value in OPTIONS.items() if "bucket" not in name}
    table = LsmTable.create(tmp_path, schema_of(""), {**chosen, "hoodie.index.type": "SIMPLE"})
    table.upsert(written(random.Random(1), 1))
    for name in ("files", "record_index"):
        LsmTable(tmp_path).create_index(name)
    storage = LocalStorage(tmp_path)
    metadata: Any = Files(storage, METADATA_TABLE)
    no_lock: Any = None
    caches = TimelineCache(), ShardFiles()
    context = TableContext(storage, metadata, Options(), FILE_READERS, no_lock, *caches)
    kept = load_properties(storage)
    assert len(RecordIndexKind().open("record_index", context, kept).groups) == 10
    with pytest.raises(UnsupportedTable, match="another program wrote"):
        RecordIndexKind().open("record_index", context, {**kept, "lsm.index.type": "BUCKET"})


@pytest.mark.parametrize("form", [LOCATED, LOCATED_BY_PARTITION], ids=["global", "by partition"])
def test_it_gets_more_file_groups_when_its_keys_have_become_many(
    form: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, steps = random.Random(5), list[str]()

    def noted(name: str, done: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            steps.append(name)
            return done(*given)

        return call

    monkeypatch.setattr(record_index, "merged_slice", noted("read", record_index.merged_slice))
    monkeypatch.setattr(record_index, "split", noted("split", record_index.split))
    sizes = {
        "hoodie.metadata.record.index.min.filegroup.count": 1,
        "hoodie.metadata.record.index.max.filegroup.count": 20,
        "hoodie.metadata.partitioned.record.index.max.filegroup.count": 9,
        "hoodie.metadata.record.index.growth.factor": 1.0,
        "hoodie.metadata.record.index.max.filegroup.size": 48 * 2,
        "hoodie.metadata.compact.max.delta.commits": 2,
    }
    options = {**OPTIONS, **sizes, **form, "hoodie.datasource.write.partitionpath.field": "part"}
    table = LsmTable.create(tmp_path, schema_of(""), options)
    counts = []
    for step in range(1, 12):
        rows = written(draw, step)
        # A key is in one partition.
        parts = pa.array(["ab"[int(key[1:]) % 2] for key in rows["id"].to_pylist()])
        table.upsert(rows.set_column(1, "part", parts))
        if has_index(tmp_path):
            assert_locations(tmp_path)
            index = RecordIndex.open(table.storage, table.timeline, 0.5, TimelineCache())
            assert index is not None
            counts.append(sum(map(len, index.shards.values())))
        assert_settled(tmp_path)
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] > 4
    # The keys of one shard at a time are held.
    split = [place for place, step in enumerate(steps) if step == "split"]
    assert len(split) > 2
    assert {steps[place - 1] for place in split} == {"read"}


@pytest.mark.parametrize("version", [8, 9, 10])
@pytest.mark.parametrize("form", [LOCATED, LOCATED_BY_PARTITION], ids=["global", "by partition"])
def test_file_groups_without_keys_grow_with_the_others(form: dict[str, object], version: int, tmp_path: Path) -> None:
    options = {
        **OPTIONS,
        **form,
        "hoodie.write.table.version": version,
        "hoodie.metadata.record.index.min.filegroup.count": 16,
        "hoodie.metadata.record.index.max.filegroup.count": 256,
        "hoodie.metadata.partitioned.record.index.min.filegroup.count": 16,
        "hoodie.metadata.partitioned.record.index.max.filegroup.count": 256,
        "hoodie.metadata.record.index.growth.factor": 1.0,
        "hoodie.metadata.record.index.max.filegroup.size": 48,
        "hoodie.metadata.compact.max.delta.commits": 2,
    }
    table = LsmTable.create(tmp_path, schema_of(""), options)
    for step in range(8):
        keys = [f"k{number:03}" for number in range(5 * step, 5 * step + 5)]
        table.upsert(pa.table([keys, ["a"] * 5, [1] * 5, [False] * 5, [1] * 5], schema=schema_of("")))
    assert_locations(tmp_path)
    index = RecordIndex.open(table.storage, table.timeline, 0.5, TimelineCache())
    assert index is not None
    assert sum(map(len, index.shards.values())) > 16


def test_checksum_files_of_hadoop_beside_its_files_do_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Hudi writes one beside each file on a local disk."""
    table = LsmTable.create(
        tmp_path, schema_of(""), {**OPTIONS, **LOCATED_BY_PARTITION, "hoodie.write.table.version": 9}
    )
    draw = random.Random(1)
    for step in (1, 2, 3):
        table.upsert(written(draw, step))
    folder = tmp_path / ".hoodie/metadata/record_index"
    files = [file for file in folder.iterdir() if not file.name.endswith(".crc")]
    assert any(".log." in file.name for file in files)
    for file in files:
        (folder / f".{file.name}.crc").write_bytes(b"crc\0\0\0\2\0")
    LsmTable(tmp_path, table.options).upsert(written(draw, 4))
    assert [found.message for found in caplog.records if found.levelname == "WARNING"] == []
    assert has_index(tmp_path)
    # Data files of names that are not understood are not passed over.
    (folder / "record-index-a-0000-0_a_b_c.hfile").write_bytes(b"")
    LsmTable(tmp_path, table.options).upsert(written(draw, 5))
    assert "a file name that this release does not read" in caplog.text


@pytest.mark.parametrize("together", [1 << 16, 70])
def test_a_look_up_in_many_file_groups_holds_none_of_them_open_while_it_decodes_what_they_have(
    together: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = {f"hoodie.metadata.record.index.{end}.filegroup.count": 60 for end in ("min", "max")}
    table = LsmTable.create(tmp_path, schema_of("version 10"), OPTIONS)
    keys = [f"k{number:03d}" for number in range(240)]
    rows = pa.table([keys, ["a"] * 240, [1] * 240, [False] * 240, [1] * 240], schema=schema_of("version 10"))
    table.upsert(rows)
    other = pa.table([["other"], ["a"], [1], [False], [1]], schema=rows.schema)
    LsmTable(tmp_path, {**ENABLED, **LOCATED, **groups}).upsert(other)  # makes the index, of base files
    opened: list[int] = []

    def counted(cells: Any, schema_json: str, source: str) -> pa.RecordBatch:
        opened.append(len(list(Path("/proc/self/fd").iterdir())))
        return decode_locations(cells, schema_json, source)

    monkeypatch.setattr(shard_search, "decode_locations", counted)
    monkeypatch.setattr(shard_search, "_MOST_TOGETHER", together)
    again = LsmTable(tmp_path)
    index = RecordIndex.open(again.storage, again.timeline, 1.0, TimelineCache(), ShardFiles())
    assert index is not None
    before = len(list(Path("/proc/self/fd").iterdir()))
    found = index.find(pa.array([*keys, "absent"], pa.string()))
    assert found.keys.tolist() == list(range(240))
    assert max(opened) <= before + 4
    assert len(opened) == (1 if together > 240 else 4)
