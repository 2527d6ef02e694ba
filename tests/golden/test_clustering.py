"""A clustering that Hudi planned and left pending is run here; its rows are those that Hudi read before."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from streaming_lsm import LsmTable
from streaming_lsm.format.actions.clustering_plan import ClusteringPlan
from streaming_lsm.timeline.instant import State
from tests.support import hudi_tables


def test_a_clustering_that_hudi_planned_is_run_and_read_back(tmp_path: Path) -> None:
    root = hudi_tables.unpacked("v9_cow_clustering", tmp_path)
    table = LsmTable(root, {"hoodie.index.type": "SIMPLE"})
    (planned,) = table.timeline.pending
    data = (root / planned.at(State.REQUESTED).path).read_bytes()
    plan = ClusteringPlan.decode(data, planned.path)
    assert plan.sort_columns == ("price",)
    before = table.scan(meta=True).to_arrow().drop_columns("_hoodie_file_name").sort_by("_hoodie_record_key")
    assert before.num_rows == hudi_tables.MANIFESTS["v9_cow_clustering"]["reads"]["snapshot"]["rows"]
    completed = table.cluster()
    assert completed is not None
    assert completed.requested == planned.requested
    after = table.scan(meta=True).to_arrow().drop_columns("_hoodie_file_name").sort_by("_hoodie_record_key")
    assert after.equals(before)
    groups = {(found.partition_path, found.file_id) for found in table.file_slices()}
    assert groups.isdisjoint(plan.file_groups)
    for found in table.file_slices():
        assert found.base is not None
        prices = pq.read_table(root / found.base.path, columns=["price"]).column(0).to_pylist()
        assert prices == sorted(prices, key=lambda price: (price is not None, price))


def test_a_plan_of_ours_has_the_bytes_of_hudi_s(tmp_path: Path) -> None:
    """But for the order of rows and the size of files, which Hudi takes from its own options."""
    root = hudi_tables.unpacked("v9_cow_clustering", tmp_path)
    requested = sorted((root / ".hoodie" / "timeline").glob("*.clustering.requested"))
    for path in requested:
        data = path.read_bytes()
        again = ClusteringPlan.decode(data, path.name).encode("file:/fixtures/v9_cow_clustering")
        assert ClusteringPlan.decode(again, path.name) == ClusteringPlan.decode(data, path.name)
        assert abs(len(again) - len(data)) <= 8  # extraMetadata of the groups is empty here, and null there
