"""Each Spark task that writes is told the file groups that it writes, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming_lsm import LsmSink, LsmTable
from streaming_lsm.spark import batch_writer
from tests.support.orders import OPTIONS, make_orders, write_source


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_batches_go_to_the_file_groups_that_were_sent_with_the_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    tables = []
    for name, carried in (("carried", 1024), ("sent", 0)):
        monkeypatch.setattr(batch_writer, "CARRIED_GROUPS", carried)
        options = {**OPTIONS, "hoodie.table.type": kind, "lsm.writer.id": "test", "lsm.write.shuffle.partitions": 2}
        sink = LsmSink(tmp_path / name, options)
        for number in range(3):
            write_source(tmp_path / "source", f"{name}-{number}", make_orders(200, seed=number))
            sink(spark.read.parquet(str(tmp_path / "source" / f"{name}-{number}.parquet")), number)
        tables.append(LsmTable(tmp_path / name, OPTIONS))
    carried_rows, sent_rows = (table.scan().to_arrow().sort_by("order_id").to_pylist() for table in tables)
    assert sent_rows == carried_rows
    carried_slices, sent_slices = (table.file_slices() for table in tables)
    assert len(sent_slices) == len(carried_slices)
    assert [len(found.paths) for found in sent_slices] == [len(found.paths) for found in carried_slices]
