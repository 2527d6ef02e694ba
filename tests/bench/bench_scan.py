"""Snapshot scans against a raw read of the same bytes: the table's columns and the record key, the same threads."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from streaming_lsm.schema import RECORD_KEY
from tests.bench.reference.scan import read_by_column, read_by_file
from tests.bench.result import Result, in_turns
from tests.bench.tables import THREADS, data_paths, fastest, make_table


def run() -> list[Result]:
    """Rows a second of all files that are read; the reference is the faster of two ways to use two threads."""
    return [
        _compare("scan, no logs", 1_500_000, 0, 0, 0.8),
        _compare("scan, 20 overlapping logs", 800_000, 20, 50_000, 0.4),
    ]


def _compare(name: str, rows: int, logs: int, log_rows: int, target: float) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "table")
        table = make_table(path, rows, logs, log_rows)
        paths, columns = data_paths(table, path), [RECORD_KEY, *table.schema.names]
        reference = fastest(*(partial(read, paths, columns, THREADS) for read in (read_by_file, read_by_column)))
        read = reference().num_rows
        if table.scan().to_arrow().num_rows != rows or not rows <= read <= rows + logs * log_rows:
            raise AssertionError(f"{name}: the scan or the reference does not read what was written")
        taken = in_turns(lambda: table.scan().to_arrow(), reference, runs=7)
    note = f"ParquetFile.read of the same {len(columns)} columns (record key too), {THREADS} threads"
    return Result(name, *taken, read, "rows", target, True, note)
