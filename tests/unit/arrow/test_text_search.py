"""Texts are found among ascending ones where Python's bisection finds them."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable

import pyarrow as pa
import pytest

from streaming_lsm.arrow.text_search import count_not_greater, search_texts

PARTS = ["", "a", "b", "é", "\U00010000", "￿", "\0", "zz"]


@pytest.mark.parametrize("seed", range(60))
def test_texts_are_found_in_the_order_of_their_bytes(seed: int) -> None:
    draw = random.Random(seed)

    def texts(most: int) -> list[str]:
        return ["".join(draw.choices(PARTS, k=draw.randrange(4))) for _ in range(draw.randrange(most))]

    stored, wanted = sorted(texts(30), key=str.encode), texts(9)
    held = pa.array(["before", *stored, "after"], pa.string()).slice(1, len(stored))
    places, found = search_texts(held, pa.array(["x", *wanted], pa.string()).slice(1))
    assert places.tolist() == [bisect_left([text.encode() for text in stored], text.encode()) for text in wanted]
    assert found.tolist() == [text in stored for text in wanted]


@pytest.mark.parametrize("seed", range(40))
def test_texts_of_one_length_are_found_where_others_are(seed: int) -> None:
    draw = random.Random(seed)
    width = draw.randrange(1, 4)

    def texts(most: int) -> list[str]:
        return ["".join(draw.choices("\0ab~\x7f", k=width)) for _ in range(draw.randrange(1, most))]

    stored, wanted = sorted(texts(30)), texts(9)
    held = pa.array(["before", *stored, "after"], pa.string()).slice(1, len(stored))
    places, found = search_texts(held, pa.array(["x", *wanted], pa.string()).slice(1))
    assert places.tolist() == [bisect_left(stored, text) for text in wanted]
    assert found.tolist() == [text in stored for text in wanted]


@pytest.mark.parametrize("seed", range(40))
def test_texts_that_are_not_greater_are_counted_if_all_have_one_length(seed: int) -> None:
    draw = random.Random(seed)
    width = draw.randrange(1, 4)
    assert_counts(draw, lambda: bytes(draw.choices(b"\0ab\xff", k=width)))


@pytest.mark.parametrize("seed", range(40))
def test_texts_that_are_not_greater_are_counted_if_none_is_far_longer(seed: int) -> None:
    draw = random.Random(seed)
    assert_counts(draw, lambda: bytes(draw.choices(b"\1ab\xff", k=draw.randrange(2, 5))))


def test_texts_of_many_lengths_are_not_counted_where_they_are() -> None:
    short = [b"a", b"b", b"c"]
    assert counts(sorted(short * 9), [b"c" * 400]) is None
    assert counts(short, [b"b\0"]) is None
    assert counts([], short) == [0, 0, 0]
    assert counts([b""], [b""]) is None
    assert counts(short, []) == []
    assert counts([b"", b"ab"], [b"", b"aa", b"ab", b"b"]) == [1, 1, 2, 2]


def assert_counts(draw: random.Random, text: Callable[[], bytes]) -> None:
    stored, wanted = sorted(text() for _ in range(draw.randrange(1, 30))), [text() for _ in range(draw.randrange(1, 9))]
    assert counts(stored, wanted) == [bisect_right(stored, one) for one in wanted]


def counts(stored: list[bytes], wanted: list[bytes]) -> list[int] | None:
    held = pa.array([b"before", *stored, b"after"], pa.binary()).slice(1, len(stored))
    count = count_not_greater(held, pa.array([b"x" * 9, *wanted], pa.binary()).slice(1))
    return None if count is None else count.tolist()
