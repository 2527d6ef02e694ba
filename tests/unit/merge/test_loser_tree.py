"""The loser tree itself: what it compares and holds, and that it merges as a sort does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.loser_tree import LoserTree, Record, State

sources = st.lists(st.lists(st.integers(0, 6), max_size=8), max_size=9)


def made(keys: list[list[int]]) -> list[list[Record]]:
    return [
        [Record(b"%06d" % key, 0, False, False, 1000 * run + place) for place, key in enumerate(sorted(found))]
        for run, found in enumerate(keys)
    ]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(keys=sources)
def test_records_come_by_key_then_by_run_then_as_in_the_run(keys: list[list[int]]) -> None:
    runs = made(keys)
    groups = [list(records) for records in LoserTree(runs).groups()]
    assert [record for group in groups for record in group] == sorted(
        (record for run in runs for record in run), key=lambda record: record.key
    )
    assert len({record.key for group in groups for record in group}) == len(groups)


@pytest.mark.parametrize("distinct", [100_000, 40, 1], ids=["few-ties", "many-ties", "one-key"])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 33, 64])
def test_each_record_costs_a_comparison_a_level_and_each_run_three_places(count: int, distinct: int) -> None:
    chance = random.Random(count)
    length = 60
    tree = LoserTree(made([[chance.randrange(distinct) for _ in range(length)] for _ in range(count)]))
    most = popped = 0
    for records in tree.groups():
        for _ in records:
            popped += 1
            most = max(most, tree.held)
    assert popped == count * length
    levels = (count - 1).bit_length()
    assert tree.comparisons <= (popped + count) * levels
    assert tree.ties <= (popped + count) * levels
    assert most <= 3 * count


def test_the_next_record_of_a_key_is_found_without_a_comparison_of_keys() -> None:
    tree = LoserTree(made([[1, 9]] * 64))
    built = tree.comparisons
    first = next(tree.groups())
    assert [record.value // 1000 for record in first] == list(range(64))
    assert tree.comparisons == built
    assert {leaf.state for leaf in tree.leaves} == {State.WINNER_POPPED, State.LOSER_POPPED}
