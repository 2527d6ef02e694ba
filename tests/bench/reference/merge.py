"""What pyarrow alone does to turn the files of a slice into one, without any merge."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP_ROWS = 131072
UNIQUE = ("_hoodie_commit_seqno", "_hoodie_record_key")


def rewrite(slices: Sequence[Sequence[str]], folder: str, threads: int) -> int:
    """Read each slice's files and write their rows as one zstd file; returns how many rows there were.

    The threads share out the slices. Columns that no dictionary helps have none, which is faster.
    """
    number = count()

    def one(paths: Sequence[str]) -> int:
        tables = []
        for path in paths:
            with pq.ParquetFile(path) as file:
                tables.append(file.read(use_threads=False))
        rows = pa.concat_tables(tables)
        dictionary = [name for name in rows.column_names if name not in UNIQUE]
        target = f"{folder}/rewritten-{next(number)}.parquet"
        pq.write_table(rows, target, compression="zstd", row_group_size=ROW_GROUP_ROWS, use_dictionary=dictionary)
        return rows.num_rows

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(one, slices))
