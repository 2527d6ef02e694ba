"""The record index: encoding it, and looking up few and many of its keys, against limits and against each other."""

from __future__ import annotations

import io
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.hfile.writer import HFileWriter
from streaming_lsm.format.metadata.record_index import decode_locations, encode_locations
from streaming_lsm.format.metadata.schema import metadata_schema
from tests.bench.result import Result, in_turns

KEYS, GROUPS, FEW = 1_000_000, 200, 100
"""Keys of one file group; ten of them hold the 10 M keys of which 1,000 are looked up."""
LIMIT = 300_000
"""Keys a second that one core encodes."""


def run() -> list[Result]:
    """Times of one file group of the record index."""
    locations = _locations()
    keys = pa.array([f"order-{number:012d}" for number in range(0, 7 * KEYS, 7)], pa.string()).cast(pa.binary())
    processor, wall = [], []
    for _ in range(3):
        begun, cpu = time.perf_counter(), time.process_time()
        data = _written(keys, locations)
        processor.append(time.process_time() - cpu)
        wall.append(time.perf_counter() - begun)
    rng = np.random.default_rng(0)
    few = keys.take(pa.array(rng.choice(KEYS, FEW, replace=False)))
    half = keys.take(pa.array(rng.choice(KEYS, KEYS // 2, replace=False)))
    return [
        Result(
            "record index, encode",
            tuple(processor),
            (KEYS / LIMIT,),
            KEYS,
            "keys",
            1.0,
            True,
            f"the limit, {LIMIT:,} keys a second of processor time",
        ),
        Result(
            f"record index, seek {FEW} of {KEYS:,} keys",
            *in_turns(_seek(data, few), _scan(data, few)),
            FEW,
            "keys",
            0.2,
            False,
            "a scan of the file for the same keys",
        ),
        Result(
            "record index, scan for half of the keys",
            *in_turns(_scan(data, half), _seek(data, half)),
            KEYS // 2,
            "keys",
            1.0,
            False,
            "seeks of the same keys",
        ),
    ]


def _locations() -> pa.RecordBatch:
    rng = np.random.default_rng(1)
    ids = [
        f"{rng.bytes(4).hex()}-{rng.bytes(2).hex()}-4{rng.bytes(2).hex()[1:]}-8{rng.bytes(2).hex()[1:]}-{rng.bytes(6).hex()}-0"
        for _ in range(GROUPS)
    ]
    places = pa.array(rng.integers(0, GROUPS, KEYS))
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([f"day={number % 30:02d}" for number in range(GROUPS)]).take(places),
            "file_id": pa.array(ids).take(places),
            "instant_ms": pa.array(rng.integers(1_795_000_000_000, 1_796_000_000_000, KEYS)),
        }
    )


def _written(keys: pa.BinaryArray, locations: pa.RecordBatch) -> bytes:
    file = io.BytesIO()
    writer = HFileWriter(file)
    for first in range(0, KEYS, 1 << 16):
        writer.add(keys.slice(first, 1 << 16), encode_locations(locations.slice(first, 1 << 16), "base.hfile"))
    writer.finish(schema_json=metadata_schema(), created_ms=0)
    return file.getvalue()


def _seek(data: bytes, keys: pa.BinaryArray) -> Callable[[], None]:
    def seek() -> None:
        file = HFile.open(data, "base")
        found = sum(decode_locations(cells, file.schema_json, "base").num_rows for cells in file.seek(keys))
        assert found == len(keys)

    return seek


def _scan(data: bytes, keys: pa.BinaryArray) -> Callable[[], None]:
    def scan() -> None:
        file = HFile.open(data, "base")
        found = sum(decode_locations(cells, file.schema_json, "base").num_rows for cells in file.scan(keys))
        assert found == len(keys)

    return scan
