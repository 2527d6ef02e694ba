"""Bloom filters are as large as the keys of their file need, up to the size of Hudi's filter."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_lsm.config import Options
from streaming_lsm.errors import ConfigError
from streaming_lsm.format.bloom import BLOOM_KINDS, BloomFilter
from streaming_lsm.write.files.sized_bloom import SizedBloomBuilder
from streaming_lsm.write.plan import BloomOptions, FileOptions

ENTRIES, MOST, FPP = 100, 250, 1e-6
"""A dynamic filter of these has up to three rows, a simple one has one."""


def keys(count: int, prefix: str = "key") -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([f"{prefix}-{number}" for number in range(count)], pa.string())])


def build(count: int, kind: str = "DYNAMIC_V0", piece: int = 64) -> BloomFilter:
    builder = SizedBloomBuilder(BloomOptions(kind, ENTRIES, FPP, MOST))
    for start in range(0, count, piece):
        builder.add(keys(count).slice(start, piece))
    return builder.finish()


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(BLOOM_KINDS), st.integers(0, 700), st.integers(20, 400))
def test_every_key_is_found_however_many_there_are_and_whatever_pieces_they_come_in(
    kind: str, count: int, piece: int
) -> None:
    bloom = build(count, kind, piece)
    assert bloom.contains(keys(count)).all()
    assert BloomFilter.decode(bloom.encode(), kind) == bloom
    assert bloom == build(count, kind)


@pytest.mark.parametrize("kind", BLOOM_KINDS)
@pytest.mark.parametrize("count", [1, 2, 10, 99, 100])
def test_keys_that_fit_one_row_have_a_row_of_their_number(kind: str, count: int) -> None:
    assert build(count, kind) == BloomFilter.build(keys(count), count, FPP, count, kind)


@pytest.mark.parametrize(("count", "rows", "each"), [(101, 2, 51), (200, 2, 100), (201, 3, 67), (299, 3, 100)])
def test_the_rows_of_a_dynamic_filter_share_its_keys_evenly(count: int, rows: int, each: int) -> None:
    bloom = build(count)
    assert (len(bloom.rows), bloom.keys_per_row) == (rows, each)
    assert len(bloom.encode()) <= len(BloomFilter.build(keys(count), ENTRIES, FPP, MOST).encode())


@pytest.mark.parametrize(
    ("kind", "count"), [("SIMPLE", 100), ("SIMPLE", 101), ("DYNAMIC_V0", 300), ("DYNAMIC_V0", 999)]
)
def test_a_filter_of_more_keys_than_the_limit_is_hudis_bit_by_bit(kind: str, count: int) -> None:
    assert build(count, kind) == BloomFilter.build(keys(count), ENTRIES, FPP, MOST, kind)


@pytest.mark.parametrize("kind", BLOOM_KINDS)
@pytest.mark.parametrize("count", [1, 7, 100])
def test_strangers_are_found_no_more_often_than_asked(kind: str, count: int) -> None:
    builder = SizedBloomBuilder(BloomOptions(kind, ENTRIES, 0.01, MOST))
    builder.add(keys(count))
    found = builder.finish().contains(keys(20_000, "stranger")).sum()
    assert found < 400


def test_a_filter_without_keys_finds_nothing() -> None:
    bloom = build(0)
    assert not bloom.contains(keys(1000)).any()
    assert len(bloom.encode()) < 100


def test_ten_keys_take_no_more_than_150_bytes_with_the_default_options() -> None:
    files = FileOptions.of(Options({"hoodie.parquet.bloom.filter.enabled": True}))
    assert files.bloom is not None
    builder = SizedBloomBuilder(files.bloom)
    builder.add(keys(10))
    assert len(builder.finish().encode()) < 150


def test_keys_are_held_until_their_number_exceeds_the_largest_filter() -> None:
    builder = SizedBloomBuilder(BloomOptions("DYNAMIC_V0", ENTRIES, FPP, MOST))
    builder.add(keys(299))
    assert builder.held_bytes > 299 * len("key-1")
    builder.add(keys(1))
    assert builder.held_bytes == 0
    builder.add(keys(1000))
    assert builder.held_bytes == 0


def test_no_filter_is_written_unless_it_is_asked_for() -> None:
    assert FileOptions.of(Options()).bloom is None


def test_a_filter_that_would_be_too_large_is_refused_before_a_task_starts() -> None:
    with pytest.raises(ConfigError, match="use fewer entries"):
        BloomOptions("SIMPLE", 2**30, 1e-9, 1)
