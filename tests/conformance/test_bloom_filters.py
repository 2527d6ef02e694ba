"""Bloom filters of base files: Hudi finds keys by those that we write, and does without them where there are none."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.format.base_file_footer import bloom_of_footer
from tests.conformance.histories import ORDERS, SIMPLE, History
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines
from tests.conformance.worker import Refused

HISTORY = History("bloom_filters", ORDERS, SIMPLE, [])
BY_BLOOM = {"hoodie.index.type": "BLOOM", "hoodie.metadata.enable": "false"}
BY_BUCKET = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
}
ENABLED = "hoodie.parquet.bloom.filter.enabled"


def rows(numbers: range, ts: int) -> pa.Table:
    """Rows of the plain table; a number is always in the same region."""
    columns = {
        "id": [f"ord-{number:04d}" for number in numbers],
        "region": [("north", "south")[number % 2] for number in numbers],
        "qty": pa.array(numbers, pa.int32()),
        "price": [float(ts)] * len(numbers),
        "note": [f"n{ts}"] * len(numbers),
        "ts": pa.array([ts] * len(numbers), pa.int64()),
    }
    return pa.table(columns, schema=ORDERS)


def filters(path: Path) -> set[int]:
    """Sizes in bits of the filters of the newest base files; 0 for a file without one."""
    found = [slice_.base for slice_ in LsmTable(path).file_slices() if slice_.base]
    footers = [pq.read_metadata(path / base.path).metadata for base in found]
    blooms = [bloom_of_footer(footer, "") for footer in footers]
    return {0 if bloom is None else bloom.bits * len(bloom.rows) for bloom in blooms}


@pytest.mark.parametrize(
    "bloom",
    [
        {"hoodie.bloom.index.filter.type": "SIMPLE"},
        {"hoodie.bloom.index.filter.type": "DYNAMIC_V0"},
        # Two rows of a part of the keys; and Hudi's own size, with more keys than it is for.
        {"hoodie.index.bloom.num_entries": 40, "hoodie.bloom.index.filter.dynamic.max.entries": 120},
        {"hoodie.index.bloom.num_entries": 10, "hoodie.bloom.index.filter.dynamic.max.entries": 25},
    ],
    ids=lambda bloom: " ".join(str(value) for value in bloom.values()),
)
def test_hudis_bloom_index_finds_keys_by_our_filters(
    hudi: Hudi, record: Record, tmp_path: Path, bloom: dict[str, object]
) -> None:
    record(f"v9 COPY_ON_WRITE bloom filters, {bloom}", "ours, hudi", "hudi upserts by bloom index")
    path = tmp_path / "filtered"
    table = HISTORY.create(path, 9, "COPY_ON_WRITE", {ENABLED: True, **bloom})
    table.upsert(rows(range(200), 1))
    assert max(filters(path)) <= 60 * 44
    hudi.write(path, "upsert", rows(range(150, 250), 2), {**HISTORY.hudi_options(table), **BY_BLOOM})
    expected = sorted([*((number, 1.0) for number in range(150)), *((number, 2.0) for number in range(150, 250))])
    found = LsmTable(path).scan(["qty", "price"]).to_arrow().to_pylist()
    assert sorted((row["qty"], row["price"]) for row in found) == expected
    assert hudi.read(path) == to_lines(LsmTable(path).scan(meta=True).to_arrow())


def test_without_filters_hudis_bloom_index_refuses_and_its_bucket_index_writes(
    hudi: Hudi, record: Record, tmp_path: Path
) -> None:
    record("v9 COPY_ON_WRITE without bloom filters", "ours, hudi", "hudi upserts")
    path = tmp_path / "plain"
    table = HISTORY.create(path, 9, "COPY_ON_WRITE")
    table.upsert(rows(range(200), 1))
    assert filters(path) == {0}
    options = HISTORY.hudi_options(table)
    with pytest.raises(Refused, match="bloom"):
        hudi.write(path, "upsert", rows(range(150, 250), 2), {**options, **BY_BLOOM})
    hudi.write(path, "upsert", rows(range(150, 151), 2), {**options, **BY_BUCKET})
    assert hudi.read(path) == to_lines(LsmTable(path).scan(meta=True).to_arrow())
    hudi.write(path, "upsert", rows(range(150, 250), 3), {**options, **BY_BUCKET})
    assert LsmTable(path).scan().to_arrow().num_rows == 250
    assert hudi.read(path) == to_lines(LsmTable(path).scan(meta=True).to_arrow())


def test_hudi_writes_neither_filter_nor_key_range_when_it_is_told_so(
    hudi: Hudi, record: Record, tmp_path: Path
) -> None:
    record("v9 COPY_ON_WRITE without bloom filters", "hudi, ours", "we read and upsert")
    options = HISTORY.hudi_options(HISTORY.create(tmp_path / "hudis", 9, "COPY_ON_WRITE"))
    without = {"hoodie.metadata.enable": "false", ENABLED: "false"}
    hudi.write(tmp_path / "hudis", "upsert", rows(range(50), 1), {**options, **without})
    footers = [pq.read_metadata(file).metadata for file in (tmp_path / "hudis").rglob("*.parquet")]
    assert not [key for footer in footers for key in footer if b"hoodie" in key or b"hudi" in key]
    LsmTable(tmp_path / "hudis").upsert(rows(range(25, 75), 2))
    assert LsmTable(tmp_path / "hudis").scan().to_arrow().num_rows == 75
