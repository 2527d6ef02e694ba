"""Seeded schedules of writers, services and readers, with failures, kills, pauses and zombies: all promises hold.

``LSM_SCHEDULES=1000`` runs more of them, ``LSM_SEED=17`` one of them, and prints its trace; ``LSM_TABLE=indexes`` runs
those of tables that have all indexes at once, from the seed ``LSM_FIRST`` on. A failure prints its seed, and a short
schedule that breaks the same promise.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

from streaming_lsm.errors import ClusteringConflict, EarlyConflict, WriteConflict
from tests.support.simulation.aims import commit_calls
from tests.support.simulation.many import Coverage, run_indexed, run_many, run_undone_services
from tests.support.simulation.shrinking import shrink, story
from tests.support.simulation.simulate import simulate, simulate_indexed
from tests.support.simulation.work.modes import Mode

SCHEDULES = int(os.environ.get("LSM_SCHEDULES", "25"))
FILES = None if "LSM_SCHEDULES" in os.environ else 1
"""Inflight files of one schedule before which a service is stopped; None: each."""
SEED = os.environ.get("LSM_SEED")
FIRST = int(os.environ.get("LSM_FIRST", "0"))
"""The first seed."""
IS_INDEXED = os.environ.get("LSM_TABLE") == "indexes"
_INDEXES = {"files", "column_stats", "partition_stats", "bloom_filters", "record_index"}
"""The indexes of each such table; one with a record index over all partitions has a secondary index, too."""
SOME = 100
"""Schedules after which each mode has had the conflicts that are frequent."""
MANY = 1000
"""Schedules after which each mode has had all, and each kind of call of a commit has met each kind of trouble."""
_FREQUENT = ((Mode.OPTIMISTIC, WriteConflict), (Mode.OPTIMISTIC, EarlyConflict))
_ALL = (
    *_FREQUENT,
    (Mode.OPTIMISTIC, ClusteringConflict),
    (Mode.NON_BLOCKING, WriteConflict),
    (Mode.NON_BLOCKING, ClusteringConflict),
)


@pytest.mark.timeout(3600)
@pytest.mark.skipif(SEED is not None or IS_INDEXED, reason="LSM_SEED asks for one schedule")
def test_nothing_is_lost_or_doubled_whatever_happens(capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    results = list(run_many(range(SCHEDULES)))
    broken = [result for result in results if result.violation is not None]
    coverage = Coverage(results)
    with capsys.disabled():
        events, commits = sum(len(result.events) for result in results), sum(result.commits for result in results)
        print(
            f"\n{len(results)} schedules in {time.monotonic() - begun:.0f} s: {commits} batches committed, "
            f"{sum(coverage.calls.values())} storage calls, {events} of them struck; {len(broken)} broken promises"
        )
        print(coverage.summary())
        if SCHEDULES >= MANY:
            print(coverage.table())
    # A second one is often of the same kind; its seed can be run alone.
    others = ", ".join(str(result.seed) for result in broken[1:])
    assert not broken, story(shrink(simulate(broken[0].seed))) + f"\nother seeds: {others}"
    if SCHEDULES >= SOME:
        assert set(coverage.modes) == set(Mode)
        assert coverage.missed_conflicts(_FREQUENT) == []
    if SCHEDULES >= MANY:
        assert coverage.missed_conflicts(_ALL) == []
        assert coverage.missed(commit_calls()) == []


@pytest.mark.timeout(7200)
@pytest.mark.skipif(SEED is not None or not IS_INDEXED, reason="LSM_TABLE=indexes asks for them")
def test_all_indexes_agree_with_the_data_whatever_happens(capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    results = list(run_indexed(range(FIRST, FIRST + SCHEDULES)))
    broken = [result for result in results if result.violation is not None]
    unchecked = [result.seed for result in results if result.commits > 1 and not result.checked.keys() >= _INDEXES]
    checked = sum((result.checked for result in results), Counter[str]())
    with capsys.disabled():
        print(
            f"\n{len(results)} schedules of tables with all indexes in {time.monotonic() - begun:.0f} s: "
            f"{sum(result.commits for result in results)} batches and {sum(result.clusterings for result in results)} "
            f"clusterings; {len(broken)} broken promises, not checked at rest: {unchecked}"
        )
        print(", ".join(f"{name}: {count} times" for name, count in sorted(checked.items())))
        print(Coverage(results).summary())
    others = ", ".join(str(result.seed) for result in broken[1:])
    assert not broken, story(shrink(simulate_indexed(broken[0].seed))) + f"\nother seeds: {others}"
    # Indexes are dropped and made in half of the tables, and some schedules end without one.
    assert len(unchecked) <= len(results) // 5
    if SCHEDULES >= SOME:
        assert min(checked[name] for name in _INDEXES) >= SCHEDULES // 2
        assert Coverage(results).modes.keys() == set(Mode)


@pytest.mark.timeout(3600)
@pytest.mark.skipif(SEED is not None or IS_INDEXED, reason="LSM_SEED asks for one schedule")
def test_services_that_a_restore_has_undone_hold_up_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    results = list(run_undone_services(range(SCHEDULES), FILES))
    broken = [result for result in results if result.violation is not None]
    with capsys.disabled():
        print(f"\n{len(results)} schedules that stop a service of a restored table; {len(broken)} broken promises")
    assert len(results) > SCHEDULES // 5
    assert not broken, story(shrink(broken[0]))


@pytest.mark.skipif(SEED is None, reason="LSM_SEED asks for no schedule")
def test_one_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    result = (simulate_indexed if IS_INDEXED else simulate)(int(SEED or 0), details=True)
    with capsys.disabled():
        print("", *result.lines, sep="\n")
    assert result.violation is None, story(shrink(result))
    for stopped in [] if IS_INDEXED else run_undone_services([result.seed]):
        assert stopped.violation is None, story(shrink(stopped))
