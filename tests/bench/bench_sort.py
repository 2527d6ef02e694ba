"""Sort and dedup of record keys, the words included, against pyarrow's sort alone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_lsm.keys.words import KeyWords, SortedKeys, sort_keys
from tests.bench.reference.sort import sort_order
from tests.bench.result import Result, in_turns

ROWS = 1_000_000
RANDOM, PRESORTED = 0.5, 0.15


def run() -> list[Result]:
    """One thread each; the time to keep is a share of the reference's."""
    return [_compare(name, keys, target) for name, keys, target in key_sets(ROWS)]


def _compare(name: str, keys: pa.StringArray, target: float) -> Result:
    if not np.array_equal(ours(keys).order, np.asarray(sort_order(keys))):
        raise AssertionError(f"{name}: the two orders differ")
    taken = in_turns(lambda: ours(keys), lambda: sort_order(keys), runs=7)
    return Result(f"sort, {name}", *taken, len(keys), "keys", target, False, "pc.sort_indices, no dedup")


def ours(keys: pa.StringArray) -> SortedKeys:
    """Words, order, and where each key begins."""
    return sort_keys(KeyWords.of(keys))


def key_sets(rows: int) -> Iterator[tuple[str, pa.StringArray, float]]:
    """Keys of several shapes, shuffled and presorted, each with its target."""
    chance = np.random.default_rng(1)
    shuffled = chance.permutation(rows)
    numbers = pa.array([f"order-2026-{number:06d}" for number in shuffled])
    uuids = pa.array([str(uuid.UUID(bytes=chance.bytes(16))) for _ in range(rows)])
    composite = pa.array([f"tenant:{number % 1000},seq:{number}" for number in shuffled])
    digests = pa.array([chance.bytes(16).hex() for _ in range(rows)])
    drawn = pa.array(chance.integers(0, rows * 7 // 10, rows))
    for name, keys in (("17-byte keys", numbers), ("36-byte UUIDs", uuids), ("composite keys", composite)):
        yield name, keys, RANDOM
        yield f"{name}, presorted", keys.take(pc.sort_indices(keys)), PRESORTED
    yield "32-byte digests, repeats", digests.take(drawn), RANDOM
    yield "17-byte keys, repeats", numbers.take(drawn), RANDOM
    yield "17-byte keys, batch of 250 k", numbers.slice(0, rows // 4), RANDOM
    yield "composite keys, batch of 250 k", composite.slice(0, rows // 4), RANDOM
