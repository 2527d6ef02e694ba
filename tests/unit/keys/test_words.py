"""The sort of record keys is the order of their UTF-8 bytes (docs/format/03-native-logs.md, "Sort order")."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_lsm.keys.words import KeyWords, sort_keys

HOSTILE = [
    "",
    "\0",
    "\0\0",
    "a",
    "a\0",
    "a\0\0\0\0\0\0\0",
    "a\0\0\0\0\0\0\0\0",
    "ab",
    "b",
    "12345678",
    "123456789",
    "1234567\0",
    "1234567",
    "\x7f",
    "\x80",
    "\u07ff",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\U00010000",
    "\U00020000",
    "\U0010ffff",
    "k" * 200,
    "k" * 200 + "\0",
    "k" * 199 + "l",
]
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=24)
keys_of = st.lists(st.one_of(st.sampled_from(HOSTILE), text), max_size=40)


def check(keys: list[str], array: pa.StringArray, *, runs: bool = False) -> None:
    found = sort_keys(KeyWords.of(array), runs=runs)
    expected = sorted(range(len(keys)), key=lambda row: (keys[row].encode(), row))
    assert found.order.tolist() == expected
    ordered = [keys[row] for row in expected]
    starts = [place for place, key in enumerate(ordered) if place == 0 or ordered[place - 1] != key]
    assert found.starts.tolist() == starts


@settings(max_examples=300, deadline=None, derandomize=True)
@given(keys=keys_of, prefix=st.sampled_from(["", "x", "id:", "customer-0000-"]), runs=st.booleans())
def test_keys_sort_by_their_bytes_and_then_by_row(keys: list[str], prefix: str, runs: bool) -> None:
    keys = [prefix + key for key in keys]
    check(keys, pa.array(keys, pa.string()), runs=runs)


def test_every_hostile_key_has_its_place() -> None:
    check(HOSTILE[::-1] * 3, pa.array(HOSTILE[::-1] * 3))


def test_a_private_use_character_comes_before_a_supplementary_one() -> None:
    keys = ["\U00020000", "\ue000"]
    assert sort_keys(KeyWords.of(pa.array(keys))).order.tolist() == [1, 0]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 1000])
def test_keys_that_differ_in_the_last_byte_only(length: int) -> None:
    keys = ["k" * (length - 1) + last for last in "zamz\0"]
    check(keys, pa.array(keys))


def test_a_slice_sorts_as_if_it_were_alone() -> None:
    whole = pa.array(["zzz", *HOSTILE[::-1], "AAA"])
    check(HOSTILE[::-1], whole.slice(1, len(HOSTILE)))
    check([], whole.slice(3, 0))


def test_no_keys_and_one_key() -> None:
    check([], pa.array([], pa.string()))
    check([""], pa.array([""]))
    check(["", ""], pa.array(["", ""]))


def test_ties_go_by_the_first_breaker_then_the_next_then_the_row() -> None:
    keys = pa.array(["b", "a", "a", "a", "a", "b"])
    offset = np.array([1, 2, 1, 1, 2, 1])
    moment = np.array([0, 7, 9, 8, 7, 0])
    found = sort_keys(KeyWords.of(keys), [offset, moment])
    assert found.order.tolist() == [3, 2, 1, 4, 0, 5]
    assert found.starts.tolist() == [0, 4]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(rows=st.lists(st.tuples(st.sampled_from(HOSTILE), st.integers(-3, 3), st.integers(-3, 3)), max_size=60))
def test_ties_sort_as_tuples_do(rows: list[tuple[str, int, int]]) -> None:
    keys = pa.array([key for key, _, _ in rows], pa.string())
    ties = [np.array([row[place] for row in rows], np.int64) for place in (1, 2)]
    expected = sorted(range(len(rows)), key=lambda n: (rows[n][0].encode(), rows[n][1], rows[n][2], n))
    assert sort_keys(KeyWords.of(keys), ties).order.tolist() == expected


def test_words_are_the_bytes_padded_with_zeros() -> None:
    words = KeyWords.of(pa.array(["AAAAAAAAB", "AAAAAAAA", "", "C"]))
    assert words.count == 2
    assert texts(words.word(0)) == [b"AAAAAAAA", b"AAAAAAAA", b"\0" * 8, b"C" + b"\0" * 7]
    assert texts(words.word(1)) == [b"B" + b"\0" * 7, b"\0" * 8, b"\0" * 8, b"\0" * 8]
    assert texts(words.word(1, np.array([3, 0]))) == [b"\0" * 8, b"B" + b"\0" * 7]
    assert not words.same_length
    assert len(words) == 4


def texts(words: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]) -> list[bytes]:
    return [int(word).to_bytes(8, "big") for word in words]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 17, 20])
def test_words_of_keys_of_one_length_hold_their_bytes(length: int) -> None:
    keys = ["".join(chr(33 + (7 * row + place) % 90) for place in range(length)) for row in range(10)]
    words = KeyWords.of(pa.array(["before", *keys, "after"]).slice(1, 10))
    assert words.same_length
    for rows in (None, np.array([9]), np.arange(9, -1, -1)):
        chosen = keys if rows is None else [keys[row] for row in rows]
        found = [texts(words.word(number, rows)) for number in range(words.count)]
        assert [b"".join(parts).rstrip(b"\0") for parts in zip(*found, strict=True)] == [k.encode() for k in chosen]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data(), alphabet=st.sampled_from(["ab", "\0a", "aé\U00020000", "0123456789abcdef"]))
def test_long_keys_with_equal_stretches_and_repeats_sort_right(data: st.DataObject, alphabet: str) -> None:
    parts = st.lists(st.text(alphabet, min_size=1, max_size=3), min_size=1, max_size=3)
    filling = st.sampled_from(["", "-", "x" * 40, "y" * 300])
    distinct = data.draw(st.lists(st.builds(str.join, filling, parts), min_size=1, max_size=12))
    keys = data.draw(st.lists(st.sampled_from(distinct), max_size=60))
    check(keys, pa.array(keys, pa.string()), runs=data.draw(st.booleans()))


@pytest.mark.parametrize("length", [400, 401])
def test_equal_long_keys_among_others_with_the_same_beginning(length: int) -> None:
    keys = [f"{row % 7:010d}" + "x" * (length - 20) + f"{row % 5:010d}" for row in range(300)]
    check(keys, pa.array(keys))


@pytest.mark.parametrize("disorder", ["none", "at the start", "at a block's end", "at the end"])
def test_keys_in_order_stay_and_one_out_of_place_is_found(disorder: str) -> None:
    keys = [f"{row // 3:09d}" for row in range(33000)]
    place = {"none": 0, "at the start": 3, "at a block's end": 32768, "at the end": len(keys) - 1}[disorder]
    keys[place], keys[0] = keys[0], keys[place]
    check(keys, pa.array(keys))


def test_sorting_many_random_keys_is_right() -> None:
    random = np.random.default_rng(7)
    keys = [f"order-{number:08d}-{'x' * (number % 11)}" for number in random.integers(0, 3000, 5000)]
    check(keys, pa.array(keys))
