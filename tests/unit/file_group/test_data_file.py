"""Batches of a data file: as many rows as fit, by what the footer says and by what was seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm.file_group.data_file import BATCH_BYTES, BATCH_ROWS, DataFile
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.local import LocalStorage

SCHEMA = pa.schema([(RECORD_KEY, pa.string()), ("number", pa.int64()), ("text", pa.string())])
NARROW = pa.schema([SCHEMA.field(RECORD_KEY), SCHEMA.field("number")])


def rows(count: int, width: int, first: int = 0) -> pa.Table:
    """Rows whose text has `width` characters and repeats in no other row."""
    numbers = np.arange(first, first + count)
    texts = [f"{number:010d}" * (width // 10) for number in numbers]
    return pa.table([[f"{number:010d}" for number in numbers], numbers, texts], schema=SCHEMA)


def data_file(root: Path, groups: list[pa.Table], batch_bytes: int = 1 << 20, *, repeats: bool = False) -> DataFile:
    with pq.ParquetWriter(root / "file.parquet", SCHEMA, use_dictionary=repeats) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=max(1, len(group)))
    count = sum(map(len, groups))
    return DataFile(LocalStorage(root), "file.parquet", "1", tuple(SCHEMA.names), count, batch_bytes=batch_bytes)


def lengths(file: DataFile, schema: pa.Schema = SCHEMA) -> list[int]:
    batches = list(file.batches(schema))
    assert sum(batch.num_rows for batch in batches) == file.rows
    return [batch.num_rows for batch in batches]


def test_narrow_rows_come_in_batches_as_large_as_a_row_group(tmp_path: Path) -> None:
    numbers = pa.array(np.arange(300_000))
    texts = numbers.cast(pa.string())
    table = pa.table([texts, numbers, texts], schema=SCHEMA)
    groups = [table.slice(begin, BATCH_ROWS) for begin in range(0, len(table), BATCH_ROWS)]
    assert lengths(data_file(tmp_path, groups, BATCH_BYTES)) == [BATCH_ROWS, BATCH_ROWS, 300_000 - 2 * BATCH_ROWS]


def test_a_batch_of_wide_rows_has_the_bytes_asked_for(tmp_path: Path) -> None:
    file = data_file(tmp_path, [rows(300, 20_000), rows(300, 20_000, 300)])
    assert all(batch.nbytes <= 1 << 20 for batch in file.batches(SCHEMA))
    assert max(lengths(file)) == 32


def test_a_row_larger_than_a_batch_comes_alone(tmp_path: Path) -> None:
    assert lengths(data_file(tmp_path, [rows(3, 20_000)], 1000)) == [1, 1, 1]


def test_narrow_rows_next_to_wide_ones_keep_their_large_batches(tmp_path: Path) -> None:
    groups = [rows(1000, 10), rows(100, 50_000, 1000), rows(1000, 10, 1100), rows(1000, 10, 2100)]
    found = lengths(data_file(tmp_path, groups))
    assert found[0] == 1000
    assert max(found[1:-1]) <= 32
    assert found[-1] == 2000


def test_narrow_columns_of_wide_rows_are_read_in_large_batches_once_that_is_seen(tmp_path: Path) -> None:
    found = lengths(data_file(tmp_path, [rows(100, 20_000), rows(200, 20_000, 100), rows(200, 20_000, 300)]), NARROW)
    assert max(found[:-1]) <= 64
    assert found[-1] == 400


def test_repeated_texts_that_are_small_in_the_file_are_read_in_small_batches(tmp_path: Path) -> None:
    texts = ["x" * 20_000] * 500
    groups = [rows(500, 10, first).set_column(2, SCHEMA.field("text"), [texts]) for first in (0, 500)]
    assert max(lengths(data_file(tmp_path, groups, repeats=True))) <= 64


@pytest.mark.parametrize("groups", [[], [rows(0, 10)]], ids=["no-row-group", "empty-row-group"])
def test_a_file_without_rows_has_no_batches(tmp_path: Path, groups: list[pa.Table]) -> None:
    assert sum(lengths(data_file(tmp_path, groups))) == 0


@pytest.mark.parametrize("width", [300, 3_000])
def test_reading_holds_a_batch_and_not_the_file(tmp_path: Path, width: int) -> None:
    count = 20_000_000 // (width + 50)
    random = np.random.default_rng(1)
    texts = [random.bytes(width // 2).hex() for _ in range(count)]
    table = rows(count, 0).set_column(2, SCHEMA.field("text"), [texts])
    group = max(1, count // 20)
    file = data_file(tmp_path, [table.slice(begin, group) for begin in range(0, count, group)])
    del table, texts
    held = pa.total_allocated_bytes()
    assert max(pa.total_allocated_bytes() - held for _ in file.batches(SCHEMA)) < 8 << 20
