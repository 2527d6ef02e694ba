"""When a compaction is due."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_lsm.services.compaction.trigger import (
    NUM_AND_TIME,
    NUM_COMMITS,
    NUM_COMMITS_AFTER_LAST_REQUEST,
    NUM_OR_TIME,
    TIME_ELAPSED,
    CompactionTrigger,
)
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline
from tests.support.writers import NOON_MS


def at(second: int) -> str:
    return f"202611211200{second:02d}000"


def delta(second: int, done: int | None = None) -> Instant:
    return Instant(at(second), "deltacommit", State.COMPLETED, at(second + 1 if done is None else done))


def compaction(second: int, done: int) -> Instant:
    return Instant(at(second), "commit", State.COMPLETED, at(done))


def waiting(second: int) -> Instant:
    return Instant(at(second), "compaction", State.REQUESTED)


def is_due(strategy: str, *instants: Instant, second: int = 30, commits: int = 2, seconds: int = 10) -> bool:
    timeline = Timeline(LocalStorage(Path("nowhere")), instants, instants[0].requested if instants else "")
    return CompactionTrigger(strategy, commits, seconds).is_due(timeline, NOON_MS + second * 1000, "UTC")


def test_all_delta_commits_count_before_the_first_compaction() -> None:
    assert not is_due(NUM_COMMITS, delta(1))
    assert is_due(NUM_COMMITS, delta(1), delta(3))


def test_delta_commits_count_that_the_last_compaction_did_not_merge() -> None:
    merged = (delta(1), delta(3), compaction(5, 9))
    assert not is_due(NUM_COMMITS, *merged, delta(10))
    assert is_due(NUM_COMMITS, *merged, delta(10), delta(12))


def test_a_delta_commit_between_plan_and_run_of_the_last_compaction_counts() -> None:
    assert is_due(NUM_COMMITS, delta(1), compaction(5, 20), delta(7), delta(10))


def test_a_delta_commit_requested_before_the_plan_and_completed_after_it_counts() -> None:
    assert is_due(NUM_COMMITS, delta(1), delta(4, done=6), compaction(5, 20), delta(22))


def test_a_compaction_that_waits_counts_only_after_the_last_request() -> None:
    instants = (delta(1), delta(3), waiting(5), delta(7))
    assert is_due(NUM_COMMITS, *instants)
    assert not is_due(NUM_COMMITS_AFTER_LAST_REQUEST, *instants)
    assert is_due(NUM_COMMITS_AFTER_LAST_REQUEST, *instants, delta(9))


@pytest.mark.parametrize(
    ("strategy", "commits", "seconds", "due"),
    [
        (TIME_ELAPSED, 9, 20, True),
        (TIME_ELAPSED, 1, 26, False),
        (NUM_AND_TIME, 2, 20, True),
        (NUM_AND_TIME, 3, 20, False),
        (NUM_AND_TIME, 2, 26, False),
        (NUM_OR_TIME, 3, 20, True),
        (NUM_OR_TIME, 2, 26, True),
        (NUM_OR_TIME, 3, 26, False),
    ],
)
def test_time_counts_from_the_last_compaction(strategy: str, commits: int, seconds: int, due: bool) -> None:
    instants = (delta(1), compaction(5, 8), delta(10), delta(12))
    assert is_due(strategy, *instants, commits=commits, seconds=seconds) is due


def test_time_counts_from_the_first_delta_commit_before_any_compaction() -> None:
    assert is_due(TIME_ELAPSED, delta(10), seconds=20)
    assert not is_due(TIME_ELAPSED, delta(10), seconds=21)


def test_no_time_makes_a_compaction_due_that_would_have_nothing_to_merge() -> None:
    assert not is_due(TIME_ELAPSED)
    assert not is_due(NUM_OR_TIME, delta(1), compaction(5, 8))


def test_a_clock_that_was_set_back_makes_nothing_due() -> None:
    assert not is_due(TIME_ELAPSED, delta(10), second=-3600)


def test_what_is_known_to_be_fruitless_counts_as_a_compaction() -> None:
    timeline = Timeline(LocalStorage(Path("nowhere")), (delta(1), delta(3)), at(1))
    assert not CompactionTrigger(NUM_COMMITS, 1, 10).is_due(timeline, NOON_MS, "UTC", since=at(4))
    assert CompactionTrigger(NUM_COMMITS, 1, 10).is_due(timeline, NOON_MS, "UTC", since=at(2))
