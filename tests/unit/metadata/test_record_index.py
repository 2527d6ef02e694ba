"""The partition ``record_index`` of tables of ours: it has the keys of the snapshot after each action."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.properties_file import load_properties
from tests.support.metadata_tables import LOCATED, LOCATED_BY_PARTITION, PARTITIONS, assert_locations, assert_settled

SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string()), ("n", pa.int64()), ("gone", pa.bool_()), ("ts", pa.int64())]
)
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "located",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.metadata.compact.max.delta.commits": 4,
    "hoodie.metadata.record.index.min.filegroup.count": 3,
    "hoodie.metadata.record.index.max.filegroup.count": 3,
    "hoodie.metadata.partitioned.record.index.max.filegroup.count": 2,
    "hoodie.clean.commits.retained": 1,
    "lsm.read.threads": 1,
}
KINDS: dict[str, dict[str, object]] = {
    "version 10": {},
    "default layout": {"hoodie.table.storage.layout": "default"},
    "copy on write": {"hoodie.table.type": "COPY_ON_WRITE"},
    "version 9": {"hoodie.write.table.version": 9},
    "copy on write of version 9": {"hoodie.table.type": "COPY_ON_WRITE", "hoodie.write.table.version": 9},
    "commit time": {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"},
    "partial updates": {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
}


def batch(draw: random.Random, step: int, count: int = 12, *, parts: str = "ab") -> pa.Table:
    """Rows whose ordering values may be older than those that are there; a few are deletes by their column."""
    rows = [
        {
            "id": f"k{draw.randrange(30):02d}",
            "part": draw.choice(parts),
            "n": step,
            "gone": draw.random() < 0.15,
            "ts": max(0, step + draw.randrange(-3, 2)),
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def schema_of(kind: str) -> pa.Schema:
    return pa.schema([field if field.name != "gone" else field.with_name("_hoodie_is_deleted") for field in SCHEMA])


def written(draw: random.Random, step: int, count: int = 12) -> pa.Table:
    return batch(draw, step, count).rename_columns(["id", "part", "n", "_hoodie_is_deleted", "ts"])


ACTIONS = ("upsert", "upsert", "delete", "compact", "upsert", "overwrite", "clean", "upsert", "delete", "compact", "upsert")


def act(table: LsmTable, action: str, draw: random.Random, step: int) -> None:
    if action == "upsert":
        table.upsert(written(draw, step))
    elif action == "delete":
        table.delete(written(draw, step, 6))
    elif action == "overwrite":
        table.insert_overwrite(written(draw, step, 4))
    elif action == "clean":
        table.clean()
    elif not table.config.is_copy_on_write:
        table.compact()


def has_index(root: Path) -> bool:
    return "record_index" in load_properties(LocalStorage(root)).get(PARTITIONS, "")


@pytest.mark.parametrize("kind", KINDS)
def test_it_has_the_keys_of_each_partition_after_each_action(kind: str, tmp_path: Path) -> None:
    draw, compared = random.Random(kind), 0
    table = LsmTable.create(tmp_path, schema_of(kind), {**OPTIONS, **LOCATED_BY_PARTITION, **KINDS[kind]})
    for step, action in enumerate((*ACTIONS, *draw.choices(ACTIONS, k=6)), 1):
        act(table, action, draw, step)
        assert has_index(tmp_path) == (step > 1)
        compared += assert_locations(tmp_path) if step > 1 else 0
        assert_settled(tmp_path)
    assert compared > 150
