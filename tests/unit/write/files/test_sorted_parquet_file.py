"""Files that grow: row groups, footers, and nothing left of a file that was given up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm.errors import Fenced
from streaming_lsm.format.base_file_footer import BLOOM_KEY, BLOOM_TYPE_KEY, MAX_KEY, MIN_KEY, bloom_of_footer
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.table.file_names import BaseFileName, WriteToken
from streaming_lsm.lock.heartbeat import heartbeat_path
from streaming_lsm.schema import with_meta
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.storage.uris import open_storage
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH
from streaming_lsm.write.files.base_file_writer import BaseFileWriter
from streaming_lsm.write.files.parquet import constant
from streaming_lsm.write.files.sorted_parquet_file import SortedParquetFile
from streaming_lsm.write.partition_writer import discard_late, write_partition
from streaming_lsm.write.plan import BloomOptions
from tests.support.plans import FILES, INSTANT, SCHEMA, make_plan, open_instant

PATH = "some/file.parquet"


def rows(first: int, count: int) -> pa.Table:
    keys = pa.array([f"{number:06d}" for number in range(first, first + count)], pa.string())
    return pa.table({"_hoodie_record_key": keys, "value": pa.array(range(first, first + count), pa.int64())})


def written(root: Path) -> list[Path]:
    return [path for path in root.rglob("*.parquet") if path.is_file()]


def test_row_groups_have_the_asked_rows_however_the_rows_came(tmp_path: Path) -> None:
    with SortedParquetFile(LocalStorage(tmp_path), PATH, FILES) as file:
        for first, count in ((0, 10), (10, 2505), (2515, 0), (2515, 985)):
            file.append(rows(first, count))
        assert file.rows == 3500
        size = file.finish({"a": "b"})
    parquet = pq.ParquetFile(tmp_path / PATH)
    assert [parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups)] == [1000, 1000, 1000, 500]
    assert parquet.read().equals(rows(0, 3500))
    assert size == (tmp_path / PATH).stat().st_size
    assert parquet.metadata.metadata[b"a"] == b"b"


def test_pages_of_large_values_keep_to_their_size(tmp_path: Path) -> None:
    options = dataclasses.replace(FILES, page_bytes=64 << 10, codec="uncompressed")
    texts = pa.array([f"{number:010d}" * 1000 for number in range(300)])
    with SortedParquetFile(LocalStorage(tmp_path), PATH, options) as file:
        file.append(rows(0, 0).append_column("text", pa.array([], pa.string())))
        file.append(rows(0, 300).append_column("text", texts))
        file.finish({})
    parquet = pq.ParquetFile(tmp_path / PATH, buffer_size=1024, pre_buffer=False)
    before = pa.total_allocated_bytes()
    read = parquet.iter_batches(1, columns=["text"])
    next(read)
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert sum(batch.num_rows for batch in read) == 299


def test_a_row_group_ends_early_when_its_bytes_reach_the_limit(tmp_path: Path) -> None:
    options = dataclasses.replace(FILES, row_group_bytes=5_000)
    with SortedParquetFile(LocalStorage(tmp_path), PATH, options) as file:
        for first in range(0, 800, 100):
            file.append(rows(first, 100))
            assert file.buffered_bytes < 5_000 + rows(0, 100).nbytes
        file.finish({})
    assert pq.ParquetFile(tmp_path / PATH).num_row_groups > 2


def test_the_estimate_of_the_size_comes_near_the_size(tmp_path: Path) -> None:
    with SortedParquetFile(LocalStorage(tmp_path), PATH, FILES) as file:
        file.append(rows(0, 1999))
        estimate = file.size
        assert file.finish({}) == pytest.approx(estimate, rel=0.3)


def test_constants_of_several_appends_stay_apart(tmp_path: Path) -> None:
    with SortedParquetFile(LocalStorage(tmp_path), PATH, FILES) as file:
        for name in ("one", "two"):
            file.append(rows(0, 3).append_column("name", constant(name, 3)))
        file.finish({})
    assert pq.read_table(tmp_path / PATH)["name"].to_pylist() == ["one"] * 3 + ["two"] * 3


@pytest.mark.parametrize("appended", [0, 10, 5000])
def test_a_file_that_is_given_up_is_gone(tmp_path: Path, appended: int) -> None:
    def give_up() -> None:
        with SortedParquetFile(LocalStorage(tmp_path), PATH, FILES) as file:
            file.append(rows(0, appended))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        give_up()
    assert written(tmp_path) == []


def test_a_file_that_is_left_unfinished_is_gone(tmp_path: Path) -> None:
    with SortedParquetFile(LocalStorage(tmp_path), PATH, FILES) as file:
        file.append(rows(0, 10))
    assert written(tmp_path) == []


def base(root: Path, *appended: pa.Table, bloom: BloomOptions | None = None) -> Path:
    plan = make_plan(root)
    open_instant(plan)
    name = BaseFileName("00000000-0000-0000-0000-000000000000-0", "0-0-0", INSTANT)
    with BaseFileWriter(plan.storage, INSTANT, "", name, "{}", dataclasses.replace(FILES, bloom=bloom)) as writer:
        for table in appended:
            writer.append(table)
        writer.finish()
    return root / str(name)


def with_meta_columns(table: pa.Table) -> pa.Table:
    keys = table["_hoodie_record_key"]
    columns = {"_hoodie_commit_time": pa.array(["1"] * len(keys)), "_hoodie_commit_seqno": keys}
    columns |= {"_hoodie_record_key": keys, "_hoodie_partition_path": pa.array([""] * len(keys))}
    columns |= {"_hoodie_file_name": pa.array(["older"] * len(keys)), "value": table["value"]}
    return pa.table(columns, schema=with_meta(pa.schema([("value", pa.int64())])))


def test_a_base_file_gathers_its_key_range_and_has_no_bloom_filter(tmp_path: Path) -> None:
    path = base(tmp_path, *(with_meta_columns(rows(first, 50)) for first in (0, 50, 100)))
    footer = pq.read_metadata(path).metadata
    assert (footer[MIN_KEY.encode()], footer[MAX_KEY.encode()]) == (b"000000", b"000149")
    assert not {BLOOM_KEY.encode(), BLOOM_TYPE_KEY.encode()} & set(footer)
    assert set(pq.read_table(path)["_hoodie_file_name"].to_pylist()) == {path.name}


@pytest.mark.parametrize("kind", ["SIMPLE", "DYNAMIC_V0"])
def test_a_bloom_filter_that_is_asked_for_has_the_size_of_its_keys(tmp_path: Path, kind: str) -> None:
    tables = [with_meta_columns(rows(first, 5)) for first in (0, 5)]
    path = base(tmp_path, *tables, bloom=BloomOptions(kind, 60_000, 1e-9, 100_000))
    footer = pq.read_metadata(path).metadata
    bloom = bloom_of_footer(footer, "")
    assert bloom is not None
    assert bloom == BloomFilter.build(rows(0, 10)["_hoodie_record_key"].combine_chunks(), 10, 1e-9, 10, kind)
    assert len(footer[BLOOM_KEY.encode()]) < 150


def test_a_base_file_without_rows_has_columns_and_no_key_range(tmp_path: Path) -> None:
    path = base(tmp_path, with_meta_columns(rows(0, 0)), bloom=BloomOptions("DYNAMIC_V0", 60_000, 1e-9, 100_000))
    footer = pq.read_metadata(path).metadata
    assert MIN_KEY.encode() not in footer
    assert BLOOM_KEY.encode() in footer
    assert pq.read_table(path).num_rows == 0
    assert "value" in pq.read_schema(path).names


class ClosingStorage(LocalStorage):
    """The instant is committed while a task sleeps between its marker and its file."""

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        self.delete(heartbeat_path(INSTANT))
        with super().create(path) as file:
            yield file


def test_a_file_created_after_its_instant_was_committed_does_not_stay(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path))
    name = BaseFileName("00000000-a-0", "0-0-99", INSTANT)
    with pytest.raises(Fenced):
        BaseFileWriter(ClosingStorage(tmp_path), INSTANT, "p", name, "{}", plan.files)
    assert written(tmp_path) == []


def test_a_log_created_after_its_instant_was_committed_does_not_stay(tmp_path: Path) -> None:
    plan = open_instant(make_plan(tmp_path, storage=ClosingStorage(tmp_path)))
    batch = pa.record_batch([["a"], ["p"], [1], [1], [False]], schema=SCHEMA)
    with pytest.raises(Fenced):
        write_partition(plan, [batch], WriteToken(0, 0, 99))
    assert written(tmp_path) == []


@pytest.mark.parametrize("sole", [False, True], ids=["task", "driver"])
def test_a_log_in_an_object_store_that_was_created_after_the_commit_is_deleted_again(
    tmp_path: Path, memory_uri: str, sole: bool
) -> None:
    """By the task itself, or by the driver that runs it and looks once for all of its tasks."""
    storage = open_storage(memory_uri)
    storage.put_if_absent(PROPERTIES_PATH, b"")
    plan = open_instant(make_plan(tmp_path, storage=storage, sole=sole))
    batch = pa.record_batch([["a"], ["p"], [1], [1], [False]], schema=SCHEMA)
    first = write_partition(plan, [batch], WriteToken(0, 0, 98))
    discard_late(plan, [first])
    storage.delete(heartbeat_path(INSTANT))
    if sole:
        late = write_partition(plan, [batch], WriteToken(0, 0, 99))
        assert storage.exists(late.stats[0].path)
        discard_late(plan, [late])
    else:
        with pytest.raises(Fenced):
            write_partition(plan, [batch], WriteToken(0, 0, 99))
    assert [entry.name for entry in storage.list("") if "parquet" in entry.name] == [first.stats[0].file_name]
