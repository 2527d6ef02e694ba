"""Upsert few keys of a table of 10 million without buckets, by each index, against a read of its key column."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm import LsmTable
from tests.bench.reference.keys import read_keys
from tests.bench.result import Result, in_turns
from tests.bench.workload import padded, uuids

ROWS, FEW = 10_000_000, 1_000
BATCHES = (FEW, 10_000, 100_000)
THREADS = 2
_PART = 1_000_000
Keys = Callable[[np.ndarray], pa.Array]
KEYS: Mapping[str, Keys] = {
    "ascending keys": lambda numbers: pc.binary_join_element_wise("order-", padded(numbers * 2), ""),
    "UUIDs": uuids,
}
"""Keys of the tables: ascending ones take a byte each in a file, and those that look random nearly all of theirs."""
OPTIONS = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "order_id",
    "hoodie.table.ordering.fields": "updated",
}
OPENED = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False, "lsm.read.threads": THREADS}


def run() -> list[Result]:
    """Times of upserts by SIMPLE and by RECORD_INDEX, and of pyarrow's read of the key column."""
    return [result for name, keys in KEYS.items() for result in _of_keys(name, keys)]


def _of_keys(name: str, keys: Keys) -> Iterator[Result]:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        table = _made(Path(folder) / "table", keys)
        bases = [f"{folder}/table/{one.base.path}" for one in table.file_slices() if one.base]

        def upsert(into: LsmTable, count: int) -> None:
            into.upsert(_orders(np.unique(rng.integers(0, ROWS, count)), 1, keys))

        def read() -> None:
            if read_keys(bases, THREADS) != ROWS:
                raise AssertionError("the files do not have all keys")

        what = f"pyarrow reads the key column of {len(bases)} base files"
        simple = in_turns(partial(upsert, table, FEW), read, runs=3)
        yield Result(f"upsert {FEW:,} of {ROWS:,} {name}, SIMPLE", *simple, FEW, "keys", 2.0, False, what)
        by_record = LsmTable(Path(folder) / "table", {**OPENED, "hoodie.index.type": "RECORD_INDEX"})
        begun = time.perf_counter()
        upsert(by_record, FEW)
        built = time.perf_counter() - begun
        print(f"the first write by RECORD_INDEX took {built:.1f} s, {ROWS / built:,.0f} keys/s", flush=True)
        # Both keep the record index, so that they differ in how keys are found.
        by_simple = _by_simple(folder)
        ratios: list[float] = []
        for count in BATCHES:
            upsert(by_record, count)  # so that it is not the first one of an open table
            times = in_turns(partial(upsert, by_record, count), partial(upsert, by_simple, count), runs=3)
            target = 5.0 if count == FEW else 0.1  # the others show where both cost the same
            title = f"upsert {count:,} of {ROWS:,} {name}, RECORD_INDEX"
            found = Result(title, *times, count, "keys", target, True, "the same by SIMPLE")
            ratios.append(found.ratio)
            yield found
        print(f"{name}: both take as long for {_crossover(ratios)}", flush=True)


def _crossover(ratios: Sequence[float]) -> str:
    """Tell for how many keys both indexes take as long, interpolated between the ratios of `BATCHES`."""
    at_most = next((place for place, ratio in enumerate(ratios) if ratio <= 1), len(ratios))
    if at_most in (0, len(ratios)):
        return f"less than {BATCHES[0]:,} keys" if at_most == 0 else f"more than {BATCHES[-1]:,} keys"
    (few, many), (high, low) = BATCHES[at_most - 1 : at_most + 1], ratios[at_most - 1 : at_most + 1]
    share = np.log(high) / (np.log(high) - np.log(low))
    return f"{int(few * (many / few) ** share):,} keys"


def _by_simple(folder: str) -> LsmTable:
    kept = {"hoodie.metadata.enable": True, "hoodie.metadata.global.record.level.index.enable": True}
    return LsmTable(Path(folder) / "table", {**OPENED, **kept, "hoodie.index.type": "GLOBAL_SIMPLE"})


def _made(path: Path, keys: Keys) -> LsmTable:
    """A table of `ROWS` orders, bulk inserted."""
    options = {**OPTIONS, **OPENED, "hoodie.index.type": "SIMPLE"}
    schema = _orders(np.arange(1), 0, keys).schema
    table = LsmTable.create(path, schema, options)
    parts = (_orders(np.arange(first, first + _PART), 0, keys).to_batches() for first in range(0, ROWS, _PART))
    batches = (batch for part in parts for batch in part)
    table.bulk_insert(pa.RecordBatchReader.from_batches(schema, batches))
    return LsmTable(path, OPENED)


def _orders(numbers: np.ndarray, updated: int, keys: Keys) -> pa.Table:
    return pa.table(
        {
            "order_id": keys(numbers),
            "updated": np.full(len(numbers), updated),
            "qty": numbers * 7919 % 1000,
            "price": numbers % 10007 / 7,
            "note": pc.binary_join_element_wise("note of ", padded(numbers % 5000), ""),
        }
    )
