"""The record index of a table: building it, looking keys up in it, and what commits of 10,000 rows cost with it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from streaming_lsm import LsmTable
from streaming_lsm.metadata.record_locations import RecordIndex
from streaming_lsm.timeline.cache import TimelineCache
from tests.bench.result import Result, in_turns
from tests.bench.workload import padded

KEYS, FEW, ROWS, COMMITS = 1_000_000, 100, 10_000, 7
"""A look-up of 100 keys among 1 M meets as many blocks of each file group as one of 1,000 among 10 M."""
LIMIT = 300_000
"""Keys a second of processor time for which a record index is built."""
SCHEMA = pa.schema([("id", pa.string()), ("note", pa.string()), ("n", pa.int64()), ("ts", pa.int64())])
OPTIONS: Mapping[str, object] = {
    "hoodie.table.name": "indexed",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 8,
    "hoodie.metadata.enable": True,
    "hoodie.metadata.compact.max.delta.commits": 1000,
}
INDEXED = {"hoodie.metadata.record.index.enable": True}


def run() -> list[Result]:
    """Times of a table with a record index, against limits, scans, and a table that has only the partition files."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        tables = {}
        for name, more in (("files", {}), ("files and record_index", INDEXED)):
            path = Path(folder) / name[-5:]
            LsmTable.create(path, SCHEMA, OPTIONS).bulk_insert(_rows(rng.permutation(KEYS), 1))
            tables[name] = LsmTable(path, {**OPTIONS, **more})
        built = _built(tables["files and record_index"])
        few, half = (pa.array(padded(rng.choice(KEYS, count, replace=False))) for count in (FEW, KEYS // 2))
        found = [in_turns(*_looked_up(tables["files and record_index"], keys), runs=3) for keys in (few, half)]
        commits = _commits(tables, rng)
    limit = f"the limit, {LIMIT:,} keys a second of processor time"
    return [
        Result("record index, build", (built,), (KEYS / LIMIT,), KEYS, "keys", 1.0, True, limit),
        Result(f"record index, seek {FEW} of {KEYS:,}", *found[0], FEW, "keys", 0.2, False, "a scan"),
        Result("record index, scan for half", *found[1][::-1], KEYS // 2, "keys", 1.0, False, "seeks"),
        Result("commit with files and record_index", *commits, COMMITS, "commits", 2.0, False, "commits with files"),
    ]


def _rows(numbers: np.ndarray[tuple[int], np.dtype[np.int64]], ts: int) -> pa.Table:
    count = len(numbers)
    columns = [pa.array(padded(numbers)), pa.array([f"note {number % 997}" for number in numbers.tolist()])]
    return pa.table([*columns, pa.array(numbers), pa.array(np.full(count, ts))], schema=SCHEMA)


def _built(table: LsmTable) -> float:
    """Processor time of the transaction that builds the index of all keys."""
    begun = time.process_time()
    with table.transaction():
        pass
    return time.process_time() - begun


def _looked_up(table: LsmTable, keys: pa.StringArray) -> tuple[Callable[[], None], Callable[[], None]]:
    """Look keys up by seek, and by scan."""

    def by(scan_share: float) -> Callable[[], None]:
        def look_up() -> None:
            index = RecordIndex.open(table.storage, table.timeline, scan_share, TimelineCache())
            assert index is not None
            assert len(index.find(keys).keys) == len(keys)

        return look_up

    return by(0.9999), by(1e-9)


def _commits(tables: Mapping[str, LsmTable], rng: np.random.Generator) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Processor time of each commit with the index, and without."""
    taken: dict[str, list[float]] = {name: [] for name in tables}
    for step in range(-1, COMMITS):
        rows = _rows(rng.choice(2 * KEYS, ROWS, replace=False), 3 + step)
        for name, table in tables.items():
            begun = time.process_time()
            table.upsert(rows)
            if step >= 0:
                taken[name].append(time.process_time() - begun)
    return tuple(taken["files and record_index"]), tuple(taken["files"])
