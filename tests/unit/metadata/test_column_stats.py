"""The partition ``column_stats`` of tables of ours: made, kept, dropped, made again; right whenever a writer dies."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable, writable_table
from streaming_lsm.errors import CommitConflict, CorruptFileError, LsmError
from streaming_lsm.index.file_readers import FILE_READERS
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.properties_file import load_properties
from tests.support.crash_points import sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.metadata_tables import ENABLED, PARTITIONS, RANGED, assert_ranges, assert_settled

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("n", pa.int64()),
        ("real", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("inner", pa.struct([("x", pa.int64())])),
        ("ts", pa.int64()),
    ]
)
OPTIONS: dict[str, object] = {
    **RANGED,
    "hoodie.table.name": "ranged",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.metadata.compact.max.delta.commits": 3,
    "hoodie.clean.commits.retained": 1,
    "lsm.read.threads": 1,
}
KINDS: dict[str, dict[str, object]] = {
    "version 10": {},
    "default layout": {"hoodie.table.storage.layout": "default"},
    "copy on write": {"hoodie.table.type": "COPY_ON_WRITE"},
    "version 9": {"hoodie.write.table.version": 9},
    "copy on write of version 9": {"hoodie.table.type": "COPY_ON_WRITE", "hoodie.write.table.version": 9},
    "partial updates": {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
}


def batch(draw: random.Random, ts: int, count: int = 12) -> pa.Table:
    rows = [
        {
            "id": f"k{draw.randrange(30):02d}",
            "part": draw.choice(["a", "b"]),
            "n": draw.choice([None, ts * 10 + draw.randrange(10)]),
            "real": draw.choice([None, 0.5, float("nan")]),
            "price": draw.choice([None, ts, -ts]),
            "day": draw.choice([None, ts]),
            "at": ts * 1_000_000,
            "inner": {"x": ts},
            "ts": ts,
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def shown(table: LsmTable, wanted: pc.Expression | None = None) -> list[str]:
    return sorted(map(repr, table.scan(filter=wanted).to_arrow().to_pylist()))


def assert_skipping(root: Path, numbers: Sequence[int] = (5, 28, 51)) -> int:
    """Filters find the same rows with the ranges as without; return how many slices they skip."""
    plain, skipping = LsmTable(root), LsmTable(root, ENABLED)
    skipped = 0
    for number in numbers:
        for wanted in (pc.field("n") == number, pc.field("ts") > number // 10, pc.field("n").is_null()):
            assert shown(skipping, wanted) == shown(plain, wanted), str(wanted)
            skipped += skipping.scan(filter=wanted).explain().skipped.by_ranges
    return skipped


def partitions(root: Path) -> set[str]:
    return set(load_properties(LocalStorage(root)).get(PARTITIONS, "").split(","))


@pytest.mark.parametrize("kind", sample(list(KINDS), 0, 2))
def test_a_table_that_is_made_with_them_keeps_them(kind: str, tmp_path: Path) -> None:
    draw = random.Random(kind)
    table = LsmTable.create(tmp_path, SCHEMA, {**OPTIONS, **KINDS[kind]})
    for step in range(1, 9):
        table.upsert(batch(draw, step))
        if step in (3, 6):
            table.delete(batch(draw, step, 4))
        if step % 3 == 0 and not table.config.is_copy_on_write:
            table.compact()
        if step % 4 == 0:
            table.clean()
    assert partitions(tmp_path) == {"files", "column_stats"}
    assert assert_ranges(tmp_path) > 30
    assert_settled(tmp_path)
    skipped = assert_skipping(tmp_path)
    assert skipped or kind == "partial updates"
    assert len(list((tmp_path / ".hoodie/metadata/column_stats").iterdir())) < 25


def test_a_table_gets_them_later_loses_them_and_gets_them_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(0)
    plain = {key: value for key, value in OPTIONS.items() if not key.startswith("hoodie.metadata.")}
    LsmTable.create(tmp_path, SCHEMA, plain).upsert(batch(draw, 1))
    for number, options in enumerate([OPTIONS, {**OPTIONS, "hoodie.metadata.index.column.stats.enable": False}] * 2):
        table = LsmTable(tmp_path, options)
        for _ in range(4):
            table.upsert(batch(draw, 2 + number))
            assert_settled(tmp_path)
        if number % 2:
            assert partitions(tmp_path) == {"files"}
            assert not (tmp_path / ".hoodie/metadata/column_stats").exists()
            assert not (tmp_path / ".hoodie/.index_defs").exists()
        else:
            assert partitions(tmp_path) == {"files", "column_stats"}
            assert assert_ranges(tmp_path) > 30
            assert assert_skipping(tmp_path)
    assert "dropped column_stats from the metadata table" in caplog.text


def test_they_are_made_when_a_clean_that_died_among_its_deletions_is_completed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(2)
    both = {**OPTIONS, "hoodie.metadata.index.partition.stats.enable": True}
    asked = {**both, "hoodie.clean.automatic": False}
    kept = {key: value for key, value in asked.items() if key not in RANGED} | ENABLED
    table = LsmTable.create(tmp_path / "t", SCHEMA, {**kept, "hoodie.table.type": "COPY_ON_WRITE"})
    for step in range(1, 5):
        table.upsert(batch(draw, step))
    shutil.copytree(tmp_path / "t", tmp_path / "tried")
    tried = LsmTable(tmp_path / "tried", kept)
    tried.storage = counted = FaultyStorage(tried.storage)
    tried.clean()
    deletes = next(at for at, (what, path) in enumerate(counted.calls) if what == "delete_files" and path[0] in "ab")
    dying = LsmTable(tmp_path / "t", kept)
    dying.storage = FaultyStorage(dying.storage, {deletes: Fault.KILL_AFTER})
    with pytest.raises(Killed):
        dying.clean()

    wanted = LsmTable(tmp_path / "t", asked)
    for step in (5, 6):
        wanted.upsert(batch(draw, step))
    assert partitions(tmp_path / "t") == {"files"}
    assert caplog.text.count(f"column_stats of {wanted.storage.uri} is created when clean") == 1
    with pytest.raises(CommitConflict, match=r"clean \d+ of .* is pending and deletes files that column_stats is made"):
        LsmTable(tmp_path / "t", kept).create_index("column_stats")
    wanted.clean()
    wanted.upsert(batch(draw, 7))
    assert partitions(tmp_path / "t") == {"files", "column_stats", "partition_stats"}
    assert assert_ranges(tmp_path / "t")
    assert_settled(tmp_path / "t")
    assert assert_skipping(tmp_path / "t")


def test_some_columns_are_chosen_and_absent_ones_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chosen = "hoodie.metadata.index.column.stats.column.list"
    table = LsmTable.create(tmp_path / "one", SCHEMA, {**OPTIONS, chosen: "n,day"})
    table.upsert(batch(random.Random(0), 1))
    assert assert_ranges(tmp_path / "one")
    text = (tmp_path / "one/.hoodie/.index_defs/index.json").read_text("utf-8")
    assert '"n"' in text
    assert '"price"' not in text
    other = LsmTable.create(tmp_path / "other", SCHEMA, {**OPTIONS, chosen: "inner"})
    with caplog.at_level(logging.WARNING):
        other.upsert(batch(random.Random(0), 1))
    assert "no column_stats was created for" in caplog.text
    assert "column 'inner' is nested or not in the table, which has id, part, n, real" in caplog.text
    assert partitions(tmp_path / "other") == {"files"}


@pytest.mark.parametrize("version", [9, 10])
def test_a_column_that_is_named_twice_is_recorded_once(version: int, tmp_path: Path) -> None:
    named = {"hoodie.metadata.index.column.stats.column.list": "n,ts,n", "hoodie.write.table.version": version}
    table, draw = LsmTable.create(tmp_path, SCHEMA, {**OPTIONS, **named}), random.Random(version)
    for step in (1, 2):
        table.upsert(batch(draw, step))
        table.delete(batch(draw, step, 3))
    assert table.check_indexes().findings == ()
    assert table.check_indexes().records["column_stats"]


def test_a_damaged_log_of_theirs_costs_them_and_not_the_list_of_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(3)
    table = LsmTable.create(tmp_path, SCHEMA, OPTIONS)
    for step in range(1, 3):
        table.upsert(batch(draw, step))
    for log in (tmp_path / ".hoodie/metadata/column_stats").glob("*.log.*"):
        log.write_bytes(log.read_bytes()[:-9])
    kept = {key: value for key, value in OPTIONS.items() if key != "hoodie.metadata.index.column.stats.enable"}
    for step in range(3, 6):
        LsmTable(tmp_path, kept).upsert(batch(draw, step))
        assert_settled(tmp_path)
    assert "dropped column_stats from the metadata table" in caplog.text
    assert "dropped the metadata table" not in caplog.text
    assert partitions(tmp_path) == {"files"}
    assert not (tmp_path / ".hoodie/metadata/column_stats").exists()
    LsmTable(tmp_path, OPTIONS).upsert(batch(draw, 6))
    assert assert_ranges(tmp_path) > 30


def test_a_file_whose_ranges_cannot_be_read_costs_them_and_not_the_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(4)
    table = LsmTable.create(tmp_path, SCHEMA, OPTIONS)
    table.upsert(batch(draw, 1))

    def damaged(_storage: Storage, path: str, _columns: Sequence[str]) -> list[dict[str, Any]]:
        raise CorruptFileError(f"{path} is damaged")

    monkeypatch.setattr(writable_table, "FILE_READERS", replace(FILE_READERS, ranges=damaged))
    table.upsert(batch(draw, 2))
    # The files of a write are not read: their writers tell the ranges.
    assert partitions(tmp_path) == {"files", "column_stats"}
    table.compact()
    assert_settled(tmp_path)
    assert partitions(tmp_path) == {"files"}
    assert ".parquet is damaged" in caplog.text
    assert "dropped the metadata table" not in caplog.text


@pytest.mark.parametrize("fault", [Fault.KILL_BEFORE, Fault.KILL_AFTER], ids=lambda fault: fault.name)
@pytest.mark.parametrize("what", ["made", "kept", "dropped"])
def test_a_writer_that_dies_at_any_call_leaves_no_wrong_range(what: str, fault: Fault, tmp_path: Path) -> None:
    draw = random.Random(what)
    template = tmp_path / "template"
    before = {**OPTIONS, **({} if what != "made" else {"hoodie.metadata.index.column.stats.enable": False})}
    after = {**OPTIONS, **({} if what != "dropped" else {"hoodie.metadata.index.column.stats.enable": False})}
    LsmTable.create(template, SCHEMA, before)
    for step in range(1, 5):
        LsmTable(template, before).upsert(batch(draw, step))
    more = batch(draw, 5)

    def upsert(root: Path, options: dict[str, object], fates: dict[int, Fault]) -> FaultyStorage:
        table = LsmTable(root, options)
        faulty = FaultyStorage(LocalStorage(root), fates)
        table.storage = faulty
        with suppress(Killed, OSError, LsmError):
            table.upsert(more)
        return faulty

    unharmed = tmp_path / "unharmed"
    shutil.copytree(template, unharmed)
    calls = upsert(unharmed, after, {}).calls
    expected = shown(LsmTable(unharmed))
    chosen = [number for number, (_, path) in enumerate(calls) if ".hoodie" in path]
    for call in sample(chosen, 3 * len(what) + 5 * (fault is Fault.KILL_AFTER), 151):
        root = tmp_path / "copy"
        shutil.copytree(template, root)
        upsert(root, after, {call: fault})
        assert_skipping(root, [28])
        upsert(root, after, {})
        assert shown(LsmTable(root)) == expected
        assert_settled(root)
        assert ("column_stats" in partitions(root)) is (what != "dropped")
        if what != "dropped":
            assert_ranges(root)
        assert_skipping(root, [28])
        shutil.rmtree(root)


FAR = 3_000_000
"""Days, of the year 10183: no `date` of Python goes so far."""


@pytest.mark.parametrize("version", [9, 10])
def test_times_beyond_those_of_python_have_ranges(version: int, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])
    options: dict[str, object] = {
        **RANGED,
        "hoodie.table.name": "far",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.write.table.version": version,
    }
    table = LsmTable.create(tmp_path, schema, options)

    def upsert(ids: list[str], days: list[int | None]) -> None:
        day = pa.array(days, pa.int32()).cast(pa.date32())
        table.upsert(pa.table([ids, day, day.cast(pa.timestamp("s")).cast(schema.field("at").type)], schema=schema))

    upsert(["a", "b"], [FAR, None])
    upsert(["a", "c"], [FAR + 1, 0])
    table.compact()
    assert_ranges(tmp_path)
    table.create_index(
        "expr_index_year", {"hoodie.metadata.index.expression.column": "at", "hoodie.expression.index.function": "year"}
    )
    upsert(["c"], [-FAR])
    assert not table.check_indexes().findings
    for days, ids in ((FAR + 1, ["a"]), (FAR, []), (-FAR, ["c"])):
        day = pa.scalar(days, pa.int32()).cast(pa.date32())
        at = day.cast(pa.timestamp("s")).cast(schema.field("at").type)
        for wanted in (pc.field("day") == day, pc.field("at") == at):
            rows = LsmTable(tmp_path, ENABLED).scan(columns=["id"], filter=wanted).to_arrow()
            assert rows.column("id").to_pylist() == ids, str(wanted)


def test_ranges_of_a_column_that_was_renamed_are_not_left_over(tmp_path: Path) -> None:
    draw = random.Random(0)
    table = LsmTable.create(tmp_path, SCHEMA, OPTIONS)
    table.upsert(batch(draw, 1))
    table.compact()
    table.rename_columns({"n": "number"})
    for step in (2, 3):
        table.upsert(batch(draw, step).rename_columns({"n": "number"}))
        table.compact()
        table.clean()
    assert not table.check_indexes().findings
