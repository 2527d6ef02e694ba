"""The record index of a metadata table that this package and Hudi keep in turn: Hudi reads it, and finds rows by it."""

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
from tests.support.metadata_tables import assert_locations

GLOBAL = {
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.global.record.level.index.min.filegroup.count": "3",
    "hoodie.metadata.global.record.level.index.max.filegroup.count": "3",
}
BY_PARTITION = {
    "hoodie.metadata.record.level.index.enable": "true",
    "hoodie.metadata.record.level.index.max.filegroup.count": "2",
}
GROWING = {
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.global.record.level.index.min.filegroup.count": "1",
    "hoodie.metadata.global.record.level.index.max.filegroup.count": "6",
    "hoodie.metadata.record.index.max.filegroup.size": "480",
}
BY_DATE = "by partition, of dates"
FORMS = {
    "global": GLOBAL,
    "by partition": BY_PARTITION,
    BY_DATE: BY_PARTITION,
    "with more and more file groups": GROWING,
}
SETTINGS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.compact.max.delta.commits": "3",
    "hoodie.metadata.index.column.stats.enable": "false",
}
HUDI = {**SETTINGS, "hoodie.metadata.index.partition.stats.enable": "false"}
READ = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
OURS = {"hoodie.clean.automatic": False, "hoodie.bucket.index.num.buckets": 2}
INDEX = ".hoodie/metadata/record_index"
HISTORY = History("record_index", ORDERS, SIMPLE, [])


def _rows(number: int, form: str, count: int = 25) -> pa.Table:
    rows = orders(np.random.default_rng(number), count, 100 + 7 * number)
    if form != BY_DATE:
        return rows
    place, regions = rows.schema.get_field_index("region"), rows["region"]
    return rows.set_column(place, "region", pc.binary_join_element_wise("2024-01-01", regions, "_"))


def _agree(hudi: Hudi, path: Path, *, complete: bool = True) -> None:
    """Hudi reads the same rows, finds those of some keys, and reads the keys of the snapshot in the record index."""
    assert "record_index" in load_properties(LocalStorage(path))["hoodie.table.metadata.partitions"]
    table = LsmTable(path)
    ours = to_lines(table.scan(meta=True).to_arrow())
    assert ours
    assert hudi.read(path, options=READ) == ours
    if not complete:
        return
    assert assert_locations(path) == len(ours)
    for number in (1, 4, 17, 99):
        key = f"ord-{number:04d}"
        assert hudi.read(path, where=f"id = '{key}'", options=READ) == [
            line for line in ours if f'"id": "{key}"' in line
        ]
    index = hudi.sql(
        "SELECT key, recordIndexMetadata.partitionName AS part FROM hudi_metadata('{table}') WHERE type = 5", path
    )
    found = {(row["part"], row["key"]) for row in index}
    rows = table.scan(meta=True).to_arrow()
    wanted = zip(rows["_hoodie_partition_path"].to_pylist(), rows["_hoodie_record_key"].to_pylist(), strict=True)
    assert found == set(wanted)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_record_index_kept_in_turn(hudi: Hudi, record: Record, tmp_path: Path, kind: str, form: str) -> None:
    path = tmp_path / "turns"
    case = f"v9 {kind} record index, {form}"
    table = HISTORY.create(path, 9, kind, {**SETTINGS, **FORMS[form]})
    options = {**HISTORY.hudi_options(table), **HUDI, **FORMS[form]}
    for turn in range(7):
        record(case, "ours, hudi, ours", f"turn {turn + 1}")
        ours = LsmTable(path, {**OURS, **SETTINGS, **FORMS[form]})
        if turn in (3, 5):
            hudi.write(path, "upsert", _rows(turn, form), options)
            hudi.write(path, "delete", _rows(turn, form, 4), options)
        elif turn == 2:
            ours.delete(_rows(turn, form, 8).select(["id", "region"]))
        else:
            ours.upsert(_rows(turn, form))
            if turn % 2 and kind == "MERGE_ON_READ":
                ours.compact()
        # Hudi leaves out what its bucket index inserts into logs; the next write of ours adds it.
        if turn:
            _agree(hudi, path, complete=turn not in (3, 5) or kind == "COPY_ON_WRITE")
    ids = {file.name.split("_")[0].strip(".") for file in (path / INDEX).iterdir() if "record-index" in file.name}
    assert len(ids) >= {"global": 3, "by partition": 2, BY_DATE: 2}.get(form, 4)
