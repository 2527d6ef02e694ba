"""What a small commit costs with a metadata table, and with indexes in it, in processor time."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from streaming_lsm import LsmTable
from tests.bench.result import Result

ROWS, COMMITS, RUNS = 50, 7, 8
"""A run has as many commits as there are between two compactions of the metadata table."""
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("n", pa.int64()),
        ("real", pa.float64()),
        ("day", pa.date32()),
        ("ts", pa.int64()),
    ]
)
OPTIONS: Mapping[str, object] = {
    "hoodie.table.name": "small",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.compact.inline": False,
}
FILES = {"hoodie.metadata.enable": True}
RANGES = {**FILES, "hoodie.metadata.index.column.stats.enable": True}
KINDS: Mapping[str, Mapping[str, object]] = {
    "none": {},
    "files": FILES,
    "files and column_stats": RANGES,
    "files, column_stats and partition_stats": {**RANGES, "hoodie.metadata.index.partition.stats.enable": True},
}
TARGET = 1.3


def run() -> list[Result]:
    """Processor time of runs of commits, of tables that take turns."""
    with tempfile.TemporaryDirectory() as folder:
        tables = {
            name: LsmTable.create(Path(folder) / str(place), SCHEMA, {**OPTIONS, **more})
            for place, (name, more) in enumerate(KINDS.items())
        }
        taken: dict[str, list[float]] = {name: [] for name in tables}
        for number in range(-1, RUNS):
            spent = dict.fromkeys(tables, 0.0)
            for step in range(COMMITS):
                rows = _rows(1 + (number + 1) * COMMITS + step)
                for name, table in tables.items():
                    begun = time.process_time()
                    table.upsert(rows)
                    spent[name] += time.process_time() - begun
            if number >= 0:
                for name, seconds in spent.items():
                    taken[name].append(seconds)
    return [
        _against(name, reference, taken)
        for name, reference in [
            ("files", "none"),
            ("files and column_stats", "none"),
            ("files and column_stats", "files"),
            ("files, column_stats and partition_stats", "files"),
        ]
    ]


def _against(name: str, reference: str, taken: Mapping[str, list[float]]) -> Result:
    note = "commits without a metadata table" if reference == "none" else f"commits with {reference}"
    ours, others = tuple(taken[name]), tuple(taken[reference])
    return Result(f"commit with {name}", ours, others, COMMITS, "commits", TARGET, False, note)


def _rows(ts: int) -> pa.Table:
    draw = random.Random(ts)
    rows = [
        {"id": f"k{draw.randrange(300)}", "part": draw.choice("ab"), "n": ts, "real": 0.5, "day": ts, "ts": ts}
        for _ in range(ROWS)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)
