"""Tables with change data capture, what is written to them, and their changes in a form to compare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm import LsmTable
from tests.support.faulty_storage import FaultyStorage

NESTED = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("day", pa.string(), nullable=False),
        ("ts", pa.int64()),
        ("price", pa.decimal128(9, 2)),
        ("place", NESTED),
    ]
)
MODES = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")
LAYOUTS = ((10, "lsm_tree"), (10, "default"), (9, "default"))
Change = tuple[str, str, Any, Any]


def created(path: Path, mode: str | None, version: int = 10, layout: str = "lsm_tree", **options: object) -> LsmTable:
    captured = {"hoodie.table.cdc.enabled": True, "hoodie.table.cdc.supplemental.logging.mode": mode}
    return LsmTable.create(
        path,
        SCHEMA,
        {
            "hoodie.table.name": "t",
            "hoodie.write.table.version": version,
            "hoodie.table.storage.layout": layout,
            "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "day",
            "hoodie.table.ordering.fields": "ts",
            "hoodie.bucket.index.num.buckets": 2,
            **(captured if mode else {}),
            **options,
        },
    )


def random_batch(rng: np.random.Generator, step: int) -> pa.Table:
    numbers = rng.permutation(40)[:15]
    rows = [
        {
            "id": f"k{number}",
            "day": f"d{number % 2}",
            "ts": 10 * step + int(rng.integers(-15, 5)),
            "price": None if number % 5 == 0 else int(rng.integers(0, 99)),
            "place": None if number % 7 == 0 else {"a": int(number), "b": ["x", None]},
        }
        for number in numbers
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def played(table: LsmTable, steps: int = 6) -> None:
    """Upserts with late rows, deletes, a write that changes nothing, and an overwrite."""
    rng = np.random.default_rng(5)
    for step in range(steps):
        rows = random_batch(rng, step)
        table.upsert(rows)
        if step == 2:
            table.delete(rows.select(["id", "day"]).slice(0, 6))
        if step == 3:
            late = rows.set_column(2, SCHEMA.field("ts"), pa.array([-99] * len(rows), pa.int64()))
            table.upsert(late)  # loses to what is there
    everything = table.scan().to_arrow()
    table.delete(everything.filter(pa.compute.equal(everything.column("day"), "d1")).select(["id", "day"]))
    table.insert_overwrite(random_batch(rng, steps))


def changes_of(table: LsmTable) -> list[Change]:
    rows = table.changes("000").to_arrow().to_pylist()
    times = {write.requested: number for number, write in enumerate(table.timeline.completed_writes)}
    return sorted((str(times[row["ts_ms"]]), row["op"], *map(image, (row["before"], row["after"]))) for row in rows)


def image(row: dict[str, Any] | None) -> str:
    kept = None if row is None else {name: row[name] for name in SCHEMA.names}
    return json.dumps(kept, default=str)


def change_logs(table: LsmTable) -> Iterator[tuple[str, int]]:
    for write in table.timeline.completed_writes:
        for stat in table.timeline.read_commit(write).stats:
            yield from stat.cdc_files


def opened(table: LsmTable, storage: FaultyStorage) -> LsmTable:
    opened = LsmTable(Path(table.path.removeprefix("file://")))
    opened.storage = storage
    return opened
