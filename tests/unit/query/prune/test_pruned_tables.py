"""Filtered scans of tables whose paths, keys or values say less than they seem to: the rows of the whole scan."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.file_group.data_file import conform
from tests.support.mixing_merger import STRATEGY

ID, TS = ("id", pa.string()), ("ts", pa.int64())
TIMES = pa.timestamp("us", "UTC")
FAR = 300_000_000_000_000_000
"""Microseconds until a time in year 11,476; Python's times end with year 9999."""
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "pruned",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 1,
    "lsm.parquet.row.group.rows": 4,
}
IN_P: dict[str, object] = {"hoodie.datasource.write.partitionpath.field": "p"}


def root_of(table: LsmTable) -> Path:
    return Path(table.path.removeprefix("file://"))


def create(root: Path, schema: pa.Schema, **options: object) -> LsmTable:
    return LsmTable.create(root, schema, {**OPTIONS, **options})


def assert_same(table: LsmTable, wanted: pc.Expression) -> None:
    whole = table.scan().to_arrow().filter(wanted)
    found = table.scan(filter=wanted).to_arrow()
    assert found.sort_by("ts").equals(whole.sort_by("ts")), str(wanted)


PARTIAL = "hoodie.table.partial.update.mode"
TWO = pa.schema([ID, ("count", pa.int64()), ("text", pa.string()), TS])


def _two(count: int | None, text: str | None, ts: int) -> pa.Table:
    return pa.table({"id": ["k"], "count": pa.array([count], pa.int64()), "text": [text], "ts": [ts]}, TWO)


@pytest.mark.parametrize("mode", ["IGNORE_DEFAULTS", "FILL_UNAVAILABLE", "CUSTOM"])
def test_values_that_no_version_has_together_are_found(mode: str, tmp_path: Path) -> None:
    """A row of several versions meets a filter that neither of them meets."""
    options: dict[str, object] = {PARTIAL: mode}
    if mode == "CUSTOM":
        options = {"hoodie.record.merge.mode": mode, "hoodie.record.merge.strategy.id": STRATEGY}
    unsent = "__debezium_unavailable_value" if mode == "FILL_UNAVAILABLE" else None
    table = create(tmp_path, TWO, **options)
    table.upsert(_two(1, "old", 1))
    table.compact()
    table.upsert(_two(2, unsent, 2))
    (row,) = table.scan().to_arrow().to_pylist()
    assert (row["count"], row["text"]) == (4 if mode == "CUSTOM" else 2, "old")
    count, text = pc.field("count") == row["count"], pc.field("text") == "old"
    for wanted in (count & text, text & (pc.field("ts") == 2), ~((pc.field("count") != row["count"]) | ~text), count):
        assert table.scan(filter=wanted).to_arrow().to_pylist() == [row], str(wanted)
        assert table.scan(filter=wanted).count() == 1
    table.compact()
    assert table.scan(filter=count & text).to_arrow().to_pylist() == [row]
    assert table.scan(filter=pc.field("count") == 1).explain().counts.files_skipped == 1


def widened(table: LsmTable) -> LsmTable:
    """The table after another program has widened its float columns to double."""
    done = table.timeline.completed_writes[-1]
    commit = table.timeline.read_commit(done)
    extra = {**commit.extra, "schema": commit.extra["schema"].replace('"float"', '"double"')}
    (root_of(table) / done.path).write_bytes(replace(commit, extra=extra).encode())
    return LsmTable(root_of(table))


def with_properties(table: LsmTable, **changed: str) -> LsmTable:
    """The table with other properties; empty ones are left out."""
    path = root_of(table) / ".hoodie/hoodie.properties"
    names = ("#", *changed)
    kept = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith(names)]
    lines = [*kept, *(f"{name}={value}" for name, value in changed.items() if value)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return LsmTable(root_of(table))


@pytest.mark.parametrize("kind", [pa.string(), pa.int64()], ids=str)
def test_a_path_that_cannot_be_split_may_be_that_of_null(tmp_path: Path, kind: pa.DataType) -> None:
    schema = pa.schema([ID, TS, ("p", kind), ("q", pa.string())])
    table = create(tmp_path, schema, **{"hoodie.datasource.write.partitionpath.field": "p,q"})
    known = pa.array(["7"]).cast(kind)[0].as_py()
    columns = {"id": ["1", "2"], "ts": [1, 2], "p": [None, known], "q": ["a/b", "c"]}
    table.upsert(pa.table(columns, schema=schema))
    for wanted in (pc.field("p").is_null(), ~pc.field("p").is_valid(), pc.field("p") == known):
        assert_same(table, wanted)


def test_the_folder_of_null_before_hudi_0_12_may_be_that_of_null(tmp_path: Path) -> None:
    schema = pa.schema([ID, TS, ("p", pa.string())])
    table = create(tmp_path, schema, **IN_P)
    table.upsert(pa.table({"id": ["1"], "ts": [1], "p": ["default"]}, schema=schema))
    wanted = pc.field("p").is_null()
    assert len(table.scan(filter=wanted).slices) == 1
    assert_same(table, pc.field("p") == "default")


def test_no_older_version_comes_back_whose_key_has_the_same_text(tmp_path: Path) -> None:
    schema = pa.schema([("id", TIMES), TS])
    logical = {"hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": True}
    table = create(tmp_path, schema, **logical, **{"lsm.keys.ambiguous": "allow"})
    for ts in (1, 2):  # microseconds, of which the text of the key has none
        table.upsert(pa.table([pa.array([ts]).cast(TIMES), pa.array([ts])], schema=schema))
    assert table.scan().to_arrow().num_rows == 1
    for ts in (1, 2):
        assert_same(table, pc.field("id") == pa.scalar(ts, pa.int64()).cast(TIMES))


def test_a_float_column_that_was_widened_is_not_told_by_its_texts(tmp_path: Path) -> None:
    keys = pa.schema([("id", pa.float32()), TS])
    table = create(tmp_path / "keys", keys)
    table.upsert(pa.table({"id": [0.1], "ts": [1]}, schema=keys))
    table = widened(table)
    table.upsert(pa.table({"id": [0.1], "ts": [2]}))
    for wanted in (pc.field("id") > 0.1, pc.field("id") == 0.1):
        assert_same(table, wanted)
    rows = pa.schema([ID, TS, ("p", pa.float32())])
    table = create(tmp_path / "paths", rows, **IN_P)
    table.upsert(pa.table({"id": ["a"], "ts": [1], "p": [0.1]}, schema=rows))
    table = widened(table)
    assert table.scan(filter=pc.field("p") == 0.1).to_arrow().num_rows == 1
    for wanted in (pc.field("p") > 0.1, pc.field("p") == 0.1):
        assert_same(table, wanted)


@pytest.mark.parametrize(
    "changed",
    [
        {"hoodie.keygen.timebased.timestamp.type": ""},
        {"hoodie.keygen.timebased.timestamp.type": "EPOCHNANOS"},
        {"hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd ZZZ"},
        {"hoodie.table.keygenerator.type": "SIMPLE", "hoodie.table.recordkey.fields": "id,ts"},
    ],
    ids=lambda changed: " ".join(changed),
)
def test_a_table_of_an_unknown_key_generator_is_filtered_by_its_values(tmp_path: Path, changed: dict[str, str]) -> None:
    schema = pa.schema([ID, TS, ("p", pa.int64())])
    times = {
        "hoodie.table.keygenerator.type": "TIMESTAMP",
        "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
    }
    table = create(tmp_path, schema, **IN_P, **times)
    table.upsert(pa.table({"id": ["a", "b"], "ts": [1, 2], "p": [1_767_225_600, 5]}, schema=schema))
    strange = with_properties(table, **changed)
    for wanted in (pc.field("id") == "a", pc.field("p") < 9):
        assert_same(strange, wanted)


@pytest.mark.parametrize("partitioned", [True, False])
def test_a_time_that_python_cannot_hold_is_a_value_like_others(tmp_path: Path, *, partitioned: bool) -> None:
    schema = pa.schema([ID, TS, ("p", TIMES)])
    table = create(tmp_path, schema, **(IN_P if partitioned else {}))
    times = pa.array([FAR, 5]).cast(TIMES)
    table.upsert(pa.table([pa.array(["a", "b"]), pa.array([1, 2]), times], schema=schema))
    at = pc.field("p")
    for wanted in (pc.field("id") == "a", at == times[0], at > times[1], at.isin(times), at.isin(times[1:])):
        shown = table.scan(["id"], filter=wanted).to_arrow()
        assert shown.equals(table.scan().to_arrow().filter(wanted).select(["id"]))


def test_a_date_before_the_first_year_is_a_value_like_others(tmp_path: Path) -> None:
    schema = pa.schema([ID, TS, ("p", pa.date32())])
    table = create(tmp_path, schema, **IN_P)
    days = pa.array([-719_528, 5], pa.int32()).cast(pa.date32())
    table.upsert(pa.table([pa.array(["a", "b"]), pa.array([1, 2]), days], schema=schema))
    for wanted in (pc.field("id") == "a", pc.field("p") > dt.date(1970, 1, 2), pc.field("p") < dt.date(1970, 1, 2)):
        shown = table.scan(["id"], filter=wanted).to_arrow()
        assert shown.equals(table.scan().to_arrow().filter(wanted).select(["id"]))


def test_values_that_no_value_of_the_column_equals_are_none_of_its_rows(tmp_path: Path) -> None:
    schema = pa.schema([ID, TS])
    table = create(tmp_path, schema)
    table.upsert(pa.table({"id": ["a"], "ts": [1]}, schema=schema))
    assert_same(table, pc.field("ts").isin(pa.array([2**64 - 1], pa.uint64())))


def test_a_filter_of_a_thousand_levels_skips_nothing_and_keeps_its_rows(tmp_path: Path) -> None:
    schema = pa.schema([ID, TS])
    table = create(tmp_path, schema)
    table.upsert(pa.table({"id": ["a", "b"], "ts": [1, 2]}, schema=schema))
    wanted = pc.field("ts") == 1
    for number in range(1200):
        wanted = ~(wanted & (pc.field("ts") == number % 3))
    assert_same(table, wanted)
    chain = pc.field("ts") == 0
    for number in range(1, 1200):  # a chain is of one level
        chain = chain | (pc.field("ts") == -number)
    assert table.scan(filter=chain).explain().counts.rows == 0


@pytest.mark.parametrize("layout", ["lsm_tree", "default"])
def test_what_is_explained_is_what_is_read(tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([ID, TS])
    table = create(tmp_path, schema, **{"hoodie.table.storage.layout": layout, "lsm.read.threads": 1})
    table.bulk_insert(pa.table({"id": [f"k{number:02d}" for number in range(40)], "ts": [1] * 40}, schema=schema))
    table.upsert(pa.table({"id": ["k01"], "ts": [2]}, schema=schema))
    scan = table.scan(filter=pc.field("id") == "k30")
    told, seen = scan.explain().counts, list[int]()

    def counted(batch: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.RecordBatch:
        seen.append(batch.num_rows)
        return conform(batch, schema, path)

    monkeypatch.setattr("streaming_lsm.file_group.data_file.conform", counted)
    assert scan.to_arrow().num_rows == 1
    assert told.files == 2
    assert (told.row_groups, told.whole_slices) == (11, 0)
    assert sum(seen) == told.rows == 4
