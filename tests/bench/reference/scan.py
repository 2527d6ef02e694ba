"""What pyarrow alone does with the files of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

ReadFiles = Callable[[Sequence[str], list[str] | None, int], pa.Table]


def read_by_file(paths: Sequence[str], columns: list[str] | None, threads: int) -> pa.Table:
    """All rows; the threads share out the files."""

    def read(path: str) -> pa.Table:
        with pq.ParquetFile(path) as file:
            return file.read(columns, use_threads=False)

    with ThreadPoolExecutor(threads) as pool:
        return pa.concat_tables(pool.map(read, paths))


def read_by_column(paths: Sequence[str], columns: list[str] | None, threads: int) -> pa.Table:
    """All rows; the threads share out the columns of one file after the other."""
    pa.set_cpu_count(threads)
    tables = []
    for path in paths:
        with pq.ParquetFile(path) as file:
            tables.append(file.read(columns, use_threads=True))
    return pa.concat_tables(tables)
