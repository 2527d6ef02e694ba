"""Tables that the benchmarks read: a base file a bucket, written by bulk insert, and logs that overlap it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow.compute as pc

from streaming_lsm import LsmTable
from tests.bench.workload import KEY, ORDERING, orders, padded

Result = TypeVar("Result")

BUCKETS = 4
THREADS = 2


def make_table(folder: str, rows: int, logs: int, log_rows: int) -> LsmTable:
    """A table whose base files hold `rows` keys, with `logs` upserts of `log_rows` events each over the same keys."""
    base = orders(rows, rows, seed=0)
    keys = pc.binary_join_element_wise("order", padded(np.random.default_rng(0).permutation(rows)), "")
    base = base.set_column(base.schema.get_field_index(KEY), KEY, keys)
    options = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": KEY,
        "hoodie.table.ordering.fields": ORDERING,
        "hoodie.bucket.index.num.buckets": BUCKETS,
        "lsm.read.threads": THREADS,
    }
    table = LsmTable.create(folder, base.schema, options)
    table.bulk_insert(base)
    for number in range(1, logs + 1):
        table.upsert(orders(log_rows, rows, seed=number))
    return table


def data_paths(table: LsmTable, folder: str) -> list[str]:
    """Every file that a snapshot reads."""
    return [os.path.join(folder, path) for found in table.file_slices() for path in found.paths]


def fastest(*calls: Callable[[], Result]) -> Callable[[], Result]:
    """The call that takes least time; each runs twice, and the second run counts."""
    seconds = []
    for call in calls:
        call()
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return calls[seconds.index(min(seconds))]
