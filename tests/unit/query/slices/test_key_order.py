"""Rows of unsorted slices, put in the order of their keys, with and without a disk."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm.merge.runs import Block
from streaming_lsm.query.slices.key_order import in_key_order

KEY = "_hoodie_record_key"


def _blocks(count: int) -> list[Block]:
    rng = np.random.default_rng(3)
    found = []
    for number in range(count):
        keys = [f"k{key:05d}" for key in rng.permutation(50_000)[:2000]]
        rows = pa.table({KEY: keys, "place": [number * 2000 + place for place in range(2000)]})
        found.append(Block(rows, inserts=1, updates=2, deletes=3))
    return found


@pytest.mark.parametrize("held_bytes", [1, 100_000, 1 << 30])
def test_rows_ascend_and_those_of_one_key_stay_in_order(held_bytes: int) -> None:
    blocks = _blocks(9)
    found = list(in_key_order(blocks, None, held_bytes))
    rows = pa.concat_tables([block.rows for block in found])
    given = pa.concat_tables([block.rows for block in blocks])
    expected = given.sort_by([(KEY, "ascending"), ("place", "ascending")])
    assert rows.to_pydict() == expected.to_pydict()
    assert sum(block.inserts for block in found) == 9
    assert sum(block.updates for block in found) == 18
    assert sum(block.deletes for block in found) == 27


def test_a_slice_without_rows_has_none() -> None:
    empty = pa.table({KEY: pa.array([], pa.string())})
    (block,) = in_key_order([Block(empty, deletes=4)], None)
    assert (block.rows.num_rows, block.deletes) == (0, 4)
    assert list(in_key_order([], None)) == []


def test_the_merge_of_spilled_runs_holds_part_of_each_run_only() -> None:
    """A run has as many rows as are held; all runs together would be the whole slice."""
    blocks, held_bytes = (found for number in range(60) for found in _blocks(1)), 2 << 20
    before = most = pa.total_allocated_bytes()
    rows = 0
    for block in in_key_order(blocks, None, held_bytes // 20):
        rows += block.rows.num_rows
        most = max(most, pa.total_allocated_bytes())
    assert rows == 120_000
    assert most - before < held_bytes  # whole runs of 60 blocks take 6 MB
