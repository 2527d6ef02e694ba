"""Small batches become larger ones: no row is lost or moved, limits hold, and nothing is copied without need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_lsm.arrow.batches import coalesced, rebatched

ROW_BYTES = 8
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)


def cases(test: Callable[..., None]) -> Callable[..., None]:
    """Batches of so many rows each, and limits."""
    counts = st.lists(st.integers(0, 40), max_size=30)
    return SETTINGS(given(counts=counts, size=st.integers(1, 400), rows=st.none() | st.integers(1, 60))(test))


def numbered(counts: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Batches of so many rows, numbered through."""
    first = 0
    for count in counts:
        yield pa.record_batch({"n": pa.array(range(first, first + count), pa.int64())})
        first += count


def counts_of(parts: Iterable[pa.RecordBatch | pa.Table]) -> list[int]:
    return [part.num_rows for part in parts]


def addresses(rows: pa.Table | pa.RecordBatch) -> list[int]:
    """Where the values of each chunk of the first column are."""
    column = rows.column(0)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [buffer.address + ROW_BYTES * chunk.offset for chunk in chunks if (buffer := chunk.buffers()[1]) is not None]


@cases
def test_coalesced_tables_hold_all_rows_in_their_order(counts: list[int], size: int, rows: int | None) -> None:
    found = [n for table in coalesced(numbered(counts), size=size, rows=rows) for n in table.column("n").to_pylist()]
    assert found == list(range(sum(counts)))


@cases
def test_a_coalesced_table_exceeds_a_limit_only_as_a_single_batch(
    counts: list[int], size: int, rows: int | None
) -> None:
    for table in coalesced(numbered(counts), size=size, rows=rows):
        if table.column("n").num_chunks > 1:
            assert table.nbytes <= size
            assert rows is None or len(table) <= rows


@cases
def test_two_adjacent_coalesced_tables_would_exceed_a_limit(counts: list[int], size: int, rows: int | None) -> None:
    tables = list(coalesced(numbered(counts), size=size, rows=rows))
    for left, right in pairwise(tables):
        added = right.column("n").chunk(0)
        assert left.nbytes + added.nbytes > size or (rows is not None and len(left) + len(added) > rows)


@cases
def test_rebatched_batches_hold_all_rows_within_the_limits(counts: list[int], size: int, rows: int | None) -> None:
    found = list(rebatched(numbered(counts), size=size, rows=rows))
    assert [n for batch in found for n in batch.column("n").to_pylist()] == list(range(sum(counts)))
    for batch in found:
        assert 0 < batch.num_rows <= (rows or batch.num_rows)
        assert batch.nbytes <= max(size, ROW_BYTES)


def test_a_table_ends_before_the_batch_that_is_too_much() -> None:
    assert counts_of(coalesced(numbered([4, 4, 4, 9]), size=1 << 20, rows=10)) == [8, 4, 9]
    assert counts_of(coalesced(numbered([4, 4, 4, 9]), size=80)) == [8, 4, 9]


def test_a_batch_as_large_as_the_limit_is_not_split_or_joined() -> None:
    assert counts_of(rebatched(numbered([10, 10, 3]), size=10 * ROW_BYTES)) == [10, 10, 3]


def test_a_batch_that_is_too_large_is_split_evenly() -> None:
    assert counts_of(rebatched(numbered([21]), size=1 << 20, rows=10)) == [7, 7, 7]
    assert counts_of(rebatched(numbered([11]), size=10 * ROW_BYTES)) == [6, 5]


def test_a_row_larger_than_the_limit_is_a_batch_of_its_own() -> None:
    texts = pa.record_batch({"text": ["x" * 1000, "y" * 1000]})
    assert counts_of(rebatched([texts], size=100)) == [1, 1]


def test_coalescing_copies_nothing() -> None:
    batches = list(numbered([3, 4, 5]))
    (table,) = coalesced(batches, size=1 << 20)
    assert addresses(table) == [address for batch in batches for address in addresses(batch)]


@pytest.mark.parametrize("rows", [5, 2], ids=["fitting", "split"])
def test_a_single_batch_is_not_copied(rows: int) -> None:
    (whole,) = numbered([5])
    begins = range(0, 5, rows)
    found = list(rebatched([whole], size=1 << 20, rows=rows))
    assert [addresses(batch) for batch in found] == [[addresses(whole)[0] + ROW_BYTES * begin] for begin in begins]


def test_batches_are_taken_as_they_are_needed() -> None:
    taken = []

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in numbered([4] * 10):
            taken.append(batch)
            yield batch

    next(coalesced(watched(), size=8 * ROW_BYTES))
    assert len(taken) == 3, "two for the table, and the one that is too much"


def test_without_batches_there_is_nothing() -> None:
    assert list(coalesced([], size=1)) == []
    assert list(rebatched(numbered([0, 0]), size=1)) == []
