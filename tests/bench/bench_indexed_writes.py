"""Upsert few keys of a table of 10 million without buckets, by each index, against a read of its key column."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm import LsmTable
from tests.bench.reference.keys import read_keys
from tests.bench.result import Result, in_turns
from tests.bench.workload import padded

ROWS, FEW = 10_000_000, 1_000
BATCHES = (FEW, 100_000)
THREADS = 2
_PART = 1_000_000
OPTIONS = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "order_id",
    "hoodie.table.ordering.fields": "updated",
}
OPENED = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False, "lsm.read.threads": THREADS}


def run() -> list[Result]:
    """Times of upserts by SIMPLE and by RECORD_INDEX, and of pyarrow's read of the key column."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        table = _made(Path(folder) / "table")
        bases = [f"{folder}/table/{one.base.path}" for one in table.file_slices() if one.base]

        def upsert(into: LsmTable, count: int) -> None:
            into.upsert(_orders(np.unique(rng.integers(0, ROWS, count)), 1))

        def read() -> None:
            if read_keys(bases, THREADS) != ROWS:
                raise AssertionError("the files do not have all keys")

        simple = in_turns(partial(upsert, table, FEW), read, runs=3)
        by_record = LsmTable(Path(folder) / "table", {**OPENED, "hoodie.index.type": "RECORD_INDEX"})
        begun = time.perf_counter()
        upsert(by_record, FEW)
        built = time.perf_counter() - begun
        print(f"the first write by RECORD_INDEX took {built:.1f} s, {ROWS / built:,.0f} keys/s", flush=True)
        found = [
            Result(
                f"upsert {FEW:,} of {ROWS:,} keys, SIMPLE",
                *simple,
                FEW,
                "keys",
                2.0,
                False,
                f"pyarrow reads the key column of {len(bases)} base files",
            )
        ]
        # Both keep the record index, so that they differ in how keys are found.
        for count in BATCHES:
            times = in_turns(partial(upsert, by_record, count), partial(upsert, _by_simple(folder), count), runs=3)
            name = f"upsert {count:,} of {ROWS:,} keys, RECORD_INDEX"
            target = 5.0 if count == FEW else 0.1  # the others show where both cost the same
            found.append(Result(name, *times, count, "keys", target, True, "the same by SIMPLE"))
        return found


def _by_simple(folder: str) -> LsmTable:
    kept = {"hoodie.metadata.enable": True, "hoodie.metadata.global.record.level.index.enable": True}
    return LsmTable(Path(folder) / "table", {**OPENED, **kept, "hoodie.index.type": "GLOBAL_SIMPLE"})


def _made(path: Path) -> LsmTable:
    """A table of even order numbers, bulk inserted."""
    options = {**OPTIONS, **OPENED, "hoodie.index.type": "SIMPLE"}
    table = LsmTable.create(path, _orders(np.arange(1), 0).schema, options)
    parts = (_orders(np.arange(first, first + _PART), 0).to_batches() for first in range(0, ROWS, _PART))
    batches = (batch for part in parts for batch in part)
    table.bulk_insert(pa.RecordBatchReader.from_batches(_orders(np.arange(1), 0).schema, batches))
    return LsmTable(path, OPENED)


def _orders(numbers: np.ndarray, updated: int) -> pa.Table:
    return pa.table(
        {
            "order_id": pc.binary_join_element_wise("order-", padded(numbers * 2), ""),
            "updated": np.full(len(numbers), updated),
            "qty": numbers * 7919 % 1000,
            "price": numbers % 10007 / 7,
            "note": pc.binary_join_element_wise("note of ", padded(numbers % 5000), ""),
        }
    )
