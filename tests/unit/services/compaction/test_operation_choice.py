"""What is done with a file slice, by the sizes of its files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from streaming_lsm.config import Options
from streaming_lsm.errors import ConfigError
from streaming_lsm.services.compaction.operation_choice import (
    HybridRules,
    LiveRuns,
    LogCompactionRules,
    LogRun,
    SliceSizes,
    check_hybrid,
    mergeable,
)

MB = 1 << 20
LATEST = "9" * 17


def runs(*sizes: int) -> tuple[LogRun, ...]:
    return tuple(LogRun(f"{place:017d}", (f"log {place}",), size) for place, size in enumerate(sizes))


def rules(**changed: object) -> HybridRules:
    values: dict[str, object] = {
        "small_base_bytes": 10 * MB,
        "log_share": 0.5,
        "min_runs": 3,
        "max_runs": 8,
        "reserve": 2,
        "max_files": 300,
        "before": LATEST,
    }
    return HybridRules(**{**values, **changed})  # type: ignore[arg-type]


def sizes(live: Sequence[LogRun], base: int | None = 1000 * MB, covered: int = 0) -> SliceSizes:
    return SliceSizes(base, sum(run.size for run in live) + covered, len(live), len(live))


@pytest.mark.parametrize(
    ("base", "covered", "expected"),
    [
        (None, 0, "no base file"),
        (10 * MB - 1, 0, "a base file of 10.0 MiB, small below 10.0 MiB"),
        (16 * MB, 0, None),
        (16 * MB, 4 * MB, "logs of 56% of the base file, more than 50%"),
    ],
)
def test_a_full_operation_is_for_small_bases_and_for_many_bytes_of_logs_replaced_ones_included(
    base: int | None, covered: int, expected: str | None
) -> None:
    live = runs(MB, MB, MB, MB, MB)
    choice = rules()(sizes(live, base, covered), lambda: LiveRuns(live))
    assert (choice.type, choice.reason) == (("FULL", expected) if expected else ("LOG", choice.reason))


def test_a_full_operation_is_for_many_log_files_replaced_ones_included() -> None:
    live = runs(MB, MB, MB, MB, MB)
    for files, expected in ((300, "LOG"), (301, "FULL")):
        choice = rules()(replace(sizes(live), log_files=files), lambda: LiveRuns(live))
        assert choice.type == expected
    assert choice.reason == "301 log files, replaced ones included, more than 300"


def test_no_header_is_read_where_the_number_of_logs_decides() -> None:
    def unread() -> LiveRuns:
        raise AssertionError

    live = runs(MB, MB)
    assert rules()(sizes(live), unread).type is None
    assert rules()(sizes(live, None), unread).type == "FULL"
    assert LogCompactionRules(3, LATEST)(sizes(live), unread).type is None


@pytest.mark.parametrize(
    ("found", "merged"),
    [
        ((1, 1, 1), (1, 1, 1)),
        ((8, 1, 1, 1), (1, 1, 1)),
        ((8, 3, 1, 1, 1), (3, 1, 1, 1)),
        ((6, 3, 1, 1, 1), (6, 3, 1, 1, 1)),
        ((500, 90, 80, 70, 60, 3), ()),
        ((900, 500, 200, 90, 40, 9, 3), (9, 3)),
        ((900, 500, 200, 90, 40, 19, 9, 3, 1), (19, 9, 3, 1)),
    ],
)
def test_runs_are_merged_with_newer_ones_of_their_size_and_as_many_more_as_bound_their_number(
    found: tuple[int, ...], merged: tuple[int, ...]
) -> None:
    live = runs(*(size * MB for size in found))
    choice = rules()(sizes(live, 100_000 * MB), lambda: LiveRuns(live))
    assert tuple(run.size // MB for run in choice.runs) == merged
    assert choice.type == ("LOG" if merged else None)
    assert live[len(live) - len(merged) :] == choice.runs


def test_runs_stay_bounded_and_a_record_is_merged_a_logarithmic_number_of_times() -> None:
    chance, found = random.Random(7), rules(min_runs=5, max_runs=10, reserve=5)
    live: list[LogRun] = []
    written = merged = most = 0
    for commit in range(2000):
        size = chance.randrange(MB // 2, MB)
        live.append(LogRun(f"{commit:017d}", (), size))
        written += size
        most = max(most, len(live))
        if commit % 5 == 4:
            choice = found(sizes(live, 1 << 60), partial(LiveRuns, tuple(live)))
            if choice.type == "LOG":
                size = sum(run.size for run in choice.runs)
                merged += size
                live = [*live[: len(live) - len(choice.runs)], LogRun(f"{commit:017d}", (), size)]
    assert most <= 10
    assert merged < 10 * written


def test_runs_from_a_pending_write_on_wait() -> None:
    live = runs(MB, MB, MB, MB)
    assert [run.instant for run in mergeable(live, live[2].instant, writes_native=True)] == [
        run.instant for run in live[:2]
    ]
    choice = rules(before=live[3].instant)(sizes(live), lambda: LiveRuns(live))
    assert choice.runs == live[:3]
    waiting = rules(before=live[1].instant)(sizes(live), lambda: LiveRuns(live))
    assert (waiting.type, waiting.reason) == (
        None,
        "4 sorted runs, of which 3 wait for a pending write or are inline logs",
    )


def test_partial_rows_are_left_to_a_full_operation() -> None:
    live = runs(MB, MB, MB, MB)
    assert rules()(sizes(live), lambda: LiveRuns(live, partial=True)).type == "FULL"
    assert LogCompactionRules(2, LATEST)(sizes(live), lambda: LiveRuns(live, partial=True)).type is None


def test_a_log_compaction_takes_all_runs_that_no_pending_write_can_come_between() -> None:
    live = runs(9 * MB, MB, MB)
    assert LogCompactionRules(3, LATEST)(sizes(live), lambda: LiveRuns(live)).runs == live
    assert LogCompactionRules(3, live[2].instant)(sizes(live), lambda: LiveRuns(live)).runs == live[:2]


def test_inline_logs_of_before_an_upgrade_are_left_to_a_full_operation() -> None:
    live = (LogRun("1", ("a",), MB, is_inline=True), *runs(MB, MB, MB)[1:], LogRun("9", ("b",), MB))
    assert mergeable(live, LATEST, writes_native=True) == live[1:]
    assert mergeable(live, LATEST, writes_native=False) == live


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({}, False),
        ({"hoodie.compact.inline.max.delta.commits": 20}, True),
        ({"hoodie.compact.inline.max.delta.commits": 10}, True),
        ({"hoodie.compact.inline.max.delta.commits": 9}, False),
        ({"hoodie.compact.inline.max.delta.commits": 20, "lsm.compaction.max.runs": 21}, False),
        ({"hoodie.compact.inline.max.delta.commits": 20, "hoodie.compaction.plan.generator": None}, False),
        (
            {
                "hoodie.compact.inline.max.delta.commits": 20,
                "hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED",
            },
            False,
        ),
    ],
)
def test_as_many_commits_between_compactions_as_there_may_be_runs_are_refused_by_both_options(
    changed: dict[str, object], refused: bool
) -> None:
    given = {"hoodie.compaction.plan.generator": "HybridCompactionPlanGenerator", **changed}
    options = Options({key: value for key, value in given.items() if value is not None})
    if not refused:
        check_hybrid(options)
        return
    commits = f"hoodie.compact.inline.max.delta.commits={changed['hoodie.compact.inline.max.delta.commits']}"
    for check in (check_hybrid, lambda found: HybridRules.of(found, LATEST, writes_native=True)):
        with pytest.raises(ConfigError, match=rf"lsm\.compaction\.max\.runs=10 .*{commits}"):
            check(options)
