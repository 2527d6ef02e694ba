"""What grows with a table's history, or with the size of its input: the same work at two sizes, in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pyarrow as pa

from streaming_lsm import LsmTable
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.runs import merge_runs
from streaming_lsm.merge.sorted_runs import SortedRun
from streaming_lsm.schema import RECORD_KEY, to_avro
from tests.bench.result import Result, in_turns
from tests.bench.workload import KEY, ORDERING, orders
from tests.support.writers import outcome

FEW, MANY, ROWS, RUNS = 50, 1_000, 100, 41
BATCHES, BATCH_ROWS = 500, 1_000
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.table.ordering.fields": ORDERING,
    "hoodie.bucket.index.num.buckets": 2,
}


def run() -> list[Result]:
    """Commits after 50 and after 1,000 upserts; one key in 2 times 500 and in 2 times 1,000 batches."""
    with tempfile.TemporaryDirectory() as folder:
        many, few = (_table(f"{folder}/{count}", count) for count in (MANY, FEW))
        rows = orders(ROWS, 1_000, seed=1)
        upserts = in_turns(lambda: many.upsert(rows), lambda: few.upsert(rows), RUNS, warm_up=3)
        schema = to_avro(rows.schema, "orders")
        commits = in_turns(lambda: _commit(many, schema), lambda: _commit(few, schema), RUNS, warm_up=3)
    long, short = ([list(_hot_batches(count, run)) for run in (0, 1)] for count in (2 * BATCHES, BATCHES))
    hot = in_turns(lambda: _merge(long), lambda: _merge(short), runs=5)
    note = f"the same at {FEW} instants"
    return [
        Result(f"upsert of {ROWS} rows at {MANY:,} instants", *upserts, 1, "upserts", 1.3, False, note),
        Result(f"transaction alone at {MANY:,} instants", *commits, 1, "commits", 1.3, False, note),
        Result(f"one key in 2 x {2 * BATCHES:,} batches", *hot, 1, "merges", 2.2, False, f"in 2 x {BATCHES}"),
    ]


def _table(folder: str, instants: int) -> LsmTable:
    """A table of real upserts."""
    rows = orders(ROWS, 1_000, seed=1)
    table = LsmTable.create(folder, rows.schema, OPTIONS)
    for _ in range(instants):
        table.upsert(rows)
    return table


def _commit(table: LsmTable, schema: str) -> None:
    """A transaction of no files, as short as there can be one."""
    with table.transaction() as transaction:
        transaction.begin()
        transaction.reconcile(outcome())
        transaction.complete(outcome(schema=schema))


def _merge(sources: list[list[pa.RecordBatch]]) -> None:
    runs = [SortedRun(f"run {number}", iter(batches)) for number, batches in enumerate(sources)]
    (block,) = merge_runs(runs, MergeRule(True, (ORDERING,)))
    if block.rows.num_rows != 1:
        raise AssertionError("one key came out more than once")


def _hot_batches(count: int, run: int) -> Iterator[pa.RecordBatch]:
    """One key in all rows, ordering values that ascend, and eight more columns."""
    keys = pa.array(["hot"] * BATCH_ROWS)
    for number in range(count):
        first = (run * count + number) * BATCH_ROWS
        values = pa.array(range(first, first + BATCH_ROWS), pa.int64())
        names = [RECORD_KEY, ORDERING, *(f"column_{place}" for place in range(8))]
        yield pa.record_batch([keys, *[values] * 9], names=names)
