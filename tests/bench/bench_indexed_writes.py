"""Upsert few keys of a table of 10 million without buckets, by each index, against a read of its key column."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm import LsmTable
from tests.bench.reference.keys import read_keys
from tests.bench.result import Result, in_turns
from tests.bench.workload import padded

ROWS, FEW = 10_000_000, 1_000
_PART = 1_000_000
OPTIONS = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "order_id",
    "hoodie.table.ordering.fields": "updated",
    "hoodie.clean.automatic": False,
    "hoodie.compact.inline": False,
}


def run() -> list[Result]:
    """Times of an upsert by SIMPLE and of pyarrow's read of the key column."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        table = _made(Path(folder) / "table")
        bases = [f"{folder}/table/{one.base.path}" for one in table.file_slices() if one.base]
        threads = 2

        def upsert() -> None:
            table.upsert(_orders(np.unique(rng.integers(0, ROWS, FEW)), 1))

        def read() -> None:
            if read_keys(bases, threads) != ROWS:
                raise AssertionError("the files do not have all keys")

        return [
            Result(
                f"upsert {FEW:,} of {ROWS:,} keys, SIMPLE",
                *in_turns(upsert, read, runs=3),
                FEW,
                "keys",
                2.0,
                False,
                f"pyarrow reads the key column of {len(bases)} base files",
            )
        ]


def _made(path: Path) -> LsmTable:
    """A table of even order numbers, bulk inserted."""
    options = {**OPTIONS, "hoodie.index.type": "SIMPLE", "lsm.read.threads": 2}
    table = LsmTable.create(path, _orders(np.arange(1), 0).schema, options)
    parts = (_orders(np.arange(first, first + _PART), 0).to_batches() for first in range(0, ROWS, _PART))
    batches = (batch for part in parts for batch in part)
    table.bulk_insert(pa.RecordBatchReader.from_batches(_orders(np.arange(1), 0).schema, batches))
    return LsmTable(path, {"lsm.read.threads": 2, "hoodie.clean.automatic": False})


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
