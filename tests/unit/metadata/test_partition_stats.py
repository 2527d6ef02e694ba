"""The partitions ``partition_stats`` and ``bloom_filters`` of tables of ours: made, kept, dropped and right."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import LsmError
from streaming_lsm.format.metadata.column_stats import NO_TYPE
from streaming_lsm.format.metadata.partition_stats import FILE_ID
from streaming_lsm.metadata.column_ranges import decoded_ranges
from streaming_lsm.metadata.file_slices import MetadataFileSlice
from streaming_lsm.metadata.slice_records import numbered_groups, slice_records
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.timeline import Timeline
from tests.support.crash_points import sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.metadata_tables import (
    ENABLED,
    INDEXED,
    assert_blooms,
    assert_partition_ranges,
    assert_ranges,
    assert_settled,
)
from tests.unit.metadata.test_column_stats import KINDS, OPTIONS, SCHEMA, batch, partitions, shown

ALL = {"files", "column_stats", "partition_stats", "bloom_filters"}
EVERY = {**OPTIONS, **INDEXED}


def apart(draw: random.Random, ts: int) -> pa.Table:
    """Rows whose numbers in partition a are small, and in b are large."""
    rows = batch(draw, ts)
    moved = pc.add(rows.column("n"), pc.if_else(pc.equal(rows.column("part"), "b"), 10_000, 0))
    return rows.set_column(rows.schema.get_field_index("n"), "n", moved)


@pytest.mark.parametrize("kind", sample(list(KINDS), 1, 2))
def test_a_table_keeps_them(kind: str, tmp_path: Path) -> None:
    draw = random.Random(kind)
    table = LsmTable.create(tmp_path, SCHEMA, {**EVERY, **KINDS[kind]})
    for step in range(1, 8):
        table.upsert(apart(draw, step))
        if step == 3:
            table.delete(batch(draw, step, 4))
        if step % 3 == 0 and not table.config.is_copy_on_write:
            table.compact()
        if step == 4:
            table.clean()
    assert partitions(tmp_path) == ALL
    assert_settled(tmp_path)
    assert assert_ranges(tmp_path) > 30
    assert assert_partition_ranges(tmp_path) > 20
    assert assert_blooms(tmp_path)
    plain, skipping = LsmTable(tmp_path), LsmTable(tmp_path, ENABLED)
    for wanted in (pc.field("n") > 5_000, pc.field("n") < 5_000, pc.field("n").is_null(), pc.field("real") > 0.1):
        assert shown(skipping, wanted) == shown(plain, wanted), str(wanted)
    told = skipping.scan(filter=pc.field("n") > 5_000).explain()
    if kind != "partial updates":
        assert told.skipped.by_partition_ranges
        assert "skipped by partition_stats" in str(told)


@pytest.mark.parametrize("version", [9, 10])
def test_a_delete_adds_no_range_without_a_type_which_hudi_cannot_merge(version: int, tmp_path: Path) -> None:
    table = LsmTable.create(tmp_path, SCHEMA, {**EVERY, "hoodie.write.table.version": version})
    table.upsert(batch(random.Random(1), 1))
    table.delete(batch(random.Random(2), 2, 4))
    metadata = Subfolder(table.storage, ".hoodie/metadata")
    assert logged_types(metadata)
    assert NO_TYPE not in logged_types(metadata)
    LsmTable(tmp_path).drop_index("partition_stats")
    LsmTable(tmp_path).create_index("partition_stats")
    assert NO_TYPE not in logged_types(metadata)
    assert LsmTable(tmp_path).check_indexes().findings == ()


def logged_types(metadata: Subfolder) -> set[int]:
    """Ordinals of the types of all ranges in the newest slice, base and logs."""
    (group,) = numbered_groups("partition_stats", FILE_ID, metadata.names("partition_stats"))
    newest = MetadataFileSlice.newest(Timeline.load(metadata), metadata.names("partition_stats"), group)
    _, ranges = decoded_ranges(slice_records(newest, metadata, lambda _: True))
    return set(pc.struct_field(ranges.field("valueType"), "typeOrdinal").to_pylist())


def test_they_are_dropped_by_name_and_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    draw = random.Random(0)
    LsmTable.create(tmp_path, SCHEMA, {**OPTIONS, "hoodie.parquet.bloom.filter.enabled": True})
    LsmTable(tmp_path, OPTIONS).upsert(apart(draw, 1))
    for refused in ("partition.stats", "bloom.filter"):
        LsmTable(tmp_path, EVERY).upsert(apart(draw, 2))
        assert partitions(tmp_path) == ALL
        assert assert_partition_ranges(tmp_path)
        LsmTable(tmp_path, {**EVERY, f"hoodie.metadata.index.{refused}.enable": False}).upsert(apart(draw, 3))
        assert len(ALL - partitions(tmp_path)) == 1
        assert assert_ranges(tmp_path)
    assert "dropped partition_stats from the metadata table" in caplog.text
    assert "dropped bloom_filters from the metadata table" in caplog.text


def test_a_column_of_another_type_drops_the_ranges_of_partitions_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small = pa.schema([("id", pa.string()), ("part", pa.string()), ("n", pa.int32()), ("ts", pa.int64())])
    table = LsmTable.create(tmp_path, small, EVERY)
    rows = {"id": ["a", "b"], "part": ["a", "b"], "n": [1, 2], "ts": [1, 1]}
    table.upsert(pa.table(rows, small))
    kept = {key: value for key, value in EVERY.items() if key != "hoodie.metadata.index.partition.stats.enable"}
    wide = small.set(2, pa.field("n", pa.int64()))
    LsmTable(tmp_path, kept).upsert(pa.table({**rows, "n": [2**40, 3], "ts": [2, 2]}, wide))
    assert "column 'n' was int32 and is int64 now" in caplog.text
    assert partitions(tmp_path) == ALL - {"partition_stats"}
    assert shown(LsmTable(tmp_path, ENABLED), pc.field("n") > 5) == shown(LsmTable(tmp_path), pc.field("n") > 5)
    # Made again from files of both types.
    LsmTable(tmp_path, EVERY).upsert(pa.table({**rows, "n": [2**41, None], "ts": [3, 3]}, wide))
    assert partitions(tmp_path) == ALL
    assert assert_partition_ranges(tmp_path)
    assert shown(LsmTable(tmp_path, ENABLED), pc.field("n") > 5) == shown(LsmTable(tmp_path), pc.field("n") > 5)


def source_fields(root: Path) -> list[str]:
    definitions = json.loads((root / ".hoodie/.index_defs/index.json").read_text("utf-8"))["indexDefinitions"]
    found: list[str] = definitions["column_stats"]["sourceFields"]
    return found


@pytest.mark.parametrize("kind", ["version 10", "version 9", "copy on write"])
def test_ranges_follow_columns_that_are_added_dropped_and_renamed(kind: str, tmp_path: Path) -> None:
    draw = random.Random(kind)
    options = {**EVERY, **KINDS[kind]}
    LsmTable.create(tmp_path, SCHEMA, options).upsert(apart(draw, 1))
    before = source_fields(tmp_path)
    LsmTable(tmp_path, options).delete(batch(draw, 1, 2))
    wide = apart(draw, 2)
    wide = wide.append_column("late", pa.array(range(100, 100 + len(wide)), pa.int64()))
    LsmTable(tmp_path, options).upsert(wide)
    assert source_fields(tmp_path) == [*before, "late"]
    LsmTable(tmp_path, options).upsert(wide.set_column(wide.schema.get_field_index("late"), "late", wide["n"]))
    assert_ranges(tmp_path)
    assert assert_partition_ranges(tmp_path)
    plain, skipping = LsmTable(tmp_path), LsmTable(tmp_path, ENABLED)
    for wanted in (pc.field("late") > 5_000, pc.field("late") < 150, pc.field("late").is_null()):
        assert shown(skipping, wanted) == shown(plain, wanted), str(wanted)
    LsmTable(tmp_path, options).drop_columns(["price"])
    LsmTable(tmp_path, options).rename_columns({"late": "later"})
    last = batch(draw, 4).drop_columns(["price"])
    LsmTable(tmp_path, options).upsert(last.append_column("later", last.column("n")))
    assert source_fields(tmp_path) == [name for name in before if name != "price"]
    assert partitions(tmp_path) == ALL
    assert_ranges(tmp_path)
    assert_partition_ranges(tmp_path)
    plain, skipping = LsmTable(tmp_path), LsmTable(tmp_path, ENABLED)
    for wanted in (pc.field("later") > 5_000, pc.field("n") > 5_000):
        assert shown(skipping, wanted) == shown(plain, wanted), str(wanted)


def test_ranges_of_nested_columns_which_hudi_records_are_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = {key: value for key, value in EVERY.items() if ".index." not in key}
    LsmTable.create(tmp_path, SCHEMA, EVERY).upsert(apart(random.Random(0), 1))
    path = tmp_path / ".hoodie/.index_defs/index.json"
    path.write_text(path.read_text("utf-8").replace('"day"', '"inner.x"'), encoding="utf-8")
    LsmTable(tmp_path, kept).upsert(apart(random.Random(0), 2))
    assert "column 'inner.x' is nested" in caplog.text
    assert partitions(tmp_path) == {"files", "bloom_filters"}


def test_ranges_of_partitions_go_with_those_of_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = {key: value for key, value in EVERY.items() if ".index." not in key}
    table = LsmTable.create(tmp_path, SCHEMA, EVERY)
    table.upsert(apart(random.Random(0), 1))
    table.upsert(apart(random.Random(0), 2))
    for log in (tmp_path / ".hoodie/metadata/column_stats").glob("*.log.*"):
        log.write_bytes(log.read_bytes()[:-9])
    for step in range(3, 6):
        LsmTable(tmp_path, kept).upsert(apart(random.Random(0), step))
    assert "dropped column_stats, partition_stats from the metadata table" in caplog.text
    assert partitions(tmp_path) == {"files", "bloom_filters"}
    LsmTable(tmp_path, {**EVERY, "hoodie.metadata.index.column.stats.column.list": "day"}).upsert(
        apart(random.Random(0), 6)
    )
    assert source_fields(tmp_path)[3:] == ["day"]
    assert partitions(tmp_path) == ALL
    assert assert_partition_ranges(tmp_path)


def test_columns_that_were_chosen_are_not_followed(tmp_path: Path) -> None:
    options = {**EVERY, "hoodie.metadata.index.column.stats.column.list": "n,day"}
    LsmTable.create(tmp_path, SCHEMA, options).upsert(apart(random.Random(0), 1))
    rows = apart(random.Random(0), 2)
    LsmTable(tmp_path, options).upsert(rows.append_column("late", rows.column("n")))
    assert source_fields(tmp_path)[3:] == ["n", "day"]


def test_a_snapshot_of_before_does_not_miss_rows_by_bounds_of_now(tmp_path: Path) -> None:
    draw = random.Random(7)
    table = LsmTable.create(tmp_path, SCHEMA, EVERY)
    first = table.upsert(apart(draw, 1))
    assert first is not None
    before = {number: shown(LsmTable(tmp_path), pc.field("n") > number) for number in (5, 10_010)}
    for step in range(2, 6):
        table.upsert(apart(draw, step))
    skipping = LsmTable(tmp_path, ENABLED)
    for number, rows in before.items():
        old = skipping.scan(filter=pc.field("n") > number, as_of=first.completed).to_arrow()
        assert sorted(map(repr, old.to_pylist())) == rows


@pytest.mark.parametrize("fault", [Fault.KILL_BEFORE, Fault.KILL_AFTER], ids=lambda fault: fault.name)
def test_a_writer_that_dies_at_any_call_leaves_them_right(fault: Fault, tmp_path: Path) -> None:
    draw = random.Random(5)
    template = tmp_path / "template"
    LsmTable.create(template, SCHEMA, EVERY)
    for step in range(1, 5):
        LsmTable(template, EVERY).upsert(apart(draw, step))
    more = apart(draw, 5)

    def upsert(root: Path, fates: dict[int, Fault]) -> FaultyStorage:
        table = LsmTable(root, EVERY)
        table.storage = faulty = FaultyStorage(LocalStorage(root), fates)
        with suppress(Killed, OSError, LsmError):
            table.upsert(more)
        return faulty

    unharmed = tmp_path / "unharmed"
    shutil.copytree(template, unharmed)
    calls = upsert(unharmed, {}).calls
    chosen = [number for number, (_, path) in enumerate(calls) if ".hoodie" in path]
    for call in sample(chosen, 5, 113):
        root = tmp_path / "copy"
        shutil.copytree(template, root)
        upsert(root, {call: fault})
        assert_partition_ranges(root)
        upsert(root, {})
        assert_settled(root)
        assert partitions(root) == ALL
        assert assert_partition_ranges(root)
        assert_ranges(root)
        assert_blooms(root)
        shutil.rmtree(root)


def test_no_partition_is_skipped_by_a_metadata_table_that_has_fallen_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(1)
    table = LsmTable.create(tmp_path, SCHEMA, EVERY)
    for step in (1, 2):
        table.upsert(apart(draw, step))
    opened, wanted = LsmTable(tmp_path, ENABLED), pc.field("n") > 20_000
    assert not shown(opened, wanted)
    rows = apart(draw, 3)
    table.upsert(rows.set_column(rows.schema.get_field_index("n"), "n", pc.add(rows.column("n"), 30_000)))
    expected = shown(LsmTable(tmp_path), wanted)
    assert expected
    sorted((tmp_path / ".hoodie/metadata/.hoodie/timeline").glob("*.deltacommit"))[-1].unlink()
    for reader in (opened, LsmTable(tmp_path, ENABLED)):
        assert shown(reader, wanted) == expected
    assert "no partition is skipped by it: .hoodie/metadata has fallen behind" in caplog.text


def test_lost_definitions_cost_the_indexes_that_they_define_and_no_write(tmp_path: Path) -> None:
    options = {
        "hoodie.table.name": "defined",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.index.type": "RECORD_INDEX",
        "hoodie.metadata.index.secondary.column": "c",
        "hoodie.metadata.index.column.stats.enable": True,
    }
    rows = pa.table({"id": ["a", "b"], "c": ["x", "y"], "n": [1, 2]})
    table = LsmTable.create(tmp_path, rows.schema, options | ENABLED)
    for _ in range(2):
        table.upsert(rows)
    (tmp_path / ".hoodie/.index_defs/index.json").unlink()
    LsmTable(tmp_path).upsert(rows)
    assert partitions(tmp_path) == {"files", "record_index"}
    again = LsmTable(tmp_path, options | ENABLED)
    again.upsert(rows)
    assert partitions(tmp_path) == {"files", "record_index", "column_stats", "secondary_index_c"}
    assert again.check_indexes().is_sound
    assert again.scan(filter=pc.field("c") == "y").to_arrow().to_pylist() == [{"id": "b", "c": "y", "n": 2}]
