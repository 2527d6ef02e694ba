"""Log files opened by tools that know nothing of this table."""

from __future__ import annotations

import itertools
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from tests.oracle.validator import validate

# By UTF-8 bytes U+E000 comes before U+20000; by UTF-16 units, as Java compares texts, it comes after.
TRICKY = ["\U00020000", "\ue000", "\uffff", "z", "", "é", "a\0b", "a", "ab", "\U0010ffff", "\ud7ff"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> LsmTable:
    keys = [f"{prefix}{number % 7}" for number in range(700) for prefix in (TRICKY[number % len(TRICKY)],)]
    schema = pa.schema([("id", pa.string()), ("value", pa.int64())])
    options = {
        "hoodie.table.name": "keys",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.bucket.index.num.buckets": 2,
        "lsm.parquet.row.group.rows": 16,
    }
    table = LsmTable.create(tmp_path_factory.mktemp("lake") / "keys", schema, options)
    for begin in range(0, 700, 350):
        part = keys[begin : begin + 350]
        table.upsert(pa.table({"id": part, "value": list(range(begin, begin + 350))}, schema=schema))
    table.delete(pa.table({"id": keys[::5]}))
    table.bulk_insert(pa.table({"id": keys[1::5], "value": list(range(140))}, schema=schema))
    return table


def data_files(table: LsmTable) -> list[Path]:
    root = Path(table.path.removeprefix("file://"))
    return sorted(path for path in root.rglob("*.parquet") if ".hoodie" not in path.parts)


def sorted_by_bytes(keys: list[str]) -> list[str]:
    return sorted(keys, key=lambda key: key.encode())


def test_the_keys_tell_utf_8_order_from_utf_16_order() -> None:
    assert sorted_by_bytes(TRICKY) != sorted(TRICKY, key=lambda key: key.encode("utf-16-be"))


def test_pyarrow_duckdb_and_polars_find_every_file_sorted_by_utf_8_bytes(table: LsmTable) -> None:
    files = data_files(table)
    assert len(files) >= 6
    for file in files:
        by_pyarrow = pq.read_table(file).column("_hoodie_record_key").to_pylist()
        by_duckdb = [key for (key,) in duckdb.sql(f"SELECT _hoodie_record_key FROM read_parquet('{file}')").fetchall()]
        by_polars = pl.read_parquet(file)["_hoodie_record_key"].to_list()
        assert by_pyarrow == by_duckdb == by_polars == sorted_by_bytes(by_pyarrow), file.name


def test_files_say_that_they_are_sorted_and_carry_page_indexes(table: LsmTable) -> None:
    for file in data_files(table):
        metadata = pq.ParquetFile(file).metadata
        key = metadata.schema.names.index("_hoodie_record_key")
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            assert [column.column_index for column in group.sorting_columns] == [key]
            assert group.column(key).has_column_index
            assert group.column(key).has_offset_index


def test_statistics_of_row_groups_do_not_overlap(table: LsmTable) -> None:
    for file in data_files(table):
        metadata = pq.ParquetFile(file).metadata
        key = metadata.schema.names.index("_hoodie_record_key")
        bounds = [metadata.row_group(number).column(key).statistics for number in range(metadata.num_row_groups)]
        for before, after in itertools.pairwise(bounds):
            assert before.max.encode() <= after.min.encode()


def test_the_table_is_valid(table: LsmTable) -> None:
    assert validate(table.path.removeprefix("file://")) == []
