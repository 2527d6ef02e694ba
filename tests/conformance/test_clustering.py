"""Clusterings of either program, planned by the same or by the other one: both read the table, and write to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.timeline.instant import Instant
from tests.conformance.histories import ORDERS, SIMPLE, History, orders
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines
from tests.support.metadata_tables import assert_settled

TURNS = "ours, hudi, ours"
COLUMNS = {"hoodie.clustering.plan.strategy.sort.columns": "qty"}


@pytest.mark.parametrize("metadata", [True, False], ids=["metadata_table", "no_metadata_table"])
@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_both_go_on_after_clusterings_of_either(
    hudi: Hudi, record: Record, tmp_path: Path, kind: str, metadata: bool
) -> None:
    path, history = tmp_path / "clustered", History("clustered", ORDERS, SIMPLE, [])
    ours = {
        **COLUMNS,
        "hoodie.index.type": "SIMPLE",
        "hoodie.metadata.enable": metadata,
        "hoodie.metadata.index.column.stats.enable": metadata,
        "hoodie.clean.automatic": False,
        "hoodie.parquet.small.file.limit": 0,
        "hoodie.layout.optimize.strategy": "z-order",
    }
    LsmTable.create(
        path,
        ORDERS,
        {
            **SIMPLE,
            **ours,
            "hoodie.table.name": "clustered",
            "hoodie.write.table.version": 9,
            "hoodie.datasource.write.table.type": kind,
        },
    )
    options = {
        **history.hudi_options(LsmTable(path)),
        **COLUMNS,
        "hoodie.index.type": "SIMPLE",
        "hoodie.metadata.enable": str(metadata).lower(),
        "hoodie.metadata.index.partition.stats.enable": "false",
        "hoodie.parquet.small.file.limit": "0",
    }
    del options["hoodie.bucket.index.num.buckets"]
    reading = {"hoodie.metadata.enable": str(metadata).lower(), "hoodie.enable.data.skipping": "true"}
    case = f"v9 {kind} clustering, {'with' if metadata else 'without'} metadata table"

    def table(**more: object) -> LsmTable:
        return LsmTable(path, {**ours, **more})

    def rows(number: int) -> pa.Table:
        return orders(np.random.default_rng(number), 25, 100 + number)

    def agree() -> list[str]:
        lines = to_lines(table().scan(meta=True).to_arrow())
        assert lines
        assert hudi.read(path, options=reading) == lines
        few = to_lines(table().scan(meta=True, filter="qty > 100").to_arrow())
        assert hudi.read(path, where="qty > 100", options=reading) == few
        if metadata:
            assert_settled(path)
        return lines

    def newest() -> Instant:
        return table().timeline.completed_writes[-1]

    record(case, TURNS, "we cluster")
    for number in range(3):
        table().upsert(rows(number))
    assert table().cluster() is not None
    agree()
    record(case, TURNS, "hudi upserts")
    hudi.write(path, "upsert", rows(4), options)
    agree()
    record(case, TURNS, "hudi clusters")
    hudi.call("run_clustering", path, options, op="scheduleandexecute", order="qty")
    assert (newest().action, table().timeline.read_commit(newest()).operation_type) == ("replacecommit", "CLUSTER")
    agree()
    record(case, TURNS, "we upsert, and run a clustering that hudi has planned")
    table().upsert(rows(5))
    hudi.call("run_clustering", path, options, op="schedule", order="qty,price")
    (planned,) = table().timeline.pending
    completed = table().cluster()
    assert completed is not None
    assert completed.requested == planned.requested
    agree()
    record(case, TURNS, "we upsert, and hudi runs a clustering that we have planned")
    table().upsert(rows(6))
    ours_planned, _ = table().services.schedule_clustering()
    assert ours_planned is not None
    hudi.call("run_clustering", path, options, op="execute")
    assert newest().requested == ours_planned.requested
    agree()
    record(case, TURNS, "changes since before a clustering")
    since = table().timeline.completed_writes[-3].completed or ""
    assert hudi.read(path, "incremental", begin=since) == to_lines(table().incremental(since, meta=True).to_arrow())
    record(case, TURNS, "we upsert, hudi cleans")
    table().upsert(rows(7))
    hudi.clean(path, options=options)
    agree()
