"""Tables with all partitions of the metadata table at once, which this package and Hudi write in turn by each index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.properties_file import load_properties
from tests.conformance.histories import ORDERS, SIMPLE, History, orders
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines

pytestmark = pytest.mark.timeout(1200)
SETTINGS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.compact.max.delta.commits": "4",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.parquet.bloom.filter.enabled": "true",
    "hoodie.simple.index.update.partition.path": "true",
    "hoodie.bloom.index.update.partition.path": "true",
    "hoodie.record.index.update.partition.path": "true",
}
GLOBAL = {
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.global.record.level.index.min.filegroup.count": "3",
    "hoodie.metadata.global.record.level.index.max.filegroup.count": "3",
}
BY_PARTITION = {"hoodie.metadata.record.level.index.enable": "true"}
READ = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
SECONDARY = "secondary_index_note"
INDEXES = ("SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM", "RECORD_INDEX", "RECORD_LEVEL_INDEX")
HISTORY = History("all_indexes", ORDERS, SIMPLE, [])
PARTITIONS = {"files", "column_stats", "partition_stats", "bloom_filters", "record_index"}


def _rows(turn: int, count: int = 25) -> pa.Table:
    """Orders of few notes; no key moves to another partition."""
    found, draw = orders(np.random.default_rng(turn), count, 100 + 20 * turn), np.random.default_rng(50 + turn)
    notes = pa.array([f"note {number}" for number in draw.integers(0, 5, count)])
    return found.set_column(ORDERS.get_field_index("note"), "note", notes)


def _registered(path: Path) -> set[str]:
    return set(load_properties(LocalStorage(path))["hoodie.table.metadata.partitions"].split(","))


def _agree(hudi: Hudi, path: Path) -> None:
    """Both find the same rows with skipping and look-ups on, and Hudi's validator the same files by both listings."""
    table = LsmTable(path, {"hoodie.metadata.enable": True})
    rows = table.scan(meta=True).to_arrow()
    assert hudi.read(path, options=READ) == to_lines(rows)
    for where, wanted in (
        ("id = 'ord-0007'", pc.field("id") == "ord-0007"),
        ("id IN ('ord-0001', 'ord-0020', 'none')", pc.field("id").isin(["ord-0001", "ord-0020", "none"])),
        ("note = 'note 3'", pc.field("note") == "note 3"),
        ("qty > 420", pc.field("qty") > 420),
        ("region = 'south' AND price < 100", (pc.field("region") == "south") & (pc.field("price") < 100)),
    ):
        lines = to_lines(rows.filter(wanted))
        assert to_lines(table.scan(filter=wanted, meta=True).to_arrow()) == lines, where
        assert hudi.read(path, where=where, options=READ) == lines, where
    listed = hudi.call("validate_metadata_table_files", path, verbose=True)
    assert listed
    assert all(line["is_present_in_fs"] and line["is_present_in_metadata"] for line in listed)


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_all_partitions_are_kept_in_turn(hudi: Hudi, record: Record, tmp_path: Path, kind: str, index: str) -> None:
    path, is_global = tmp_path / "turns", index != "RECORD_LEVEL_INDEX"
    settings = {**SETTINGS, **(GLOBAL if is_global else BY_PARTITION), "hoodie.index.type": index}
    new = {"hoodie.table.name": "turns", "hoodie.write.table.version": 9, "hoodie.datasource.write.table.type": kind}
    LsmTable.create(path, ORDERS, {**SIMPLE, **new, **settings})
    # A secondary index needs the record index of the whole table.
    wanted = {*PARTITIONS, SECONDARY} if is_global else PARTITIONS
    options = {**HISTORY.hudi_options(LsmTable(path)), **settings}
    del options["hoodie.bucket.index.num.buckets"]
    for turn in range(5):
        record(f"v9 {kind} {index}, all partitions", "ours, hudi, ours", f"turn {turn + 1}")
        ours = LsmTable(path, {**settings, "hoodie.clean.automatic": False})
        if turn % 2:
            hudi.write(path, "upsert", _rows(turn), options)
            hudi.write(path, "delete", _rows(turn, 4), options)
        else:
            ours.upsert(_rows(turn))
            ours.delete(_rows(turn, 3).select(["id", "region"]))
            if turn and kind == "MERGE_ON_READ":
                ours.compact()
            for name in sorted(wanted - _registered(path)):
                ours.create_index(name, {"hoodie.metadata.index.secondary.column": "note"})
            assert LsmTable(path).check_indexes().findings == ()
            assert _registered(path) == wanted
        _agree(hudi, path)
