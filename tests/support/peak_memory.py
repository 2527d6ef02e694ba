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
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.format.names import WriteToken
from streaming_lsm.write.numbers import TaskNumbers
from streaming_lsm.write.partition_writer import write_partition
from streaming_lsm.write.plan import FileOptions
from tests.support.plans import make_plan, open_instant

FILES = FileOptions("zstd", 131072, 1 << 20, "DYNAMIC_V0", 60000, 1e-9, 100000)
ROWS = 5000
SHAPES = {"short-keys": (17, 60, 1), "long-keys": (100, 30, 1), "wide-rows": (17, 100, 10)}
"""Bytes of a key; bytes of a text column; number of text columns."""


def schema_of(columns: int) -> pa.Schema:
    """Key, partition, ordering field, delete mark, and text columns."""
    fields = [("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("gone", pa.bool_())]
    return pa.schema([*fields, *((f"text{number}", pa.string()) for number in range(columns))])


def batches(shape: str, total: int) -> Iterator[pa.RecordBatch]:
    """At least `total` bytes of rows with random keys, one in ten a delete."""
    width, text, columns = SHAPES[shape]
    random = np.random.default_rng(7)
    schema, made = schema_of(columns), 0
    while made < total:
        key = pc.binary_join_element_wise(_digits(random, 17), "x" * (width - 17), "")
        texts = [pc.binary_repeat(_digits(random, 10), text // 10) for _ in range(columns)]
        ts, gone = random.integers(0, 10**6, ROWS), random.random(ROWS) < 0.1
        batch = pa.RecordBatch.from_arrays([key, pa.array(["p"] * ROWS), ts, gone, *texts], schema=schema)
        made += batch.nbytes
        yield _received(batch)


def _digits(random: np.random.Generator, width: int) -> pa.StringArray:
    numbers = pc.cast(pa.array(random.integers(0, 10 ** (width - 1), ROWS)), pa.string())
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


def write(folder: Path, shape: str, total: int, budget: int) -> TaskNumbers:
    """Write a batch into the one bucket of a table of its own."""
    plan = make_plan(folder, schema=schema_of(SHAPES[shape][2]), files=FILES, buffer_bytes=budget)
    return write_partition(open_instant(plan), batches(shape, total), WriteToken(0, 0, 0)).numbers


def main(folder: str, shape: str, times: str, budget: str) -> None:
    """Print both peaks and what the task says of itself, as JSON."""
    write(Path(folder) / "small", shape, 1, int(budget))
    baseline = peak()
    numbers = write(Path(folder) / "large", shape, int(float(times) * int(budget)), int(budget))
    counts = {"counted": numbers.peak_bytes, "spilled": numbers.spilled_bytes, "rows": numbers.rows_in}
    print(json.dumps({"baseline": baseline, "peak": peak(), **counts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
