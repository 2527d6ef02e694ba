"""Key entries of many files asked for many keys at once, compared with sets and with one filter after the other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm.file_group.key_filters import KeyFilters, WantedKeys
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.log.key_entries import KeyEntry

FPP = 0.01


def entry(keys: list[str], kind: str = "SIMPLE", span: bool = True) -> KeyEntry:
    rows = max(1, len(keys) if kind == "SIMPLE" else len(keys) // 3)
    bloom = BloomFilter.build(pa.array(keys, pa.string()), rows, FPP, 10 * rows, kind) if keys else None
    return KeyEntry(len(keys), (min(keys), max(keys)) if keys and span else None, bloom)


@pytest.mark.parametrize("kind", ["SIMPLE", "DYNAMIC_V0"])
@pytest.mark.parametrize("wanted", [1, 7, 900])
def test_no_file_with_a_key_is_left_out_and_few_without_one_are_kept(kind: str, wanted: int) -> None:
    rng = np.random.default_rng(wanted)
    files = [[f"ключ-{number}" for number in rng.integers(0, 50_000, count)] for count in (1, 3, 40, 700, 0, 2000)]
    filters = KeyFilters.of([entry(keys, kind, span=bool(place % 2)) for place, keys in enumerate(files)])
    wrong = 0
    for _ in range(20):
        asked = sorted({f"ключ-{number}" for number in rng.integers(0, 50_000, wanted)})
        found = filters.may_hold(WantedKeys.of(pa.array(asked))).tolist()
        held = [not set(asked).isdisjoint(keys) for keys in files]
        alone = [
            bool(keys) and bool(one.bloom is not None and one.bloom.contains(pa.array(asked)).any())
            for keys, one in zip(files, filters.entries, strict=True)
        ]
        assert all(one >= two for one, two in zip(found, held, strict=True))
        assert all(one <= two for one, two in zip(found, alone, strict=True))
        wrong += sum(one > two for one, two in zip(found, held, strict=True))
    filter_rows = sum(len(one.bloom.rows) for one in filters.entries if one.bloom is not None)
    assert wrong <= 3 + 2 * 20 * wanted * filter_rows * FPP


def test_a_range_without_a_filter_decides_alone() -> None:
    filters = KeyFilters.of([KeyEntry(5, ("b", "d"), None), KeyEntry(5, None, None), KeyEntry(0, None, None)])
    for key, expected in (("a", False), ("b", True), ("c", True), ("d", True), ("e", False)):
        assert filters.may_hold(WantedKeys.of(pa.array([key]))).tolist() == [expected, True, False]
    assert filters.may_hold(WantedKeys.of(pa.array([], pa.string()))).tolist() == [False] * 3


def test_of_more_keys_than_a_filter_tells_apart_the_file_is_kept() -> None:
    filters = KeyFilters.of([entry(["k1", "k3"])])
    many = WantedKeys.of(pa.array(sorted(f"k2{number}" for number in range(5000))))
    assert filters.may_hold(many).tolist() == [True]
    assert KeyFilters.of([]).may_hold(many).tolist() == []
