"""Plan queries of a table of 100,000 data files, by its metadata table and by listing its folders.

A table is opened for each plan, without names that an earlier one has parsed. Both ways have to find the same file
slices. The table in the object store has as many files in fewer partitions: a request for a listing takes the S3 server
of the tests as long as it takes to look at all objects. Requests of a plan are counted, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from streaming_lsm import LsmTable
from streaming_lsm.format.table.file_names import parse_file_name
from streaming_lsm.query.scan import Scan
from tests.bench.linked_table import PARTITION, Shape, make_linked_table, name_of
from tests.bench.result import Result, in_turns
from tests.bench.workload import KEY
from tests.support.s3_server import BUCKET, S3Server, s3_server

ON_DISK, ON_S3 = Shape(partitions=1_000, groups=100), Shape(partitions=100, groups=1_000)
DISK_TARGET, S3_TARGET = 1.5, 5.0
RUNS = 5


def run() -> Iterator[Result]:
    """Plan a scan of all partitions, of one, and of one key in a partition on a disk; of all in an object store."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-many-files-") as folder:
        table = made(folder, ON_DISK)
        for query in queries(table, ON_DISK):
            yield Comparison(table.path, query).result(DISK_TARGET, RUNS)
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-many-files-") as folder, s3_server() as server:
        table = made(folder, ON_S3)
        server.load(folder)
        query = queries(table, ON_S3)[0]  # a listing takes minutes
        yield Comparison(f"s3://{BUCKET}/orders", query, server).result(S3_TARGET, runs=1)


def made(folder: str, shape: Shape) -> LsmTable:
    """The table, with a metadata table."""
    options = {"hoodie.bucket.index.num.buckets": shape.groups, "hoodie.metadata.enable": True}
    return make_linked_table(f"{folder}/orders", shape, options)


def queries(table: LsmTable, shape: Shape) -> list[tuple[str, str | None]]:
    """Names and filters of the queries."""
    in_partition = f"{PARTITION} = '{name_of(shape.partitions // 2)}'"
    key = table.scan([KEY], f"{PARTITION} = '{name_of(0)}'").limit(1).to_arrow().column(KEY)[0].as_py()
    return [
        ("all partitions", None),
        ("a partition", in_partition),
        ("a key in a partition", f"{in_partition} AND {KEY} = '{key}'"),
    ]


class Comparison:
    """Plans of one query by the metadata table and by listing."""

    def __init__(self, path: str, query: tuple[str, str | None], server: S3Server | None = None) -> None:
        self.path, self.server = path, server
        self.name, self.filter = query
        self.scans: dict[bool, Scan] = {}
        self.requests: dict[bool, int] = {}

    def result(self, target: float, runs: int) -> Result:
        """Take the plans in turns."""
        seconds = in_turns(self._plan(by_metadata=True), self._plan(by_metadata=False), runs, warm_up=0)
        found, listed = (self.scans[by_metadata].slices for by_metadata in (True, False))
        if not listed or list(found) != list(listed):
            raise AssertionError(f"{self.name}: {len(found)} slices by the metadata table, {len(listed)} by listing")
        where, note = ("S3", self._note()) if self.server else ("disk", "listing")
        return Result(f"plan a scan of {self.name}, {where}", *seconds, 1, "plans", target, True, note)

    def _plan(self, *, by_metadata: bool) -> Callable[[], object]:
        def plan() -> None:
            parse_file_name.cache_clear()
            if self.server is not None:
                self.server.requests()
            table = LsmTable(self.path, {"hoodie.metadata.enable": by_metadata})
            self.scans[by_metadata] = table.scan(filter=self.filter)
            if self.server is not None:
                self.requests[by_metadata] = len(self.server.requests())

        return plan

    def _note(self) -> str:
        return f"listing; {self.requests[True]:,} and {self.requests[False]:,} requests"
