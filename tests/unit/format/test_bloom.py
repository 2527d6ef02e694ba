import base64
import math
import struct
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_lsm.errors import ConfigError, CorruptFileError, UnsupportedTable
from streaming_lsm.format.base_file_footer import BLOOM_KEY, BLOOM_TYPE_KEY, base_file_footer, bloom_of_footer
from streaming_lsm.format.bloom import BloomFilter

KEYS = [f"key-{number}".encode() for number in range(1000)]
HEAD = struct.Struct(">iibi")


def _murmur2(data: bytes, seed: int) -> int:
    """Hadoop's MurmurHash, one byte at a time, as a check of the vectorised one."""
    mask = 0xFFFFFFFF
    h = seed ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & mask
        k = (k ^ k >> 24) * 0x5BD1E995 & mask
        h = (h * 0x5BD1E995 & mask) ^ k
    tail = data[whole:]
    if tail:
        for back, shift in ((3, 16), (2, 8), (1, 0)):
            if len(tail) >= back:
                byte = data[-back]
                h ^= ((byte - 256 if byte > 127 else byte) << shift) & mask
        h = h * 0x5BD1E995 & mask
    h ^= h >> 13
    h = h * 0x5BD1E995 & mask
    return h ^ h >> 15


def _expected_row(keys: list[bytes], hashes: int, bits: int) -> bytes:
    row = bytearray((bits + 7) // 8)
    for key in keys:
        seed = 0
        for _ in range(hashes):
            seed = _murmur2(key, seed)
            index = int(math.fmod(seed - 2**32 if seed >= 2**31 else seed, bits))
            row[abs(index) >> 3] |= 1 << (abs(index) & 7)
    return bytes(row)


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_the_bits_are_those_of_a_plain_murmur2(keys: list[bytes]) -> None:
    bloom = BloomFilter.build(keys, 30, 1e-4, 30, "SIMPLE")
    assert bloom.rows == (_expected_row(keys, bloom.hashes, bloom.bits),)
    assert bloom.contains(keys).all()


def test_size_and_hashes_follow_from_entries_and_probability() -> None:
    bloom = BloomFilter.build([], 200, 1e-9, 100_000)
    assert (bloom.bits, bloom.hashes) == (8627, 30)


@pytest.mark.parametrize("kind", ["SIMPLE", "DYNAMIC_V0"])
def test_a_filter_reads_back_and_holds_its_keys(kind: str) -> None:
    metadata = {
        key.encode(): value.encode()
        for key, value in base_file_footer("{}", "a", "b", BloomFilter.build(KEYS, 300, 1e-6, 900, kind)).items()
    }
    assert (BLOOM_TYPE_KEY.encode() in metadata) == (kind != "SIMPLE")
    bloom = bloom_of_footer(metadata, "x")
    assert bloom is not None
    assert bloom.kind == kind
    assert bloom.contains(KEYS).all()
    assert bloom.encode().encode() == metadata[BLOOM_KEY.encode()]


def test_strangers_are_mostly_not_found() -> None:
    bloom = BloomFilter.build(KEYS, 1000, 1e-2, 1000)
    strangers = [f"stranger-{number}".encode() for number in range(10_000)]
    assert 0 < bloom.contains(strangers).sum() < 300


@pytest.mark.parametrize(("count", "rows", "last"), [(0, 1, 0), (1, 1, 1), (100, 1, 100), (101, 2, 1), (250, 3, 50)])
def test_a_dynamic_filter_opens_a_row_when_the_last_one_is_full(count: int, rows: int, last: int) -> None:
    bloom = BloomFilter.build(KEYS[:count], 100, 1e-3, 1000)
    assert (len(bloom.rows), bloom.last_row_keys) == (rows, last)
    chunks = [KEYS[start : min(start + 100, count)] for start in range(0, rows * 100, 100)]
    assert bloom.rows == tuple(_expected_row(chunk, bloom.hashes, bloom.bits) for chunk in chunks)


def test_past_its_bound_a_dynamic_filter_serves_row_0_twice_and_then_each_in_turn() -> None:
    bloom = BloomFilter.build(KEYS[:37], 10, 1e-3, 25)
    shares = [KEYS[start : start + 10] for start in (0, 10, 20)]
    for key, row in zip(KEYS[30:37], (0, 0, 1, 2, 0, 1, 2), strict=True):
        shares[row] = [*shares[row], key]
    assert bloom.rows == tuple(_expected_row(share, bloom.hashes, bloom.bits) for share in shares)
    assert bloom.last_row_keys == 17


def test_every_arrow_shape_of_the_same_keys_gives_the_same_filter() -> None:
    expected = BloomFilter.build(KEYS, 300, 1e-6, 900)
    texts = [key.decode() for key in KEYS]
    strings = pa.array(["before", *texts, "after"], pa.string())
    shapes = [
        strings[1:-1],
        pa.array(texts, pa.large_string()),
        pa.chunked_array([texts[:7], [], texts[7:]], pa.string()),
        pa.array(KEYS, pa.binary()),
    ]
    for shape in shapes:
        assert BloomFilter.build(shape, 300, 1e-6, 900) == expected  # type: ignore[arg-type]
        assert expected.contains(shape).all()  # type: ignore[arg-type]


def test_more_keys_than_one_piece_of_work_are_all_held() -> None:
    keys = pa.array(np.char.mod("%d", np.arange(70_000)).tolist(), pa.string())
    assert BloomFilter.build(keys, 60_000, 1e-2, 100_000).contains(keys).all()


def test_a_null_key_is_refused() -> None:
    with pytest.raises(ValueError, match="null"):
        BloomFilter.build(pa.array(["a", None]), 10, 1e-3, 10)


def test_a_filter_beyond_the_formats_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="fewer entries"):
        BloomFilter.build(KEYS, 2**30, 1e-9, 2**30)


def test_an_unknown_kind_is_not_built() -> None:
    with pytest.raises(ConfigError, match="CUCKOO"):
        BloomFilter.build(KEYS, 10, 1e-3, 10, "CUCKOO")


def _text(*parts: bytes) -> str:
    return base64.b64encode(b"".join(parts)).decode()


@pytest.mark.parametrize("kind", ["SIMPLE", "DYNAMIC_V0"])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "ends within its head"),
        ("!!!!", "not base64"),
        ("é", "not base64"),
        (_text(HEAD.pack(-1, 30, 1, 64)[:-1]), "ends within its head"),
        (_text(HEAD.pack(-2, 30, 1, 64), bytes(8)), "version -2"),
        (_text(HEAD.pack(-1, 0, 1, 64), bytes(8)), "0 hashes"),
        (_text(HEAD.pack(-1, 2**31 - 1, 1, 64), bytes(8)), "2147483647 hashes"),
        (_text(HEAD.pack(-1, 30, 1, -64), bytes(8)), "-64 bits"),
    ],
)
def test_a_malformed_filter_is_reported_by_file(text: str, why: str, kind: str) -> None:
    with pytest.raises(CorruptFileError, match=why) as raised:
        BloomFilter.decode(text, kind, "south/x.parquet")
    assert str(raised.value).startswith("south/x.parquet")


@pytest.mark.parametrize(
    ("rows", "row_heads"),
    [
        (struct.pack(">iii", 10, 3, 2**31 - 1), [HEAD.pack(-1, 30, 1, 64)]),
        (struct.pack(">iii", 10, 3, 0), []),
        (struct.pack(">iii", 0, 3, 1), [HEAD.pack(-1, 30, 1, 64)]),
        (struct.pack(">iii", 10, -1, 1), [HEAD.pack(-1, 30, 1, 64)]),
        (struct.pack(">iii", 10, 3, 1), [HEAD.pack(-1, 29, 1, 64)]),
        (struct.pack(">iii", 10, 3, 1), [HEAD.pack(-1, 30, 1, 64), b"x"]),
        (struct.pack(">ii", 10, 3), []),
    ],
)
def test_a_dynamic_filter_with_rows_that_do_not_fit_is_reported(rows: bytes, row_heads: list[bytes]) -> None:
    body = b"".join(head + (bytes(8) if len(head) > 1 else b"") for head in row_heads)
    with pytest.raises(CorruptFileError, match=r"x\.parquet: the bloom filter"):
        BloomFilter.decode(_text(HEAD.pack(-1, 30, 1, 64), rows, body), "DYNAMIC_V0", "x.parquet")


def test_a_promised_size_is_not_allocated() -> None:
    text = _text(HEAD.pack(-1, 30, 1, 2**31 - 1), struct.pack(">iii", 10, 3, 2**31 - 1), b"x")
    tracemalloc.start()
    try:
        for kind in ("SIMPLE", "DYNAMIC_V0"):
            with pytest.raises(CorruptFileError, match="do not fit"):
                BloomFilter.decode(text, kind, "x")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_another_hash_function_is_refused() -> None:
    with pytest.raises(UnsupportedTable, match="hash type 0"):
        BloomFilter.decode(_text(HEAD.pack(-1, 30, 0, 64), bytes(8)), "SIMPLE", "x")


def test_a_footer_without_filter_has_none_and_an_unknown_type_is_refused() -> None:
    assert bloom_of_footer(None, "x") is None
    assert bloom_of_footer({b"other": b""}, "x") is None
    with pytest.raises(UnsupportedTable, match="CUCKOO"):
        bloom_of_footer({BLOOM_KEY.encode(): b"", BLOOM_TYPE_KEY.encode(): b"CUCKOO"}, "x")
    with pytest.raises(CorruptFileError, match="not base64"):
        bloom_of_footer({BLOOM_KEY.encode(): b"\xff"}, "x")


def test_a_base_file_without_rows_has_no_key_range() -> None:
    footer = base_file_footer('{"type":"record"}', None, None, None)
    assert footer == {"parquet.avro.schema": '{"type":"record"}', "writer.model.name": "avro"}
