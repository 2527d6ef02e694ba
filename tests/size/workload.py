"""Many rows, most of them for one bucket: as files for a stream, with what must be left of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_lsm.keys.bucket import bucket_ids

BUCKETS = 4
HOT = 2
SHARE = 0.9
"""The part of all rows that belongs to bucket `HOT`."""
UPDATED = 20
"""One key in so many has a second, newer row."""
SCHEMA = pa.schema([("id", pa.string()), ("qty", pa.int64()), ("note", pa.string()), ("ts", pa.int64())])
SPARK_SCHEMA = "id STRING, qty BIGINT, note STRING, ts BIGINT"
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "size",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": BUCKETS,
    "lsm.write.shuffle.partitions": BUCKETS,
}
_FILE_ROWS = 250_000


@dataclass(frozen=True)
class Expected:
    """What files of rows have, and what a table has to show of them.

    Attributes:
        rows: rows in the files.
        hot_rows: those for bucket `HOT`.
        bytes: of all rows as Arrow columns.
        keys: different keys.
        qty: sum of the newest `qty` of each key.
    """

    rows: int
    hot_rows: int
    bytes: int
    keys: int
    qty: int

    def __add__(self, other: Expected) -> Expected:
        mine, others = vars(self).values(), vars(other).values()
        return Expected(*(a + b for a, b in zip(mine, others, strict=True)))


NOTHING = Expected(0, 0, 0, 0, 0)


def write_files(folder: Path, rows: int, *, first: int = 0) -> Expected:
    """About `rows` rows as Parquet files, each made and written before the next.

    Args:
        folder: where; files appear in the order of their names.
        rows: how many.
        first: number of the first candidate for a key; other calls must not come near it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    total, numbers = NOTHING, _numbers(first)
    while total.rows < rows:
        keys = min(_FILE_ROWS, rows - total.rows) * UPDATED // (UPDATED + 1)
        table, found = _rows(next(numbers), max(1, keys))
        total += found
        hidden = folder / f".{first + total.rows:012d}"
        pq.write_table(table, hidden, compression="zstd")
        hidden.rename(folder / f"{first + total.rows:012d}.parquet")
    return total


def _numbers(first: int) -> Iterator[int]:
    """Where the candidates of each file begin: four times as many as it has rows, as three in four do not fit."""
    while True:
        yield first
        first += 5 * _FILE_ROWS


def _rows(first: int, keys: int) -> tuple[pa.Table, Expected]:
    number, hot_keys = _chosen(first, keys)
    again = number[::UPDATED]
    hot = hot_keys + int(np.isin(again, number[:hot_keys]).sum())
    numbers = np.concatenate([number, again])
    version = np.repeat([0, 1], [len(number), len(again)])
    order = np.random.default_rng(first).permutation(len(numbers))
    numbers, version = numbers[order], version[order]
    table = pa.table([_text(numbers), _qty(numbers, version), _note(numbers), 2 * numbers + version], schema=SCHEMA)
    qty = int(_qty(number, np.zeros_like(number)).sum())
    qty += int((_qty(again, np.ones_like(again)) - _qty(again, np.zeros_like(again))).sum())
    return table, Expected(len(numbers), hot, table.nbytes, len(number), qty)


def _chosen(first: int, keys: int) -> tuple[npt.NDArray[np.int64], int]:
    """`keys` numbers from `first` on whose keys spread over the buckets as they should, those of `HOT` first."""
    candidates = np.arange(first, first + 5 * keys + 1000)
    bucket = bucket_ids(_text(candidates), ("id",), (), BUCKETS)
    hot = round(SHARE * keys)
    return np.concatenate([candidates[bucket == HOT][:hot], candidates[bucket != HOT][: keys - hot]]), hot


def _text(numbers: npt.NDArray[np.int64]) -> pa.StringArray:
    padded = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 12, "0")
    return pc.binary_join_element_wise("order", padded, "")


def _note(numbers: npt.NDArray[np.int64]) -> pa.StringArray:
    mixed = pa.array(numbers * 2_654_435_761 % 1_000_000_007).cast(pa.string())
    return pc.binary_join_element_wise("a note of some length about", mixed, " ")


def _qty(numbers: npt.NDArray[np.int64], version: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return (numbers * 7 + version * 13) % 1000
