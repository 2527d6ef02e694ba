"""Compactions: by number of logs and by share of touched keys, against pyarrow; many logs against few.

The reference reads all files of the slices and writes their rows as one file each, without a merge.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm import LsmTable
from streaming_lsm.schema import COMMIT_SEQNO, META_COLUMNS, RECORD_KEY
from tests.bench.reference.merge import rewrite
from tests.bench.result import Result, in_turns
from tests.bench.workload import KEY, ORDERING, REPEATED, orders, padded
from tests.support.log_compaction import log_task, windows

ROWS, LOG_SHARE, RUNS = 1_000_000, 0.25, 3
TOUCHED = 0.01
FEW, MANY = 4, 64
DICTIONARY = (*REPEATED, *(name for name in META_COLUMNS if name not in (RECORD_KEY, COMMIT_SEQNO)))
NOTE = "ParquetFile.read and pq.write_table, zstd, 1 thread"


def run() -> list[Result]:
    """Rows a second of all files that are read; every run compacts a copy of one table of one file group."""
    found = [_against_pyarrow(f"full compaction, base and {logs} logs", _spread(logs), 0.6) for logs in (5, 20)]
    some = int(ROWS * TOUCHED)
    near = [orders(some, some, seed=1)]
    found.append(_against_pyarrow("compaction, 1 % of the keys, in one range", near, 1.5))
    anywhere = [orders(some, ROWS, seed=1)]
    found.append(_against_pyarrow("compaction, 1 % of the keys, anywhere", anywhere, 1.5))
    found += [_logs_against_pyarrow(logs) for logs in (5, 20)]
    return [*found, *_many_against_few()]


def _spread(logs: int) -> list[pa.Table]:
    """Logs that together have `LOG_SHARE` of the base's number of rows, over all its keys."""
    return [orders(int(ROWS * LOG_SHARE / logs), ROWS, seed=number) for number in range(1, logs + 1)]


def _make(folder: Path, logs: list[pa.Table]) -> LsmTable:
    base = orders(ROWS, ROWS, seed=0)
    keys = pc.binary_join_element_wise("order", padded(np.arange(ROWS)), "")
    base = base.set_column(base.schema.get_field_index(KEY), KEY, keys)
    options = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": KEY,
        "hoodie.table.ordering.fields": ORDERING,
        "hoodie.bucket.index.num.buckets": 1,
        "lsm.read.threads": 1,
    }
    table = LsmTable.create(folder, base.schema, options)
    table.bulk_insert(base)
    for rows in logs:
        table.upsert(rows)
    return table


def _against_pyarrow(name: str, logs: list[pa.Table], target: float) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        table = _make(Path(folder) / "table", logs)
        slices = [[os.path.join(folder, "table", path) for path in found.paths] for found in table.file_slices()]
        read = rewrite(slices, folder, 1, DICTIONARY)
        ours = _compactions(Path(folder))
        taken = in_turns(lambda: next(ours), lambda: rewrite(slices, folder, 1, DICTIONARY), runs=RUNS)
    return Result(name, *taken, read, "rows", target, True, NOTE)


def _logs_against_pyarrow(logs: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        table = _make(Path(folder) / "table", _spread(logs))
        (window,) = windows(table)
        files = [[os.path.join(folder, "table", path) for path in window.paths]]
        read = rewrite(files, folder, 1, DICTIONARY)

        def ours() -> None:
            with table.transaction() as tx:  # given up in the end, so that the next turn merges the same logs
                log_task(table, tx.begin())((0, window))

        taken = in_turns(ours, lambda: rewrite(files, folder, 1, DICTIONARY), runs=RUNS)
    return Result(f"log compaction, {logs} logs", *taken, read, "rows", 0.6, True, NOTE)


def _compactions(folder: Path) -> Iterator[None]:
    """Compact the same table again and again; what belongs to the next turn is copied after each."""
    copy, number = shutil.copytree(folder / "table", folder / "copy-0"), 0
    while True:
        LsmTable(copy).compact()
        yield
        if any(found.logs for found in LsmTable(copy).file_slices()):
            raise AssertionError("a compaction left logs")
        shutil.rmtree(copy)
        number += 1
        copy = shutil.copytree(folder / "table", folder / f"copy-{number}")


def _many_against_few() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        calls: dict[int, Callable[[], object]] = {}
        peaks = {}
        for logs in (FEW, MANY):
            _make(Path(folder) / str(logs) / "table", _spread(logs))
            peaks[logs] = _peak_bytes(Path(folder) / str(logs))
            calls[logs] = _compactions(Path(folder) / str(logs)).__next__
        taken = in_turns(calls[MANY], calls[FEW], runs=RUNS)
    rows = ROWS * (1 + LOG_SHARE)
    return [
        Result(f"compaction, {MANY} logs", *taken, rows, "rows", 0.5, True, f"{FEW} logs of as many rows together"),
        Result(
            f"memory of a compaction, {MANY} logs, in GiB",
            (peaks[MANY] / 2**30,),
            (peaks[FEW] / 2**30,),
            1,
            "compactions",
            1.1,
            False,
            f"{FEW} logs of as many rows together",
        ),
    ]


def _peak_bytes(folder: Path) -> int:
    """Peak resident memory of a process that compacts a copy of the table."""
    copy = shutil.copytree(folder / "table", folder / "measured")
    code = f"import sys; from tests.bench.bench_compaction import compact_and_measure as run; run({str(copy)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shutil.rmtree(copy)
    return int(done.stdout)


def compact_and_measure(path: str) -> None:
    """Compact a table and print the peak resident memory of this process in bytes."""
    LsmTable(path).compact()
    status = Path("/proc/self/status").read_text(encoding="ascii")  # `ru_maxrss` would be that of the parent, too
    print(next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")))
