"""Look up single record keys among 5 million rows in 16 buckets with 10 logs each, against limits in milliseconds."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm import LsmTable
from tests.bench.result import Result
from tests.bench.workload import padded

ROWS, BUCKETS, LOGS, LOG_ROWS, LOOKUPS = 5_000_000, 16, 10, 50_000, 200
_WARM = 200


def run() -> list[Result]:
    """Times of a look-up in a table that is open, of present and of absent keys; the limit stands for a reference."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        table = _made(Path(folder) / "table", rng)
        places = rng.integers(0, ROWS, LOOKUPS + _WARM) * 2
        return [
            Result(
                f"look-up, key is {name}", times, (limit,), 1, "keys", 1.0, False, f"the limit, {limit * 1000:.0f} ms"
            )
            for name, limit, times in (
                ("present", 0.015, _taken(table, places, rows=1)),
                ("absent", 0.005, _taken(table, places + 1, rows=0)),
            )
        ]


def _made(path: Path, rng: np.random.Generator) -> LsmTable:
    """A table of even order numbers, bulk inserted, and upserts of keys from anywhere."""
    first = _orders(np.arange(ROWS), 0)
    options = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": "order_id",
        "hoodie.table.ordering.fields": "updated",
        "hoodie.bucket.index.num.buckets": BUCKETS,
    }
    table = LsmTable.create(path, first.schema, options)
    table.bulk_insert(first)
    for number in range(1, LOGS + 1):
        table.upsert(_orders(np.unique(rng.integers(0, ROWS, LOG_ROWS)), number))
    return LsmTable(path)


def _keys(numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise("order-", padded(numbers), "")


def _orders(numbers: np.ndarray, updated: int) -> pa.Table:
    return pa.table(
        {
            "order_id": _keys(numbers * 2),
            "updated": np.full(len(numbers), updated),
            "qty": numbers * 7919 % 1000,
            "price": numbers % 10007 / 7,
            "note": pc.binary_join_element_wise("note of ", padded(numbers % 5000), ""),
        }
    )


def _taken(table: LsmTable, places: np.ndarray, rows: int) -> tuple[float, ...]:
    """Seconds of each look-up after some that are not counted."""
    found = []
    for key in _keys(places).to_pylist():
        begun = time.perf_counter()
        looked_up = table.lookup([key])
        found.append(time.perf_counter() - begun)
        if looked_up.num_rows != rows:
            raise AssertionError(f"look-up of {key}: {looked_up.num_rows} rows instead of {rows}")
    return tuple(found[_WARM:])
