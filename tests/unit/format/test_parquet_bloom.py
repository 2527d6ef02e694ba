"""Parquet's bloom filters of row groups, as PyArrow writes them and DuckDB reads them."""

from __future__ import annotations

import io
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_lsm.format.parquet_bloom import BlockedBloom, hash_texts
from streaming_lsm.format.parquet_thrift import Field, Struct, encode

_INT, _STRUCT = 5, 12


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0xEF46DB3751D8E999),
        ("a", 0xD24EC4F1A98C6E5B),
        ("abc", 0x44BC2CF5AD770999),
        ("Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_a_text_has_the_published_hash(text: str, expected: int) -> None:
    assert hash_texts(pa.array([text])).tolist() == [expected]


def _texts(rng: np.random.Generator, count: int) -> pa.StringArray:
    letters = np.array(list("abcdefgh0123é☃"))
    return pa.array(["".join(rng.choice(letters, rng.integers(0, 80))) for _ in range(count)])


def _written(texts: pa.StringArray, size: int) -> tuple[bytes, pq.FileMetaData]:
    sink = io.BytesIO()
    bloom = {"k": {"ndv": max(1, len(texts)), "fpp": 0.03}}
    pq.write_table(pa.table({"k": texts}), sink, row_group_size=size, use_dictionary=False, bloom_filter_options=bloom)
    return sink.getvalue(), pq.ParquetFile(sink).metadata


def test_every_text_of_a_filter_is_found_and_few_others() -> None:
    rng = np.random.default_rng(1)
    texts, others = _texts(rng, 3000), _texts(rng, 3000)
    data, metadata = _written(texts, 3000)
    chunk = metadata.row_group(0).column(0)
    begin = chunk.bloom_filter_offset
    bloom = BlockedBloom.decode(data[begin : begin + chunk.bloom_filter_length])
    assert bloom is not None
    assert bloom.may_hold(hash_texts(texts)).all()
    assert bloom.may_hold(hash_texts(texts.slice(7, 90))).all()
    strangers = pa.array(sorted({*others.to_pylist()} - {*texts.to_pylist()}))
    assert bloom.may_hold(hash_texts(strangers)).mean() < 0.1


def test_the_filter_answers_as_duckdb_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    texts = _texts(rng, 400)
    data, metadata = _written(texts, 100)
    path = tmp_path / "file.parquet"
    path.write_bytes(data)
    asked = [str(text) for text in [*texts.slice(90, 30).to_pylist(), *_texts(rng, 30).to_pylist()]]
    for text in asked:
        rows = duckdb.execute("select bloom_filter_excludes from parquet_bloom_probe(?, 'k', ?)", [str(path), text])
        theirs = [not excluded for (excluded,) in rows.fetchall()]
        ours = []
        for number in range(metadata.num_row_groups):
            chunk = metadata.row_group(number).column(0)
            begin = chunk.bloom_filter_offset
            bloom = BlockedBloom.decode(data[begin : begin + chunk.bloom_filter_length])
            assert bloom is not None
            ours.append(bool(bloom.may_hold(hash_texts(pa.array([text])))[0]))
        assert ours == theirs


def _header(size: int, algorithm: int = 1) -> bytes:
    def union(member: int) -> Field:
        return Field(_STRUCT, {member: Field(_STRUCT, {})})

    header: Struct = {1: Field(_INT, size), 2: union(algorithm), 3: union(1), 4: union(1)}
    return encode(header)


def test_a_filter_of_another_algorithm_is_not_used() -> None:
    assert BlockedBloom.decode(_header(32, algorithm=2) + bytes(32)) is None


@pytest.mark.parametrize("data", [_header(64) + bytes(32), _header(33) + bytes(40), _header(0), b"", b"\xff\xff"])
def test_a_damaged_filter_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        BlockedBloom.decode(data)
