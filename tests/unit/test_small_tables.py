"""A small table is small on disk: few files, and no filter that is larger than its rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate

ROWS, PARTITIONS = 10_000, 5
MOST_FILES, MOST_BYTES = 100, 5 << 20
DEMO = Path(__file__).parents[2] / "conf" / "kafka_demo.properties"
DEFAULTS: dict[str, object] = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "order_id",
    "hoodie.datasource.write.partitionpath.field": "country",
    "hoodie.table.ordering.fields": "updated_at",
}
ORDERS = pa.table(
    {
        "order_id": [f"order-{number:08d}" for number in range(ROWS)],
        "country": [f"C{number % PARTITIONS}" for number in range(ROWS)],
        "qty": pa.array(range(ROWS), pa.int32()),
        "note": [f"some words of order {number}" for number in range(ROWS)],
        "updated_at": pa.array(range(ROWS), pa.timestamp("us", "UTC")),
    }
)


def disk_use(root: Path) -> tuple[int, int]:
    """Number and bytes of all files, those of the timeline included; without Hadoop's checksums of inline logs."""
    sizes = [path.stat().st_size for path in root.rglob("*") if path.is_file() and path.suffix != ".crc"]
    return len(sizes), sum(sizes)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hoodie.table.type": "COPY_ON_WRITE"},
        {"hoodie.write.table.version": 9},
        {"hoodie.metadata.enable": True},
        {"hoodie.parquet.bloom.filter.enabled": True},
    ],
    ids=str,
)
def test_ten_thousand_rows_in_five_partitions_are_a_hundred_files_of_five_mebibytes_at_most(
    tmp_path: Path, options: dict[str, object]
) -> None:
    table = LsmTable.create(tmp_path / "orders", ORDERS.schema, {**DEFAULTS, **options})
    table.upsert(ORDERS)
    table.compact()
    files, size = disk_use(tmp_path / "orders")
    extra = 10 if "hoodie.metadata.enable" in options else 0
    assert files <= MOST_FILES + extra
    assert size <= MOST_BYTES
    assert table.scan().to_arrow().num_rows == ROWS


def test_the_options_of_the_kafka_demo_keep_a_small_table_small(tmp_path: Path) -> None:
    table = LsmTable.create(tmp_path / "orders", ORDERS.schema, {}, properties=DEMO)
    for start in (0, ROWS // 2):
        table.upsert(ORDERS.slice(start, ROWS // 2))
    table.compact()
    files, size = disk_use(tmp_path / "orders")
    assert (files <= MOST_FILES, size <= MOST_BYTES) == (True, True)
    assert table.scan().to_arrow().num_rows == ROWS


def test_a_table_keeps_its_number_of_buckets_whatever_the_default_is(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    created = {**DEFAULTS, "hoodie.bucket.index.num.buckets": 32}
    LsmTable.create(path, ORDERS.schema, created).upsert(ORDERS.slice(0, 100))
    table = LsmTable(path, DEFAULTS)
    table.upsert(ORDERS.slice(50, 100))
    assert table.config.num_buckets == 32
    assert len(read_snapshot(str(path))) == 150
    assert validate(str(path)) == []
