"""How much memory a write takes, measured in a process of its own: ``python -m tests.support.peak_memory``.

Prints the peak of the resident set after a batch of a few rows, which has loaded and warmed up everything, and after
one whose events have several times the bytes of the budget. The kernel counts (`VmHWM`), so that memory that no
allocator admits to is seen as well. Batches are made when they are asked for, and travel through Arrow's stream format
as they do from Spark, so that each is a view of one message.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm import LsmTable, config
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.write.intake import control_columns
from streaming_lsm.write.numbers import TaskNumbers
from streaming_lsm.write.partition_writer import write_partition
from streaming_lsm.write.plan import FileOptions
from tests.support.plans import make_plan, open_instant

FILES = FileOptions(
    codec="zstd",
    row_group_rows=131072,
    page_bytes=1 << 20,
)
ROWS = 5000
HOT_KEY, LARGE = "hot", 200 << 10


@dataclass(frozen=True)
class Shape:
    """What the events are like.

    Attributes:
        key: bytes of a key.
        text: bytes of a text column.
        columns: number of text columns.
        rows: events of a batch.
        large: one event in so many has `LARGE` bytes instead of `text`; 0 for none.
        hot: one event in so many has the same key as all others of them; 0 for none.
        falling: whether each event is older, by the ordering field, than those before it.
        tombstones: whether the events say where they come from, as those of a Kafka job do; one in twenty is a
            tombstone.
    """

    key: int = 17
    text: int = 100
    columns: int = 1
    rows: int = ROWS
    large: int = 0
    hot: int = 0
    falling: bool = False
    tombstones: bool = False


SHAPES = {
    "short-keys": Shape(text=60),
    "long-keys": Shape(key=100, text=30),
    "wide-rows": Shape(columns=10),
    "few-large-rows": Shape(text=50, large=250),
    "one-hot-key": Shape(hot=3),
    "one-hot-key-falling": Shape(hot=3, falling=True),
    "one-hot-key-tombstones": Shape(hot=3, tombstones=True),
}
REWRITE, LOOKUP = "large-base-rows", "global-index"
LARGE_BASE = 20 << 10


def schema_of(columns: int) -> pa.Schema:
    """Key, partition, ordering field, delete mark, and text columns."""
    fields = [("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("gone", pa.bool_())]
    return pa.schema([*fields, *((f"text{number}", pa.string()) for number in range(columns))])


def batches(shape: Shape, total: int) -> Iterator[pa.RecordBatch]:
    """At least `total` bytes of rows with random keys, one in ten a delete."""
    random = np.random.default_rng(7)
    made = rows = 0
    while made < total:
        batch = _batch(shape, random, rows)
        rows, made = rows + shape.rows, made + batch.nbytes
        yield _received(batch)


def _batch(shape: Shape, random: np.random.Generator, before: int) -> pa.RecordBatch:
    count = shape.rows
    key = pc.binary_join_element_wise(_digits(random, 17, count), "x" * (shape.key - 17), "")
    if shape.hot:
        key = pc.if_else(pa.array(random.integers(0, shape.hot, count) == 0), HOT_KEY, key)
    lengths = np.full(count, shape.text // 10)
    if shape.large:
        lengths[random.integers(0, shape.large, count) == 0] = LARGE // 10
    texts = [pc.binary_repeat(_digits(random, 10, count), pa.array(lengths)) for _ in range(shape.columns)]
    ts = -np.arange(before, before + count) if shape.falling else random.integers(0, 10**6, count)
    values = [key, pa.array(["p"] * count), pa.array(ts), pa.array(random.random(count) < 0.1), *texts]
    batch = pa.RecordBatch.from_arrays(values, schema=schema_of(shape.columns))
    return _from_kafka(batch, random, before) if shape.tombstones else batch


def _from_kafka(batch: pa.RecordBatch, random: np.random.Generator, before: int) -> pa.RecordBatch:
    count = batch.num_rows
    position = {
        control_columns.TOMBSTONE: pa.array(random.random(count) < 0.05),
        control_columns.TOPIC: pa.array(["orders"] * count),
        control_columns.TOPIC_PARTITION: pa.array(np.zeros(count, np.int32)),
        control_columns.OFFSET: pa.array(np.arange(before, before + count)),
    }
    for name, column in position.items():
        batch = batch.append_column(name, column)
    return batch


def _digits(random: np.random.Generator, width: int, count: int) -> pa.StringArray:
    numbers = pc.cast(pa.array(random.integers(0, 10 ** (width - 1), count)), pa.string())
    padded: pa.StringArray = pc.utf8_lpad(numbers, width, "0")
    return padded


def _received(batch: pa.RecordBatch) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def peak() -> int:
    """The most memory that this process has had so far, in bytes."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def write(folder: Path, shape: Shape, total: int, budget: int) -> TaskNumbers:
    """Write a batch into the one bucket of a table of its own."""
    plan = make_plan(folder, schema=schema_of(shape.columns), files=FILES, buffer_bytes=budget)
    return write_partition(open_instant(plan), batches(shape, total), WriteToken(0, 0, 0)).numbers


def open_table(folder: Path, budget: int) -> LsmTable:
    """A copy-on-write table of one bucket."""
    options = {
        "hoodie.table.name": "rows",
        "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.bucket.index.num.buckets": 1,
        config.BUFFER_BYTES.key: budget,
    }
    return LsmTable(folder, options) if folder.exists() else LsmTable.create(folder, schema_of(1), options)


def large_rows(count: int) -> pa.Table:
    """Rows with `LARGE_BASE` bytes of random digits each; their keys are the numbers below `count`."""
    random = np.random.default_rng(7)
    digits = pa.py_buffer(random.integers(ord("0"), ord("9") + 1, count * LARGE_BASE, np.uint8).tobytes())
    ends = pa.py_buffer(np.arange(0, (count + 1) * LARGE_BASE, LARGE_BASE, np.int32).tobytes())
    text = pa.StringArray.from_buffers(count, ends, digits)
    key = pc.utf8_lpad(pc.cast(pa.array(np.arange(count)), pa.string()), 10, "0")
    values = [key, pa.array(["p"] * count), pa.array([1] * count), pa.array([False] * count), text]
    return pa.table(values, schema=schema_of(1))


def measure_events(folder: Path, shape: Shape, times: float, budget: int) -> None:
    """Print both peaks of writing events, and what the task says of itself, as JSON."""
    write(folder / "small", shape, 1, budget)
    baseline = peak()
    numbers = write(folder / "large", shape, int(times * budget), budget)
    _report(baseline, numbers.peak_bytes, numbers.spilled_bytes)


def measure_rewrite(folder: Path, times: float, budget: int) -> None:
    """Print both peaks of a few events that make a new base file of one with large rows.

    A process of its own has made that, with a larger budget and so with larger row groups.
    """
    count = int(times * budget) // LARGE_BASE
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        other.submit(_make_base, folder / "large", count).result()
    _make_base(folder / "small", 10)
    few = large_rows(10)
    open_table(folder / "small", budget).upsert(few)
    baseline, table = peak(), open_table(folder / "large", budget)
    table.upsert(few)
    assert table.last_numbers is not None
    _report(baseline, table.last_numbers.peak_bytes, table.last_numbers.spilled_bytes)


def measure_lookup(folder: Path, times: float, budget: int) -> None:
    """Print both peaks of writing events to a table without buckets, whose index looks for keys in all partitions."""
    options = {
        "hoodie.table.name": "rows",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.index.type": "GLOBAL_SIMPLE",
        config.BUFFER_BYTES.key: budget,
    }
    shape = SHAPES["short-keys"]
    small, table = (LsmTable.create(folder / name, schema_of(1), options) for name in ("small", "large"))
    for total in (1, 1):
        small.upsert(_reader(shape, total))
    baseline = peak()
    table.upsert(_reader(shape, int(times * budget)))
    assert table.last_numbers is not None
    _report(baseline, table.last_numbers.peak_bytes, table.last_numbers.spilled_bytes)


def _reader(shape: Shape, total: int) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(schema_of(shape.columns), batches(shape, total))


def _make_base(folder: Path, count: int) -> None:
    open_table(folder, 256 << 20).upsert(large_rows(count))


def _report(baseline: int, counted: int, spilled: int) -> None:
    print(json.dumps({"baseline": baseline, "peak": peak(), "counted": counted, "spilled": spilled}))


def main(folder: str, shape: str, times: str, budget: str) -> None:
    """Measure what `shape` names."""
    if shape == REWRITE:
        measure_rewrite(Path(folder), float(times), int(budget))
    elif shape == LOOKUP:
        measure_lookup(Path(folder), float(times), int(budget))
    else:
        measure_events(Path(folder), SHAPES[shape], float(times), int(budget))


if __name__ == "__main__":
    main(*sys.argv[1:])
