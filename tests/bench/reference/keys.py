"""The record keys of a table's base files, by pyarrow alone: what an index that reads them all has to read."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet as pq


def read_keys(paths: Sequence[str], threads: int) -> int:
    """Read the key column of files, a share of the row groups of each in every thread; returns the number of keys."""
    shares = [
        (path, [int(group) for group in share])
        for path in paths
        for share in np.array_split(np.arange(pq.read_metadata(path).num_row_groups), threads)
    ]
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(lambda share: _count(*share), shares))


def _count(path: str, groups: Sequence[int]) -> int:
    file = pq.ParquetFile(path)
    batches = file.iter_batches(131_072, row_groups=groups, columns=["_hoodie_record_key"])
    return sum(batch.num_rows for batch in batches)
