"""Batches stay small where a large value is stored once and repeated in many rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.file_group import row_limits
from streaming_lsm.file_group.column_chunks import ColumnChunk, read_column_chunks
from streaming_lsm.file_group.data_file import BATCH_BYTES, DataFile
from streaming_lsm.file_group.row_limits import RowLimits
from streaming_lsm.schema import RECORD_KEY
from streaming_lsm.storage.local import LocalStorage

ROWS, LARGE = 3000, 70_000
BYTES = 1 << 20
BATCHES = 8
"""Batches' worth of bytes that reading may take: those held at the same time, and buffers that grow by doubling."""


def repeated(count: int = ROWS) -> pa.Array:
    """A short text in the first half of the rows, and one large text in the others."""
    texts = pa.array(["short", "x" * LARGE])
    return texts.take(pa.array(np.arange(count) * 2 // count))


def one_each(values: pa.Array) -> pa.Array:
    """Offsets of lists of one value."""
    return pa.array(np.arange(len(values) + 1, dtype=np.int32))


SHAPES = {
    "string": repeated,
    "binary": lambda: repeated().cast(pa.binary()),
    "nulls first": lambda: pa.concat_arrays([pa.nulls(ROWS - 1000, pa.string()), repeated(1000)]),
    "struct": lambda: pa.StructArray.from_arrays([repeated()], ["inner"]),
    "list": lambda: pa.ListArray.from_arrays(one_each(repeated()), repeated()),
    "map": lambda: pa.MapArray.from_arrays(one_each(repeated()), pa.array(["key"] * ROWS), repeated()),
    "fixed": lambda: pa.array([b"x" * LARGE] * ROWS, pa.binary(LARGE)),
    "fixed nulls": lambda: pa.nulls(ROWS, pa.binary(LARGE)),
}


def write(root: Path, column: pa.Array, name: str = "large", **settings: object) -> tuple[DataFile, pa.Schema]:
    keys = [f"{number:09d}" for number in range(len(column))]
    table = pa.table({RECORD_KEY: keys, name: column})
    pq.write_table(table, root / "file.parquet", store_schema=False, **settings)
    file = DataFile(LocalStorage(root), "file.parquet", "1", tuple(table.column_names), len(table), batch_bytes=BYTES)
    return file, table.schema


def limit(file: DataFile, columns: tuple[str, ...] = (), batch_bytes: int = BYTES) -> int | None:
    with file.storage.open_input(file.path) as source, pq.ParquetFile(source) as parquet:
        return RowLimits(parquet, source, file.path, columns or file.columns, batch_bytes).rows(0)


def largest(file: DataFile, schema: pa.Schema) -> int:
    """The bytes of the largest batch; all rows must be there, in order."""
    most = first = 0
    for batch in file.batches(schema):
        most = max(most, batch.get_total_buffer_size())
        assert batch.column(RECORD_KEY)[0].as_py() == f"{first:09d}"
        first += batch.num_rows
    assert first == file.rows
    return most


def count_decoded(monkeypatch: pytest.MonkeyPatch, decoded: int | None) -> None:
    """Have all footers count so many decoded bytes, as other writers may."""

    def read(source: pa.NativeFile, path: str) -> list[list[ColumnChunk]]:
        found = read_column_chunks(source, path)
        return [[replace(chunk, decoded=decoded) for chunk in chunks] for chunks in found]

    monkeypatch.setattr(row_limits, "read_column_chunks", read)


@pytest.fixture(params=[True, False], ids=["size statistics", "none"])
def statistics(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with and without counted bytes; Parquet of Spark 3.5 does not count."""
    if not request.param:
        count_decoded(monkeypatch, None)


@pytest.mark.usefixtures("statistics")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_large_value_that_many_rows_repeat_is_read_in_small_batches(tmp_path: Path, shape: str) -> None:
    file, schema = write(tmp_path, SHAPES[shape]())
    assert largest(file, schema) <= BATCHES * BYTES


def test_counted_values_that_share_prefixes_are_read_in_small_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_decoded(monkeypatch, ROWS * LARGE // 2)  # pyarrow counts the encoded bytes of this encoding
    settings = {"use_dictionary": False, "column_encoding": {"large": "DELTA_BYTE_ARRAY"}}
    file, schema = write(tmp_path, repeated(), **settings)
    assert largest(file, schema) <= BATCHES * BYTES


def test_a_column_of_large_values_that_is_not_read_does_not_limit_the_rows(tmp_path: Path) -> None:
    file, _ = write(tmp_path, repeated())
    assert limit(file) is not None
    assert limit(file, (RECORD_KEY,)) is None


def test_a_column_whose_name_has_a_dot_is_limited(tmp_path: Path) -> None:
    assert limit(write(tmp_path, repeated(), "large.text")[0]) is not None


def test_a_value_larger_than_a_batch_is_read_row_by_row(tmp_path: Path) -> None:
    assert limit(write(tmp_path, repeated())[0], batch_bytes=LARGE // 2) == 1


@pytest.mark.usefixtures("statistics")
@pytest.mark.parametrize("distinct", [50, 5_000, 20_000, 100_000])
def test_many_short_values_do_not_limit_the_rows(tmp_path: Path, distinct: int) -> None:
    numbers = pa.array(np.arange(131072) * 7919 % distinct).cast(pa.string())
    texts = pc.binary_join_element_wise(pc.utf8_lpad(numbers, 30, "0"), "text", "-")
    assert limit(write(tmp_path, texts)[0], batch_bytes=BATCH_BYTES) is None


def test_a_dictionary_that_the_first_pages_do_not_use_counts_with_all_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_limits, "_FIRST_ROWS", ())
    assert limit(write(tmp_path, repeated())[0]) == BYTES // (LARGE + 4 + len("short") + 4)


def test_a_column_name_that_is_not_text_is_a_named_error(tmp_path: Path) -> None:
    file, schema = write(tmp_path, repeated())
    path = tmp_path / file.path
    path.write_bytes(path.read_bytes().replace(b"large", b"\xfdarge"))
    with pytest.raises(CorruptFileError, match=r"^file\.parquet: "):
        list(file.batches(schema))
