"""The simulator itself: its seeds repeat, and it tells what it finds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from unittest import mock

import pytest

from streaming_lsm.errors import ClusteringConflict, EarlyConflict, WriteConflict
from streaming_lsm.txn import transaction
from tests.support.simulation.aims import aim_of
from tests.support.simulation.model.conflicts import ConflictRules
from tests.support.simulation.model.history import Violation
from tests.support.simulation.running import Result
from tests.support.simulation.schedule import Event, path_kind
from tests.support.simulation.shrinking import shrink, story
from tests.support.simulation.simulate import simulate
from tests.support.simulation.work.batches import Batch, Overwrite
from tests.support.simulation.work.modes import Mode
from tests.support.simulation.work.workload import Workload
from tests.support.small_tables import Row

_REPEATED = (3, 4, 14)
_PROGRAM = "from tests.support.simulation.simulate import simulate; print(simulate({seed}).checksum)"


@pytest.mark.parametrize("seed", _REPEATED)
def test_a_seed_gives_the_same_trace_in_every_process(seed: int) -> None:
    first = simulate(seed)
    assert simulate(seed).lines == first.lines
    # Sets of texts are in another order there.
    other = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(seed=seed)],
        env={**os.environ, "PYTHONHASHSEED": "17", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
        text=True,
    )
    assert int(other.stdout) == first.checksum


def _steps(result: Result) -> list[str]:
    """The trace without how long a stop was to last; what happened says how long it did."""
    return [re.sub(r" \([\d.]+ ms\)$", "", str(line)) for line in result.lines]


@pytest.mark.parametrize("seed", [2, 5])
def test_the_events_that_happened_repeat_a_run(seed: int) -> None:
    drawn = simulate(seed)
    repeated = simulate(seed, events=drawn.events)
    assert drawn.events
    assert repeated.events == drawn.events
    assert _steps(repeated) == _steps(drawn)


def test_a_broken_promise_is_told_by_a_short_schedule() -> None:
    """A promise is broken by two of the events, and one batch, of a run."""
    drawn = next(found for seed in range(100) if len((found := simulate(seed)).events) > 5)
    needed, batch = set(drawn.events[1:5:3]), drawn.workload.actors[0].steps[1].does

    def run(seed: int, *, workload: Workload, events: Sequence[Event], details: bool = False) -> Result:
        does = [step.does for actor in workload.actors for step in actor.steps]
        is_broken = needed <= set(events) and batch in does
        broken = Violation("batch not once", str(batch)) if is_broken else None
        return replace(drawn, workload=workload, events=tuple(events), violation=broken)

    short = shrink(run(drawn.seed, workload=drawn.workload, events=drawn.events), run=run)
    assert set(short.events) == needed
    assert [step.does for actor in short.workload.actors for step in actor.steps] == [batch]
    told = story(short)
    assert told.startswith(f"seed {drawn.seed}: batch not once: {batch}")
    assert all(str(event) in told for event in needed)


def test_without_trouble_all_batches_are_committed() -> None:
    result = simulate(1, mode=Mode.SINGLE_WRITER, events=())
    assert result.violation is None
    assert result.events == ()
    assert result.commits == sum(isinstance(s.does, Batch) for a in result.workload.actors for s in a.steps)


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_a_schedule_strikes_what_it_aims_at(seed: int) -> None:
    aim = aim_of(seed)
    assert aim is not None
    struck = {(method, kind, event.family) for method, kind, event in simulate(seed).struck}
    assert (*aim.call, aim.family) in struck


def test_a_conflict_between_writes_that_may_be_made_at_once_is_a_broken_promise() -> None:
    def refuse(*given: object, **named: object) -> None:
        raise WriteConflict("by another write")

    with mock.patch.object(transaction, "check_conflicts", refuse):
        found = simulate(0, mode=Mode.NON_BLOCKING, events=())
    assert found.violation is not None
    assert found.violation.kind == "made-up conflict"


def test_a_conflict_is_right_where_both_change_a_bucket() -> None:
    rules = ConflictRules(Mode.OPTIMISTIC, buckets=1, is_early=False, is_cow=False)
    one, same, other = (Batch("w0", n, ((f"k{n}", where, 1, 1),)) for n, where in enumerate(("nl", "nl", "de")))
    assert rules.excludes(one, same, frozenset())
    assert not rules.excludes(one, other, frozenset())
    assert rules.complaint(one, same, WriteConflict("")) is None
    assert rules.complaint(one, other, WriteConflict("")) == "batch 2 of w0 is in other buckets"
    assert rules.complaint(one, same, EarlyConflict("")) == "early detection is off"
    assert rules.complaint(one, None, ClusteringConflict("")) == "no file group was replaced since it was planned"
    assert rules.complaint(one, None, ClusteringConflict(""), is_replaced=True) is None


def test_a_conflict_is_right_where_keys_are_looked_up_in_all_partitions() -> None:
    rules = ConflictRules(Mode.OPTIMISTIC, buckets=0, is_early=False, is_cow=False, is_global=True)
    one, other, none = (Batch("w0", n, rows) for n, rows in enumerate(((_row("nl"),), (_row("de"),), ())))
    assert rules.excludes(one, other, frozenset())
    assert not rules.excludes(one, other, frozenset(), without=frozenset({"de"}))
    assert not rules.excludes(one, none, frozenset())
    assert rules.complaint(one, other, WriteConflict("")) is None
    assert rules.complaint(one, none, WriteConflict("")) == "batch 2 of w0 is in other buckets"


def test_new_keys_may_stay_in_file_groups_of_their_own_beside_a_partition_that_is_deleted() -> None:
    batch, deletion = Batch("w0", 0, (_row("nl"),)), Batch("w1", 0, overwrite=Overwrite.DELETED, deleted="nl")
    rules = ConflictRules(Mode.OPTIMISTIC, buckets=0, is_early=False, is_cow=False)
    filled = frozenset({("nl", 0)})
    assert rules.excludes(batch, deletion, filled)
    begins = replace(rules, begins_groups=True)
    assert not begins.excludes(batch, deletion, filled)
    assert begins.excludes(batch, deletion, filled, updated=frozenset({"nl"}))


def test_a_conflict_with_a_clustering_is_right_where_a_write_changes_its_file_groups() -> None:
    rules = ConflictRules(Mode.OPTIMISTIC, buckets=0, is_early=False, is_cow=False)
    batch = Batch("w0", 0, (_row("nl"),))
    complaint = partial(rules.clustering_complaint, batch, ClusteringConflict(""), is_planned=False, is_later=False)
    assert complaint(["nl"]) is None
    assert complaint(["de"]) == "its file groups are in ['de']"
    assert complaint(["nl"], is_planned=True) == "new keys go to other file groups"
    of_rows = partial(rules.clustering_complaint, batch, WriteConflict(""), ["nl"], is_planned=False)
    assert of_rows(is_later=True) is None
    assert of_rows(is_later=False) == "a clustering changes no row"


def _row(where: str) -> Row:
    return "k1", where, 1, 1


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (".hoodie/lock", "lock"),
        (".hoodie/metadata/.hoodie/timeline/2_3.deltacommit", "metadata table: completed"),
        (".hoodie/timeline/2.inflight", "inflight"),
        (".hoodie/timeline/2.compaction.requested", "requested"),
        (".hoodie/.decisions/2.0.run", "run record"),
        (".hoodie/.decisions/2.compaction.plan.run", "plan record"),
        (".hoodie/.decisions/2.0", "decision"),
        (".hoodie/.temp/2/nl/x.parquet.marker.CREATE", "markers"),
        ("nl/00000000-x-0_0-1-0_2_1.deletes.parquet", "delete log"),
        ("nl/00000000-x-0_0-1-0_2.parquet", "base"),
        ("nl", "folder"),
    ],
)
def test_paths_are_of_kinds(path: str, kind: str) -> None:
    assert path_kind(path) == kind
