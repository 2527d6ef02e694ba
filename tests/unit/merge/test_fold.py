"""`fold` against the pairwise rule, record by record (format 05)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_lsm.merge.fold import fold

LOWEST = int(np.iinfo(np.int64).min)
HIGHEST = int(np.iinfo(np.int64).max)

ranks = st.sampled_from([LOWEST, -1, 0, 1, 2, HIGHEST])
keys = st.lists(st.lists(st.tuples(st.booleans(), ranks), min_size=1, max_size=7), min_size=1, max_size=6)


def loop(records: list[tuple[bool, int]], first: int, *, event_time: bool) -> tuple[int, int]:
    """Winner and the wipe that stands before it, for the records of one key."""
    winner, wipe = 0, -1
    for place, (is_wipe, rank) in enumerate(records[1:], 1):
        old_wipe, old_rank = records[winner]
        if not event_time or is_wipe or old_wipe or rank >= old_rank:
            if event_time and old_wipe and not is_wipe:
                wipe = winner
            winner = place
        if event_time and is_wipe:
            wipe = -1  # it is the winner itself, and all before it is forgotten
    return first + winner, first + wipe if wipe >= 0 else -1


@settings(max_examples=300, deadline=None, derandomize=True)
@given(keys=keys, event_time=st.booleans())
def test_all_keys_at_once_fold_as_one_record_after_the_other(
    keys: list[list[tuple[bool, int]]], event_time: bool
) -> None:
    flat = [record for records in keys for record in records]
    starts = np.cumsum([0, *(len(records) for records in keys[:-1])])
    folded = fold(
        starts,
        np.array([is_wipe for is_wipe, _ in flat]),
        np.array([rank for _, rank in flat], np.int64) if event_time else None,
    )
    expected = [loop(records, int(start), event_time=event_time) for records, start in zip(keys, starts, strict=True)]
    assert list(zip(folded.winner.tolist(), folded.wipe.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("wipes", "ranks", "winner", "wipe"),
    [
        ([0, 0], [5, 5], 1, -1),
        ([0, 0], [5, 4], 0, -1),
        ([0, 1, 0], [9, 0, 1], 2, 1),
        ([0, 1], [9, 0], 1, -1),
        ([1, 1, 0], [0, 0, 3], 2, 1),
        ([1, 0, 0], [0, 5, 4], 1, 0),
        ([0, 1, 0], [9, 0, LOWEST], 2, 1),
    ],
    ids=[
        "later-wins-a-tie",
        "larger-wins",
        "a-wipe-forgets-what-is-larger",
        "a-wipe-at-the-end-wins",
        "the-newest-wipe-is-told",
        "the-larger-after-a-wipe-wins",
        "the-lowest-rank-after-a-wipe-wins",
    ],
)
def test_one_key(wipes: list[int], ranks: list[int], winner: int, wipe: int) -> None:
    folded = fold(np.zeros(1, np.int64), np.array(wipes, np.bool_), np.array(ranks, np.int64))
    assert (folded.winner.tolist(), folded.wipe.tolist()) == ([winner], [wipe])


def test_no_keys_fold_to_nothing() -> None:
    nothing = np.zeros(0, np.int64)
    for ranks in (None, nothing):
        folded = fold(nothing, np.zeros(0, np.bool_), ranks)
        assert (len(folded.winner), len(folded.wipe)) == (0, 0)
