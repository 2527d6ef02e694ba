"""Scans in the order of record keys, over several slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm import LsmTable, Scan
from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.query import scan_order
from streaming_lsm.query.slices import key_order
from streaming_lsm.query.slices.slice_reader import SliceReader
from tests.support.small_tables import create, rows

LAYOUTS: dict[str, dict[str, object]] = {
    "lsm_tree": {"lsm.parquet.row.group.rows": 4},
    "default layout": {"hoodie.table.storage.layout": "default"},
    "inline logs": {"hoodie.write.table.version": 9},
    "copy on write": {"hoodie.datasource.write.table.type": "COPY_ON_WRITE", "lsm.parquet.row.group.rows": 4},
}
LETTERS = ("k", "K", "\u00e9", "\U0001f600", "\uff21", "kk")
"""Beginnings of keys whose order by UTF-8 bytes differs from that by UTF-16, or by length."""


def _batch(rng: np.random.Generator, number: int, count: int) -> pa.Table:
    ids = rng.integers(0, 150, count).tolist()
    return rows(
        *((f"{LETTERS[key % 6]}{key:03}", ("DE", "FR", "NL")[int(rng.integers(3))], number, key) for key in ids)
    )


@pytest.fixture(scope="module", params=LAYOUTS)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LsmTable:
    rng = np.random.default_rng(3)
    made = create(tmp_path_factory.mktemp("t"), **{"hoodie.bucket.index.num.buckets": 4, **LAYOUTS[request.param]})
    made.bulk_insert(_batch(rng, 0, 80))
    for number in range(1, 4):
        made.upsert(_batch(rng, number, 50))
    made.delete(_batch(rng, 9, 10).select(["id", "country", "ts"]))
    return made


def _ordered(table: LsmTable, **how: object) -> list[dict[str, object]]:
    found = table.scan(**how).to_arrow().to_pylist()  # type: ignore[arg-type]
    return sorted(found, key=lambda row: (str(row["id"]).encode(), row["country"]))


@pytest.mark.parametrize("filter", [None, "id BETWEEN 'k' AND 'k1' OR qty > 120", "country = 'FR'", "qty < 0"])
def test_rows_ascend_by_key_over_all_file_groups(table: LsmTable, filter: str | None) -> None:
    scan = table.scan(filter=filter).in_key_order()
    expected = _ordered(table, filter=filter)
    assert scan.to_arrow().to_pylist() == expected
    assert scan.schema == table.scan().schema
    assert scan.count() == len(expected)
    for most in (0, 1, 10, 1000):
        assert scan.limit(most).to_arrow().to_pylist() == expected[:most]
        assert scan.limit(most).count() == len(expected[:most])


def test_keys_in_several_partitions_are_there(table: LsmTable) -> None:
    keys = [row["id"] for row in _ordered(table)]
    assert any(one == other for one, other in pairwise(keys)), "ties are tested above"


def test_columns_without_the_key_are_returned_in_key_order(table: LsmTable) -> None:
    expected = _ordered(table)
    found = table.scan(["qty", "country"]).in_key_order()
    assert found.to_arrow().to_pylist() == [{"qty": row["qty"], "country": row["country"]} for row in expected]
    assert table.scan([]).in_key_order().to_arrow().num_rows == len(expected)
    meta = table.scan(["qty"], meta=True).in_key_order().to_arrow()
    assert meta["_hoodie_record_key"].to_pylist() == [row["id"] for row in expected]


def test_many_slices_are_merged_through_spill_files(table: LsmTable, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = scan_order.merged_slices
    monkeypatch.setattr("streaming_lsm.query.scan.merged_slices", lambda *args: whole(*args, most_open=2))
    monkeypatch.setattr(key_order.in_key_order, "__defaults__", (1000,))
    scan = table.scan().in_key_order()
    assert len(scan.slices) > 6
    assert scan.to_arrow().to_pylist() == _ordered(table)
    assert scan.limit(7).to_arrow().to_pylist() == _ordered(table)[:7]


def test_incremental_and_read_optimized_queries_have_key_order(table: LsmTable) -> None:
    for scan in (table.incremental("000"), table.scan(query_type="read_optimized")):
        expected = sorted(scan.to_arrow().to_pylist(), key=lambda row: (row["id"].encode(), row["country"]))
        assert scan.in_key_order().to_arrow().to_pylist() == expected


def test_an_empty_table_has_no_rows(tmp_path: Path) -> None:
    assert create(tmp_path).scan().in_key_order().to_arrow().num_rows == 0


def test_the_first_rows_take_one_batch_of_each_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(tmp_path)
    table.bulk_insert(rows(*((f"k{number:04}", "DE", 1, number) for number in range(400))))
    taken: list[int] = []
    whole = SliceReader.read

    def small(self: SliceReader, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        for batch in whole(self, file_slice):
            for begin in range(0, batch.num_rows, 20):
                taken.append(begin)
                yield batch.slice(begin, 20)

    monkeypatch.setattr(SliceReader, "read", small)
    scan = table.scan(["qty"]).in_key_order()
    assert scan.to_arrow()["qty"].to_pylist() == list(range(400))
    assert len(taken) >= 20
    taken.clear()
    assert scan.limit(5).to_arrow()["qty"].to_pylist() == list(range(5))
    assert len(taken) == 2


def test_a_scan_tells_its_order(tmp_path: Path) -> None:
    scan: Scan = create(tmp_path).scan().in_key_order()
    assert "in key order" in repr(scan)
    assert replace(scan, by_key=False) != scan
