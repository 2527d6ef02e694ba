"""Rows in the default partition: Hudi and this package return the same values of the partition columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from tests.conformance.judge import Hudi, Query
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines

ROWS = pa.table(
    {
        "id": list("abcdef"),
        "ts": pa.array([1] * 6, pa.int64()),
        "p": [None, "", "__HIVE_DEFAULT_PARTITION__", "x", None, "é ü"],
        "q": pa.array([1, None, None, None, 2, -3], pa.int32()),
    }
)
KINDS = ("MERGE_ON_READ", "COPY_ON_WRITE")


def options(kind: str, hive_style: bool) -> dict[str, str]:
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "p,q",
        "hoodie.datasource.write.hive_style_partitioning": str(hive_style).lower(),
        "hoodie.datasource.write.table.type": kind,
        "hoodie.bucket.index.num.buckets": "1",
    }


@pytest.mark.parametrize("hive_style", [False, True], ids=["plain", "hive style"])
@pytest.mark.parametrize("kind", KINDS)
def test_hudi_reads_our_default_partition_as_we_do(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str, hive_style: bool
) -> None:
    ours = {"hoodie.table.ordering.fields": "ts", "hoodie.write.table.version": 9}
    table = LsmTable.create(tmp_path / "t", ROWS.schema, options(kind, hive_style) | ours)
    table.bulk_insert(ROWS)
    table.upsert(ROWS.slice(1, 3))
    record(f"v9 {kind} default partition", "hudi reads ours", "snapshot")
    expected = to_lines(table.scan(meta=True).to_arrow())
    assert hudi.read(tmp_path / "t") == expected
    record(f"v9 {kind} default partition", "hudi reads ours", "incremental")
    assert hudi.read(tmp_path / "t", "incremental", begin="000") == expected


@pytest.mark.parametrize("hive_style", [False, True], ids=["plain", "hive style"])
@pytest.mark.parametrize("kind", KINDS)
def test_we_read_hudis_default_partition_as_it_does(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str, hive_style: bool
) -> None:
    theirs = {
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
        "hoodie.index.type": "BUCKET",
        "hoodie.metadata.enable": "false",
        "hoodie.compact.inline": "false",
    }
    hudi.write(tmp_path / "t", "upsert", ROWS, options(kind, hive_style) | theirs, mode="overwrite")
    hudi.write(tmp_path / "t", "upsert", ROWS.slice(1, 3), options(kind, hive_style) | theirs)
    table = LsmTable(tmp_path / "t")
    queries: tuple[Query, ...] = ("snapshot", "read_optimized")
    for query in queries:
        record(f"v9 {kind} default partition", "we read hudi's", query)
        scan = table.scan(meta=True, query_type=query)
        assert to_lines(scan.to_arrow()) == hudi.read(tmp_path / "t", query)
