"""Which actions are archived, and what keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_lsm.config import Options
from streaming_lsm.errors import ConfigError
from streaming_lsm.services.archiving.planner import ActiveCommits, ArchiveSelection, Bound, select
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline

ELAPSED = {"hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED"}
KEEP = {"hoodie.keep.min.commits": 4, "hoodie.keep.max.commits": 6, "hoodie.clean.commits.retained": 2}


def time(second: float) -> str:
    return f"202611221200{int(second * 1000):05}"


def write(second: int, action: str = "deltacommit") -> Instant:
    return Instant(time(second), action, State.COMPLETED, time(second + 0.5))


def selected(
    *instants: Instant, further: tuple[Bound, ...] = (), kept: tuple[str, ...] = (), **options: object
) -> ArchiveSelection:
    ordered = tuple(sorted(instants, key=lambda instant: instant.requested))
    timeline = Timeline(LocalStorage(Path("/nowhere")), ordered, ordered[0].requested)
    return select(timeline, Options({**KEEP, **options}), "UTC", further, kept)


def seconds(selection: ArchiveSelection) -> list[int]:
    return sorted(map(seconds_of, selection.every))


def seconds_of(action: Instant) -> int:
    return int(action.requested[-5:]) // 1000


@pytest.mark.parametrize(("count", "expected"), [(6, []), (7, [0, 1, 2]), (10, [0, 1, 2, 3, 4, 5])])
def test_beyond_the_most_commits_all_but_the_least_are_archived(count: int, expected: list[int]) -> None:
    assert seconds(selected(*map(write, range(count)))) == expected


def test_cleans_and_rollbacks_go_with_the_writes_around_them() -> None:
    others = [write(1, "clean"), write(3, "rollback"), write(7, "clean")]
    assert seconds(selected(*map(write, (0, 2, 4, 6, 8, 10, 12)), *others)) == [0, 1, 2, 3, 4]


def cleaned(*commits: int, more: tuple[Instant, ...] = ()) -> tuple[Instant, ...]:
    """Commits at these seconds, each with a clean after it."""
    return (*(write(second, "commit") for second in commits), *(write(n + 0.5, "clean") for n in commits), *more)


@pytest.mark.parametrize(
    ("commits", "expected"), [(3, []), (4, [0, 1, 2]), (5, [0, 0, 1, 2, 3]), (6, [0, 0, 1, 1, 2, 3, 4])]
)
def test_cleans_and_rollbacks_count_too_and_do_not_wait_for_the_writes_beside_them(
    commits: int, expected: list[int]
) -> None:
    found = selected(*cleaned(*range(commits)))
    assert seconds(found) == expected
    assert {action.action for action in found.passed} <= {"clean"}
    rollbacks = [write(second, "rollback") for second in range(10, 10 + 3)]
    assert len(selected(*map(write, range(4)), *rollbacks).every) == 0
    assert len(selected(*map(write, range(4)), *rollbacks, write(13, "rollback")).passed) == 3


def test_the_newest_clean_stays_with_the_writes_after_it() -> None:
    found = selected(*map(write, range(4)), *(write(1 + n / 10, "clean") for n in range(9)))
    assert [action.requested for action in found.passed] == [time(1 + n / 10) for n in range(8)]


def test_passed_actions_stay_that_are_younger_than_a_pending_one_or_needed_elsewhere() -> None:
    pending = Instant(time(3.2), "deltacommit", State.REQUESTED)
    assert [*map(seconds_of, selected(*cleaned(*range(6)), pending).passed)] == [2]
    assert [*map(seconds_of, selected(*cleaned(*range(6)), kept=(time(3.5),)).passed)] == [2, 4]


@pytest.mark.parametrize("action", ["deltacommit", "compaction", "clean", "rollback", "clustering"])
def test_nothing_goes_that_is_younger_than_a_pending_action(action: str) -> None:
    pending = Instant(time(2), action, State.REQUESTED)
    found = selected(*map(write, (0, 1, 3, 4, 5, 6, 7, 8, 9)), pending)
    assert seconds(found) == [0, 1]
    assert found.bound == Bound(time(2), f"{pending.file_name} is pending")


def test_nothing_goes_that_is_as_young_as_a_savepoint() -> None:
    savepoint = Instant(time(2), "savepoint", State.COMPLETED, time(30))
    assert seconds(selected(*map(write, range(10)), savepoint)) == [0, 1]


def test_a_write_that_was_completed_after_writes_that_stay_stays_with_all_that_are_younger() -> None:
    long = Instant(time(1.2), "commit", State.COMPLETED, time(7.7))
    found = selected(*map(write, range(11)), long)
    assert seconds(found) == [0, 1]
    assert found.bound == Bound(time(1.2), f"{long.file_name} was completed after writes that stay")
    assert seconds(selected(*map(write, range(12)), long)) == [0, 1, 1, 2, 3, 4, 5, 6, 7]
    longer = Instant(time(0.2), "commit", State.COMPLETED, time(2.7))
    assert seconds(selected(*map(write, range(11)), long, longer)) == [0]


def test_writes_that_overlap_and_are_completed_in_order_do_not_keep_each_other() -> None:
    overlapping = [Instant(time(n), "deltacommit", State.COMPLETED, time(n + 3.5)) for n in range(12)]
    assert seconds(selected(*overlapping)) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_writes_that_overlap_each_other_without_end_do_not_keep_all() -> None:
    """Two slow writers, each of whose writes is completed after several of a third one."""
    slow = [Instant(time(n * 3 + 0.2), "deltacommit", State.COMPLETED, time(n * 3 + 5.7)) for n in range(17)]
    fast = [write(number) for number in range(56)]
    found = selected(*slow, *fast)
    assert found.bound is not None
    assert found.bound.reason.endswith("was completed after writes that stay")
    assert max(seconds(found)) == 42
    savepoint = Instant(time(50), "savepoint", State.COMPLETED, time(59))
    assert seconds(selected(*slow, *fast, savepoint)) == [0]


def test_what_cleans_retain_stays() -> None:
    keep = {"hoodie.keep.min.commits": 9, "hoodie.keep.max.commits": 10, "hoodie.clean.commits.retained": 8}
    pending = Instant(time(0.5), "deltacommit", State.INFLIGHT)
    assert seconds(selected(*map(write, range(12)), **keep)) == [0, 1, 2]
    assert seconds(selected(*map(write, range(12)), pending, **keep)) == [0]


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        ({"hoodie.compact.inline.max.delta.commits": 8}, [0, 1]),
        ({"hoodie.compact.inline.max.delta.commits": 3}, [0, 1, 2, 3, 4, 5]),
        ({"hoodie.compact.inline.max.delta.commits": 30}, []),
        ({**ELAPSED, "hoodie.compact.inline.max.delta.seconds": 7}, [0, 1]),
        ({**ELAPSED, "hoodie.compact.inline.max.delta.seconds": 70}, []),
        (
            {
                "hoodie.compact.inline.trigger.strategy": "NUM_AND_TIME",
                "hoodie.compact.inline.max.delta.commits": 9,
                "hoodie.compact.inline.max.delta.seconds": 5,
            },
            [0],
        ),
    ],
)
def test_the_delta_commits_stay_by_which_the_next_compaction_is_due(
    trigger: dict[str, object], expected: list[int]
) -> None:
    deltas = list(map(write, range(10)))
    assert seconds(selected(*deltas, **trigger)) == [0, 1, 2, 3, 4, 5]
    assert seconds(selected(*deltas, **{"hoodie.compact.inline": True, **trigger})) == expected
    assert seconds(selected(*deltas, **{"hoodie.compact.schedule.inline": True, **trigger})) == expected


def test_a_bound_that_is_known_from_files_counts_as_the_others() -> None:
    assert seconds(selected(*map(write, range(10)), further=(Bound(time(1), "it has rows"),))) == [0]


def test_a_selection_tells_what_it_takes_or_why_nothing() -> None:
    assert str(selected(*map(write, range(10)))) == f"6 actions to archive, up to {time(5)}"
    few = "nothing to archive: the timeline has no more commits than hoodie.keep.max.commits=6"
    assert str(selected(*map(write, range(3)))) == few
    held = selected(*map(write, range(10)), further=(Bound(time(0), "it has rows"),))
    assert str(held) == f"nothing to archive before {time(0)}: it has rows"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (11, 14)),
        ({"hoodie.clean.commits.retained": 30}, (31, 34)),
        ({"hoodie.clean.commits.retained": 12}, (13, 14)),
        ({"hoodie.keep.min.commits": 20}, (20, 23)),
        ({"hoodie.keep.min.commits": 20, "hoodie.keep.max.commits": 30}, (20, 30)),
        ({"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.keep.min.commits": 2}, (2, 14)),
    ],
)
def test_limits_that_are_not_set_are_raised_above_what_cleans_retain(
    options: dict[str, object], expected: tuple[int, int]
) -> None:
    found = ActiveCommits.of(Options(options))
    assert (found.least, found.most) == expected


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"hoodie.keep.min.commits": 9}, "min.commits=9 is not more than hoodie.clean.commits.retained=10"),
        ({"hoodie.keep.max.commits": 11}, "hoodie.keep.max.commits=11 is not more than the 11 commits that stay"),
        (
            {"hoodie.clean.commits.retained": 20, "hoodie.keep.max.commits": 15},
            "hoodie.keep.max.commits=15 is not more than the 21 commits that stay",
        ),
    ],
)
def test_limits_that_contradict_each_other_are_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        ActiveCommits.of(Options(options))


def test_the_action_with_the_last_time_stays_as_the_next_time_is_drawn_after_it() -> None:
    rollbacks = [write(second, "rollback") for second in range(4, 9)]
    found = selected(*map(write, range(4)), *rollbacks)
    assert [*map(seconds_of, found.passed)] == [4, 5, 6, 7]
