"""What a table in the hands of its writer does when the folder holds, or suddenly holds, something unusual."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, RecordError, SchemaError, TableNotFound
from streaming_lsm.timeline.properties_file import update_properties
from tests.oracle.reader import read_snapshot
from tests.oracle.writer import GOLDEN

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
}
ODD_PARTITIONS = [
    ".x",
    ".tmp",
    "...",
    "a/.b",
    " ",
    " DE",
    "DE ",
    "a\u2028b",
    "\x0b",
    "日本",
    "%2e%2e",
    "=",
    "x.parquet",
]


def rows(partitions: list[str], ts: int = 1) -> pa.Table:
    ids = [f"k{number}" for number in range(len(partitions))]
    return pa.table({"id": ids, "part": partitions, "ts": [ts] * len(ids)}, schema=SCHEMA)


@pytest.mark.parametrize("url_encode", [False, True])
def test_rows_in_oddly_named_partitions_are_read_and_found_again_by_the_next_writer(
    url_encode: bool, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    LsmTable.create(path, SCHEMA, {**OPTIONS, "hoodie.datasource.write.partitionpath.urlencode": url_encode})
    for ts in (1, 2):
        LsmTable(path).upsert(rows(ODD_PARTITIONS, ts))
    found = LsmTable(path).scan().to_arrow()
    assert sorted(found["part"].to_pylist()) == sorted(ODD_PARTITIONS)
    assert set(found["ts"].to_pylist()) == {2}
    assert read_snapshot(path).num_rows == len(ODD_PARTITIONS)
    assert all(len(file_slice.logs) == 2 for file_slice in LsmTable(path).file_slices())


def test_a_write_to_a_table_that_was_removed_meanwhile_is_refused(tmp_path: Path) -> None:
    table = LsmTable.create(tmp_path / "t", SCHEMA, OPTIONS)
    table.upsert(rows(["a"]))
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(TableNotFound):
        table.upsert(rows(["a"]))


@pytest.mark.parametrize(
    "change", [{"lsm.bucket.index.num.buckets": "4"}, {"hoodie.table.ordering.fields": "id"}], ids=str
)
def test_a_write_to_a_table_whose_settings_were_changed_meanwhile_is_refused(
    change: dict[str, str], tmp_path: Path
) -> None:
    table = LsmTable.create(tmp_path / "t", SCHEMA, OPTIONS)
    table.upsert(rows(["a"]))
    update_properties(table.storage, change)
    with pytest.raises(ConfigError, match="was changed since the table was opened"):
        table.upsert(rows(["a"]))
    assert len(LsmTable(tmp_path / "t").timeline.completed_writes) == 1


@pytest.mark.parametrize("count", [0, 1, 3], ids="{} writes before".format)
def test_a_read_of_a_table_that_was_created_again_with_other_settings_is_refused(count: int, tmp_path: Path) -> None:
    LsmTable.create(tmp_path / "t", SCHEMA, OPTIONS)
    opened = LsmTable(tmp_path / "t")
    for _ in range(count):
        LsmTable(tmp_path / "t").upsert(rows(["a"]))
        assert opened.scan().to_arrow().num_rows == 1
    assert opened.scan().to_arrow().num_rows == min(count, 1)
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(TableNotFound):
        opened.scan()
    again = LsmTable.create(tmp_path / "t", SCHEMA, {**OPTIONS, "hoodie.table.ordering.fields": "id"})
    again.upsert(rows(["a", "b"]))
    for _ in range(2):
        with pytest.raises(ConfigError, match="was changed since the table was opened"):
            opened.scan()


def test_a_table_is_read_whose_first_write_stored_its_buckets_meanwhile(tmp_path: Path) -> None:
    made = LsmTable.create(tmp_path / "t", SCHEMA, OPTIONS)
    stored = ("lsm.bucket.index.num.buckets", "lsm.bucket.index.hash.field")
    update_properties(made.storage, dict.fromkeys(stored))  # as in a table of Hudi
    opened = LsmTable(tmp_path / "t")
    assert (opened.config.num_buckets, opened.scan().to_arrow().num_rows) == (0, 0)
    LsmTable(tmp_path / "t", {"hoodie.bucket.index.num.buckets": 2}).upsert(rows(["a"]))
    assert LsmTable(tmp_path / "t").config.num_buckets == 2
    assert opened.scan().to_arrow().num_rows == 1


def test_a_table_that_was_created_again_with_the_same_settings_is_read(tmp_path: Path) -> None:
    LsmTable.create(tmp_path / "t", SCHEMA, OPTIONS).upsert(rows(["a"]))
    opened = LsmTable(tmp_path / "t")
    assert opened.scan().to_arrow().num_rows == 1
    shutil.rmtree(tmp_path / "t")
    LsmTable.create(tmp_path / "t", SCHEMA, OPTIONS).upsert(rows(["a", "b"]))
    assert opened.scan().to_arrow().num_rows == 2


def test_a_writer_sees_that_a_file_group_was_replaced(tmp_path: Path) -> None:
    golden = GOLDEN["replaced_groups"](tmp_path)
    table = LsmTable(golden.path)
    live = {(found.partition_path, found.file_id) for found in table.file_slices()}
    with table.transaction() as tx:
        known = {(partition, file_id) for (partition, _), file_id in table.plan(tx, "upsert").file_ids.items()}
    assert known == live


def test_repeated_deletes_of_a_key_stay_when_they_are_not_combined(tmp_path: Path) -> None:
    keys = pa.table({"id": ["a"] * 3, "part": ["p"] * 3, "ts": [5, 4, 3]}, schema=SCHEMA)
    for combine, expected in ((True, 1), (False, 3)):
        path = tmp_path / str(combine)
        table = LsmTable.create(path, SCHEMA, {**OPTIONS, "hoodie.combine.before.delete": combine})
        deleted = table.delete(keys)
        assert deleted is not None
        assert sum(stat.num_deletes for stat in table.timeline.read_commit(deleted).stats) == expected
        table.upsert(pa.table({"id": ["a"], "part": ["p"], "ts": [4]}, schema=SCHEMA))
        assert table.scan().to_arrow().num_rows == 0


def test_a_column_that_controls_a_write_cannot_be_stored(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="'_lsm_delete'"):
        LsmTable.create(tmp_path / "t", SCHEMA.append(pa.field("_lsm_delete", pa.bool_())), OPTIONS)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("name", ["my key", "a.b", "9x", "a-b", "`"])
def test_a_column_name_that_avro_cannot_hold_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="rename it"):
        LsmTable.create(tmp_path / "t", SCHEMA.append(pa.field(name, pa.string())), OPTIONS)


@pytest.mark.parametrize("options", [{"hoodie.table.name": " "}, {"hoodie.table.ordering.fields": "ts,ts"}], ids=str)
def test_options_that_would_make_an_unusable_table_make_none(options: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        LsmTable.create(tmp_path / "t", SCHEMA, {**OPTIONS, **options})
    assert not (tmp_path / "t").exists()


def test_one_option_under_two_spellings_with_two_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one option with two values"):
        LsmTable.create(tmp_path / "t", SCHEMA, {**OPTIONS, "hoodie.table.recordkey.fields": "part"})


def test_a_table_name_that_is_no_avro_name_is_stored_as_hudi_does(tmp_path: Path) -> None:
    table = LsmTable.create(tmp_path / "t", SCHEMA, {**OPTIONS, "hoodie.table.name": "my-table 1"})
    table.upsert(rows(["a"]))
    assert '"name":"my__table__1_record","namespace":"hoodie.my__table__1"' in (table.timeline.table_schema() or "")
    assert table.scan().to_arrow().num_rows == 1


def test_the_moment_and_the_meta_columns_can_be_asked_for_by_option(tmp_path: Path) -> None:
    table = LsmTable.create(tmp_path / "t", SCHEMA, OPTIONS)
    table.upsert(rows(["a", "b"]))
    before = LsmTable(tmp_path / "t", {"as.of.instant": "2001-01-01"})
    assert before.scan().to_arrow().num_rows == 0
    assert before.file_slices() == []
    assert before.scan(as_of="2999-01-01").to_arrow().num_rows == 2
    assert LsmTable(tmp_path / "t", {"lsm.read.meta": True}).scan().schema.names[0] == "_hoodie_commit_time"


def test_bytes_that_are_no_text_are_refused_in_keys_and_partitions(tmp_path: Path) -> None:
    table = LsmTable.create(tmp_path / "t", SCHEMA, OPTIONS)
    for column in ("id", "part"):
        bad = rows(["a"])
        broken = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
        bad = bad.set_column(bad.schema.get_field_index(column), column, broken)
        with pytest.raises(RecordError, match=f"'{column}' holds bytes that are not UTF-8"):
            table.upsert(bad)
