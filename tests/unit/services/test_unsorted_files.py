"""Sorted tables with files of another program that are not sorted: compacted, written, and still readable after."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.format.table.file_names import BaseFileName, LogFileName, parse_file_name
from streaming_lsm.query.slices import slice_reader
from tests.support.small_tables import create, data_files, rows, shown

KEYS = [f"k{number:03}" for number in range(40)]
ONE_BUCKET = {"hoodie.bucket.index.num.buckets": 1}


def turn_round(path: Path) -> None:
    """Write a file anew with its rows in the opposite order, and nothing said of any order."""
    with pq.ParquetFile(path) as file:
        metadata, table = {k.decode(): v.decode() for k, v in file.metadata.metadata.items()}, file.read()
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table.take(list(reversed(range(len(table))))))
        writer.add_key_value_metadata(metadata)


def keys_of(path: Path) -> list[str]:
    with pq.ParquetFile(path) as file:
        return list(file.read(["_hoodie_record_key"]).column(0).to_pylist())


def newest(root: Path, kind: str = "") -> Path:
    """The newest base file, or the newest file whose name has `kind`."""
    found = [path for path in data_files(root) if (kind in path if kind else path.count(".") == 1)]
    return root / max(found, key=requested_time)


def requested_time(path: str) -> str:
    """The requested time in a file's name: write tokens are random, so that names alone say nothing of the order."""
    name = parse_file_name(path.rpartition("/")[2])
    assert isinstance(name, BaseFileName | LogFileName)
    return name.instant


@pytest.fixture
def merge_on_read(tmp_path: Path) -> LsmTable:
    """A base file with the keys `KEYS`, and a log on top with two smaller ones and an update."""
    table = create(tmp_path, **ONE_BUCKET)
    table.upsert(rows(*((key, "DE", 1, 1) for key in KEYS)))
    table.compact()
    table.upsert(rows(("a", "DE", 2, 2), ("b", "DE", 2, 2), ("k007", "DE", 2, 2)))
    return table


@pytest.mark.parametrize("kind", ["", ".log."], ids=["base", "log"])
def test_a_compaction_over_an_unsorted_file_leaves_a_sorted_base_file(
    merge_on_read: LsmTable, tmp_path: Path, kind: str
) -> None:
    expected = shown(merge_on_read)
    turn_round(newest(tmp_path, kind))
    assert shown(merge_on_read) == expected
    assert merge_on_read.compact() is not None
    assert keys_of(newest(tmp_path)) == ["a", "b", *KEYS]
    assert shown(merge_on_read) == expected
    merge_on_read.upsert(rows(("k008", "DE", 3, 3)))
    merge_on_read.compact()
    LsmTable(tmp_path, {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS"}).clean()
    assert len(shown(merge_on_read)) == len(expected)


def test_a_scan_over_an_unsorted_file_is_ascending_all_the_same(merge_on_read: LsmTable, tmp_path: Path) -> None:
    turn_round(newest(tmp_path))
    assert merge_on_read.scan(["id"]).to_arrow().column(0).to_pylist() == ["a", "b", *KEYS]


@pytest.mark.parametrize("kind", ["", ".log."], ids=["within-a-batch", "from-batch-to-batch"])
def test_a_base_file_takes_no_rows_that_descend(
    merge_on_read: LsmTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    turn_round(newest(tmp_path, kind))
    monkeypatch.setattr(slice_reader, "in_key_order", lambda blocks, folder: blocks)
    before = newest(tmp_path)
    with pytest.raises(ValueError, match="do not ascend"):
        merge_on_read.compact()
    assert newest(tmp_path) == before


def test_copy_on_write_over_an_unsorted_base_file_writes_a_sorted_one(tmp_path: Path) -> None:
    table = create(tmp_path, **ONE_BUCKET, **{"hoodie.datasource.write.table.type": "COPY_ON_WRITE"})
    table.upsert(rows(*((key, "DE", 1, 1) for key in KEYS)))
    turn_round(newest(tmp_path))
    table.upsert(rows(("a", "DE", 2, 2), ("k007", "DE", 2, 2)))
    table.delete(rows(("k008", "DE", 2, 0)).select(["id", "country", "ts"]))
    kept = ["a", *(key for key in KEYS if key != "k008")]
    assert keys_of(newest(tmp_path)) == kept
    assert shown(table) == [(key, "DE", *((2, 2) if key in ("a", "k007") else (1, 1))) for key in kept]
