"""What pyarrow alone does to turn the files of a slice into one, without any merge."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP_ROWS = 16384


def rewrite(slices: Sequence[Sequence[str]], folder: str, threads: int, dictionary: Sequence[str]) -> int:
    """Read each slice's files and write their rows as one zstd file; returns how many rows there were.

    The threads share out the slices.

    Args:
        slices: paths of files.
        folder: takes the new ones.
        threads: how many.
        dictionary: columns whose values repeat often enough for one; without the others it is faster.
    """
    number = count()

    def one(paths: Sequence[str]) -> int:
        tables = []
        for path in paths:
            with pq.ParquetFile(path) as file:
                tables.append(file.read(use_threads=False))
        rows = pa.concat_tables(tables)
        target = f"{folder}/rewritten-{next(number)}.parquet"
        pq.write_table(rows, target, compression="zstd", row_group_size=ROW_GROUP_ROWS, use_dictionary=list(dictionary))
        return rows.num_rows

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(one, slices))
