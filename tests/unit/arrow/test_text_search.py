"""Texts are found among ascending ones where Python's bisection finds them."""

from __future__ import annotations

import random
from bisect import bisect_left

import pyarrow as pa
import pytest

from streaming_lsm.arrow.text_search import search_texts

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
