"""Write plans without a transaction: what one task is told, and what it hands over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.properties import PartitionField
from streaming_lsm.keys.generator import KeyGenerator
from streaming_lsm.lock.heartbeat import heartbeat_path
from streaming_lsm.lock.markers import marker_folder
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH
from streaming_lsm.write.plan import FileOptions, WritePlan

INSTANT = "20261121101112131"
SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("value", pa.int32()), ("gone", pa.bool_())]
)
FILES = FileOptions(
    codec="zstd",
    row_group_rows=1000,
    page_bytes=4096,
)


def make_plan(
    root: Path,
    *,
    operation: str = "upsert",
    event_time: bool = True,
    combine: bool = True,
    ordering: tuple[str, ...] = ("ts",),
    schema: pa.Schema = SCHEMA,
    partitioned: bool = False,
    buckets: int = 1,
    file_ids: Mapping[tuple[str, int], str] | None = None,
    **others: Any,
) -> WritePlan:
    """A plan of one batch; a row is a delete when its column ``gone`` is true."""
    parts = (("part", "SIMPLE"),) if partitioned else ()
    generator = "SIMPLE" if partitioned else "NON_PARTITION"
    config = TableConfig(
        name="orders",
        record_key_fields=("id",),
        num_buckets=buckets,
        partition_fields=tuple(PartitionField(*part) for part in parts),
        ordering_fields=ordering,
        key_generator=generator,
    )
    plan: dict[str, Any] = {
        "storage": LocalStorage(root),
        "config": config,
        "instant": INSTANT,
        "schema": schema,
        "keys": KeyGenerator(generator, ("id",), parts),
        "rule": MergeRule(event_time, ordering if event_time else (), "gone", "true"),
        "operation": operation,
        "combine": combine,
        "arrival_fields": (),
        "files": FILES,
        "file_ids": dict(file_ids or {}),
    }
    return WritePlan(**{**plan, **others})


def open_instant(plan: WritePlan) -> WritePlan:
    """What a begun transaction leaves for its tasks: the folder of markers and the heartbeat."""
    plan.storage.make_folder(marker_folder(plan.instant))
    plan.storage.put_if_absent(heartbeat_path(plan.instant), b"")
    plan.storage.replace(PROPERTIES_PATH, b"")
    return plan
