"""Which of the keys that a write brings to a file group the record index has there already: the others are logged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from tests.support.metadata_tables import assert_locations

SCHEMA = pa.schema([("k", pa.string()), ("p", pa.string()), ("ts", pa.int64())])
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.record.index.update.partition.path": True,
}


def rows(*given: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in given], SCHEMA)


@pytest.mark.parametrize(
    "batch",
    [
        [("new", "b", 5), ("stays", "a", 5)],
        [("moves", "b", 5), ("stays", "a", 5)],
        [("new", "b", 5), ("newer", "b", 5), ("stays", "a", 5), ("stays too", "c", 5)],
    ],
    ids=["a new key", "a key that moves", "several"],
)
def test_keys_are_indexed_beside_as_many_late_events_of_keys_that_stay(
    batch: list[tuple[str, str, int]], tmp_path: Path
) -> None:
    table = LsmTable.create(tmp_path, SCHEMA, OPTIONS)
    table.upsert(rows(("one", "a", 1), ("moves", "a", 1), ("stays", "b", 6), ("stays too", "b", 6), ("other", "b", 1)))
    table.upsert(rows(*batch))
    found = table.scan().to_arrow()
    assert assert_locations(tmp_path) == found.num_rows
    assert LsmTable(tmp_path).check_indexes().findings == ()
    reader = LsmTable(tmp_path, {"hoodie.metadata.enable": True})
    for key in found.column("k").to_pylist():
        assert reader.scan(filter=pc.field("k") == key).count() == 1
    table.upsert(rows(*((key, "a", 9) for key, *_ in batch)))
    assert sorted(table.scan().to_arrow().column("k").to_pylist()) == sorted(found.column("k").to_pylist())
