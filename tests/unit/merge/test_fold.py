"""`fold` against the pairwise rule, record by record (docs/format/05-merge.md), and what it may be spared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_lsm.merge.fold import fold, survivors

LOWEST = int(np.iinfo(np.int64).min)
HIGHEST = int(np.iinfo(np.int64).max)

ranks = st.sampled_from([LOWEST, -1, 0, 1, 2, HIGHEST])
keys = st.lists(st.lists(st.tuples(st.booleans(), ranks), min_size=1, max_size=7), min_size=1, max_size=6)


def loop(records: list[tuple[bool, int]], first: int, *, event_time: bool) -> tuple[int, int]:
    """Winner and the unordered delete that stands before it, for the records of one key."""
    winner, unordered_delete = 0, -1
    for place, (is_unordered, rank) in enumerate(records[1:], 1):
        old_unordered, old_rank = records[winner]
        if not event_time or is_unordered or old_unordered or rank >= old_rank:
            if event_time and old_unordered and not is_unordered:
                unordered_delete = winner
            winner = place
        if event_time and is_unordered:
            unordered_delete = -1  # it is the winner itself, and all before it is forgotten
    return first + winner, first + unordered_delete if unordered_delete >= 0 else -1


@settings(max_examples=300, deadline=None, derandomize=True)
@given(keys=keys, event_time=st.booleans())
def test_all_keys_at_once_fold_as_one_record_after_the_other(
    keys: list[list[tuple[bool, int]]], event_time: bool
) -> None:
    flat = [record for records in keys for record in records]
    starts = np.cumsum([0, *(len(records) for records in keys[:-1])])
    folded = fold(
        starts,
        np.array([is_unordered for is_unordered, _ in flat]),
        np.array([rank for _, rank in flat], np.int64) if event_time else None,
    )
    expected = [loop(records, int(start), event_time=event_time) for records, start in zip(keys, starts, strict=True)]
    assert list(zip(folded.winner.tolist(), folded.unordered_delete.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("unordered_deletes", "ranks", "winner", "unordered_delete"),
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
        "an-unordered-delete-forgets-what-is-larger",
        "an-unordered-delete-at-the-end-wins",
        "the-newest-unordered-delete-is-told",
        "the-larger-after-a-wipe-wins",
        "the-lowest-rank-after-a-wipe-wins",
    ],
)
def test_one_key(unordered_deletes: list[int], ranks: list[int], winner: int, unordered_delete: int) -> None:
    folded = fold(np.zeros(1, np.int64), np.array(unordered_deletes, np.bool_), np.array(ranks, np.int64))
    assert (folded.winner.tolist(), folded.unordered_delete.tolist()) == ([winner], [unordered_delete])


def test_no_keys_fold_to_nothing() -> None:
    nothing = np.zeros(0, np.int64)
    for ranks in (None, nothing):
        folded = fold(nothing, np.zeros(0, np.bool_), ranks)
        assert (len(folded.winner), len(folded.unordered_delete)) == (0, 0)


Record = tuple[bool, int]


def outcome(records: list[Record], *, event_time: bool) -> tuple[Record, Record | None]:
    """Winner of one key and the unordered delete before it, as records."""
    unordered_deletes, order = (
        np.array([unordered_delete for unordered_delete, _ in records]),
        np.array([rank for _, rank in records], np.int64),
    )
    folded = fold(np.zeros(1, np.int64), unordered_deletes, order if event_time else None)
    winner, unordered_delete = int(folded.winner[0]), int(folded.unordered_delete[0])
    return records[winner], records[unordered_delete] if unordered_delete >= 0 else None


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    runs=st.lists(st.lists(st.tuples(st.booleans(), ranks), min_size=1, max_size=6), min_size=1, max_size=4),
    turns=st.lists(st.integers(0, 3), max_size=24),
    event_time=st.booleans(),
)
def test_survivors_of_several_runs_fold_as_the_runs_do_however_they_are_interleaved(
    runs: list[list[Record]], turns: list[int], event_time: bool
) -> None:
    starts = np.cumsum([0, *(len(run) for run in runs[:-1])])
    flat = [record for run in runs for record in run]
    # Each run is taken for a key of its own, which is what the others are to it.
    stays = survivors(
        starts,
        np.array([unordered_delete for unordered_delete, _ in flat]),
        np.array([rank for _, rank in flat], np.int64) if event_time else None,
    )
    order = [number for number in [*turns, *np.repeat(range(4), 6).tolist()] if number < len(runs)]
    places = [iter(range(int(start), int(start) + len(run))) for start, run in zip(starts, runs, strict=True)]
    drawn = (next(places[number], None) for number in order)
    merged = [place for place in drawn if place is not None]
    assert len(merged) == len(flat)
    expected = outcome([flat[place] for place in merged], event_time=event_time)
    assert outcome([flat[place] for place in merged if stays[place]], event_time=event_time) == expected


def test_of_rising_ranks_one_survives_and_of_falling_ones_all() -> None:
    starts, unordered_deletes = np.array([0, 3]), np.zeros(6, np.bool_)
    stays = survivors(starts, unordered_deletes, np.array([1, 2, 3, 3, 2, 1], np.int64))
    assert stays.tolist() == [False, False, True, True, True, True]
