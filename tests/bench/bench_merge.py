"""Compaction of base files with ten logs against reading and rewriting the same bytes without a merge."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from streaming_lsm import LsmTable
from streaming_lsm.schema import COMMIT_SEQNO, META_COLUMNS, RECORD_KEY
from tests.bench.reference.merge import rewrite
from tests.bench.result import Result, in_turns
from tests.bench.tables import THREADS, make_table
from tests.bench.workload import REPEATED

ROWS, LOGS, LOG_ROWS, RUNS = 1_000_000, 10, 50_000, 5


def run() -> list[Result]:
    """Rows a second of all files that are read; every run compacts a copy of one table, commit included."""
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "table"
        table = make_table(str(original), ROWS, LOGS, LOG_ROWS)
        slices = [[os.path.join(original, path) for path in found.paths] for found in table.file_slices()]
        dictionary = (*REPEATED, *(name for name in META_COLUMNS if name not in (RECORD_KEY, COMMIT_SEQNO)))
        read = rewrite(slices, folder, THREADS, dictionary)
        copies = [shutil.copytree(original, Path(folder) / f"copy-{number}") for number in range(RUNS + 1)]
        waiting = [LsmTable(copy, table.options) for copy in copies]
        taken = in_turns(
            lambda: waiting.pop().compact(), lambda: rewrite(slices, folder, THREADS, dictionary), runs=RUNS
        )
        for copy in copies:
            compacted = LsmTable(copy)
            if any(found.logs for found in compacted.file_slices()) or compacted.scan().to_arrow().num_rows != ROWS:
                raise AssertionError("a compaction did not give one base file a bucket with every key")
    note = "ParquetFile.read and pq.write_table, zstd, 2 threads"
    return [Result(f"full compaction, base and {LOGS} logs", *taken, read, "rows", 0.4, True, note)]
