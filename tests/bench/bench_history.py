"""What grows with the number of commits of a table: the same work after 100 and after 10,000 of them.

The tables are on the disk of the working folder, with default options and inline compactions: without these the files
of a table grow with its commits, and whoever lists them takes longer.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from streaming_lsm import LsmTable
from streaming_lsm.timeline.archive import HISTORY_FOLDER
from streaming_lsm.timeline.instant import TIMELINE_FOLDER
from tests.bench.result import Result, in_turns
from tests.bench.workload import KEY, ORDERING, orders

FEW, MANY, ROWS, RUNS = 100, 10_000, 20, 41
MOST_FILES = 60
MOST_RATIO = 1.2
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.table.ordering.fields": ORDERING,
    "hoodie.bucket.index.num.buckets": 1,
}


def run() -> Iterator[Result]:
    """Commit, open and plan a scan after 100 and after 10,000 delta commits, with inline compactions."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-history-") as folder:
        yield from measure(folder, {"hoodie.compact.inline": True})


def measure(folder: str, options: dict[str, object], many: int = MANY) -> Iterator[Result]:
    """Make the two tables in a folder, and compare them."""
    few, long = (Commits.made(f"{folder}/{count}", count, options) for count in (FEW, many))
    rows = orders(ROWS, 1_000, seed=1)
    reference = f"the same at {FEW}"
    commits = in_turns(lambda: long.upsert(rows), lambda: few.upsert(rows), RUNS, warm_up=3)
    note = f"{reference}; at most {long.most_files} files on the timeline, {long.history_bytes:,} bytes of history"
    yield Result(f"commit after {many:,} delta commits", *commits, 1, "commits", MOST_RATIO, False, note)
    opened = in_turns(lambda: _open(long), lambda: _open(few), RUNS, warm_up=3)
    yield Result(f"open after {many:,} delta commits", *opened, 1, "tables", MOST_RATIO, False, reference)
    planned = in_turns(lambda: _plan(long), lambda: _plan(few), RUNS, warm_up=3)
    yield Result(f"plan a scan after {many:,} delta commits", *planned, 1, "scans", MOST_RATIO, False, reference)


@dataclass
class Commits:
    """A table of real upserts.

    Attributes:
        table: the table.
        root: its folder.
        most_files: the most files that its timeline had after a commit.
    """

    table: LsmTable
    root: Path
    most_files: int = 0

    @classmethod
    def made(cls, folder: str, count: int, options: dict[str, object]) -> Commits:
        """Make a table of so many delta commits; each has other rows."""
        rows = [orders(ROWS, 1_000, seed=number) for number in range(20)]
        found = cls(LsmTable.create(folder, rows[0].schema, {**OPTIONS, **options}), Path(folder))
        for number in range(count):
            found.upsert(rows[number % len(rows)])
        return found

    def upsert(self, rows: pa.Table) -> None:
        """Commit rows, with the services that are due."""
        self.table.upsert(rows)
        files = [name for name in os.listdir(self.root / TIMELINE_FOLDER) if "." in name]
        self.most_files = max(self.most_files, len(files))
        if self.most_files > MOST_FILES:
            raise AssertionError(f"{self.most_files} files on the timeline, more than {MOST_FILES}")

    @property
    def history_bytes(self) -> int:
        """Bytes of all files of the history."""
        return sum(file.stat().st_size for file in (self.root / HISTORY_FOLDER).iterdir())


def _open(commits: Commits) -> None:
    """Open a table, with its timeline and schema."""
    table = LsmTable(commits.table.path)
    if not (table.timeline.instants and len(table.schema)):
        raise AssertionError("an empty table")


def _plan(commits: Commits) -> None:
    """Plan a scan in a table that is opened for it: the list of its file slices."""
    if not LsmTable(commits.table.path).scan().slices:
        raise AssertionError("no file slices")
