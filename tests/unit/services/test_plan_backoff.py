"""Which of the plans that wait are tried after a write."""

from __future__ import annotations

from itertools import pairwise

from streaming_lsm.services.plan_backoff import PlanBackoff
from streaming_lsm.timeline.instant import Instant, State

BAD, GOOD = (Instant(time, "compaction", State.REQUESTED) for time in ("1", "2"))


def test_pauses_double_up_to_64_writes() -> None:
    attempts, tried = PlanBackoff(), []
    for write in range(270):
        for plan in attempts.due([BAD]):
            attempts.begin(plan)
            tried.append(write)
    assert [later - earlier - 1 for earlier, later in pairwise(tried)] == [1, 2, 4, 8, 16, 32, 64, 64, 64]


def test_a_plan_that_fails_keeps_no_other_one_waiting() -> None:
    attempts = PlanBackoff()
    assert attempts.due([BAD]) == [BAD]
    attempts.begin(BAD)
    assert attempts.due([BAD, GOOD]) == [GOOD]


def test_a_plan_that_waits_no_more_is_forgotten() -> None:
    attempts = PlanBackoff()
    attempts.begin(BAD)
    assert attempts.due([]) == []
    assert attempts.due([BAD]) == [BAD]
