"""Bucket hash and bloom filters against numbers that release 1.2 of Hudi left in its tables."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ..hashing import bucket_of, decode_bloom, encode_bloom, hash_values

COMPOSITE = {
    "tenant:Müller,seq:-12": 3,
    "tenant:Müller,seq:-4": 0,
    "tenant:a:b,seq:2": 2,
    "tenant:a:b,seq:34": 1,
    "tenant:c,d,seq:-5": 2,
    "tenant:c,d,seq:35": 0,
    "tenant:emoji 🐝,seq:-7": 1,
    "tenant:emoji 🐝,seq:33": 3,
    "tenant:naïve café,seq:6": 1,
    "tenant:plain,seq:-8": 2,
    "tenant:Ωmega,seq:-1": 2,
    "tenant:東京,seq:-11": 3,
    "tenant:東京,seq:37": 2,
}
INTEGERS = {"-104": 7, "-141": 0, "-30": 1, "1006": 4, "1302": 3, "155": 0, "44": 7, "7": 6, "969": 3}
IN_BLOOM = [
    "tenant:c,d,seq:19",
    "tenant:東京,seq:37",
    "tenant:Ωmega,seq:-9",
    "tenant:emoji 🐝,seq:25",
    "tenant:a:b,seq:42",
]


@pytest.mark.parametrize(("key", "bucket"), COMPOSITE.items())
def test_composite_keys_fall_into_hudis_buckets(key: str, bucket: int) -> None:
    assert bucket_of(key, ["tenant", "seq"], ["tenant", "seq"], 4) == bucket


@pytest.mark.parametrize(("key", "bucket"), INTEGERS.items())
def test_single_keys_fall_into_hudis_buckets(key: str, bucket: int) -> None:
    assert bucket_of(key, ["id"], ["id"], 8) == bucket


@pytest.mark.parametrize(
    ("key", "fields", "hashed", "values"),
    [
        ("a,b", ["id"], ["id"], ["a,b"]),
        ("a:b", ["id"], ["id"], ["a:b"]),
        ("x:a,b", ["id"], ["id"], ["x:a,b"]),
        ("id:1", ["id"], ["id"], ["id:1"]),
        ("id:a,b", ["id"], ["id"], ["a,b"]),
        ("t:__null__,s:__empty__", ["t", "s"], ["t", "s"], [None, ""]),
        ("t:a,b:c,s:x:1,y:2", ["t", "s"], ["t", "s"], ["a,b:c", "x:1,y:2"]),
        ("t:a,b:c,s:x:1,y:2", ["t", "s"], ["s"], ["x:1,y:2"]),
        ("t:1,s:2,s:3", ["t", "s"], ["t"], ["1"]),
    ],
)
def test_hashed_values_of_a_key(key: str, fields: list[str], hashed: list[str], values: list[str | None]) -> None:
    assert hash_values(key, fields, hashed) == values


def test_a_bloom_filter_of_hudi_is_decoded() -> None:
    text = (Path(__file__).parent / "bloom_hudi_1_2.txt").read_text("ascii")
    bloom = decode_bloom(text, dynamic=True)
    assert (bloom.hashes, bloom.size, len(bloom.rows)) == (30, 8627, 1)
    assert all(bloom.might_contain(key) for key in IN_BLOOM)
    assert not any(bloom.might_contain(f"stranger {number}") for number in range(200))


def test_own_bloom_filters_hold_their_keys_over_several_rows() -> None:
    keys = [f"ключ-{number}" for number in range(120)]
    bloom = decode_bloom(encode_bloom(keys, per_row=50), dynamic=True)
    assert len(bloom.rows) == 3
    assert all(bloom.might_contain(key) for key in keys)
    assert not any(bloom.might_contain(f"stranger {number}") for number in range(200))


@pytest.mark.parametrize("cut", [10, -4])
def test_a_cut_bloom_filter_is_an_error(cut: int) -> None:
    with pytest.raises((ValueError, struct.error)):
        decode_bloom(encode_bloom(["a"])[:cut], dynamic=True)
